"""Shared by the measuring scripts: run a command and tell what it cost, children included."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Cost", "median", "pytest_cost", "run", "table"]


@dataclass(frozen=True, slots=True)
class Cost:
    """Wall and CPU seconds (children included) and the exit status of one command."""

    wall: float
    cpu: float
    status: int
    output: str


def run(command: Sequence[str], cwd: Path) -> Cost:
    """Run *command* to its end and return its cost."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, env={**os.environ, "CI": ""})
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(wall, cpu, done.returncode, done.stdout + done.stderr)


def pytest_cost(cwd: Path, *words: str, status: int = 0) -> Cost:
    """Run pytest with *words*; an unexpected exit status ends the measurement."""
    cost = run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words], cwd)
    if cost.status != status:
        raise SystemExit(f"pytest {' '.join(words)} ended with {cost.status}:\n{cost.output[-3000:]}")
    return cost


def median(make: Callable[[], Cost], times: int, what: Callable[[Cost], float]) -> float:
    """Return the median of *what* over *times* runs."""
    return statistics.median(what(make()) for _ in range(times))


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += [
        "| " + " | ".join(f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in row) + " |"
        for row in rows
    ]
    return "\n".join(lines)
