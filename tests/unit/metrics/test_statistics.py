"""Paired tests, intervals, powers: the worked numbers of the specification, and properties beyond them."""

from __future__ import annotations

import itertools
import math
import random
import statistics as stdlib
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_agentcompass.metrics.estimators import mean, pass_at_k, pass_hat_k, percentile
from pytest_agentcompass.metrics.figures import solved_value
from pytest_agentcompass.metrics.intervals import wilson
from pytest_agentcompass.metrics.statistics import (
    benjamini_hochberg,
    difference_interval,
    holm,
    mcnemar,
    mcnemar_power,
    paired_mde,
    ratio_interval,
    sign_flip,
    standard_errors,
    tango,
    tasks_for_margin,
    unpaired_mde,
)
from pytest_agentcompass.metrics.tallies import TaskTally

_TINY = [[1, 1, 1], [1, 1, 0], [0, 0, 0], [1, 0, 0]]


@pytest.mark.parametrize(
    ("broken", "fixed", "two_sided", "worse"),
    [
        (8, 2, 0.109375, 0.054688),
        (9, 1, 0.021484, 0.010742),
        (12, 3, 0.035156, 0.017578),
        (5, 0, 0.0625, 0.03125),
        (6, 0, 0.03125, 0.015625),
        (0, 0, 1, 1),
    ],
)
def test_mcnemar_is_exact(broken: int, fixed: int, two_sided: float, worse: float) -> None:
    """Discordant pairs are compared with a fair coin, exactly."""
    found = mcnemar(broken, fixed)
    assert found.two_sided == pytest.approx(two_sided, abs=1e-6)
    assert found.worse == pytest.approx(worse, abs=1e-6)


@pytest.mark.parametrize("broken", range(5))
def test_fewer_than_five_broken_tasks_are_never_significant(broken: int) -> None:
    """One-sided at 5 %, four newly broken tasks out of four prove nothing."""
    assert mcnemar(broken, 0).worse > 0.05


def test_pairing_sees_what_totals_cannot() -> None:
    """70 against 62 of 100: paired 0.021; unpaired, by Fisher's exact test, 0.296."""
    assert mcnemar(9, 1).two_sided == pytest.approx(0.021, abs=5e-4)
    ways = [math.comb(100, a) * math.comb(100, 132 - a) / math.comb(200, 132) for a in range(32, 101)]
    seen = math.comb(100, 70) * math.comb(100, 62) / math.comb(200, 132)
    assert math.fsum(p for p in ways if p <= seen * (1 + 1e-9)) == pytest.approx(0.296, abs=5e-4)


def test_sign_flip_on_task_totals() -> None:
    """With three attempts per task the sign of each task's difference is flipped: 1 of 16 arrangements is as bad."""
    before, after = [3, 3, 2, 3, 1, 2, 0, 3], [3, 2, 1, 3, 0, 2, 0, 1]
    differences = [Fraction(new - old, 3) for old, new in zip(before, after, strict=True)]
    assert float(sum(differences) / 8) == pytest.approx(-0.208333, abs=1e-6)
    found = sign_flip(differences)
    assert found.worse == pytest.approx(0.0625)
    assert found.two_sided == pytest.approx(0.125)


@pytest.mark.parametrize(("broken", "fixed"), [(9, 1), (3, 4), (0, 6), (40, 22)])
def test_sign_flip_of_single_attempts_is_mcnemar(broken: int, fixed: int) -> None:
    """One routine serves both, whatever the number of tasks that did not change."""
    flips = sign_flip([-1] * broken + [1] * fixed + [0] * 30)
    exact = mcnemar(broken, fixed)
    assert (flips.worse, flips.better, flips.two_sided) == (exact.worse, exact.better, exact.two_sided)


