"""What a command costs with all its descendants: wall, CPU, and the greatest resident memory at one moment."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

__all__ = ["Cost", "run"]

_PAGE = os.sysconf("SC_PAGE_SIZE")
_INTERVAL = 0.1


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds, MB, the exit status, and the output (both streams)."""

    wall: float
    cpu: float
    peak_mb: float
    status: int
    output: str


def _parents() -> dict[int, int]:
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                found[int(entry)] = int(Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[1])
    return found


def _tree(root: int) -> set[int]:
    parents = _parents()
    known = {root}
    while more := {pid for pid, parent in parents.items() if parent in known} - known:
        known |= more
    return known


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def run(command: Sequence[str], cwd: Path, env: Mapping[str, str], limit: float = 1200.0) -> Cost:
    """Run *command* to its end, at most *limit* seconds, and return its cost (CPU of waited-for children included)."""
    peak, done = 0, threading.Event()
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), perf_counter()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, cwd=cwd, env=dict(env), stdout=output, stderr=subprocess.STDOUT)

        def watch() -> None:
            nonlocal peak
            while not done.wait(_INTERVAL):
                peak = max(peak, sum(_resident(pid) for pid in _tree(process.pid)))

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            status = process.wait(limit)
        except subprocess.TimeoutExpired:
            process.kill()
            status = process.wait()
        wall = perf_counter() - start
        done.set()
        watcher.join()
        output.seek(0)
        text = output.read().decode("utf-8", "replace")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(wall, cpu, peak / 1e6, status, text)
