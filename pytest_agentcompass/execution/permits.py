"""Permits: at most so many holders at once over all processes of one user.

A permit is a file in the pool's folder, `<number>.<limit>.<w|h>.<pid>.<start>`, locked by its process as
long as it waits (w) or holds (h). The kernel frees the lock when the process dies. All looks at the
folder happen under the lock of the file `lock`, for an instant each.

* Fair: whoever queued up first goes first, over all processes. Within a process waiters queue in memory
  and only the first of them looks at the disk.
* Runs with different limits: the smallest limit of those who hold or wait counts, so a run that says 3
  never starts a fourth, and is not passed by a run that says 10. What runs already goes on.
* A dead holder's permit is not free yet where *reclaim* is given: its sandboxes may still live. The
  first in line calls `reclaim` (the provider's sweep of dead owners), then the permit is free.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import random
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from ..components.machine import try_lock
from ..components.owner import owner_alive, process_start_time
from ..errors import AgentCompassError

__all__ = ["Permit", "PermitPool"]

_NAME = re.compile(r"(\d+)\.(\d+)\.([wh])\.(\d+)\.(\w*)")
_LOCK_PAUSE = (0.001, 0.01)  # seconds between tries for the pool's lock, which is held for less
_NEXT_PAUSE = (0.03, 0.1)  # seconds between looks of the first in line
_QUEUE_PAUSE = (0.1, 0.3)  # of all others


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    number: int
    limit: int
    holds: bool
    pid: int
    start: str


@dataclass(slots=True, eq=False)
class Permit:
    """A place in the pool, first waited for and then held; `release` ends either."""

    pool: PermitPool
    name: str
    number: int
    handle: int

    def release(self) -> None:
        """Give the permit back; harmless when done twice."""
        handle, self.handle = self.handle, -1
        if handle >= 0:
            self.pool.leave(self.name, handle)


class PermitPool:
    """The permits of one thing (a provider, an endpoint, a run); *limit* is this process's own word."""

    def __init__(self, folder: Path, limit: int, reclaim: Callable[[], Awaitable[object]] | None = None) -> None:
        self.folder = folder
        self.limit = limit
        self._reclaim = reclaim
        self._front = asyncio.Lock()
        self._freed = asyncio.Event()
        self._mine: set[str] = set()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    async def take(self, on_wait: Callable[[], None] = lambda: None) -> Permit:
        """Return a permit as soon as there is one; *on_wait* is called once when there is none at first."""
        waited = self._front.locked()
        if waited:
            on_wait()
        async with self._front:
            permit = await self._queue_up()
            try:
                while (pause := await self._advance(permit)) is not None:
                    if not waited:
                        on_wait()
                    waited = True
                    await self._rest(pause)
            except BaseException:
                permit.release()
                raise
        return permit

    def held(self) -> int:
        """Return how many permits are held now, those of dead holders that nobody reclaimed included."""
        return sum(entry.holds for entry in self._entries())

    def leave(self, name: str, handle: int) -> None:
        """Take a permit out of the pool (`Permit.release`)."""
        self._mine.discard(name)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.folder / name)
        # A forked child of the user's own may share the file: closing alone would leave it locked.
        fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)
        self._freed.set()

    # -- inside -----------------------------------------------------------------------------

    async def _rest(self, pause: tuple[float, float]) -> None:
        """Wait a moment, or until this process gives a permit back."""
        self._freed.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._freed.wait(), random.uniform(*pause))

    async def _queue_up(self) -> Permit:
        while True:
            with try_lock(self.folder / "lock") as held:
                if held:
                    return self._enter()
            await asyncio.sleep(random.uniform(*_LOCK_PAUSE))

    def _enter(self) -> Permit:
        number = max((entry.number for entry in self._entries()), default=0) + 1
        name = f"{number:08d}.{self.limit}.w.{os.getpid()}.{process_start_time()}"
        handle = os.open(self.folder / name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._mine.add(name)
        return Permit(self, name, number, handle)

    async def _advance(self, permit: Permit) -> tuple[float, float] | None:
        """Make *permit* a held one if it is its turn: None; else return how long to rest before the next look."""
        with try_lock(self.folder / "lock") as held:
            if not held:
                return _LOCK_PAUSE
            entries, lost = self._look()
            ahead = [entry for entry in entries if not entry.holds and entry.number < permit.number]
            if ahead:
                return _QUEUE_PAUSE
            limit = min(entry.limit for entry in entries)
            if sum(entry.holds for entry in entries) < limit:
                self._hold(permit)
                return None
        if lost:
            await self._sweep(lost)
            return _LOCK_PAUSE
        return _NEXT_PAUSE

    def _hold(self, permit: Permit) -> None:
        name = permit.name.replace(".w.", ".h.", 1)
        os.rename(self.folder / permit.name, self.folder / name)
        self._mine.discard(permit.name)
        self._mine.add(name)
        permit.name = name

    def _look(self) -> tuple[list[_Entry], list[_Entry]]:
        """Return what counts, and which of it are dead holders to reclaim; other dead ones are removed."""
        counted, lost = [], []
        for entry in self._entries():
            if entry.name in self._mine or self._is_locked(entry.name):
                counted.append(entry)
            elif entry.holds and owner_alive(entry.pid, entry.start):
                counted.append(entry)  # it is dying: its files are closed, its process still there
            elif entry.holds and self._reclaim is not None:
                counted.append(entry)
                lost.append(entry)
            else:
                self._forget(entry)
        return counted, lost

    def _entries(self) -> list[_Entry]:
        found = []
        for name in sorted(os.listdir(self.folder)):
            match = _NAME.fullmatch(name)
            if match:
                number, limit, state, pid, start = match.groups()
                found.append(_Entry(name, int(number), int(limit), state == "h", int(pid), start))
        return found

    def _is_locked(self, name: str) -> bool:
        try:
            handle = os.open(self.folder / name, os.O_RDWR | os.O_NOFOLLOW)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(handle)
        return False

    async def _sweep(self, lost: list[_Entry]) -> None:
        assert self._reclaim is not None
        try:
            await self._reclaim()
        except AgentCompassError:
            pass  # a provider that cannot be asked opens nothing either: holding its permits back helps nobody
        for entry in lost:
            self._forget(entry)

    def _forget(self, entry: _Entry) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.folder / entry.name)