@given(st.lists(st.integers(-4, 4), min_size=1, max_size=9))
def test_sign_flip_equals_brute_force(differences: list[int]) -> None:
    """The dynamic program gives what listing all sign flips gives."""
    sums = [
        sum(sign * item for sign, item in zip(signs, differences, strict=True))
        for signs in itertools.product((1, -1), repeat=len(differences))
    ]
    seen, found = sum(differences), sign_flip(differences)
    assert found.worse == pytest.approx(sum(value <= seen for value in sums) / len(sums))
    assert found.better == pytest.approx(sum(value >= seen for value in sums) / len(sums))
    assert found.two_sided == pytest.approx(sum(abs(value) >= abs(seen) for value in sums) / len(sums))


def test_sign_flip_of_unequal_attempts_scales_exactly() -> None:
    """Thirds and halves meet at the least common multiple, so no rounding ties or breaks sums."""
    found = sign_flip([Fraction(-1, 3), Fraction(-1, 3), Fraction(2, 3), Fraction(-1, 2)])
    assert found.worse == sign_flip([-2, -2, 4, -3]).worse


def test_large_and_odd_differences_fall_back_to_seeded_flips() -> None:
    """Where the exact answer would take too long, a fixed seed keeps it reproducible, and the method says so."""
    rng = random.Random(1)
    differences = [Fraction(rng.randint(-50_000, 50_000), 1) for _ in range(60)]
    first, second = sign_flip(differences), sign_flip(differences)
    assert first == second
    assert "seed" in first.method


@pytest.mark.parametrize(
    ("broken", "fixed", "tasks", "low", "high", "digits"),
    [
        (20, 17, 500, -0.02677, 0.01445, 5),
        (2, 2, 50, -0.08081, 0.08081, 5),
        (10, 10, 300, -0.02589, 0.02589, 5),
        (9, 1, 100, -0.14015, -0.03307, 5),
        (0, 0, 5, -0.351, 0.351, 3),
        (0, 0, 100, -0.0263, 0.0263, 4),
    ],
)
def test_tango_bounds(broken: int, fixed: int, tasks: int, low: float, high: float, digits: int) -> None:
    """The 90 % interval gives the one-sided 95 % bounds; it is wide even where nothing changed."""
    found = tango(broken, fixed, tasks, 0.9)
    assert found is not None
    assert (round(found.low, digits), round(found.high, digits)) == (low, high)


@pytest.mark.parametrize("tasks", [1, 5, 89, 500])
def test_tango_of_no_change_has_its_closed_form(tasks: int) -> None:
    """At b = c = 0 the bound is -z^2 / (T + z^2), where Wald's would be 0 and pass any margin."""
    z = stdlib.NormalDist().inv_cdf(0.95)
    found = tango(0, 0, tasks, 0.9)
    assert found is not None
    assert found.low == pytest.approx(-z * z / (tasks + z * z), abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 200))
def test_tango_solves_its_score_equation(broken: int, fixed: int, same: int) -> None:
    """At each bound the score with the constrained maximum-likelihood rate is z (found here by search, not formula)."""
    tasks = broken + fixed + same
    if not tasks or broken == tasks or fixed == tasks:
        return
    found = tango(broken, fixed, tasks, 0.9)
    assert found is not None
    z = stdlib.NormalDist().inv_cdf(0.95)
    for bound, target in ((found.low, z), (found.high, -z)):
        rate = _likeliest(fixed, broken, tasks, bound)
        variance = (2 * rate + bound - bound * bound) / tasks
        assert ((fixed - broken) / tasks - bound) / math.sqrt(variance) == pytest.approx(target, abs=2e-3)


def _likeliest(up: int, down: int, tasks: int, difference: float) -> float:
    """Return the rate of broken tasks that makes the data most likely under *difference*, by golden search."""

    def loss(rate: float) -> float:
        parts = [(up, rate + difference), (down, rate), (tasks - up - down, 1 - 2 * rate - difference)]
        return -math.fsum(count * math.log(max(chance, 1e-300)) for count, chance in parts if count)

    low, high = max(0.0, -difference), (1 - difference) / 2
    ratio = (math.sqrt(5) - 1) / 2
    for _ in range(200):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (low, right) if loss(left) < loss(right) else (left, high)
    return (low + high) / 2


