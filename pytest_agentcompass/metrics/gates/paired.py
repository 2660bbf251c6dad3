"""A run against its baseline: differences by task, their test and interval, what they could have shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Literal

from ..statistics import PairedTest, difference_interval, mcnemar, paired_mde, ratio_interval, sign_flip
from .names import MetricKind, MetricName
from .pairing import Pairing
from .parser import NoRegression, Versus
from .scope import ScopedTask
from .settings import GateSettings
from .values import Undefined, amount, rate
from .verdicts import Comparison, Verdict
from .words import points, share

__all__ = ["against_baseline", "compare_amounts", "compare_rates", "no_regression"]

Leaning = Literal["shown", "worst", "best"]
_SLACK = 1e-9
_VIEWS: dict[Leaning, tuple[Literal["worst", "best"], Literal["worst", "best"]]] = {
    "shown": ("worst", "worst"),
    "worst": ("worst", "best"),  # as bad for the candidate as it can be
    "best": ("best", "worst"),
}


def compare_rates(pairing: Pairing, name: MetricName, confidence: float, leaning: Leaning = "shown") -> Comparison:
    """Return the comparison of how far tasks are solved; one-sided at *confidence*.

    *leaning* says what becomes of pairs in which an attempt has no verdict: they are dropped (shown), or
    count as bad or as good for the candidate as they can be. Undefined when no pair has a value.
    """
    candidate_view, baseline_view = _VIEWS[leaning]
    found: list[tuple[ScopedTask, Fraction, Fraction]] = []
    dropped = []
    for task, other in pairing.pairs:
        new, old = rate(task, name, candidate_view), rate(other, name, baseline_view)
        undecided = leaning == "shown" and not (task.decided and other.decided)
        if new is None or old is None or undecided:
            dropped.append(task.key)
        else:
            found.append((task, new, old))
    if not found:
        raise Undefined(f"no pair of tasks has a value of {name.text}")
    differences = [new - old for _, new, old in found]
    binary = all(new in (0, 1) and old in (0, 1) for _, new, old in found) and _single(pairing)
    test = _test(differences, binary)
    spread = sum(float(item) ** 2 for item in differences) / len(differences)
    assumed = spread or 1 - (1 - confidence) ** (1 / len(differences))
    return Comparison(
        pairs=len(found),
        baseline=math.fsum(float(old) for _, _, old in found) / len(found),
        candidate=math.fsum(float(new) for _, new, _ in found) / len(found),
        difference=float(sum(differences, Fraction()) / len(found)),
        interval=difference_interval([float(item) for item in differences], 2 * confidence - 1, binary),
        p_worse=test.worse,
        p_better=test.better,
        method=test.method,
        mde=paired_mde(len(found), assumed, 1 - confidence),
        flip_rate=assumed,
        worse=tuple(task.key for task, new, old in found if new < old),
        better=tuple(task.key for task, new, old in found if new > old),
        only_candidate=tuple(pairing.only_candidate),
        only_baseline=tuple(pairing.only_baseline),
        dropped=tuple(dropped),
    )


def _single(pairing: Pairing) -> bool:
    """Whether each task has one value that is 1 or 0: one attempt, or solved within the cap."""
    return all((task.n == 1 or task.early) and (other.n == 1 or other.early) for task, other in pairing.pairs)


def _test(differences: Sequence[Fraction], binary: bool) -> PairedTest:
    if binary:
        return mcnemar(sum(item < 0 for item in differences), sum(item > 0 for item in differences))
    return sign_flip(differences)


def compare_amounts(pairing: Pairing, name: MetricName, confidence: float) -> Comparison:
    """Return the comparison of what was spent, by its ratio; pairs in which an attempt is silent are dropped."""
    values, used, dropped = [], [], []
    for task, other in pairing.pairs:
        new, old = _spent(task, name), _spent(other, name)
        if new is None or old is None:
            dropped.append(task.key)
        else:
            values.append((new, old))
            used.append((task.key, new, old))
    bottom = math.fsum(old for _, old in values)
    if not values or not bottom:
        raise Undefined(
            f"no pair of tasks tells its {name.text} in both runs" if not values else f"the baseline's {name.text} is 0"
        )
    top = math.fsum(new for new, _ in values)
    return Comparison(
        pairs=len(values),
        baseline=bottom / len(values),
        candidate=top / len(values),
        difference=top / bottom,
        interval=ratio_interval(values, 2 * confidence - 1),
        method=f"ratio of means over {len(values)} pairs, bootstrap over tasks",
        worse=tuple(key for key, new, old in used if new > old),
        better=tuple(key for key, new, old in used if new < old),
        only_candidate=tuple(pairing.only_candidate),
        only_baseline=tuple(pairing.only_baseline),
        dropped=tuple(dropped),
    )


def _spent(task: ScopedTask, name: MetricName) -> float | None:
    if name.kind is MetricKind.SECONDS:
        ran = [item.seconds for item in task.task.attempts if item.outcome not in ("skipped", "missing")]
        return _per_attempt(math.fsum(ran), len(ran), name) if ran else None
    total, attempts, silent = amount(task, name.name)
    return None if silent or not attempts else _per_attempt(total, attempts, name)


def _per_attempt(total: float, attempts: int, name: MetricName) -> float:
    return total / attempts if name.name.endswith("_mean") else total


def against_baseline(
    rule: Versus, shown: Comparison, worst: Comparison, best: Comparison, settings: GateSettings
) -> tuple[Verdict, list[str]]:
    """Return the verdict of `>= baseline - MARGIN` (non-inferiority), `> baseline` (superiority) or a ratio.

    PASS when the one-sided bound clears the margin in the worst case, FAIL when the other bound misses
    it in the best one.
    """
    if rule.factor is not None:
        return _ratio(rule.factor, shown, settings)
    shift = rule.shift or 0.0
    confidence = settings.comparison_confidence
    assert worst.interval is not None and best.interval is not None
    bounds = f"one-sided {confidence * 100:.4g}% bounds {points(worst.interval.low)} and {points(best.interval.high)}"
    if rule.comparison == ">" and shift == 0:
        needed, passes = "needs to be better, shown", _below(worst.p_better, 1 - confidence)
    else:
        needed, passes = f"needs more than {points(shift)}", worst.interval.low > shift + _SLACK
    fails = best.interval.high < shift - _SLACK
    verdict = Verdict.PASS if passes else Verdict.FAIL if fails else Verdict.INCONCLUSIVE
    return verdict, [needed, bounds, *_detectable(shown)]


def _below(p_value: float | None, alpha: float) -> bool:
    return p_value is not None and p_value < alpha


def _ratio(factor: float, shown: Comparison, settings: GateSettings) -> tuple[Verdict, list[str]]:
    confidence = settings.comparison_confidence
    low, high = shown.difference, shown.difference
    if shown.interval is not None:
        low, high = shown.interval.low, shown.interval.high
    verdict = Verdict.PASS if high <= factor + _SLACK else Verdict.FAIL if low > factor else Verdict.INCONCLUSIVE
    return verdict, [
        f"needs at most {factor:g} times the baseline",
        f"one-sided {confidence * 100:.4g}% bounds {low:.3g} and {high:.3g}",
    ]


def no_regression(
    rule: NoRegression, shown: Comparison, worst: Comparison, best: Comparison, settings: GateSettings
) -> tuple[Verdict, list[str]]:
    """Return FAIL when worse is shown (one-sided), PASS when it is not; the latter proves no equality."""
    alpha = 1 - settings.comparison_confidence
    tested = f"one-sided p {_p(shown.p_worse)} ({shown.method}), alpha {alpha:.3g}"
    if _below(best.p_worse, alpha):
        return Verdict.FAIL, ["worse than the baseline is shown", tested, *_detectable(shown)]
    if _below(worst.p_worse, alpha):
        why = "attempts without a verdict decide whether a regression is shown: run them again"
        return Verdict.INCONCLUSIVE, [why, tested, *_detectable(shown)]
    return Verdict.PASS, ["no regression found, which does not prove that there is none", tested, *_detectable(shown)]


def _p(value: float | None) -> str:
    return "unknown" if value is None else f"= {value:.3g}" if value >= 0.001 else "< 0.001"


def _detectable(shown: Comparison) -> list[str]:
    if shown.mde is None or shown.flip_rate is None:
        return []
    flips = (
        f"{share(shown.flip_rate)} flip" if shown.worse or shown.better else f"up to {share(shown.flip_rate)} may flip"
    )
    pairs = f"{shown.pairs} pairs of which {flips}"
    return [f"smallest drop that {pairs} can show: {shown.mde * 100:.1f} pt (80% power)"]


def difference_text(shown: Comparison, kind: MetricKind) -> str:
    """Return both values and their difference, with the interval."""
    if kind is not MetricKind.RATE:
        return f"{shown.difference:.3g} times the baseline over {shown.pairs} pairs"
    text = (
        f"{share(shown.candidate)} against {share(shown.baseline)}, {points(shown.difference)} over {shown.pairs} pairs"
    )
    return f"{text} ({len(shown.worse)} worse, {len(shown.better)} better)"
