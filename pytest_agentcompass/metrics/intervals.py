"""Confidence intervals for one run. The unit is the task: attempts of one task are not independent."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Any, TypeVar

__all__ = ["Interval", "bootstrap", "mean_interval", "t_interval", "t_quantile", "wilson"]

BOOTSTRAP_RESAMPLES = 1000
BOOTSTRAP_SEED = 20240229
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Interval:
    """A two-sided interval: its bounds, its confidence (0 to 1) and how it was made."""

    low: float
    high: float
    confidence: float
    method: str

    def to_dict(self) -> dict[str, Any]:
        """Return the interval as plain data."""
        return asdict(self)


def wilson(successes: float, n: int, confidence: float = 0.95) -> Interval | None:
    """Return Wilson's score interval of a proportion; None of no trials.

    *successes* may be fractional (a sum of task means).
    """
    if n < 1:
        return None
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    rate = successes / n
    scale = 1 + z * z / n
    centre = (rate + z * z / (2 * n)) / scale
    half = z / scale * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    low = 0.0 if successes <= 0 else max(0.0, centre - half)
    high = 1.0 if successes >= n else min(1.0, centre + half)
    return Interval(low, high, confidence, f"Wilson over {n} tasks")


@lru_cache(maxsize=256)
def t_quantile(probability: float, df: int) -> float:
    """Return the quantile of Student's t with *df* degrees of freedom.

    Bisection on the distribution function, which is a finite sum for whole *df*
    (Abramowitz and Stegun, 26.7.3 and 26.7.4); an expansion about the normal one beyond 2000 degrees.
    """
    if df < 1 or not 0 < probability < 1:
        raise ValueError(f"need df >= 1 and a probability between 0 and 1, not {df} and {probability}")
    if probability < 0.5:
        return -t_quantile(1 - probability, df)
    if df > 2000:
        return _cornish_fisher(NormalDist().inv_cdf(probability), df)
    low, high = 0.0, 1.0
    while _t_cdf(high, df) < probability:
        low, high = high, high * 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _t_cdf(middle, df) < probability else (low, middle)
    return (low + high) / 2


def t_interval(values: Sequence[float], confidence: float = 0.95, *, unit: bool = False) -> Interval | None:
    """Return the t interval of the mean of task values (T - 1 degrees of freedom); None under two values.

    *unit* cuts the bounds to 0..1.
    """
    count = len(values)
    if count < 2:
        return None
    centre = math.fsum(values) / count
    variance = math.fsum((value - centre) ** 2 for value in values) / (count - 1)
    half = t_quantile(0.5 + confidence / 2, count - 1) * math.sqrt(variance / count)
    low, high = centre - half, centre + half
    if unit:
        low, high = max(0.0, low), min(1.0, high)
    return Interval(low, high, confidence, f"t over {count} task means")


def mean_interval(values: Sequence[float], confidence: float = 0.95) -> Interval | None:
    """Return the interval of a mean of task rates in 0..1.

    Wilson where every task is 0 or 1, and where all tasks agree (t would claim certainty); else t.
    """
    if not values:
        return None
    if all(value in (0.0, 1.0) for value in values) or len(values) < 2 or max(values) == min(values):
        return wilson(math.fsum(values), len(values), confidence)
    return t_interval(values, confidence, unit=True)


def bootstrap(
    tasks: Sequence[_T],
    statistic: Callable[[Sequence[_T]], float | None],
    confidence: float = 0.95,
    *,
    resamples: int = BOOTSTRAP_RESAMPLES,
    seed: int = BOOTSTRAP_SEED,
) -> Interval | None:
    """Return the percentile bootstrap interval of *statistic*, resampling whole tasks with a fixed seed.

    None where it says nothing: under two tasks, or all resamples alike.
    """
    if len(tasks) < 2:
        return None
    rng = random.Random(seed)
    drawn = (statistic(rng.choices(tasks, k=len(tasks))) for _ in range(resamples))
    values = sorted(value for value in drawn if value is not None)
    if not values or values[0] == values[-1]:
        return None
    tail = (1 - confidence) / 2
    low = values[math.floor(tail * (len(values) - 1))]
    high = values[math.ceil((1 - tail) * (len(values) - 1))]
    return Interval(low, high, confidence, f"bootstrap over {len(tasks)} tasks, {resamples} resamples, seed {seed}")


def _t_cdf(t: float, df: int) -> float:
    angle = math.atan2(t, math.sqrt(df))
    cosine, sine = math.cos(angle), math.sin(angle)
    if df % 2:
        total, term = 0.0, cosine
        for step in range(1, df - 1, 2):
            total += term
            term *= cosine * cosine * (step + 1) / (step + 2)
        area = 2 / math.pi * (angle + sine * total)
    else:
        total, term = 0.0, 1.0
        for step in range(0, df - 1, 2):
            total += term
            term *= cosine * cosine * (step + 1) / (step + 2)
        area = sine * total
    return 0.5 + area / 2


def _cornish_fisher(z: float, df: int) -> float:
    return z + (z**3 + z) / (4 * df) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * df * df)