@pytest.mark.parametrize(
    ("tasks", "paired", "unpaired"),
    [
        (89, (8.2, 11.7, 14.3), 18.3),
        (100, (7.8, 11.0, 13.5), 17.2),
        (200, (5.5, 7.8, 9.6), 12.2),
        (500, (3.5, 5.0, 6.1), 7.7),
        (1000, (2.5, 3.5, 4.3), 5.5),
    ],
)
def test_minimum_detectable_effect(tasks: int, paired: tuple[float, ...], unpaired: float) -> None:
    """One-sided 5 %, 80 % power: points by flip rate 10, 20, 30 %, and unpaired at 60 %."""
    found = [100 * (paired_mde(tasks, flips) or 0) for flips in (0.1, 0.2, 0.3)]
    assert found == pytest.approx(list(paired), abs=0.055)
    assert 100 * (unpaired_mde(tasks, 0.6) or 0) == pytest.approx(unpaired, abs=0.055)


@pytest.mark.parametrize(
    ("tasks", "drop", "power"),
    [
        (100, 0.1, 0.675),
        (100, 0.12, 0.835),
        (200, 0.08, 0.786),
        (500, 0.05, 0.780),
        (500, 0.06, 0.901),
        (100, 0.0, 0.032),
        (500, 0.0, 0.040),
    ],
)
def test_exact_power_and_size(tasks: int, drop: float, power: float) -> None:
    """Exact McNemar at 20 % flips: a bit weaker than its normal approximation, and below its nominal size."""
    assert mcnemar_power(tasks, 0.2, drop) == pytest.approx(power, abs=5e-4)


def test_tasks_that_non_inferiority_needs() -> None:
    """Margins of 2, 3 and 5 points at 10 and 20 % flips."""
    found = [tasks_for_margin(flips, margin) for flips in (0.1, 0.2) for margin in (0.02, 0.03, 0.05)]
    assert found == [1546, 687, 248, 3092, 1374, 495]


def _trinomial(tasks: int, flips: float) -> list[tuple[int, int, float]]:
    """Return (broken, fixed, chance) of two runs of one agent."""
    rows = []
    for changed in range(tasks + 1):
        chance = math.comb(tasks, changed) * flips**changed * (1 - flips) ** (tasks - changed)
        if chance > 1e-9:
            rows += [(b, changed - b, chance * math.comb(changed, b) / 2**changed) for b in range(changed + 1)]
    return rows


@pytest.mark.parametrize(
    ("tasks", "any_drop", "over_two", "over_five"), [(50, 44, 32, 21), (100, 46, 29, 11), (500, 48, 15, 0.5)]
)
def test_naive_gates_are_red_for_the_same_agent(tasks: int, any_drop: float, over_two: float, over_five: float) -> None:
    """Why `>= baseline` needs a margin and a test: how often a bare drop shows between equal runs at 20 % flips."""
    rows = _trinomial(tasks, 0.2)
    found = [100 * math.fsum(p for b, c, p in rows if (b - c) / tasks > drop + 1e-9) for drop in (0.0, 0.02, 0.05)]
    assert found == pytest.approx([any_drop, over_two, over_five], abs=1.0)


@pytest.mark.parametrize(("tasks", "low", "high"), [(100, 10, 12.5), (500, 25, 27)])
def test_equal_agents_rarely_clear_a_small_margin(tasks: int, low: float, high: float) -> None:
    """A 2-point margin at 20 % flips is cleared 10-12 % of the time with 100 tasks, 26 % with 500."""
    cleared = 0.0
    for changed in range(tasks + 1):
        chance = math.exp(
            math.lgamma(tasks + 1) - math.lgamma(changed + 1) - math.lgamma(tasks - changed + 1)
            + changed * math.log(0.2) + (tasks - changed) * math.log(0.8)
        )  # fmt: skip
        if chance < 1e-6:
            continue
        most = _most_broken(changed, tasks, 0.02)
        cleared += chance * math.fsum(math.comb(changed, b) for b in range(most + 1)) / 2**changed
    assert low <= 100 * cleared <= high


