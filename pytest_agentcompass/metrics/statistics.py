"""Comparing two runs, paired by task: exact tests, intervals of the difference, what a run can see.

Standard library only. The unit is the task: attempts of one task share its difficulty.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from random import Random
from statistics import NormalDist

from .intervals import BOOTSTRAP_SEED, Interval, bootstrap, t_interval

__all__ = [
    "PairedTest",
    "StandardErrors",
    "benjamini_hochberg",
    "difference_interval",
    "holm",
    "mcnemar",
    "mcnemar_power",
    "paired_mde",
    "ratio_interval",
    "sign_flip",
    "standard_errors",
    "tango",
    "tasks_for_margin",
    "unpaired_mde",
]

RESAMPLES = 10_000
_EXACT_WORK = 20_000_000  # steps of the dynamic program that are worth an exact answer (a few seconds)
_FLIPS = 20_000


@dataclass(frozen=True, slots=True)
class PairedTest:
    """P-values of a paired test: *worse* and *better* are one-sided (the candidate against the baseline)."""

    worse: float
    better: float
    two_sided: float
    method: str


@dataclass(frozen=True, slots=True)
class StandardErrors:
    """The standard error of a mean over attempts: taken naively, and by task; *design_effect* is the
    ratio of the variances.
    """

    naive: float
    by_task: float
    design_effect: float


def mcnemar(broken: int, fixed: int) -> PairedTest:
    """Return the exact McNemar test of *broken* (passed before, failed now) against *fixed* tasks."""
    test = sign_flip([-1] * broken + [1] * fixed)
    return PairedTest(test.worse, test.better, test.two_sided, f"exact McNemar, {broken} broken and {fixed} fixed")


def sign_flip(differences: Sequence[Fraction | int]) -> PairedTest:
    """Return the sign-flip permutation test of per-task *differences* (candidate minus baseline).

    Exact by a dynamic program over sums; for differences of -1, 0 and 1 it is McNemar's exact test. Where
    that is too long, 20,000 random flips with a fixed seed.
    """
    sizes, observed = _whole(differences)
    if not sizes:
        return PairedTest(1.0, 1.0, 1.0, "sign-flip by task, no task changed")
    work = sum(sizes) * len(sizes)
    if work > _EXACT_WORK:
        return _random_flips(sizes, observed)
    sums = _flip_sums(sizes)
    total = sum(sizes)
    place = (observed + total) // 2  # sums run from -total to total in steps of two
    worse, better = math.fsum(sums[: place + 1]), math.fsum(sums[place:])
    far = (abs(observed) + total) // 2
    both = min(1.0, 2 * math.fsum(sums[far:])) if observed else 1.0
    return PairedTest(min(1.0, worse), min(1.0, better), both, f"exact sign-flip over {len(sizes)} changed tasks")


def _whole(differences: Sequence[Fraction | int]) -> tuple[list[int], int]:
    """Return the sizes of the differences that are not 0, and their sum, as the smallest whole numbers."""
    changed = [Fraction(item) for item in differences if item]
    if not changed:
        return [], 0
    scale = math.lcm(*(item.denominator for item in changed))
    scaled = [int(item * scale) for item in changed]
    step = math.gcd(*scaled)
    return [abs(item) // step for item in scaled], sum(scaled) // step


def _flip_sums(sizes: Sequence[int]) -> list[float]:
    """Return the probabilities of all sums of randomly signed *sizes*, from the lowest sum up.

    Equal sizes go in together: their sum is a binomial, so 2,000 tasks cost as little as a few.
    """
    sums = [1.0]
    for size, count in sorted(Counter(sizes).items()):
        weights = [math.comb(count, hits) / 2**count for hits in range(count + 1)]
        longer = [0.0] * (len(sums) + size * count)
        for hits, weight in enumerate(weights):
            if weight < 1e-300:
                continue
            start = hits * size
            for place, value in enumerate(sums, start):
                longer[place] += value * weight
        sums = longer
    return sums


def _random_flips(sizes: Sequence[int], observed: int) -> PairedTest:
    rng = Random(BOOTSTRAP_SEED)
    low = high = far = 1
    for _ in range(_FLIPS):
        bits = rng.getrandbits(len(sizes))
        value = sum(size if bits >> place & 1 else -size for place, size in enumerate(sizes))
        low += value <= observed
        high += value >= observed
        far += abs(value) >= abs(observed)
    worse, better, both = (hits / (_FLIPS + 1) for hits in (low, high, far))
    return PairedTest(
        worse,
        better,
        min(1.0, both),
        f"sign-flip over {len(sizes)} changed tasks, {_FLIPS} flips, seed {BOOTSTRAP_SEED}",
    )


def tango(broken: int, fixed: int, tasks: int, confidence: float = 0.95) -> Interval | None:
    """Return Tango's score interval of the paired difference (fixed - broken) / tasks; None of no tasks.

    T. Tango, Statistics in Medicine 17 (1998): the differences whose score statistic, with the
    discordance estimated under that difference, stays below z. Never of width 0, unlike Wald's.
    """
    if tasks < 1:
        return None
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    observed = (fixed - broken) / tasks

    def score(difference: float) -> float:
        return _tango_score(fixed, broken, tasks, difference)

    low = _bisect(lambda value: score(value) > z, -1.0, observed)
    high = _bisect(lambda value: score(value) >= -z, observed, 1.0)
    return Interval(low, high, confidence, f"Tango over {tasks} pairs")


def _tango_score(up: int, down: int, tasks: int, difference: float) -> float:
    a = 2 * tasks
    b = -up - down + (2 * tasks - up + down) * difference
    c = -down * difference * (1 - difference)
    rate = (math.sqrt(max(0.0, b * b - 4 * a * c)) - b) / (2 * a)
    variance = tasks * (2 * rate + difference * (1 - difference))
    distance = up - down - tasks * difference
    if variance <= 1e-15:
        return math.copysign(math.inf, distance) if distance else 0.0
    return distance / math.sqrt(variance)


def _bisect(before: Callable[[float], bool], low: float, high: float) -> float:
    """Return where *before* turns from true to false between *low* and *high*."""
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if before(middle) else (low, middle)
    return (low + high) / 2


def difference_interval(differences: Sequence[float], confidence: float, binary: bool) -> Interval | None:
    """Return the interval of the mean per-task difference.

    *binary* (one attempt each, passed or not): Tango. Else the bootstrap over tasks, widened to the t
    interval where that is wider (few tasks), and Tango's for no change where all tasks agree: a handful
    of equal tasks proves nothing.
    """
    tasks = len(differences)
    if not tasks:
        return None
    if binary:
        down, up = sum(item < 0 for item in differences), sum(item > 0 for item in differences)
        return tango(down, up, tasks, confidence)
    drawn = bootstrap(differences, _plain_mean, confidence, resamples=RESAMPLES)
    spread = t_interval(differences, confidence)
    if drawn is None or spread is None:
        centre, none = math.fsum(differences) / tasks, tango(0, 0, tasks, confidence)
        assert none is not None
        return Interval(centre + none.low, centre + none.high, confidence, f"Tango over {tasks} pairs that agree")
    method = drawn.method if drawn.low <= spread.low else f"{drawn.method}, widened to t"
    return Interval(min(drawn.low, spread.low), max(drawn.high, spread.high), confidence, method)


def _plain_mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def ratio_interval(
    pairs: Sequence[tuple[float, float]],
    confidence: float,
    statistic: Callable[[Sequence[float]], float | None] = _plain_mean,
) -> Interval | None:
    """Return the bootstrap interval over tasks of candidate / baseline (of means, or of *statistic*).

    *pairs* holds (candidate, baseline) per task. None where it says nothing or the baseline is 0.
    """

    def ratio(drawn: Sequence[tuple[float, float]]) -> float | None:
        top, bottom = statistic([pair[0] for pair in drawn]), statistic([pair[1] for pair in drawn])
        return top / bottom if top is not None and bottom else None

    return bootstrap(pairs, ratio, confidence, resamples=RESAMPLES // 5)


def paired_mde(tasks: int, variance: float, alpha: float = 0.05, power: float = 0.8) -> float | None:
    """Return the smallest true drop that a paired one-sided test at *alpha* sees with *power*.

    Normal approximation. *variance* is E[d^2] of one task's difference: the share of tasks that flip,
    for one attempt per task. None of no tasks; at most 1.
    """
    if tasks < 1 or variance <= 0:
        return None
    low, high = 0.0, 1.0
    za, zb = NormalDist().inv_cdf(1 - alpha), NormalDist().inv_cdf(power)

    def unseen(drop: float) -> bool:
        spread = math.sqrt(max(0.0, variance - drop * drop))
        return za * math.sqrt(variance) + zb * spread > drop * math.sqrt(tasks)

    return 1.0 if unseen(high) else _bisect(unseen, low, high)


def unpaired_mde(tasks: int, rate: float, alpha: float = 0.05, power: float = 0.8) -> float | None:
    """Return the smallest drop from *rate* that two runs of *tasks* other tasks each would show."""
    if tasks < 1:
        return None
    z = NormalDist().inv_cdf(1 - alpha) + NormalDist().inv_cdf(power)
    return z * math.sqrt(2 * rate * (1 - rate) / tasks)


def tasks_for_margin(flip_rate: float, margin: float, alpha: float = 0.05, power: float = 0.8) -> int:
    """Return how many tasks show non-inferiority at *margin* with *power* when nothing truly changed."""
    z = NormalDist().inv_cdf(1 - alpha) + NormalDist().inv_cdf(power)
    return math.ceil(z * z * flip_rate / (margin * margin))


def mcnemar_power(tasks: int, flip_rate: float, drop: float, alpha: float = 0.05) -> float:
    """Return how often the exact one-sided McNemar test sees a true *drop* where *flip_rate* of tasks flip.

    With *drop* 0 it is the test's true size.
    """
    down = (flip_rate + drop) / 2 / flip_rate
    total = 0.0
    for changed in range(tasks + 1):
        chance = _binomial(tasks, changed, flip_rate)
        needed = _least_broken(changed, alpha)
        if chance > 1e-15 and needed is not None:
            total += chance * math.fsum(_binomial(changed, b, down) for b in range(needed, changed + 1))
    return total


@lru_cache(maxsize=4096)
def _least_broken(changed: int, alpha: float) -> int | None:
    """Return how many of *changed* tasks must be broken for a one-sided p below *alpha*."""
    tail, least = 0, None
    for broken in range(changed, -1, -1):
        tail += math.comb(changed, broken)
        if tail / 2**changed >= alpha:
            break
        least = broken
    return least


def _binomial(n: int, hits: int, chance: float) -> float:
    if chance <= 0 or chance >= 1:
        return float(hits == (n if chance >= 1 else 0))
    logs = math.lgamma(n + 1) - math.lgamma(hits + 1) - math.lgamma(n - hits + 1)
    return math.exp(logs + hits * math.log(chance) + (n - hits) * math.log1p(-chance))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p-values, in the order given: for claims of `better on any of these`."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - rank) * p_values[place]))
        adjusted[place] = highest
    return adjusted


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Return the p-values adjusted for the false discovery rate, in the order given."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted, lowest = [0.0] * len(p_values), 1.0
    for rank in range(len(order), 0, -1):
        place = order[rank - 1]
        lowest = min(lowest, len(order) / rank * p_values[place])
        adjusted[place] = lowest
    return adjusted


def standard_errors(tasks: Sequence[Sequence[float]]) -> StandardErrors | None:
    """Return the standard error of the mean over *tasks* of their attempts; None under two tasks."""
    means = [math.fsum(attempts) / len(attempts) for attempts in tasks if attempts]
    if len(means) < 2:
        return None
    values = [value for attempts in tasks for value in attempts]
    naive, by_task = _standard_error(values, 0), _standard_error(means, 1)
    return StandardErrors(naive, by_task, (by_task / naive) ** 2 if naive else 1.0)


def _standard_error(values: Sequence[float], lost: int) -> float:
    centre = math.fsum(values) / len(values)
    variance = math.fsum((value - centre) ** 2 for value in values) / (len(values) - lost)
    return math.sqrt(variance / len(values))
