"""The metrics that a gate may name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from ...contracts.outcome import FailureMode

__all__ = ["BUILT_IN_METRICS", "COMMON_METRICS", "MetricKind", "MetricName", "metric_name"]


class MetricKind(str, Enum):
    """What a metric is made of, and so how it is compared."""

    RATE = "rate"  # how far tasks are solved; higher is better
    SCORE = "score"  # the benchmark's own aggregation
    SHARE = "share"  # attempts that ended in some way; lower is better
    MONEY = "money"
    COUNT = "count"
    SECONDS = "seconds"
    OBSERVED = "observed"  # what an evaluation observed, by the benchmark's contract


@dataclass(frozen=True, slots=True)
class MetricName:
    """A metric as written: *name*, its kind, and the number of `pass@NUMBER` and the like (else 0)."""

    text: str
    name: str
    kind: MetricKind
    attempts: int = 0

    @property
    def pairs(self) -> bool:
        """Whether it can be compared with a baseline, task by task."""
        if self.kind in (MetricKind.RATE, MetricKind.MONEY, MetricKind.COUNT):
            return True
        return self.name in ("duration_mean", "duration_total")


_OF_ATTEMPTS = re.compile(r"(pass@|pass\^|avg@)(\d+)")
_FIXED = {
    "mean": MetricKind.RATE,
    "solved": MetricKind.RATE,
    "score": MetricKind.SCORE,
    "errors": MetricKind.SHARE,
    "cost_usd": MetricKind.MONEY,
    "cost_usd_mean": MetricKind.MONEY,
    "tokens": MetricKind.COUNT,
    "input_tokens": MetricKind.COUNT,
    "output_tokens": MetricKind.COUNT,
    "model_calls": MetricKind.COUNT,
    "duration_mean": MetricKind.SECONDS,
    "duration_p50": MetricKind.SECONDS,
    "duration_p95": MetricKind.SECONDS,
    "duration_max": MetricKind.SECONDS,
    "duration_total": MetricKind.SECONDS,
}
_MODES = {mode.value: MetricKind.SHARE for mode in FailureMode if mode is not FailureMode.NONE}
#: the metrics of every run, as a message lists them; behind them every failure mode is one
COMMON_METRICS = ("pass@1", "pass@2", "pass^1", "pass^2", "avg@1", *_FIXED)
BUILT_IN_METRICS = (*COMMON_METRICS, *_MODES)


def metric_name(text: str, observed: Iterable[str] | None = None) -> MetricName | None:
    """Return the metric called *text*, or None where there is none.

    *observed* are the metrics that benchmarks declare; None: not known yet, so any plain name may be one.
    """
    if hit := _OF_ATTEMPTS.fullmatch(text):
        number = int(hit[2])
        return MetricName(text, hit[1], MetricKind.RATE, number) if number else None
    kind = _FIXED.get(text) or _MODES.get(text)
    if kind is not None:
        return MetricName(text, text, kind)
    if "@" in text or "^" in text or text in ("pass", "avg"):
        return None
    if observed is None or text in set(observed):
        return MetricName(text, text, MetricKind.OBSERVED)
    return None
