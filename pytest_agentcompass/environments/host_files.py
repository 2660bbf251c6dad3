"""Files of a host_process attempt: every path stays inside the attempt's own folder."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import subprocess
from pathlib import Path

from ..errors import EnvironmentGone, SandboxError

__all__ = ["HostFiles", "remove_tree"]

_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # a planted fifo must not make the reader wait


def remove_tree(path: str) -> None:
    """Remove a folder with all in it, also where modes or attributes forbid it; a missing one is fine.

    Raises SandboxError when something stays.
    """
    reason: OSError | None = None
    for remedy in (None, _allow_writing, _lift_attributes):
        if remedy is not None:
            remedy(path)
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            if not os.path.lexists(path):
                return
        except OSError as error:
            reason = error
        else:
            return
    raise SandboxError(f"{path} could not be removed: {reason}; remove it by hand")


def _allow_writing(path: str) -> None:
    """Give the owner all rights on every folder below *path*, from the top so that each can be entered."""
    try:
        os.chmod(path, 0o700)
        with os.scandir(path) as entries:
            folders = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for folder in folders:
        _allow_writing(folder)


def _lift_attributes(path: str) -> None:
    """Take immutable and append-only attributes away (only root can have set them)."""
    tool = shutil.which("chattr")
    if tool is not None:
        subprocess.run([tool, "-R", "-f", "-ia", path], capture_output=True, stdin=subprocess.DEVNULL, check=False)


class HostFiles:
    """Reads and writes below *box*; relative paths start at *work*.

    Links are followed only to what is inside of *box* too, so that nobody reads or overwrites another
    file of this machine by mistake or by a planted link.
    """

    def __init__(self, box: str, work: str, *, byte_limit: int, file_limit: int) -> None:
        self.box = os.path.realpath(box)
        self.work = work
        self._byte_limit = byte_limit
        self._file_limit = file_limit

    def resolve(self, path: str, *, follow: bool = True) -> str:
        """Return the real path of *path*; without *follow* a link at its very end stays unresolved.

        Raises SandboxError for a path outside of the attempt's folder, EnvironmentGone when that has vanished.
        """
        if not path or "\0" in path:
            raise SandboxError(f"{path!r} is no path")
        whole = os.path.join(self.work, path)
        parent, name = os.path.split(whole.rstrip("/"))
        if follow or name in ("", ".", ".."):
            real = os.path.realpath(whole)
        else:
            real = os.path.join(os.path.realpath(parent), name)
        if real != self.box and not real.startswith(self.box + "/"):
            raise SandboxError(
                f"{path!r} leads to {real!r}, outside of the attempt's folder; environment 'host_process' "
                "touches no other files of this machine (use a path relative to the working directory)"
            )
        if not os.path.isdir(self.box):
            raise EnvironmentGone(f"the attempt's folder {self.box} was removed while the attempt ran")
        return real

    def read(self, path: str, limit: int | None = None) -> bytes:
        """Return the content of a regular file; FileNotFoundError when there is none."""
        fd = self._open_file(path)
        with open(fd, "rb") as stream:
            return stream.read(-1 if limit is None else limit)

    def write(self, path: str, content: bytes, mode: int | None = None) -> None:
        """Write a file at once or not at all; a link at *path* is replaced."""
        target = self._target(path)
        temporary = f"{target[: target.rindex('/')]}/.{secrets.token_hex(6)}.part"
        try:
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            with open(fd, "wb") as stream:
                stream.write(content)
                os.fchmod(fd, 0o644 if mode is None else mode)
            os.replace(temporary, target)
        except OSError as error:
            _unlink(temporary)
            raise SandboxError(f"{path!r} could not be written: {error.strerror or error}") from error

    def upload(self, src: str, dst: str, mode: int | None = None) -> None:
        """Copy the local file *src* to *dst* with its mode (or *mode*)."""
        try:
            rights = stat.S_IMODE(os.stat(src).st_mode) & 0o777
            content = Path(src).read_bytes()
        except OSError as error:
            raise SandboxError(f"local file {src!r} cannot be read: {error.strerror or error}") from error
        self.write(dst, content, rights if mode is None else mode)

    def upload_dir(self, src: str, dst: str) -> None:
        """Copy the contents of the local folder *src*, links as links, into *dst*."""
        if not os.path.isdir(src):
            raise SandboxError(f"local folder {src!r} does not exist")
        self._upload_into(src, self._folder(dst))

    def download(self, src: str, dst: str) -> None:
        """Copy a regular file to the local path *dst*."""
        fd = self._open_file(src)
        with open(fd, "rb") as source, open(dst, "wb") as target:
            shutil.copyfileobj(source, target)

    def download_dir(self, src: str, dst: str) -> list[str]:
        """Copy a folder's contents into *dst*; return notes on what was left out (links that lead out, limits)."""
        real = self.resolve(src)
        if not os.path.isdir(real):
            raise FileNotFoundError(f"{src!r} is no folder in the sandbox")
        return _Download(real, self._byte_limit, self._file_limit).run(dst)

    def is_dir(self, path: str) -> bool:
        """Whether *path* is a folder."""
        return os.path.isdir(self.resolve(path))

    def is_file(self, path: str) -> bool:
        """Whether *path* is a regular file."""
        return os.path.isfile(self.resolve(path))

    def reset(self, path: str) -> None:
        """Make *path* an empty folder, whatever stood there."""
        real = self.resolve(path, follow=False)
        if real == self.box or self.work == real or self.work.startswith(real + "/"):
            raise SandboxError(f"{path!r} is the working directory itself and cannot be reset")
        _clear(real)
        try:
            os.makedirs(real)
        except OSError as error:
            raise SandboxError(f"folder {path!r} could not be made: {error.strerror or error}") from error

    def _open_file(self, path: str) -> int:
        real = self.resolve(path)
        try:
            fd = os.open(real, _OPEN)
        except (FileNotFoundError, NotADirectoryError):
            raise FileNotFoundError(f"{path!r} is not in the sandbox") from None
        except OSError as error:
            raise SandboxError(f"{path!r} cannot be read: {error.strerror or error}") from error
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise SandboxError(f"{path!r} is no regular file")
        return fd

    def _target(self, path: str) -> str:
        real = self.resolve(path, follow=False)
        if os.path.isdir(real) and not os.path.islink(real):
            raise SandboxError(f"{path!r} is a folder, not a file")
        try:
            os.makedirs(os.path.dirname(real), exist_ok=True)
        except OSError as error:
            raise SandboxError(f"the folder of {path!r} could not be made: {error.strerror or error}") from error
        return real

    def _folder(self, path: str) -> str:
        real = self.resolve(path, follow=False)
        try:
            if os.path.islink(real):
                os.unlink(real)
            os.makedirs(real, exist_ok=True)
        except OSError as error:
            raise SandboxError(f"folder {path!r} could not be made: {error.strerror or error}") from error
        return real

    def _upload_into(self, src: str, dst: str) -> None:
        with os.scandir(src) as entries:
            for entry in sorted(entries, key=lambda item: item.name):
                target = f"{dst}/{entry.name}"
                if entry.is_symlink():
                    _clear(target)
                    os.symlink(os.readlink(entry.path), target)
                elif entry.is_dir():
                    self._upload_into(entry.path, self._folder(target))
                    os.chmod(target, stat.S_IMODE(entry.stat().st_mode) & 0o777 | 0o700)
                elif entry.is_file():
                    self.upload(entry.path, target)