def _most_broken(changed: int, tasks: int, margin: float) -> int:
    """Return how many of *changed* tasks may be broken with the bound above -margin (-1: not even none)."""
    low, high = -1, changed
    while low < high:
        middle = (low + high + 1) // 2
        bound = tango(middle, changed - middle, tasks, 0.9)
        assert bound is not None
        low, high = (middle, high) if bound.low > -margin else (low, middle - 1)
    return low


def test_holm_and_false_discovery_rate() -> None:
    """Adjusted p-values keep the order given."""
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert benjamini_hochberg([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.04, 0.04])
    assert holm([]) == []
    assert holm([0.9, 0.8]) == [1.0, 1.0]


def test_the_unit_is_the_task() -> None:
    """Attempts of one task are not independent: the naive error is too small by the design effect."""
    found = standard_errors(_TINY)
    assert found is not None
    assert found.naive == pytest.approx(0.14434, abs=5e-6)
    assert found.by_task == pytest.approx(0.21517, abs=5e-6)
    assert found.design_effect == pytest.approx(2.2222, abs=5e-5)
    assert standard_errors([[1.0]]) is None


def test_all_resamples_of_four_tasks() -> None:
    """The bootstrap over tasks, enumerated: its spread and its percentiles need no seed."""
    means = [sum(row) / 3 for row in _TINY]
    drawn = sorted(sum(pick) / 4 for pick in itertools.product(means, repeat=4))
    assert stdlib.pstdev(drawn) == pytest.approx(0.18634, abs=5e-6)
    assert drawn[math.floor(0.025 * 255)] == pytest.approx(0.16667, abs=5e-6)
    assert percentile(drawn, 97.5) == pytest.approx(0.83333, abs=5e-6)
    found = difference_interval(means, 0.95, binary=False)
    assert found is not None
    assert found.low <= 0.16667
    assert found.high >= 0.83333


def test_clustered_attempts_are_wider_than_pooled_ones() -> None:
    """T = 50, k = 4, difficulties spread evenly: by task about 1.5 times the pooled error."""
    rng = random.Random(7)
    rows = [
        [float(rng.random() < chance) for _ in range(4)] for chance in (rng.betavariate(0.7, 0.7) for _ in range(50))
    ]
    found = standard_errors(rows)
    assert found is not None
    assert 1.3 < found.by_task / found.naive < 1.9


@pytest.mark.parametrize(
    ("n", "c", "k", "value"),
    [(10, 3, 5, 0.916667), (10, 0, 5, 0), (10, 8, 5, 1), (4, 1, 2, 0.5), (5, 2, 3, 0.9), (10, 3, 1, 0.3)],
)
def test_pass_at_k_values(n: int, c: int, k: int, value: float) -> None:
    """The unbiased estimator, as specified."""
    assert pass_at_k(n, c, k) == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize(("n", "c", "k", "value"), [(10, 8, 5, 0.222222), (10, 3, 2, 3 / 45)])
def test_pass_hat_k_values(n: int, c: int, k: int, value: float) -> None:
    """C(c, k) / C(n, k)."""
    assert pass_hat_k(n, c, k) == pytest.approx(value, abs=1e-6)


def test_estimators_are_unbiased_and_plug_in_is_not() -> None:
    """p = 0.3, n = 10: averaged over all outcomes the estimator gives the truth, the plug-in does not."""
    chances = [math.comb(10, c) * 0.3**c * 0.7 ** (10 - c) for c in range(11)]
    at = math.fsum(p * (pass_at_k(10, c, 5) or 0) for c, p in enumerate(chances))
    hat = math.fsum(p * (pass_hat_k(10, c, 3) or 0) for c, p in enumerate(chances))
    assert at == pytest.approx(1 - 0.7**5, abs=1e-12)
    assert at == pytest.approx(0.83193, abs=5e-6)
    assert hat == pytest.approx(0.027, abs=1e-12)
    assert math.fsum(p * (1 - (1 - c / 10) ** 5) for c, p in enumerate(chances)) == pytest.approx(0.75974, abs=5e-6)
    assert math.fsum(p * (c / 10) ** 3 for c, p in enumerate(chances)) == pytest.approx(0.04674, abs=5e-6)


