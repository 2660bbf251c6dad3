"""Figures: one number over tasks, with its bounds, its denominator and what it averages over."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

from .estimators import mean, pass_at_k, pass_hat_k
from .intervals import Interval, mean_interval
from .tallies import TaskTally

__all__ = ["View", "attempt_figures", "figure", "solved_sum", "solved_value"]

#: how attempts without a verdict count: as not solved, as solved, or not at all
View = Literal["worst", "best", "scored"]
Estimate = Callable[[TaskTally, View], float | None]
Aggregate = Callable[[Sequence[tuple[str, float]]], float | None]


def solved_value(tally: TaskTally, view: View, early_stop: bool = False) -> float | None:
    """Return how far a task is solved: the share of its attempts that passed (c/n).

    After *early_stop* attempts are no samples, so it is 1 or 0: solved within the cap or not.
    """
    if not early_stop:
        return _estimate(tally, view, lambda n, c: pass_at_k(n, c, 1))
    if tally.passed:
        return 1.0
    if view == "scored":
        return 0.0 if tally.valid and not tally.unknown else None
    return 1.0 if view == "best" and tally.unknown else 0.0


def figure(
    tallies: Sequence[TaskTally],
    estimate: Estimate,
    over: str,
    aggregate: Aggregate | None = None,
    interval: Callable[[Sequence[tuple[str, float]]], Interval | None] | None = None,
) -> dict[str, Any]:
    """Return the figure that *estimate* gives over *tallies*, as plain data.

    `value`: attempts without a verdict count as not solved; `best_case`: as solved; `over_scored`: only
    attempts with one. *over* says what is averaged; by default the unweighted mean over tasks.
    """
    combine = aggregate or (lambda pairs: mean(value for _, value in pairs))
    worst, best, scored = (_pairs(tallies, estimate, view) for view in ("worst", "best", "scored"))
    bounds = interval or (lambda pairs: mean_interval([value for _, value in pairs]))
    found = bounds(worst)
    return {
        "value": combine(worst),
        "best_case": combine(best),
        "over_scored": combine(scored),
        "tasks": len(worst),
        "over_scored_tasks": len(scored),
        "undefined_tasks": len(tallies) - len(worst),
        "interval": None if found is None else found.to_dict(),
        "over": over,
    }


def attempt_figures(tallies: Sequence[TaskTally], k: int, early_stop: bool) -> dict[str, Any]:
    """Return avg@k, and pass@j and pass^j for every j up to *k*; after early stop pass@k alone."""
    if early_stop:
        over = f"mean over tasks of 1 if one of up to {k} attempts passed, else 0"
        return {f"pass@{k}": figure(tallies, lambda tally, view: solved_value(tally, view, True), over)}
    one = "mean over tasks of each task's share of passed attempts"
    figures = {f"avg@{k}": figure(tallies, solved_value, one)}
    for j in range(1, k + 1):
        some = f"mean over tasks of the unbiased estimate that at least one of {j} attempts passes" if j > 1 else one
        every = f"mean over tasks of the unbiased estimate that all of {j} attempts pass" if j > 1 else one
        figures[f"pass@{j}"] = figure(tallies, _rule(pass_at_k, j), some)
        figures[f"pass^{j}"] = figure(tallies, _rule(pass_hat_k, j), every)
    return figures


def solved_sum(tallies: Sequence[TaskTally], early_stop: bool) -> float:
    """Return how many tasks are solved: the sum of their values, undecided attempts as not solved."""
    return math.fsum(solved_value(tally, "worst", early_stop) or 0.0 for tally in tallies)


def _rule(estimator: Callable[[int, int, int], float | None], j: int) -> Estimate:
    return lambda tally, view: _estimate(tally, view, lambda n, c: estimator(n, c, j))


def _estimate(tally: TaskTally, view: View, estimator: Callable[[int, int], float | None]) -> float | None:
    n = tally.valid if view == "scored" else tally.n
    c = tally.passed + (tally.unknown if view == "best" else 0)
    return estimator(n, c) if n else None


def _pairs(tallies: Sequence[TaskTally], estimate: Estimate, view: View) -> list[tuple[str, float]]:
    known: dict[tuple[int, ...], float | None] = {}  # an estimate is made of counts, and few of thousands differ
    found = []
    for tally in tallies:
        counts = (tally.passed, tally.failed, tally.errors, tally.missing, tally.cut)
        if counts not in known:
            known[counts] = estimate(tally, view)
        if (value := known[counts]) is not None:
            found.append((tally.category, value))
    return found
