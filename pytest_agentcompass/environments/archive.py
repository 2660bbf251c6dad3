"""Tar archives between the host and sandboxes: building them, and extracting those of strangers.

An archive out of a sandbox is untrusted: it may name paths outside of the destination, hold
links, devices, set-uid programs, impossible names, or more data than the disk has. Extraction
keeps the good members, leaves out the rest and returns one note for each thing left out.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import stat
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

__all__ = ["Limits", "Ownership", "extract_tar", "pack_bytes", "pack_file", "pack_tree", "safe_name"]

_SPOOL_BYTES = 32_000_000
_CHUNK = 1 << 20
_MAX_NOTES = 100


@dataclass(frozen=True, slots=True)
class Limits:
    """What an extraction may write: bytes of content, and members of any kind."""

    max_bytes: int = 1_000_000_000
    max_files: int = 100_000


@dataclass(frozen=True, slots=True)
class Ownership:
    """Who owns packed members; *readable* adds read (and folder search) permission for everybody."""

    uid: int = 0
    gid: int = 0
    readable: bool = False


def safe_name(name: str) -> str:
    """Return *name* with control characters, `%` and undecodable bytes as `%XX`: printable and reversible."""
    return "".join(
        char if char.isprintable() and char != "%" else "".join(f"%{byte:02X}" for byte in os.fsencode(char))
        for char in name
    )


def _is_plain(name: str) -> bool:
    return name.isprintable()


# ---------------------------------------------------------------- building


def _info(name: str, status: os.stat_result, owner: Ownership) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.uid, info.gid = owner.uid, owner.gid
    info.mtime = int(status.st_mtime)
    info.mode = stat.S_IMODE(status.st_mode)
    if owner.readable:
        info.mode |= 0o555 if stat.S_ISDIR(status.st_mode) else 0o444
    return info


def _spool(size: int) -> IO[bytes]:
    return io.BytesIO() if size <= _SPOOL_BYTES else tempfile.TemporaryFile()


def _open_tar(target: IO[bytes]) -> tarfile.TarFile:
    # The GNU format writes names as the bytes that they are, UTF-8 or not.
    return tarfile.open(fileobj=target, mode="w", format=tarfile.GNU_FORMAT, encoding="utf-8", errors="surrogateescape")


def _parent_members(parents: tuple[str, ...], owner: Ownership) -> Iterator[tarfile.TarInfo]:
    for name in parents:
        info = tarfile.TarInfo(name)
        info.type, info.mode, info.uid, info.gid = tarfile.DIRTYPE, 0o755, owner.uid, owner.gid
        info.mtime = int(time.time())
        yield info


def pack_bytes(
    name: str, content: bytes, owner: Ownership, *, mode: int = 0o644, parents: tuple[str, ...] = ()
) -> IO[bytes]:
    """Return an archive of one regular file; *parents* are folders to make before it."""
    target = _spool(len(content))
    with _open_tar(target) as tar:
        for parent in _parent_members(parents, owner):
            tar.addfile(parent)
        info = tarfile.TarInfo(name)
        info.size, info.mode, info.uid, info.gid = len(content), mode, owner.uid, owner.gid
        info.mtime = int(time.time())
        tar.addfile(info, io.BytesIO(content))
    target.seek(0)
    return target


def pack_file(
    src: Path, name: str, owner: Ownership, *, mode: int | None = None, parents: tuple[str, ...] = ()
) -> IO[bytes]:
    """Return an archive of the local file *src*, called *name* in it; OSError when it cannot be read."""
    with open(src, "rb") as source:
        status = os.fstat(source.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise IsADirectoryError(f"{src} is no regular file")
        target = _spool(status.st_size)
        with _open_tar(target) as tar:
            for parent in _parent_members(parents, owner):
                tar.addfile(parent)
            info = _info(name, status, owner)
            info.size = status.st_size
            if mode is not None:
                info.mode = mode
            tar.addfile(info, source)
    target.seek(0)
    return target


def pack_tree(
    src: Path,
    owner: Ownership,
    *,
    prefix: str = "",
    parents: tuple[str, ...] = (),
    keep: Callable[[str], bool] | None = None,
    root: bool = False,
    extra: dict[str, bytes] | None = None,
) -> IO[bytes]:
    """Return an archive of the contents of the local folder *src*, in sorted order, under *prefix*.

    Links stay links, dangling ones too. *keep* chooses by path relative to *src*. With *root* the
    folder itself is the first member (so that a link in its place is replaced). *extra* files are added.
    Raises OSError for what cannot be read and for sockets, pipes and devices.
    """
    entries = [entry for entry in _walk(src, "") if keep is None or keep(entry[0])]
    target = _spool(sum(status.st_size for _, _, status in entries if stat.S_ISREG(status.st_mode)))
    with _open_tar(target) as tar:
        for parent in _parent_members(parents, owner):
            tar.addfile(parent)
        if root:
            info = _info(prefix, os.stat(src), owner)
            info.type = tarfile.DIRTYPE
            tar.addfile(info)
        for relative, path, status in entries:
            _add(tar, f"{prefix}/{relative}" if prefix else relative, path, status, owner)
        for name, content in (extra or {}).items():
            info = tarfile.TarInfo(name)
            info.size, info.uid, info.gid = len(content), owner.uid, owner.gid
            tar.addfile(info, io.BytesIO(content))
    target.seek(0)
    return target


def _walk(folder: Path, relative: str) -> Iterator[tuple[str, str, os.stat_result]]:
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: os.fsencode(entry.name))
    for entry in entries:
        name = f"{relative}/{entry.name}" if relative else entry.name
        yield name, entry.path, entry.stat(follow_symlinks=False)
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(Path(entry.path), name)


def _add(tar: tarfile.TarFile, name: str, path: str, status: os.stat_result, owner: Ownership) -> None:
    info = _info(name, status, owner)
    if stat.S_ISLNK(status.st_mode):
        info.type, info.linkname = tarfile.SYMTYPE, os.readlink(path)
        tar.addfile(info)
    elif stat.S_ISDIR(status.st_mode):
        info.type = tarfile.DIRTYPE
        tar.addfile(info)
    elif stat.S_ISREG(status.st_mode):
        with open(path, "rb") as source:
            info.size = os.fstat(source.fileno()).st_size
            tar.addfile(info, source)
    else:
        raise OSError(f"{path} is a pipe, a socket or a device and cannot be copied")


# ---------------------------------------------------------------- extracting


@dataclass(slots=True)
class _Extraction:
    dest: Path
    limits: Limits
    strip: int
    notes: list[str] = field(default_factory=list)
    written: int = 0
    skipped: int = 0
    members: int = 0
    dropped: int = 0

    def note(self, name: str, reason: str) -> None:
        if len(self.notes) < _MAX_NOTES:
            self.notes.append(f"{safe_name(name)[:300]}: {reason}")
        else:
            self.dropped += 1


def extract_tar(source: IO[bytes], dest: Path, limits: Limits | None = None, *, strip: int = 0) -> list[str]:
    """Extract the tar stream *source* into the folder *dest* and return notes on what was left out.

    Nothing is ever written outside of *dest* and no link is followed. Kept: regular files, folders,
    links that stay inside; set-uid bits are stripped and the owner can read and write everything.
    *strip* leading path components are dropped from names. Members over the limits are left out; where
    skipping them would mean reading more than `max_bytes` again, the rest of the archive is left out.
    An archive that ends early keeps what came. OSError of *source* itself is passed on.
    """
    dest.mkdir(parents=True, exist_ok=True)
    state = _Extraction(dest, limits or Limits(), strip)
    try:
        with tarfile.open(
            fileobj=source, mode="r|", encoding="utf-8", errors="surrogateescape", bufsize=256 * 1024
        ) as tar:
            for member in tar:
                tar.members = []  # type: ignore[attr-defined]  # a stream keeps every member in memory otherwise
                if not _take(state, tar, member):
                    break
    except tarfile.TarError as error:
        state.notes.append(f"the archive ends early or is damaged: {error}")
    if state.dropped:
        state.notes.append(f"and {state.dropped} more")
    return state.notes


def _take(state: _Extraction, tar: tarfile.TarFile, member: tarfile.TarInfo) -> bool:
    """Handle one member; false when the rest of the archive is to be left out."""
    if state.members >= state.limits.max_files:
        state.notes.append(f"the rest was left out: more than {state.limits.max_files} files")
        return False
    if member.isreg() and state.written + member.size > state.limits.max_bytes:
        state.note(member.name, f"left out: {member.size} bytes are over the limit of {state.limits.max_bytes} in all")
        state.skipped += member.size
        if state.skipped > state.limits.max_bytes:
            state.notes.append("the rest was left out: too much data")
            return False
        return True
    parts = _parts(state, member)
    if parts:
        state.members += 1
        try:
            _place(state, tar, member, parts)
        except OSError as error:
            state.note(member.name, f"left out: {error.strerror or error}")
    return True


def _parts(state: _Extraction, member: tarfile.TarInfo) -> list[str] | None:
    """Return where under the destination *member* goes; None when nowhere."""
    parts = [part for part in member.name.split("/") if part not in ("", ".")]
    if ".." in parts or (member.name.startswith("/") and not state.strip):
        state.note(member.name, "left out: the name points out of the folder")
        return None
    parts = parts[state.strip :]
    if not parts:
        return None
    if not all(_is_plain(part) for part in parts):
        kept = [part if _is_plain(part) else safe_name(part) for part in parts]
        state.note(member.name, f"the name is not printable; kept as {'/'.join(kept)}")
        return kept
    return parts


def _place(state: _Extraction, tar: tarfile.TarFile, member: tarfile.TarInfo, parts: list[str]) -> None:
    parent = _real_folder(state.dest, parts[:-1])
    if parent is None:
        state.note(member.name, "left out: it lies behind a link or a file")
        return
    path = parent / parts[-1]
    if member.isdir():
        _place_folder(state, member, path)
    elif member.isreg():
        _place_file(state, tar, member, path)
    elif member.issym():
        _place_symlink(state, member, path, depth=len(parts) - 1)
    elif member.islnk():
        _place_hardlink(state, member, path)
    else:
        state.note(member.name, "left out: a pipe or a device")


def _real_folder(dest: Path, parts: list[str]) -> Path | None:
    """Return the folder *parts* under *dest*, made where missing; None when a link or a file is in the way."""
    path = dest
    for part in parts:
        path = path / part
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            path.mkdir()
            continue
        if not stat.S_ISDIR(status.st_mode):
            return None
    return path


def _place_folder(state: _Extraction, member: tarfile.TarInfo, path: Path) -> None:
    with contextlib.suppress(FileExistsError):
        path.mkdir()
    if not stat.S_ISDIR(os.lstat(path).st_mode):
        state.note(member.name, "left out: something else has this name")
        return
    os.chmod(path, (member.mode & 0o777) | 0o700)


def _clear(state: _Extraction, member: tarfile.TarInfo, path: Path) -> bool:
    """Make room at *path* for a later member of the same name; false when a folder stands there."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return True
    if stat.S_ISDIR(status.st_mode):
        state.note(member.name, "left out: a folder has this name")
        return False
    if path.name not in os.listdir(path.parent):
        state.note(member.name, "left out: on this disk its name is another member's")
        return False
    path.unlink()
    return True


