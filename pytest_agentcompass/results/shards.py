"""Shards: a run's tasks dealt out to several machines, each alone able to tell which are its own."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from ..errors import ConfigError, ResultsError
from .baseline import parse_summary
from .files import json_bytes, parse_json, read_bytes, write_atomic

__all__ = ["Shard", "ShardPlan", "deal", "parse_shard", "read_shard_plan", "read_timings", "write_shard_plan"]

Attempt = tuple[str, str, int]
TaskKey = tuple[str, str]
_FILE = "shard.json"


@dataclass(frozen=True, slots=True)
class Shard:
    """Part *index* (from 1) of *count*."""

    index: int
    count: int

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """What a shard stores of the whole: which part it is, and every attempt of all parts, in order."""

    shard: Shard
    planned: tuple[Attempt, ...]


def parse_shard(text: str) -> Shard:
    """Return the shard that `I/N` names; ConfigError unless 1 <= I <= N."""
    hit = re.fullmatch(r"\s*(\d+)\s*/\s*(\d+)\s*", text)
    if hit is None:
        raise ConfigError(f"shard {text!r}: write I/N, say 2/5 for the second of five")
    shard = Shard(int(hit[1]), int(hit[2]))
    if not 1 <= shard.index <= shard.count:
        raise ConfigError(f"shard {text!r}: shards count from 1 to {shard.count}, so there is no {shard.index}")
    return shard


def deal(tasks: Iterable[TaskKey], count: int, timings: Mapping[TaskKey, float] | None = None) -> dict[TaskKey, int]:
    """Return the shard (from 1) of each task: the same on every machine, whatever order tasks come in.

    Without *timings* (seconds) numbers differ by one at most; with them the longest task goes to the shard
    with the least work so far, tasks of unknown length counting as the median.
    """
    ordered = sorted(dict.fromkeys(tasks), key=_hash)
    if not timings:
        return {task: place % count + 1 for place, task in enumerate(ordered)}
    known = [timings[task] for task in ordered if task in timings]
    usual = median(known) if known else 1.0
    loads = [0.0] * count
    sizes = [0] * count
    shards: dict[TaskKey, int] = {}
    for task in sorted(ordered, key=lambda task: -timings.get(task, usual)):
        place = min(range(count), key=lambda place: (loads[place], sizes[place], place))
        loads[place] += timings.get(task, usual)
        sizes[place] += 1
        shards[task] = place + 1
    return shards


def _hash(task: TaskKey) -> bytes:
    return hashlib.sha256("\0".join(task).encode("utf-8", "surrogatepass")).digest()


def read_timings(path: Path) -> dict[TaskKey, float]:
    """Return seconds per task (all its attempts) from a run directory or a summary.json of an earlier run.

    Raises ResultsError that says what is wrong with *path*.
    """
    file = path / "summary.json" if path.is_dir() else path
    try:
        summary = parse_summary(parse_json(read_bytes(file)), str(file))
    except FileNotFoundError:
        raise ResultsError(
            f"{file}: there is no such file; shard timings are a run directory or a summary.json"
        ) from None
    except (OSError, ValueError) as error:
        raise ResultsError(f"{file}: cannot be read as shard timings: {error}") from None
    return {
        (request.name, task.task_id): sum(attempt.seconds for attempt in task.attempts)
        for request in summary.requests
        for task in request.tasks
        if any(attempt.outcome not in ("skipped", "missing") for attempt in task.attempts)
    }


def write_shard_plan(run: Path, plan: ShardPlan) -> None:
    """Store *plan* in the run directory, for `merge`."""
    data = {"index": plan.shard.index, "count": plan.shard.count, "planned": [list(item) for item in plan.planned]}
    write_atomic(run / _FILE, json_bytes(data))


def read_shard_plan(run: Path) -> ShardPlan | None:
    """Return the plan of the shard in *run*, None when it is no shard; ResultsError when damaged."""
    try:
        data = parse_json(read_bytes(run / _FILE))
        return ShardPlan(Shard(int(data["index"]), int(data["count"])), tuple(_attempts(data["planned"])))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ResultsError(f"{run / _FILE}: damaged: {error}; run this shard again") from None


def _attempts(rows: Sequence[Any]) -> Iterable[Attempt]:
    for request, task_id, number in rows:
        yield str(request), str(task_id), int(number)