class _Download:
    """Copies one folder out of an attempt, within limits."""

    def __init__(self, root: str, byte_limit: int, file_limit: int) -> None:
        self._root = root
        self._bytes = byte_limit
        self._files = file_limit
        self._notes: list[str] = []

    def run(self, dst: str) -> list[str]:
        self._folder(self._root, dst)
        return self._notes

    def _folder(self, src: str, dst: str) -> None:
        os.makedirs(dst, exist_ok=True)
        try:
            with os.scandir(src) as entries:
                found = sorted(entries, key=lambda item: item.name)
        except OSError as error:
            self._note(src, f"cannot be read: {error.strerror or error}")
            return
        for entry in found:
            self._entry(entry, f"{dst}/{entry.name}")

    def _entry(self, entry: os.DirEntry[str], target: str) -> None:
        try:
            if entry.is_symlink():
                self._link(entry.path, target)
            elif entry.is_dir(follow_symlinks=False):
                self._folder(entry.path, target)
            elif entry.is_file(follow_symlinks=False):
                self._file(entry.path, target)
            else:
                self._note(entry.path, "is neither file, folder nor link")
        except OSError as error:
            self._note(entry.path, f"cannot be copied: {error.strerror or error}")

    def _link(self, path: str, target: str) -> None:
        goal = os.readlink(path)
        real = os.path.realpath(path)
        if os.path.isabs(goal) or not (real == self._root or real.startswith(self._root + "/")):
            self._note(path, "is a link that leads out of the folder")
        else:
            os.symlink(goal, target)

    def _file(self, path: str, target: str) -> None:
        fd = os.open(path, _OPEN | os.O_NOFOLLOW)
        with open(fd, "rb") as source:
            info = os.fstat(fd)
            if info.st_size > self._bytes or self._files < 1:
                self._note(path, "is beyond the limit of bytes or files for artifacts")
                return
            self._bytes -= info.st_size
            self._files -= 1
            with open(target, "wb") as sink:
                remaining = info.st_size  # a file that grows meanwhile is copied as it was
                while remaining and (data := source.read(min(remaining, 1 << 20))):
                    sink.write(data)
                    remaining -= len(data)
                os.fchmod(sink.fileno(), stat.S_IMODE(info.st_mode) & 0o777 | 0o600)

    def _note(self, path: str, reason: str) -> None:
        self._notes.append(f"{os.path.relpath(path, self._root)!r} {reason}; left out")


def _clear(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        remove_tree(path)
    else:
        _unlink(path)


def _unlink(path: str) -> None:
    try:
        Path(path).unlink(missing_ok=True)
    except OSError as error:
        raise SandboxError(f"{path!r} could not be removed: {error.strerror or error}") from error
