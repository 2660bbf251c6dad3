"""Files that are whole or not there: atomic writes, guarded reads, locks between processes."""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from ..errors import ResultsError

__all__ = [
    "Stamp",
    "json_bytes",
    "json_row",
    "keep_copy",
    "locked",
    "parse_json",
    "read_bytes",
    "read_file",
    "remove_temporary",
    "stamp",
    "write_atomic",
]

Stamp = tuple[int, int, int, int]  # inode, size, times of content and of state

_READ_CAP = 1 << 30  # bytes; a file of ours is never near this
_PIECE = 1 << 16
_TEMPORARY = re.compile(r"\..*\.[0-9a-f]{12}\.tmp")
_row = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode
_readable = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def json_row(value: Any) -> str:
    """Return *value* as one line of strict ASCII JSON; lone surrogates survive as escapes."""
    return _row(value)


def json_bytes(value: Any) -> bytes:
    """Return *value* as one line of strict UTF-8 JSON with its newline; *value* holds valid text only."""
    return _readable(value).encode("utf-8") + b"\n"


def parse_json(raw: bytes | str) -> Any:
    """Return the value of strict JSON; ValueError for anything else, NaN, infinities and overflow included."""
    try:
        text = raw.decode("utf-8") if isinstance(raw, bytes) else raw
        return _decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _refuse(token: str) -> NoReturn:
    raise ValueError(f"{token} is not JSON")


def _finite(token: str) -> float:
    value = float(token)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"{token} is too large for a number")
    return value


_decode = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite).decode


def write_atomic(path: Path, content: bytes | Iterable[bytes], *, sync: bool = True, sync_name: bool = True) -> None:
    """Write *path* so that it holds all of *content* (or of its parts) or what it held before, also after a crash.

    Without *sync_name* a power cut may take the new name back for the few seconds until the file system writes
    its journal; without *sync* also the content (the death of this process loses neither). Missing parents are
    made. ResultsError, naming path and cause, when it cannot be written.
    """
    parts = [content] if isinstance(content, bytes) else content
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        try:
            handle = _create(temporary)
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = _create(temporary)
        _fill(handle, parts, sync)
        try:
            os.replace(temporary, path)
        except FileNotFoundError:  # somebody removed the folder this moment
            if not isinstance(content, bytes):
                raise
            path.parent.mkdir(parents=True, exist_ok=True)
            _fill(_create(temporary), [content], sync)
            os.replace(temporary, path)
        if sync and sync_name:
            _sync_directory(path.parent)
    except OSError as error:
        _discard(temporary)
        raise ResultsError(f"{path}: cannot be written: {error.strerror or error}", path=str(path)) from error
    except BaseException:
        _discard(temporary)
        raise


def _fill(handle: int, parts: Iterable[bytes], sync: bool) -> None:
    with open(handle, "wb") as file:
        file.writelines(parts)
        if sync:
            file.flush()
            os.fsync(file.fileno())


def _discard(path: Path) -> None:
    try:
        path.unlink()
    except OSError:
        pass  # never made, or its folder is gone


def _create(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)


def _sync_directory(path: Path) -> None:
    """Make a rename in *path* survive a power cut, where the file system can."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError:
        pass  # some network and FUSE file systems refuse to sync a directory
    finally:
        os.close(handle)


def read_bytes(path: Path) -> bytes:
    """Return what the regular file *path* holds (see `read_file`)."""
    return read_file(path)[0]


def stamp(path: Path) -> Stamp | None:
    """Return what tells this state of the file *path* from any other, None when there is no file."""
    try:
        return _stamp(os.stat(path, follow_symlinks=False))
    except OSError:
        return None


def _stamp(state: os.stat_result) -> Stamp:
    return state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns


def read_file(path: Path) -> tuple[bytes, Stamp]:
    """Return what the regular file *path* holds, and its `stamp`.

    FileNotFoundError when there is none; ValueError for what is no plain file (a link, a pipe that
    would block the reader) or is impossibly large; other OSErrors as they come.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError as error:
        if path.is_symlink():
            raise ValueError("is a link") from error
        raise
    try:
        state = os.fstat(handle)
        if not stat.S_ISREG(state.st_mode) or state.st_size > _READ_CAP:
            raise ValueError("is not a plain file" if state.st_size <= _READ_CAP else "is too large")
        parts = [os.read(handle, state.st_size + 1)]
        while parts[-1]:  # it may have grown, or come in pieces
            parts.append(os.read(handle, _PIECE))
        return b"".join(parts), _stamp(state)
    finally:
        os.close(handle)


def keep_copy(path: Path, folder: Path) -> Path | None:
    """Keep what *path* holds now as `<folder>/<n>.json`, the lowest free n; None when *path* is gone.

    What is no plain file is moved there as it is, as `<n>.odd`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        kept = folder / f"{number}.json"
        try:
            os.link(path, kept, follow_symlinks=False)
            return kept
        except FileExistsError:
            number += 1
        except FileNotFoundError:
            return None
        except OSError:  # a file system without hard links
            try:
                write_atomic(kept, read_bytes(path))
            except ValueError:
                return _put_aside(path, folder)
            return kept


def _put_aside(path: Path, folder: Path) -> Path:
    """Move what is no plain file (a folder, a link, a pipe) to `<folder>/<n>.odd`: it would bar the way for good."""
    number = 1
    while os.path.lexists(aside := folder / f"{number}.odd"):
        number += 1
    os.rename(path, aside)
    return aside


def remove_temporary(folder: Path) -> None:
    """Remove what a killed writer left in *folder*; only for whoever has it for itself."""
    for entry in os.scandir(folder):
        if _TEMPORARY.fullmatch(entry.name):
            Path(entry.path).unlink(missing_ok=True)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the exclusive lock of the file *path*, waiting for it; made when missing, never removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)  # also gives the lock up
