"""A metric against a number."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..intervals import wilson
from .names import MetricKind
from .parser import Threshold
from .settings import GateSettings
from .values import Value
from .verdicts import Verdict
from .words import amount_text, range_text

__all__ = ["against_number", "tasks_to_show"]

_SLACK = 1e-9  # a share computed in floats equals the decimal that a person wrote
_MOST_TASKS = 1_000_000


@dataclass(frozen=True, slots=True)
class _Bounds:
    low: float
    high: float


def against_number(rule: Threshold, value: Value, settings: GateSettings) -> tuple[Verdict, list[str]]:
    """Return the verdict of *value* against the rule's number, and why.

    By default the point is compared; with `confidence` its one-sided bound. PASS only where it holds
    however the attempts without a verdict had ended, FAIL only where it would fail in any case.
    """
    needed = f"needs {rule.comparison} {amount_text(rule.value, value.kind)}"
    bounds = _Bounds(value.low, value.high)
    if settings.confidence is not None:
        found = value.bounds(settings.confidence)
        if found is None:
            return Verdict.INCONCLUSIVE, [
                f"{needed} at {settings.confidence:.0%} confidence, but no bound can be had from {value.tasks} tasks"
            ]
        bounds = _Bounds(found[0], max(found[1], value.high) if math.isinf(value.high) else found[1])
        needed += f" at {settings.confidence * 100:.4g}% confidence"
    verdict = _verdict(rule, bounds)
    if verdict is not Verdict.INCONCLUSIVE:
        return verdict, [needed, *_either_way(value), *value.notes]
    return verdict, [needed, *_open(rule, value, settings, bounds), *value.notes]


def _either_way(value: Value) -> list[str]:
    if value.high <= value.low or math.isinf(value.high):
        return []
    best = amount_text(value.high, value.kind)
    return [f"attempts without a verdict count as not solved; had all of them passed it would be {best}"]


def _verdict(rule: Threshold, bounds: _Bounds) -> Verdict:
    worst, best = (bounds.low, bounds.high) if rule.comparison.startswith(">") else (bounds.high, bounds.low)
    if _holds(rule, worst):
        return Verdict.PASS
    return Verdict.INCONCLUSIVE if _holds(rule, best) else Verdict.FAIL


def _holds(rule: Threshold, value: float) -> bool:
    if rule.comparison.startswith(">"):
        return value >= rule.value - _SLACK if rule.comparison == ">=" else value > rule.value + _SLACK
    return value <= rule.value + _SLACK if rule.comparison == "<=" else value < rule.value - _SLACK


def _open(rule: Threshold, value: Value, settings: GateSettings, bounds: _Bounds) -> list[str]:
    """Say what leaves the verdict open, and what would close it."""
    if math.isinf(value.high):
        return ["what the silent attempts spent is not known, so it cannot be shown to hold"]
    found = []
    if value.high > value.low:
        low, high = amount_text(value.low, value.kind), amount_text(value.high, value.kind)
        found.append(f"attempts without a verdict leave it between {low} and {high}: run them again")
    if settings.confidence is not None:
        low, high = amount_text(bounds.low, value.kind), amount_text(bounds.high, value.kind)
        found.append(f"one-sided bounds {low} and {high}")
        found.append(_how_many(rule, value, settings.confidence))
    return found


def _how_many(rule: Threshold, value: Value, confidence: float) -> str:
    if value.kind is not MetricKind.RATE or not rule.comparison.startswith(">"):
        return "more tasks would narrow them"
    tasks = tasks_to_show(value.shown, rule.value, confidence)
    if tasks is None:
        return "more tasks at this rate would not show it"
    return f"at this rate about {tasks:,} tasks would show it"


def tasks_to_show(rate: float, threshold: float, confidence: float) -> int | None:
    """Return how many tasks at *rate* have a one-sided Wilson bound at or above *threshold*; None: no number does."""
    if rate <= threshold:
        return None

    def enough(tasks: int) -> bool:
        found = wilson(rate * tasks, tasks, 2 * confidence - 1)
        return found is not None and found.low >= threshold

    low, high = 0, _MOST_TASKS
    if not enough(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def value_text(value: Value, label: str) -> str:
    """Return the value with its interval and what it is taken over."""
    text = amount_text(value.shown, value.kind)
    if value.interval is not None and value.kind is not MetricKind.SHARE:
        text += f" ({range_text(value.interval, value.kind)})"
    return f"{text} of {label}" if value.kind is MetricKind.RATE else f"{text} over {label}"
