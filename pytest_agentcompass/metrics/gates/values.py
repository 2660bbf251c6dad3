"""The value of a metric over a scope, with the bounds that attempts without a verdict leave open."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from ..estimators import mean, percentile
from ..intervals import Interval, bootstrap, mean_interval
from .names import MetricKind, MetricName
from .scope import Scope, ScopedTask

__all__ = ["Undefined", "Value", "amount", "metric_value", "rate"]

View = Literal["worst", "best", "scored"]
_DISPLAYED = 0.95


class Undefined(Exception):
    """The metric has no value here; the message says why."""


@dataclass(frozen=True, slots=True)
class Value:
    """A metric's value: what is shown, and the lowest and highest that the truth can be.

    *low* and *high* differ where attempts have no verdict or no known cost. *interval* is two-sided at
    95 %; `bound` gives one-sided ones.
    """

    shown: float
    low: float
    high: float
    tasks: int
    kind: MetricKind
    interval: Interval | None = None
    notes: tuple[str, ...] = ()
    lower: Callable[[float], Interval | None] | None = None
    upper: Callable[[float], Interval | None] | None = None

    def bounds(self, confidence: float) -> tuple[float, float] | None:
        """Return the one-sided lower and upper bounds at *confidence*; None where there are none."""
        lower = self.lower(2 * confidence - 1) if self.lower else None
        upper = self.upper(2 * confidence - 1) if self.upper else None
        return None if lower is None or upper is None else (lower.low, upper.high)


def rate(task: ScopedTask, name: MetricName, view: View) -> Fraction | None:
    """Return how far *task* is solved by the metric *name*; None where that is undefined.

    Attempts without a verdict count as not solved (worst), as solved (best) or not at all (scored).
    """
    n = task.valid if view == "scored" else task.n
    c = task.passed + (task.unknown if view == "best" else 0)
    if task.early:
        if view == "scored" and not c and task.unknown:
            return None
        return Fraction(1 if c else 0) if n else None
    if name.name in ("mean", "solved", "avg@"):
        return Fraction(c, n) if n else None
    k = name.attempts
    if n < k:
        return None
    if name.name == "pass^":
        return Fraction(math.comb(c, k), math.comb(n, k))
    return 1 - Fraction(math.comb(n - c, k), math.comb(n, k))


def metric_value(scope: Scope, name: MetricName) -> Value:
    """Return the value of *name* over *scope*; Undefined when it has none, with the reason."""
    if not scope.tasks:
        raise Undefined("there is no task to take it over")
    if name.kind is MetricKind.RATE:
        return _rate_value(scope, name)
    if name.kind is MetricKind.SCORE:
        return _score_value(scope)
    if name.kind is MetricKind.SHARE:
        return _share_value(scope, name.name)
    if name.kind is MetricKind.OBSERVED:
        return _observed_value(scope, name.name)
    if name.kind is MetricKind.SECONDS:
        return _seconds_value(scope, name.name)
    return _amount_value(scope, name)


def _rate_value(scope: Scope, name: MetricName) -> Value:
    check_attempts(scope, name)
    found = {view: [rate(task, name, view) for task in scope.tasks] for view in ("worst", "best")}
    worst = [float(item) for item in found["worst"] if item is not None]
    best = [float(item) for item in found["best"] if item is not None]
    if not worst:
        raise Undefined(f"no task has the {name.attempts} attempts that {name.text} needs")
    left_out = len(scope.tasks) - len(worst)
    notes = (f"{left_out} tasks have too few attempts for {name.text} and are left out",) if left_out else ()
    low, high = mean(worst) or 0.0, mean(best) or 0.0
    return Value(
        low, low, high, len(worst), name.kind, mean_interval(worst, _DISPLAYED), notes,
        lambda confidence: mean_interval(worst, confidence),
        lambda confidence: mean_interval(best, confidence),
    )  # fmt: skip


def check_attempts(scope: Scope, name: MetricName) -> None:
    """Raise Undefined where the requests of *scope* do not have what `pass@NUMBER` and the like need."""
    for request in scope.requests:
        problem = attempts_problem(name, request.name, request.k, request.early_stop)
        if problem:
            raise Undefined(problem)


def attempts_problem(name: MetricName, request: str, k: int, early_stop: bool) -> str | None:
    """Say why *name* cannot be had from a request of *k* attempts, or return None."""
    if early_stop and (name.name, name.attempts) not in (("pass@", k), ("mean", 0), ("solved", 0)):
        return (
            f"tasks of request {request!r} stop at their first success, so their attempts are no samples: "
            f"only pass@{k} can be reported, not {name.text}"
        )
    if name.attempts > k:
        return f"{name.text} needs {name.attempts} attempts per task, but request {request!r} makes {k} (attempts={k})"
    if name.name == "avg@" and name.attempts != k:
        return f"request {request!r} makes {k} attempts per task, so its average is avg@{k}, not {name.text}"
    return None


def _score_value(scope: Scope) -> Value:
    if len(scope.requests) != 1 or scope.category is not None:
        raise Undefined("score is one request's own figure: write score[REQUEST]; for several use mean")
    request = scope.requests[0]
    found = request.report.get("score")
    if not isinstance(found, dict) or not isinstance(found.get("value"), (int, float)):
        raise Undefined(f"request {request.name!r} has no score")
    best = found.get("best_case")
    bounds = found.get("interval")
    interval = Interval(**bounds) if isinstance(bounds, dict) else None
    high = float(best) if isinstance(best, (int, float)) else float(found["value"])
    return Value(float(found["value"]), float(found["value"]), high, len(scope.tasks), MetricKind.SCORE, interval)


def _share_value(scope: Scope, name: str) -> Value:
    shares = []
    for task in scope.tasks:
        hits = sum(
            item.outcome == "error" if name == "errors" else item.failure_mode == name for item in task.task.attempts
        )
        shares.append(hits / task.n)
    hits_all = sum(share * task.n for share, task in zip(shares, scope.tasks, strict=True))
    value = hits_all / sum(task.n for task in scope.tasks)
    missing = sum(item.outcome == "missing" for item in scope.attempts)
    high = min(1.0, value + missing / sum(task.n for task in scope.tasks))
    bounds = _interval_of(shares)
    return Value(value, value, high, len(shares), MetricKind.SHARE, bounds(_DISPLAYED), (), bounds, bounds)


def _interval_of(shares: Sequence[float]) -> Callable[[float], Interval | None]:
    inside = [min(1.0, share) for share in shares]
    return lambda confidence: mean_interval(inside, confidence)


def _observed_value(scope: Scope, name: str) -> Value:
    values = []
    for task in scope.tasks:
        own = [
            float(item.metrics[name]) for item in task.task.attempts if _scored(item.outcome) and name in item.metrics
        ]
        if own:
            values.append(math.fsum(own) / len(own))
    if not values:
        raise Undefined(f"no scored attempt observed {name!r}")
    value = math.fsum(values) / len(values)
    bounds = _resampled(values, _mean)
    left_out = len(scope.tasks) - len(values)
    notes = (f"{left_out} tasks without a scored attempt that observed it are left out",) if left_out else ()
    return Value(value, value, value, len(values), MetricKind.OBSERVED, bounds(_DISPLAYED), notes, bounds, bounds)


def _scored(outcome: str) -> bool:
    return outcome in ("passed", "failed")


def _seconds_value(scope: Scope, name: str) -> Value:
    per_task = [_seconds(task) for task in scope.tasks]
    per_task = [items for items in per_task if items]
    if not per_task:
        raise Undefined("no attempt ran")
    statistic = _SECONDS[name]
    value = statistic([item for items in per_task for item in items])

    def over(drawn: Sequence[list[float]]) -> float:
        return statistic([item for items in drawn for item in items])

    def bounds(confidence: float) -> Interval | None:
        return bootstrap(per_task, over, confidence)

    return Value(value, value, value, len(per_task), MetricKind.SECONDS, bounds(_DISPLAYED), (), bounds, bounds)


def _seconds(task: ScopedTask) -> list[float]:
    return [item.seconds for item in task.task.attempts if item.outcome not in ("skipped", "missing")]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


_SECONDS: dict[str, Callable[[Sequence[float]], float]] = {
    "duration_mean": _mean,
    "duration_p50": lambda values: percentile(values, 50) or 0.0,
    "duration_p95": lambda values: percentile(values, 95) or 0.0,
    "duration_max": max,
    "duration_total": math.fsum,
}


def _resampled(
    values: Sequence[float], statistic: Callable[[Sequence[float]], float]
) -> Callable[[float], Interval | None]:
    def bounds(confidence: float) -> Interval | None:
        found = bootstrap(values, statistic, confidence)
        if found is None and values and max(values) == min(values):
            return Interval(statistic(values), statistic(values), confidence, f"all {len(values)} tasks agree")
        return found

    return bounds


def amount(task: ScopedTask, name: str) -> tuple[float, int, int]:
    """Return what *task* spent of *name* (discarded tries too), over how many attempts, and how many do not tell."""
    total, attempts, silent = 0.0, 0, 0
    for item in task.task.attempts:
        if item.outcome in ("skipped", "missing"):
            continue
        attempts += 1
        own, discarded = _spent(item.usage, item.cost_usd, name), _spent(item.discarded_usage, None, name)
        silent += own is None
        total += (own or 0.0) + (discarded or 0.0)
    return total, attempts, silent


def _spent(usage: dict[str, float], cost: float | None, name: str) -> float | None:
    if name in ("cost_usd", "cost_usd_mean"):
        return cost if cost is not None else usage.get("cost_usd")
    if name == "tokens":
        known = [usage[key] for key in ("input_tokens", "output_tokens") if key in usage]
        return math.fsum(known) if known else None
    return usage.get(name)


def _amount_value(scope: Scope, name: MetricName) -> Value:
    spent = [amount(task, name.name) for task in scope.tasks]
    attempts, silent = sum(item[1] for item in spent), sum(item[2] for item in spent)
    if attempts == silent:
        raise Undefined(f"no attempt tells its {name.text}")
    divisor = attempts if name.name.endswith("_mean") else 1
    value = math.fsum(item[0] for item in spent) / divisor
    notes = (f"{silent} of {attempts} attempts do not tell their {name.text}",) if silent else ()
    totals = [item[0] for item in spent]
    scale = len(totals) / divisor
    bounds = _resampled(totals, lambda values: _mean(values) * scale)
    return Value(
        value, value, math.inf if silent else value, len(totals), name.kind, bounds(_DISPLAYED), notes, bounds, bounds
    )
