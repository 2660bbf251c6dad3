"""Who works in a run directory: the run's lock and the claims of single attempts.

Both are `flock` locks, which the operating system frees when their process dies, however it dies.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..components.owner import boot_id, host_name, owner_alive, process_start_time
from ..errors import ResultsError
from .files import json_row, parse_json, remove_temporary

__all__ = ["Claim", "RunLock", "acquire", "claim", "in_use", "is_claimed", "lock_owner"]

_LOCK = "run.lock"
_JOINED = "run.joined"
_CLAIM = "claim"
_OWNER_BYTES = 4096


@dataclass(slots=True)
class RunLock:
    """A hold on a run directory; *owned* is false when it was joined. Released at exit at the latest."""

    path: Path
    owned: bool
    taken_over: str = ""
    _handle: int = -1
    _pid: int = 0

    def release(self) -> None:
        """Give the directory free; harmless when done twice or in a forked child."""
        if self._handle < 0 or self._pid != os.getpid():
            return
        handle, self._handle = self._handle, -1
        atexit.unregister(self.release)
        if self.owned:
            os.ftruncate(handle, 0)
        os.close(handle)

    def __enter__(self) -> RunLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def acquire(run: Path, *, join: bool = False) -> RunLock:
    """Take the run directory *run* for this process, or share it with its owner when *join* is true.

    ResultsError naming pid, host and time of the holder when another process works in it. The lock of a
    dead process of this machine is taken over (`taken_over` says whose); that of another machine is
    not, since nobody here can tell whether its process lives.
    """
    if join:
        return _join(run)
    handle = _open(run / _LOCK)
    try:
        if not _try_lock(handle, fcntl.LOCK_EX):
            raise ResultsError(_refusal(run, _patient_owner(run)), **_owner_data(lock_owner(run)))
        before = _read_owner(handle)
        if before and before.get("host") != host_name():
            raise ResultsError(_foreign(run, before), **_owner_data(before))
        _refuse_joined(run)
        _write_owner(handle)
    except BaseException:
        os.close(handle)
        raise
    return _held(run, handle, owned=True, taken_over=_name(before) if before else "")


def _join(run: Path) -> RunLock:
    handle = _open(run / _JOINED)
    _try_lock(handle, fcntl.LOCK_SH)
    return _held(run, handle, owned=False)


def _held(run: Path, handle: int, *, owned: bool, taken_over: str = "") -> RunLock:
    lock = RunLock(run, owned, taken_over, handle, os.getpid())
    atexit.register(lock.release)
    return lock


def _refuse_joined(run: Path) -> None:
    """Refuse when a process that joined is still at work although the owner has gone."""
    handle = _open(run / _JOINED)
    try:
        if not _try_lock(handle, fcntl.LOCK_EX):
            raise ResultsError(f"{run} is in use by a process that joined the run; wait until it ends, or join it too")
    finally:
        os.close(handle)


def lock_owner(run: Path) -> dict[str, Any]:
    """Return what the lock tells of its owner (pid, host, boot, start, since); empty when it is free."""
    try:
        handle = os.open(run / _LOCK, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return {}
    try:
        return _read_owner(handle)
    finally:
        os.close(handle)


def in_use(run: Path) -> bool:
    """Whether a process works in the run; True also where its owner is on another machine, which nobody can see."""
    owner = lock_owner(run)
    return bool(owner) and _alive(owner)


def _patient_owner(run: Path) -> dict[str, Any]:
    """Return the owner, waiting for one who has just taken the lock and not signed yet."""
    for _ in range(20):
        owner = lock_owner(run)
        if owner:
            return owner
        time.sleep(0.01)
    return {}


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        raise ResultsError(f"{path}: cannot be opened: {error.strerror}", path=str(path)) from error


def _try_lock(handle: int, kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise ResultsError(
            f"the results directory's file system has no locks ({error.strerror}); choose another"
        ) from error
    return True


def _read_owner(handle: int) -> dict[str, Any]:
    try:
        owner = parse_json(os.pread(handle, _OWNER_BYTES, 0))
    except (OSError, ValueError):
        return {}
    return owner if isinstance(owner, dict) else {}


def _write_owner(handle: int) -> None:
    since = datetime.now(UTC).isoformat(timespec="seconds")
    owner = {"pid": os.getpid(), "host": host_name(), "boot": boot_id(), "start": process_start_time(), "since": since}
    os.ftruncate(handle, 0)
    os.pwrite(handle, json_row(owner).encode(), 0)


def _owner_data(owner: dict[str, Any]) -> dict[str, Any]:
    return {"owner": owner}


def _name(owner: dict[str, Any]) -> str:
    return f"process {owner.get('pid', '?')} on host {owner.get('host', '?')}, since {owner.get('since', '?')}"


def _refusal(run: Path, owner: dict[str, Any]) -> str:
    if not owner:
        return f"{run} is in use by another process; wait until it ends, or give this run an id of its own"
    if not _alive(owner):
        return (
            f"{run} is locked by what {_name(owner)}, left behind: that process is gone, but a child of it still runs. "
            "End the child, or give this run an id of its own"
        )
    return f"{run} is in use by {_name(owner)}; wait until it ends, or give this run an id of its own"


def _foreign(run: Path, owner: dict[str, Any]) -> str:
    return (
        f"{run} was left in use by {_name(owner)}; this host ({host_name()}) cannot see whether that process lives. "
        f"Give this run an id of its own, or delete {run / _LOCK} when you know that it has ended"
    )


def _alive(owner: dict[str, Any]) -> bool:
    pid, start, boot, host = (owner.get(key) for key in ("pid", "start", "boot", "host"))
    return type(pid) is not int or owner_alive(pid, str(start or ""), str(boot or ""), str(host or ""))


@dataclass(slots=True)
class Claim:
    """The right to make one attempt; ends with `release` or with the process."""

    path: Path
    _handle: int = -1

    def release(self) -> None:
        """Let others claim the attempt; harmless when done twice."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)

    def __enter__(self) -> Claim:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def claim(attempt_dir: Path) -> Claim | None:
    """Claim the attempt whose directory is *attempt_dir* (made when missing); None when another holds it.

    Whoever gets the claim must look for a finished record once more: the one before may have written it.
    """
    path = attempt_dir / _CLAIM
    try:
        handle = _open_claim(path)
    except OSError as error:
        raise ResultsError(f"{path}: the attempt cannot be claimed: {error.strerror}", path=str(path)) from error
    try:
        if _patient_lock(handle):
            remove_temporary(attempt_dir)
            return Claim(path, handle)
    except BaseException:
        os.close(handle)
        raise
    os.close(handle)
    return None


def _open_claim(path: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
    try:
        return os.open(path, flags, 0o644)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, flags, 0o644)


def _patient_lock(handle: int) -> bool:
    """Lock *handle*, outlasting `is_claimed`, which holds the lock for an instant when it looks."""
    for pause in (0.002, 0.005, 0.01, 0.02):
        if _try_lock(handle, fcntl.LOCK_EX):
            return True
        time.sleep(pause)
    return _try_lock(handle, fcntl.LOCK_EX)


def is_claimed(attempt_dir: Path) -> bool:
    """Whether somebody holds the claim of the attempt now."""
    try:
        handle = os.open(attempt_dir / _CLAIM, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        return not _try_lock(handle, fcntl.LOCK_SH)
    finally:
        os.close(handle)
