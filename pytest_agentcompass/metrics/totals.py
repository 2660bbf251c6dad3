"""Sums and spreads over attempts: tokens, money, time, failure modes, other metrics."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..contracts.metrics import MetricContract, MetricSpec
from ..contracts.record import AttemptRecord
from .estimators import mean, percentile
from .tallies import TaskTally

__all__ = ["duration_figures", "failure_modes", "metric_figures", "usage_figures"]


def usage_figures(records: Sequence[AttemptRecord]) -> dict[str, Any]:
    """Return what was spent: per kind the sum over attempts, for how many it is known, and what
    discarded tries spent beside it (they cost money but are no samples).
    """
    known: dict[str, list[float]] = {}
    discarded: dict[str, list[float]] = {}
    for record in records:
        _collect(known, record.usage)
        for attempt_try in record.retries:
            usage = attempt_try.get("usage")
            _collect(discarded, usage if isinstance(usage, Mapping) else {})
    return {
        name: {
            "total": _total(known.get(name, ())),
            "attempts": len(known.get(name, ())),
            "discarded_tries": _total(discarded.get(name, ())),
        }
        for name in sorted({*known, *discarded})
    }


def duration_figures(records: Iterable[AttemptRecord]) -> dict[str, Any]:
    """Return seconds per attempt that ran (skipped ones did not): mean, median, 95th percentile, sum."""
    ran = [record for record in records if record.outcome != "skipped"]
    phases: dict[str, list[float]] = {}
    for record in ran:
        _collect(phases, record.durations)
    seconds = [value for record in ran if math.isfinite(value := record.seconds)]
    return {
        "attempts": len(seconds),
        "mean": mean(seconds),
        "p50": percentile(seconds, 50),
        "p95": percentile(seconds, 95),
        "total": math.fsum(seconds),
        "phases_mean": {name: mean(values) for name, values in sorted(phases.items())},
        "over": "seconds of wall time per attempt that ran, all phases",
    }


def failure_modes(tallies: Iterable[TaskTally]) -> dict[str, int]:
    """Return how many attempts ended in each failure mode, most frequent first; `missing` has no record."""
    counts: Counter[str] = Counter()
    for tally in tallies:
        for _, record in tally.attempts:
            counts["missing" if record is None else record.failure_mode.value] += 1
    counts.pop("none", None)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def metric_figures(tallies: Sequence[TaskTally], contract: MetricContract) -> dict[str, Any]:
    """Return every observed metric: mean over tasks of each task's mean over its scored attempts."""
    per_task = [_task_means(tally) for tally in tallies]
    names = [*contract.metrics, *sorted({name for means in per_task for name in means} - set(contract.metrics))]
    return {name: _metric(name, per_task, contract.metrics.get(name, MetricSpec("scalar"))) for name in names}


def _metric(name: str, per_task: Sequence[Mapping[str, tuple[float, int]]], spec: MetricSpec) -> dict[str, Any]:
    found = [means[name] for means in per_task if name in means]
    return {
        "value": mean(value for value, _ in found),
        "tasks": len(found),
        "attempts": sum(count for _, count in found),
        "kind": spec.kind,
        "unit": spec.unit,
        "direction": spec.direction,
        "display": spec.display or name,
        "primary": spec.primary,
        "over": "mean over tasks of each task's mean over its scored attempts that observed it",
    }


def _task_means(tally: TaskTally) -> dict[str, tuple[float, int]]:
    values: dict[str, list[float]] = {}
    for record in tally.records:
        if record.outcome in ("passed", "failed"):
            _collect(values, record.metrics)
    return {name: (math.fsum(items) / len(items), len(items)) for name, items in values.items()}


def _collect(into: dict[str, list[float]], values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        if isinstance(value, (int, float)) and math.isfinite(value):
            into.setdefault(name, []).append(value)


def _total(values: Iterable[float]) -> float | int:
    items = list(values)
    return sum(items) if all(isinstance(item, int) for item in items) else math.fsum(items)
