"""Which processes of a container belong to what: pure decisions over one snapshot of its /proc.

Two things tell whose a process is. Every exec carries a marker in its environment, which its
children inherit; and a process can leave its parent (then pid 1 adopts it) but not join a session
of another, so that a session number tells who started it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

__all__ = ["MARKER", "Baseline", "Process", "leftovers", "parse", "tree"]

MARKER = "AGENTCOMPASS_EXEC"
_LINE = re.compile(r"^P (\d+) ([^ ]*) ([^ ]*) ([^ ]*) (\S*) (\d+) \((.*)\) (\S .*)$", re.DOTALL)
_INITS = frozenset({"docker-init", "tini", "dumb-init", "catatonit"})


@dataclass(frozen=True, slots=True)
class Process:
    """One process: *start* is in clock ticks since boot, *marker* empty where it has none.

    *readable* is false where neither its environment nor its open files could be seen.
    """

    pid: int
    parent: int
    session: int
    start: int
    uid: str
    gid: str
    readable: bool
    marker: str
    listens: bool
    name: str

    @property
    def key(self) -> str:
        """What the kill script takes: the pid is only killed if it is still this process."""
        return f"{self.pid}:{self.start}"


@dataclass(frozen=True, slots=True)
class Baseline:
    """What belongs to the sandbox itself: processes started up to *ticks*, and execs marked *prefix*."""

    ticks: int
    prefix: str


def parse(text: str) -> dict[int, Process]:
    """Return the living processes of a snapshot, by pid; the snapshot's own are left out."""
    own, _, body = text.partition("\n")
    found: dict[int, Process] = {}
    for block in body.split("\0"):
        match = _LINE.match(block.strip("\n"))
        if match is None:
            continue
        pid, uid, gid, readable, marker, listens, name, rest = match.groups()
        fields = rest.split()
        if len(fields) < 20 or fields[0] in "ZX":
            continue
        found[int(pid)] = Process(
            pid=int(pid),
            parent=int(fields[1]),
            session=int(fields[3]),
            start=int(fields[19]),
            uid=uid,
            gid=gid,
            readable=readable == "1",
            marker="" if marker == "-" else marker,
            listens=listens == "1",
            name=name,
        )
    mine = descendants(found, [int(own)]) if own.strip().isdigit() else set()
    return {pid: process for pid, process in found.items() if pid not in mine}


def descendants(processes: Mapping[int, Process], roots: Iterable[int]) -> set[int]:
    """Return *roots* and everything below them."""
    children: dict[int, list[int]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process.pid)
    found: set[int] = set()
    todo = list(roots)
    while todo:
        pid = todo.pop()
        if pid not in found:
            found.add(pid)
            todo.extend(children.get(pid, ()))
    return found


def _ancestors(processes: Mapping[int, Process], pid: int) -> set[int]:
    found: set[int] = set()
    while pid in processes and pid not in found:
        found.add(pid)
        pid = processes[pid].parent
    return found


def tree(processes: Mapping[int, Process], marker: str, since: int) -> set[int]:
    """Return every process that the exec with *marker* started, orphans and new sessions included.

    *since* is about when it began (ticks). An orphan begun later whose environment shows no marker at
    all (wiped, or of another user) counts as the exec's too.
    """
    roots = {pid for pid, process in processes.items() if process.marker == marker}
    sessions = {processes[pid].session for pid in roots}
    hidden = {
        pid
        for pid, process in processes.items()
        if pid != 1 and process.parent in (0, 1) and process.start >= since and not process.marker
    }
    if 1 in processes:
        sessions.discard(processes[1].session)
        hidden = {pid for pid in hidden if processes[pid].session != processes[1].session}
    same = {pid for pid, process in processes.items() if process.session in sessions}
    found = descendants(processes, roots | same | hidden)
    # Another exec's processes can be below only by adoption (a sub-reaper): they are not this one's.
    return {pid for pid in found if pid != 1 and processes[pid].marker in (marker, "")}


def _sandbox(processes: Mapping[int, Process], baseline: Baseline) -> set[int]:
    """Return the processes that the sandbox itself started."""
    roots = {
        pid
        for pid, process in processes.items()
        if pid == 1 or (process.start <= baseline.ticks and not _agents(process, baseline))
        or process.marker.startswith(baseline.prefix)
    }  # fmt: skip
    sessions = {processes[pid].session for pid in roots}
    roots |= {pid for pid, process in processes.items() if process.session in sessions}
    first = processes.get(1)
    below = descendants(processes, roots - {1})
    for pid, process in processes.items():
        # What pid 1 started by itself, unless it is only there to adopt orphans.
        own = process.parent == 1 and first is not None and first.name not in _INITS
        if own and process.readable and not process.marker:
            below |= descendants(processes, [pid])
    return {pid for pid in below | roots if not _agents(processes[pid], baseline)}


def _agents(process: Process, baseline: Baseline) -> bool:
    return bool(process.marker) and not process.marker.startswith(baseline.prefix)


def leftovers(
    processes: Mapping[int, Process], baseline: Baseline, *, keep_services: bool
) -> tuple[set[int], list[Process]]:
    """Return the pids to kill, and what stays although the sandbox itself did not start it."""
    foreign = set(processes) - _sandbox(processes, baseline)
    stay: set[int] = set()
    if keep_services:
        for pid in foreign:
            if processes[pid].listens:
                stay |= (_ancestors(processes, pid) | descendants(processes, [pid])) & foreign
    return foreign - stay, [processes[pid] for pid in sorted(stay)]
