"""Finding and ending the processes of one attempt on this machine.

Everything that is started for an attempt carries the environment variable `MARK`; children
inherit it, also those that leave the session or lose their parent. Children that threw their
environment away are found by session, by parent, or by a working folder inside the attempt's.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass

__all__ = ["MARK", "ProcessTree"]

MARK = "AGENTCOMPASS_ATTEMPT_MARK"
_LISTENING_TCP = "0A"
_ACCEPTS = 0x10000  # __SO_ACCEPTCON, the flag of a listening unix socket in /proc/net/unix


@dataclass(frozen=True, slots=True)
class _Process:
    pid: int
    parent: int
    session: int
    terminal: int


@dataclass(slots=True)
class _Session:
    mark: str
    leader_reaped: bool = False


class ProcessTree:
    """The processes of one attempt: hands out marks, finds who carries them, ends them.

    *token* must be unique on the machine. *root* is a folder of the attempt alone: a process
    without a terminal that works in there belongs to the attempt. *adopt* looks also at processes
    that are older than this object (those of a dead owner).
    """

    def __init__(self, token: str, root: str | None = None, *, adopt: bool = False) -> None:
        self.token = token
        self._root = None if root is None else os.path.realpath(root)
        self._count = 0
        self._sessions: dict[int, _Session] = {}
        self._last_pid = _last_pid()
        self._before = frozenset(() if adopt else _pids())

    def watch(self, root: str) -> None:
        """Count what works in the folder *root* (without a terminal) as the attempt's from now on."""
        self._root = os.path.realpath(root)

    def new_mark(self) -> str:
        """Return the mark of the next command."""
        self._count += 1
        return f"{self.token}.{self._count}"

    def started(self, pid: int, mark: str) -> None:
        """Remember that *pid* leads a session of its own."""
        self._sessions[pid] = _Session(mark)

    def reaped(self, pid: int) -> None:
        """Remember that the leader's exit status was taken, so that its pid may return as someone else."""
        if pid in self._sessions:
            self._sessions[pid].leader_reaped = True

    def find(self, mark: str | None = None) -> list[int]:
        """Return the living processes of the command *mark*, or of the whole attempt."""
        pids: list[int] = []
        for _ in range(4):
            pids, vanished = self._scan(mark)
            # What vanished while we looked may have left a child that the listing does not show yet.
            if pids or not vanished:
                break
        return pids

    async def kill(
        self,
        mark: str | None = None,
        *,
        keep_services: bool = False,
        spare: Collection[int] = (),
        seconds: float = 2.0,
    ) -> list[int]:
        """Kill what `find` returns, in rounds, until nothing is left; return what outlived *seconds*.

        With *keep_services* processes that listen on a socket stay, and so do their parents and children.
        Those in *spare* and their descendants stay too.
        """
        deadline = time.monotonic() + seconds
        pause = 0.002
        while pids := self.kill_once(mark, keep_services=keep_services, spare=spare):
            if time.monotonic() > deadline:
                return pids
            await asyncio.sleep(pause)
            pause = min(pause * 2, 0.05)
        return []

    def kill_once(
        self, mark: str | None = None, *, keep_services: bool = False, spare: Collection[int] = ()
    ) -> list[int]:
        """Send SIGKILL once to what `find` returns (without what may stay) and return it."""
        pids = self.find(mark)
        if pids and (keep_services or spare):
            stay = self.services(pids) if keep_services else set()
            stay |= _with_descendants(set(pids) & set(spare), pids)
            pids = [pid for pid in pids if pid not in stay]
        for pid in pids:
            _kill(pid)
        return pids

    def services(self, pids: Iterable[int]) -> set[int]:
        """Return those of *pids* that listen on a TCP or unix socket, with their parents and children."""
        mine = set(pids)
        sockets = _listening_sockets()
        chosen = {pid for pid in mine if sockets & _sockets_of(pid)}
        if not chosen:
            return set()
        parents = _parents(mine)
        for pid in tuple(chosen):
            chosen.update(item for item in _ancestors(pid, parents) if item in mine)
        return _with_descendants(chosen, mine)

    def _scan(self, mark: str | None) -> tuple[list[int], bool]:
        needle = f"{MARK}={mark}\0" if mark else f"{MARK}={self.token}."
        wanted = needle.encode()
        found: set[int] = set()
        rest: list[_Process] = []
        vanished = False
        for pid in self._new_pids():
            environment = _read(f"/proc/{pid}/environ")
            if environment is not None and wanted in environment:
                found.add(pid)
            elif (item := _stat(pid)) is not None:
                rest.append(item)
            else:
                vanished = vanished or not os.path.exists(f"/proc/{pid}")
        found.update(item.pid for item in rest if self._belongs(item, mark))
        while extra := {item.pid for item in rest if item.parent in found} - found:
            found |= extra
        return sorted(found), vanished

    def _new_pids(self) -> list[int]:
        """Return the pids that did not exist when the tree was made (all, once the counter has wrapped)."""
        own = os.getpid()
        pids = _pids()
        before = self._before if _last_pid() >= self._last_pid else frozenset()
        fresh = [pid for pid in pids if pid not in before and pid != own]
        alive = set(pids)
        for pid in [pid for pid, item in self._sessions.items() if item.leader_reaped and pid in alive]:
            del self._sessions[pid]  # the number was given to a stranger, so no member of the session is left
        return fresh

    def _belongs(self, item: _Process, mark: str | None) -> bool:
        session = self._sessions.get(item.session)
        if session is not None:
            return mark is None or session.mark == mark
        if self._root is None or item.terminal:
            return False
        try:
            folder = os.readlink(f"/proc/{item.pid}/cwd")
        except OSError:
            return False
        if folder != self._root and not folder.startswith(self._root + "/"):
            return False
        # Another command's process keeps its own mark; one without any mark threw its environment away.
        return mark is None or f"{MARK}={self.token}.".encode() not in (_read(f"/proc/{item.pid}/environ") or b"")