def _place_file(state: _Extraction, tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    if not _clear(state, member, path):
        return
    source: IO[bytes] | None = tar.extractfile(member)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    descriptor = os.open(path, flags, 0o600)
    with os.fdopen(descriptor, "wb") as target:
        if source is not None:
            shutil.copyfileobj(source, target, _CHUNK)
        os.fchmod(target.fileno(), (member.mode & 0o777) | 0o600)
    state.written += member.size
    with contextlib.suppress(OSError, OverflowError):
        os.utime(path, (member.mtime, member.mtime))


def _stays_inside(target: str, depth: int) -> bool:
    """Whether a relative link at *depth* folders stays in the root, whatever other such links there are.

    Only leading `..` are allowed: behind a name they would be taken from where that name leads.
    """
    if not target or target.startswith("/") or "\0" in target:
        return False
    parts = [part for part in target.split("/") if part not in ("", ".")]
    ups = next((index for index, part in enumerate(parts) if part != ".."), len(parts))
    return ups <= depth and ".." not in parts[ups:]


def _place_symlink(state: _Extraction, member: tarfile.TarInfo, path: Path, depth: int) -> None:
    if not _stays_inside(member.linkname, depth):
        state.note(member.name, f"left out: a link that leads outside ({safe_name(member.linkname)[:200]})")
    elif _clear(state, member, path):
        os.symlink(member.linkname, path)


def _place_hardlink(state: _Extraction, member: tarfile.TarInfo, path: Path) -> None:
    parts: list[str] = [part for part in member.linkname.split("/") if part not in ("", ".")]
    outside = ".." in parts or (member.linkname.startswith("/") and not state.strip)
    parts = [part if _is_plain(part) else safe_name(part) for part in parts[state.strip :]]
    source = state.dest.joinpath(*parts)
    if outside or not parts or not _is_regular(state.dest, parts):
        state.note(member.name, f"left out: a hard link to no file of this folder ({safe_name(member.linkname)[:200]})")
        return
    size = os.lstat(source).st_size
    if state.written + size > state.limits.max_bytes:
        state.note(member.name, f"left out: over the limit of {state.limits.max_bytes} bytes in all")
    elif source != path and _clear(state, member, path):
        # A copy: two names of one file would surprise whoever edits one of them.
        shutil.copy2(source, path, follow_symlinks=False)
        state.written += size


def _is_regular(dest: Path, parts: list[str]) -> bool:
    path: Any = dest
    for part in parts[:-1]:
        path = path / part
        if not stat.S_ISDIR(_mode(path)):
            return False
    return stat.S_ISREG(_mode(path / parts[-1]))


def _mode(path: Path) -> int:
    try:
        return os.lstat(path).st_mode
    except OSError:
        return 0
