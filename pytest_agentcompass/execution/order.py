"""Longest first: the order of a request's attempts that keeps the end of a run short.

How long a task takes is known from the newest earlier run of the same name, else from the task's own
estimate; a task of which nothing is known counts as average.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ..results.files import parse_json, read_bytes
from ..results.resume import list_runs

__all__ = ["longest_first", "recorded_seconds"]

T = TypeVar("T")
_MADE = ("passed", "failed")


def recorded_seconds(results_dir: Path, run: Path) -> dict[str, dict[str, float]]:
    """Return the mean seconds of graded attempts by request and task, of the newest other run of *run*'s name."""
    for other in list_runs(results_dir):
        if other.parent.name == run.parent.name and other.name != run.name:
            found = _seconds(other / "summary.json")
            if any(found.values()):
                return found
    return {}


def _seconds(path: Path) -> dict[str, dict[str, float]]:
    try:
        summary = parse_json(read_bytes(path))
        return {str(request["name"]): _of_tasks(request["tasks"]) for request in summary["requests"]}
    except (OSError, ValueError, TypeError, KeyError):
        return {}  # no earlier figures are no reason not to run


def _of_tasks(tasks: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    found = {}
    for task in tasks:
        seconds = [float(item["seconds"]) for item in task["attempts"] if item["outcome"] in _MADE]
        if seconds:
            found[str(task["task_id"])] = math.fsum(seconds) / len(seconds)
    return found


def longest_first(items: Sequence[T], seconds: Callable[[T], float | None]) -> list[T]:
    """Return *items* by falling estimate; equal ones and, when nothing is known, all keep their order.

    Where all that is known is the same, what is known comes before what is not.
    """
    known = [value for item in items if (value := seconds(item)) is not None]
    average = math.fsum(known) / len(known) if known else 0.0

    def key(item: T) -> tuple[float, bool]:
        value = seconds(item)
        return -(average if value is None else value), value is None

    return sorted(items, key=key)
