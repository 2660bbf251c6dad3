"""Point estimates: exact values, undefined cases, and no bias."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_agentcompass.metrics.estimators import mean, pass_at_k, pass_hat_k, percentile


@pytest.mark.parametrize(
    ("n", "c", "k", "value"),
    [(10, 3, 1, 0.3), (10, 3, 5, 0.916667), (10, 0, 5, 0.0), (10, 8, 5, 1.0), (4, 1, 2, 0.5), (5, 2, 3, 0.9)],
)
def test_pass_at_k_has_the_known_values(n: int, c: int, k: int, value: float) -> None:
    """pass@k is 1 - C(n-c,k)/C(n,k), and 1 when fewer than k attempts failed."""
    assert pass_at_k(n, c, k) == pytest.approx(value, abs=5e-7)


@pytest.mark.parametrize(("n", "c", "k", "value"), [(10, 8, 5, 0.222222), (10, 3, 2, 3 / 45), (3, 2, 3, 0.0)])
def test_pass_hat_k_has_the_known_values(n: int, c: int, k: int, value: float) -> None:
    """pass^k is C(c,k)/C(n,k)."""
    assert pass_hat_k(n, c, k) == pytest.approx(value, abs=5e-7)


@pytest.mark.parametrize("estimator", [pass_at_k, pass_hat_k])
def test_too_few_attempts_are_undefined(estimator: object) -> None:
    """With n < k there is no figure: neither 0 nor 1."""
    assert estimator(2, 2, 3) is None  # type: ignore[operator]
    assert estimator(0, 0, 1) is None  # type: ignore[operator]


@pytest.mark.parametrize("bad", [(3, 4, 1), (3, -1, 1), (3, 1, 0), (-1, 0, 1)])
@pytest.mark.parametrize("estimator", [pass_at_k, pass_hat_k])
def test_impossible_counts_are_refused(estimator: object, bad: tuple[int, int, int]) -> None:
    """More passes than attempts is a fault of the caller, not a figure."""
    with pytest.raises(ValueError, match=r"0 <= c <= n"):
        estimator(*bad)  # type: ignore[operator]


@pytest.mark.parametrize(("k", "p", "n"), [(5, 0.3, 10), (3, 0.3, 10), (1, 0.7, 6)])
def test_estimators_are_unbiased(k: int, p: float, n: int) -> None:
    """Averaged over the binomial distribution they give the true 1-(1-p)^k and p^k."""
    weights = [math.comb(n, c) * p**c * (1 - p) ** (n - c) for c in range(n + 1)]
    at = math.fsum(w * (pass_at_k(n, c, k) or 0) for c, w in enumerate(weights))
    hat = math.fsum(w * (pass_hat_k(n, c, k) or 0) for c, w in enumerate(weights))
    assert at == pytest.approx(1 - (1 - p) ** k, abs=1e-12)
    assert hat == pytest.approx(p**k, abs=1e-12)


@given(st.integers(1, 8).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_estimators_equal_counting_all_draws(case: tuple[int, int, int]) -> None:
    """They are the share of k-subsets with at least one pass, and with passes only."""
    n, c, k = case
    draws = list(itertools.combinations([True] * c + [False] * (n - c), k))
    assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, draws)) / len(draws))
    assert pass_hat_k(n, c, k) == pytest.approx(sum(map(all, draws)) / len(draws))


@pytest.mark.parametrize(("c", "k"), [(1, 1), (30, 5000), (99_999, 3), (50_000, 50_000), (100_000, 100_000)])
def test_large_counts_neither_overflow_nor_drift(c: int, k: int) -> None:
    """A hundred thousand attempts give the value of the exact product formula."""
    n = 100_000
    log = sum(math.log1p(-k / i) for i in range(n - c + 1, n + 1)) if n - c >= k else -math.inf
    assert pass_at_k(n, c, k) == pytest.approx(-math.expm1(log), rel=1e-6)
    assert pass_hat_k(n, n, k) == 1.0


def test_mean_of_nothing_is_not_zero() -> None:
    """No values have no mean."""
    assert mean([]) is None
    assert mean(iter([0.1] * 10)) == pytest.approx(0.1, abs=0)


def test_percentile_interpolates() -> None:
    """Percentiles interpolate between neighbours, whatever the order of the values."""
    assert percentile([4, 1, 3, 2], 50) == 2.5
    assert percentile([4, 1, 3, 2], 0) == 1
    assert percentile([4, 1, 3, 2], 100) == 4
    assert percentile([10, 20], 95) == pytest.approx(19.5)
    assert percentile([7], 95) == 7
    assert percentile([], 50) is None


@pytest.mark.parametrize("percent", [-1, 101, math.nan])
def test_percentile_refuses_an_odd_percent(percent: float) -> None:
    """A percentile outside 0 to 100 does not exist."""
    with pytest.raises(ValueError, match="between 0 and 100"):
        percentile([1], percent)