def test_a_suite_averages_task_estimates() -> None:
    """Four tasks with 4, 2, 1, 0 of 4: pooling first gives another, wrong figure."""
    passes = [4, 2, 1, 0]
    assert mean(c / 4 for c in passes) == pytest.approx(0.4375)
    assert mean(pass_at_k(4, c, 2) or 0 for c in passes) == pytest.approx(0.583333, abs=1e-6)
    assert mean(pass_hat_k(4, c, 2) or 0 for c in passes) == pytest.approx(0.291667, abs=1e-6)
    assert 1 - (1 - sum(passes) / 16) ** 2 == pytest.approx(0.683594, abs=1e-6)


def test_stopping_at_the_first_success_biases_the_share() -> None:
    """p = 0.5, cap 4: averaging c/n after early stop gives 0.682; what we report is pass@4, 15/16."""
    ends = [(n, 1, 0.5**n) for n in range(1, 5)] + [(4, 0, 0.5**4)]
    assert math.fsum(chance * c / n for n, c, chance in ends) == pytest.approx(0.682, abs=5e-4)
    shown = math.fsum(
        chance * (solved_value(TaskTally("t", "", (), passed=c, failed=n - c), "worst", True) or 0)
        for n, c, chance in ends
    )
    assert shown == pytest.approx(15 / 16)


@pytest.mark.parametrize(("p", "shown"), [(0.3, 0.657), (0.5, 0.875)])
def test_rerun_until_green_is_pass_at_3(p: float, shown: float) -> None:
    """Two reruns of failures report 1 - (1 - p)^3, which is why a scored failure is never rerun."""
    samples = [(c, math.comb(3, c) * p**c * (1 - p) ** (3 - c)) for c in range(4)]
    assert math.fsum(chance * (pass_at_k(3, c, 3) or 0) for c, chance in samples) == pytest.approx(shown, abs=5e-4)


@pytest.mark.parametrize(
    ("hits", "n", "low", "high"),
    [(45, 50, 0.786398, 0.956524), (41, 50, 0.692039, 0.902298), (0, 20, 0, 0.161125), (20, 20, 0.838875, 1)],
)
def test_wilson_values(hits: int, n: int, low: float, high: float) -> None:
    """Wilson's interval at 95 %."""
    found = wilson(hits, n)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-6)


@pytest.mark.parametrize(("tasks", "low"), [(50, 0.715), (100, 0.749), (200, 0.771), (500, 0.790)])
def test_one_sided_bounds_of_82_percent(tasks: int, low: float) -> None:
    """None of these proves 80 %."""
    found = wilson(0.82 * tasks, tasks, 0.9)
    assert found is not None
    assert found.low == pytest.approx(low, abs=5e-4)


def test_difference_of_equal_tasks_is_not_certain() -> None:
    """With several attempts, tasks that all agree leave Tango's width: five equal tasks prove nothing."""
    found = difference_interval([0.0] * 5, 0.9, binary=False)
    assert found is not None
    assert found.low == pytest.approx(-0.351, abs=5e-4)
    assert difference_interval([], 0.9, binary=True) is None


def test_ratio_of_costs() -> None:
    """Guard metrics compare means of the same tasks; a candidate that costs double everywhere is 2 exactly."""
    rng = random.Random(3)
    pairs = [(2 * cost, cost) for cost in (rng.uniform(1, 9) for _ in range(60))]
    assert ratio_interval(pairs, 0.9) is None  # all resamples alike: nothing to bound
    noisy = [(new + rng.uniform(-1, 1), old) for new, old in pairs]
    found = ratio_interval(noisy, 0.9)
    assert found is not None
    assert 1.9 < found.low < 2 < found.high < 2.1
