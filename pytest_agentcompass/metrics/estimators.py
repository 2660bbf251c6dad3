"""Point estimates per task, and the plain statistics that reports need."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache

__all__ = ["mean", "pass_at_k", "pass_hat_k", "percentile"]

_EXACT_LIMIT = 4000


def mean(values: Iterable[float]) -> float | None:
    """Return the arithmetic mean, or None of nothing."""
    items = list(values)
    return math.fsum(items) / len(items) if items else None


def percentile(values: Iterable[float], percent: float) -> float | None:
    """Return the *percent* (0 to 100) percentile by linear interpolation, or None of nothing."""
    if not 0 <= percent <= 100:
        raise ValueError(f"percent must be between 0 and 100, not {percent!r}")
    items = sorted(values)
    if not items:
        return None
    place = (len(items) - 1) * percent / 100
    low = math.floor(place)
    high = min(low + 1, len(items) - 1)
    return items[low] + (items[high] - items[low]) * (place - low)


@lru_cache(4096, typed=True)
def pass_at_k(n: int, c: int, k: int) -> float | None:
    """Return the chance that one of *k* attempts passes, from *c* passes in *n* attempts.

    The unbiased estimator 1 - C(n-c, k) / C(n, k); None where n < k (undefined, not 0).
    """
    _check(n, c, k)
    if n < k:
        return None
    if n - c < k:
        return 1.0
    if n <= _EXACT_LIMIT:
        total = math.comb(n, k)
        return (total - math.comb(n - c, k)) / total
    return -math.expm1(_log_none(n, c, k))


@lru_cache(4096, typed=True)
def pass_hat_k(n: int, c: int, k: int) -> float | None:
    """Return the chance that all of *k* attempts pass: C(c, k) / C(n, k); None where n < k."""
    _check(n, c, k)
    if n < k:
        return None
    if c < k:
        return 0.0
    if n <= _EXACT_LIMIT:
        return math.comb(c, k) / math.comb(n, k)
    return math.exp(_log_none(n, n - c, k))


def _check(n: int, c: int, k: int) -> None:
    if k < 1 or n < 0 or not 0 <= c <= n:
        raise ValueError(f"need k >= 1 and 0 <= c <= n, not n={n}, c={c}, k={k}")


def _log_none(n: int, marked: int, k: int) -> float:
    """Return log(C(n - marked, k) / C(n, k)): that none of *k* drawn is marked; needs n - marked >= k.

    A product of min(marked, k) factors: binomials of large n overflow, and their logarithms cancel.
    """
    few, many = sorted((marked, k))
    return math.fsum(math.log1p(-many / (n - step)) for step in range(few))