def _ancestors(pid: int, parents: dict[int, int]) -> Iterable[int]:
    seen = {pid}
    while (pid := parents.get(pid, 0)) and pid not in seen:
        seen.add(pid)
        yield pid


def _parents(pids: Iterable[int]) -> dict[int, int]:
    return {item.pid: item.parent for pid in pids if (item := _stat(pid)) is not None}


def _with_descendants(chosen: set[int], pids: Iterable[int]) -> set[int]:
    if not chosen:
        return set()
    parents = _parents(pids)
    return chosen | {pid for pid in parents if any(item in chosen for item in _ancestors(pid, parents))}


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def _pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except FileNotFoundError:
        return []  # no /proc on this system: only process groups can be ended


def _last_pid() -> int:
    """Return the pid that the system gave out last: it only falls when the counter wraps."""
    fields = (_read("/proc/loadavg") or b"").split()
    return int(fields[-1]) if fields else 0


def _read(path: str) -> bytes | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        parts = []
        while part := os.read(fd, 65536):
            parts.append(part)
        return b"".join(parts)
    except OSError:
        return None
    finally:
        os.close(fd)


def _stat(pid: int) -> _Process | None:
    """Return who *pid* is; None for one that is gone or only waits to be reaped (proc(5), field 3 on)."""
    text = _read(f"/proc/{pid}/stat")
    if not text:
        return None
    state, parent, _group, session, terminal = text[text.rindex(b")") + 2 :].split(None, 5)[:5]
    return None if state in b"ZX" else _Process(pid, int(parent), int(session), int(terminal))


def _listening_sockets() -> set[str]:
    """Return the inodes of all listening TCP and unix sockets of this network namespace."""
    inodes: set[str] = set()
    for name in ("tcp", "tcp6"):
        for line in (_read(f"/proc/net/{name}") or b"").decode("ascii", "replace").splitlines()[1:]:
            fields = line.split()
            if len(fields) > 9 and fields[3] == _LISTENING_TCP:
                inodes.add(fields[9])
    for line in (_read("/proc/net/unix") or b"").decode("ascii", "replace").splitlines()[1:]:
        fields = line.split()
        if len(fields) > 6 and int(fields[3], 16) & _ACCEPTS:
            inodes.add(fields[6])
    return inodes


def _sockets_of(pid: int) -> set[str]:
    """Return the inodes of the sockets that *pid* holds."""
    inodes: set[str] = set()
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return inodes
    for name in names:
        try:
            target = os.readlink(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    return inodes
