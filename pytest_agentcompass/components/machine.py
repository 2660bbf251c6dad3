"""What all processes of one user on this machine share: a private folder, locks, small values in files.

Locks are `flock` locks: the kernel frees them when their holder dies, however it dies. Times in shared
values are `time.monotonic()`, which counts for all processes alike since the boot.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import SetupError
from .owner import boot_id

__all__ = ["SharedValue", "private_dir", "safe_name", "try_lock"]

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def private_dir(environ: Mapping[str, str] | None = None) -> Path:
    """Return this user's folder for what processes share at run time, made with mode 0700.

    It is `agentcompass` below XDG_RUNTIME_DIR, else below /run/user/<uid>, else
    `agentcompass-runtime-<uid>` in the system's folder for temporary files. SetupError for one that is
    not this user's own.
    """
    given = (os.environ if environ is None else environ).get("XDG_RUNTIME_DIR")
    for base in filter(None, (given, f"/run/user/{os.getuid()}")):
        if os.path.isabs(base) and os.access(base, os.W_OK | os.X_OK):
            return _own(Path(base) / "agentcompass")
    return _own(Path(tempfile.gettempdir()) / f"agentcompass-runtime-{os.getuid()}")


def _own(folder: Path) -> Path:
    folder.mkdir(mode=0o700, exist_ok=True)
    status = os.lstat(folder)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise SetupError(f"{folder} is not a folder of this user; remove it, or set XDG_RUNTIME_DIR")
    if status.st_mode & 0o077:
        folder.chmod(0o700)
    return folder


def safe_name(text: str) -> str:
    """Return a short file name for *text*: readable, and another one for every other text."""
    readable = _UNSAFE.sub("-", text).strip("-.")[:40]
    return f"{readable or 'x'}-{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"


@contextmanager
def try_lock(path: Path) -> Iterator[bool]:
    """Hold the lock of *path* (made when missing) if nobody else does; yields whether it is held."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(handle)


class SharedValue:
    """A small JSON mapping in a file that several processes read and change, one change at a time.

    A value of another boot counts as empty. Changes are short; a reader may look at any time.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, Any]:
        """Return the value; empty when there is none or it is torn."""
        try:
            return _parse(self.path.read_bytes())
        except FileNotFoundError:
            return {}

    def update(self, change: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
        """Replace the value by `change(value)`, alone; waits for others, who are done in an instant."""
        try:
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except FileNotFoundError:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            value = change(_parse(os.pread(handle, 65536, 0)))
            content = json.dumps({**value, "boot": boot_id()}).encode()
            os.pwrite(handle, content, 0)
            os.ftruncate(handle, len(content))
        finally:
            os.close(handle)
        return value


def _parse(raw: bytes) -> dict[str, Any]:
    try:
        value = json.loads(raw)
    except ValueError:
        return {}
    return value if isinstance(value, dict) and value.pop("boot", None) == boot_id() else {}
