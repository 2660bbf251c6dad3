"""Intervals: known values, the task as the unit, and no false certainty."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_agentcompass.metrics.intervals import bootstrap, mean_interval, t_interval, t_quantile, wilson


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [(45, 50, 0.786398, 0.956524), (41, 50, 0.692039, 0.902298), (0, 20, 0, 0.161125), (20, 20, 0.838875, 1)],
)
def test_wilson_has_the_known_values(successes: int, n: int, low: float, high: float) -> None:
    """Wilson's bounds at 95 %, exactly 0 and 1 at the ends."""
    found = wilson(successes, n)
    assert found is not None
    assert [found.low, found.high] == pytest.approx([low, high], abs=5e-7)


@pytest.mark.parametrize(("n", "low"), [(50, 0.715), (100, 0.749), (200, 0.771), (500, 0.790)])
def test_wilson_one_sided_bound(n: int, low: float) -> None:
    """A 90 % interval's lower bound is the one-sided 95 % bound."""
    found = wilson(0.82 * n, n, 0.90)
    assert found is not None
    assert found.low == pytest.approx(low, abs=5e-4)


def test_wilson_of_no_trials_is_nothing() -> None:
    """Zero tasks have no interval."""
    assert wilson(0, 0) is None


@pytest.mark.parametrize(
    ("probability", "df", "value"),
    [
        (0.975, 1, 12.706205),
        (0.975, 2, 4.302653),
        (0.975, 3, 3.182446),
        (0.95, 7, 1.894579),
        (0.975, 10, 2.228139),
        (0.975, 49, 2.009575),
        (0.995, 30, 2.749996),
        (0.975, 1000, 1.962339),
        (0.975, 100_000, 1.959988),
        (0.025, 3, -3.182446),
    ],
)
def test_t_quantile_has_the_table_values(probability: float, df: int, value: float) -> None:
    """The quantile of Student's t to six decimals, for few and many degrees of freedom."""
    assert t_quantile(probability, df) == pytest.approx(value, abs=2e-6)


def test_t_quantile_is_continuous_where_the_method_changes() -> None:
    """The expansion for many degrees of freedom joins the exact sum."""
    assert t_quantile(0.975, 2000) == pytest.approx(t_quantile(0.975, 2001), abs=2e-6)


@pytest.mark.parametrize(("probability", "df"), [(0, 5), (1, 5), (0.5, 0)])
def test_t_quantile_refuses_what_has_no_quantile(probability: float, df: int) -> None:
    """A probability of 0 or 1 and zero degrees of freedom are refused."""
    with pytest.raises(ValueError, match="df >= 1"):
        t_quantile(probability, df)


TINY = [1.0, 2 / 3, 0.0, 1 / 3]


def test_t_interval_uses_task_means() -> None:
    """The standard error is that of task means (0.21517), not of pooled attempts (0.14434)."""
    found = t_interval(TINY)
    assert found is not None
    assert (found.high - 0.5) / t_quantile(0.975, 3) == pytest.approx(0.21517, abs=5e-6)


def test_bootstrap_approaches_the_exact_resampling_distribution() -> None:
    """Four task means: the 2.5 and 97.5 percentiles over all 256 resamples are 1/6 and 5/6."""
    exact = sorted(sum(draw) / 4 for draw in itertools.product(TINY, repeat=4))
    assert exact[int(0.025 * 255)] == pytest.approx(1 / 6)
    found = bootstrap(TINY, lambda values: sum(values) / len(values), resamples=4000)
    assert found is not None
    assert [found.low, found.high] == pytest.approx([1 / 6, 5 / 6], abs=0.09)


def test_bootstrap_is_the_same_each_time_and_says_how_it_was_made() -> None:
    """The seed is fixed and does not touch the program's own random numbers; B and seed are named."""
    state = random.getstate()
    first, second = (bootstrap(TINY, lambda values: sum(values) / len(values)) for _ in range(2))
    assert first == second
    assert random.getstate() == state
    assert first is not None
    assert "1000 resamples" in first.method
    assert "seed" in first.method


def test_bootstrap_claims_nothing_where_all_resamples_agree() -> None:
    """Equal tasks, or one task, have no bootstrap interval (it would have width 0)."""
    assert bootstrap([1.0, 1.0, 1.0], sum) is None
    assert bootstrap([1.0], sum) is None


def test_equal_tasks_never_give_certainty() -> None:
    """Five tasks that all fail three times are not proof of 0 %; nor is one task."""
    for values in ([0.0] * 5, [1.0] * 5, [0.5] * 5, [1.0]):
        found = mean_interval(values)
        assert found is not None
        assert found.high - found.low > 0.3


def test_no_tasks_have_no_interval() -> None:
    """Nothing in, nothing out."""
    assert mean_interval([]) is None
    assert t_interval([0.5]) is None


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40), st.sampled_from([0.8, 0.95, 0.99]))
def test_intervals_hold_the_mean_and_stay_in_range(values: list[float], confidence: float) -> None:
    """Whatever the task rates, the interval is within 0..1 and around the mean."""
    found = mean_interval(values, confidence)
    assert found is not None
    average = sum(values) / len(values)
    assert 0 <= found.low <= average + 1e-9
    assert average - 1e-9 <= found.high <= 1
