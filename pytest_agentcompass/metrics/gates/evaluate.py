"""Evaluating gates: what makes a verdict invalid first, then the rule."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ...contracts.summary import Summary
from ...errors import ConfigError, nearest
from .absolute import against_number, value_text
from .names import BUILT_IN_METRICS, MetricKind, metric_name
from .paired import against_baseline, compare_amounts, compare_rates, difference_text, no_regression
from .pairing import Pairing, pair
from .parser import NoRegression, Threshold
from .scope import Scope, infra_errors, scope_of
from .settings import Gate
from .values import Undefined, attempts_problem, check_attempts, metric_value
from .verdicts import Comparison, GateResult, Verdict
from .words import names_text, share

__all__ = ["PlannedRequest", "RunState", "check_gates", "evaluate_gate", "evaluate_gates", "too_many_errors"]


_PARTIAL = "only part of the suite was run: run all of it, or set allow_partial: true for this gate"


@dataclass(frozen=True, slots=True)
class RunState:
    """What the run itself says about whether it may be judged.

    *partial*: why it does not cover what the suite defines; *broken*: what makes any verdict impossible
    (collection errors, lost reports).
    """

    partial: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """What is known of a request before it runs; *metrics* are what its benchmark declares (None: anything)."""

    name: str
    k: int = 1
    early_stop: bool = False
    metrics: frozenset[str] | None = frozenset()
    categories: frozenset[str] | None = None


def check_gates(gates: Iterable[Gate], planned: Sequence[PlannedRequest], has_baseline: bool) -> list[str]:
    """Return what is wrong with *gates* for the run that is planned, so that it need not be paid for first."""
    return [problem for gate in gates if (problem := _check(gate, planned, has_baseline))]


def _check(gate: Gate, planned: Sequence[PlannedRequest], has_baseline: bool) -> str | None:
    where = f"gate {gate.text!r}: " if gate.source == "command line" else f"{gate.source}: gate {gate.text!r}: "
    metric = gate.metric
    chosen = [item for item in planned if metric.request in (None, item.name)]
    if metric.request is not None and not chosen:
        categories = {name for item in planned for name in item.categories or ()}
        hint = f"; for a category write [category={metric.request}]" if metric.request in categories else ""
        known_names = [item.name for item in planned]
        return f"{where}there is no request {metric.request!r}; {nearest(metric.request, known_names)}{hint}"
    known = {name for item in chosen for name in item.categories or ()}
    if (
        metric.category
        and known
        and metric.category not in known
        and all(item.categories is not None for item in chosen)
    ):
        return f"{where}there is no category {metric.category!r}; {nearest(metric.category, known)}"
    problem = _check_metric(gate, chosen)
    if problem:
        return where + problem
    if not isinstance(gate.rule, Threshold) and not has_baseline:
        return f"{where}it needs a baseline: --agentcompass-baseline RUN_DIR or summary.json of an earlier run"
    return None


def _check_metric(gate: Gate, chosen: Sequence[PlannedRequest]) -> str | None:
    name = gate.metric.name
    declared: set[str] = set()
    for item in chosen:
        if item.metrics is None:
            return None
        declared |= item.metrics
    if name.kind is MetricKind.OBSERVED and metric_name(name.text, declared) is None:
        return f"there is no metric {name.text!r}; {nearest(name.text, {*BUILT_IN_METRICS, *declared})}"
    if name.kind is MetricKind.RATE:
        found = (attempts_problem(name, item.name, item.k, item.early_stop) for item in chosen)
        return next((problem for problem in found if problem), None)
    return None


def evaluate_gates(
    gates: Iterable[Gate],
    summary: Summary,
    baseline: Summary | None = None,
    state: RunState | None = None,
    requests: Iterable[str] | None = None,
) -> list[GateResult]:
    """Return the verdict of each gate; *requests* are those of the suite that the gates belong to."""
    names = None if requests is None else tuple(requests)
    return [evaluate_gate(gate, summary, baseline, state or RunState(), names) for gate in gates]


def evaluate_gate(
    gate: Gate,
    summary: Summary,
    baseline: Summary | None,
    state: RunState,
    requests: Sequence[str] | None = None,
) -> GateResult:
    """Return the verdict of one gate: never an exception for what a run can hold."""
    try:
        scope = scope_of(summary, gate.metric, requests)
    except ConfigError as error:
        return GateResult(gate, Verdict.INVALID, why=(*state.broken, *state.partial, error.message))
    obstacles = _obstacles(gate, scope, state)
    try:
        found = _threshold(gate, scope) if isinstance(gate.rule, Threshold) else _paired(gate, scope, baseline)
    except Undefined as reason:
        found = GateResult(gate, Verdict.INVALID, why=(str(reason),))
    found = replace(found, infra_errors=len(infra_errors(scope)))
    if obstacles:
        return replace(
            found, verdict=Verdict.INVALID, why=(*obstacles, *(found.why if found.verdict is Verdict.INVALID else ()))
        )
    if found.verdict is Verdict.INCONCLUSIVE and gate.settings.policy == "warn":
        return replace(found, verdict=Verdict.WARN)
    return found


def _obstacles(gate: Gate, scope: Scope, state: RunState) -> list[str]:
    found = list(state.broken)
    if state.partial and not gate.settings.allow_partial:
        found += [*state.partial, _PARTIAL]
    if not scope.tasks:
        found.append("there is no task with a result")
        return found
    if gate.metric.name.kind is not MetricKind.SHARE:
        found += too_many_errors(scope, gate.settings.max_infra_errors)
    return found


def too_many_errors(scope: Scope, limit: float, whose: str = "") -> list[str]:
    """Say that infrastructure errors are more than the share *limit* of the attempts, or return nothing."""
    errors, counted = infra_errors(scope), sum(task.n for task in scope.tasks)
    if not errors or len(errors) / counted <= limit + 1e-9:
        return []
    modes = ", ".join(sorted({attempt.failure_mode for _, attempt in errors}))
    names = names_text(list(dict.fromkeys(task.key for task, _ in errors)), len(scope.requests) > 1)
    what = "1 attempt" if len(errors) == 1 else f"{len(errors)} attempts"
    return [
        f"{whose}{what} of {counted} ended in an infrastructure error ({modes}): {names}; that is "
        f"{share(len(errors) / counted)}, more than max_infra_errors {share(limit)}: run them again, or allow more"
    ]


def _threshold(gate: Gate, scope: Scope) -> GateResult:
    assert isinstance(gate.rule, Threshold)
    value = metric_value(scope, gate.metric.name)
    verdict, why = against_number(gate.rule, value, gate.settings)
    return GateResult(
        gate, verdict, value_text(value, scope.label), tuple(why),
        value.shown, value.low, value.high, value.interval, value.tasks,
    )  # fmt: skip


def _paired(gate: Gate, scope: Scope, baseline: Summary | None) -> GateResult:
    if baseline is None:
        raise Undefined("there is no baseline: give --agentcompass-baseline RUN_DIR or summary.json")
    pairing, name = _pairing(gate, scope, baseline), gate.metric.name
    confidence = gate.settings.comparison_confidence
    if name.kind is not MetricKind.RATE:
        shown = worst = best = compare_amounts(pairing, name, confidence)
    else:
        shown = compare_rates(pairing, name, confidence)
        undecided = any(not (task.decided and other.decided) for task, other in pairing.pairs)
        worst = compare_rates(pairing, name, confidence, "worst") if undecided else shown
        best = compare_rates(pairing, name, confidence, "best") if undecided else shown
    if isinstance(gate.rule, NoRegression):
        verdict, why = no_regression(gate.rule, shown, worst, best, gate.settings)
    else:
        assert not isinstance(gate.rule, Threshold)
        verdict, why = against_baseline(gate.rule, shown, worst, best, gate.settings)
    return GateResult(
        gate, verdict, difference_text(shown, name.kind), (*why, *_left_out(shown)),
        shown.candidate, interval=shown.interval, tasks=shown.pairs, comparison=shown,
    )  # fmt: skip


def _pairing(gate: Gate, scope: Scope, baseline: Summary) -> Pairing:
    """Pair both runs, or raise Undefined saying why the baseline is none for this run."""
    other = _baseline_scope(gate, scope, baseline)
    if gate.metric.name.kind is MetricKind.RATE:
        check_attempts(scope, gate.metric.name)
        check_attempts(other, gate.metric.name)
    pairing = pair(scope, other)
    several = len(scope.requests) > 1
    if pairing.foreign:
        raise Undefined(
            f"{len(pairing.foreign)} tasks are not the baseline's (text, grader, image or limits differ): "
            f"{names_text(pairing.foreign, several)}; make a new baseline with these tasks"
        )
    if pairing.unmarked:
        raise Undefined(
            f"{len(pairing.unmarked)} tasks have no fingerprint, so nobody can tell that both runs had the same: "
            f"{names_text(pairing.unmarked, several)}; make a new baseline"
        )
    if not pairing.pairs:
        raise Undefined("the baseline has none of these tasks; is it the baseline of another suite?")
    paired = pairing.share(partial=gate.settings.allow_partial)
    if paired < gate.settings.min_pairs - 1e-9:
        alone = names_text([*pairing.only_candidate, *pairing.only_baseline], several)
        raise Undefined(
            f"only {len(pairing.pairs)} tasks are in both runs ({share(paired)}, min_pairs is "
            f"{share(gate.settings.min_pairs)}); in one run alone: {alone}"
        )
    too_many = too_many_errors(other, gate.settings.max_infra_errors, "in the baseline ")
    if too_many:
        raise Undefined(too_many[0])
    return pairing


def _baseline_scope(gate: Gate, scope: Scope, baseline: Summary) -> Scope:
    """Return the baseline's part: the same requests, or its only one where this run has one too."""
    names = {request.name for request in scope.requests}
    chosen = tuple(request for request in baseline.requests if request.name in names)
    if not chosen and len(scope.requests) == 1 and len(baseline.requests) == 1:
        chosen = baseline.requests
    if not chosen:
        have = ", ".join(repr(request.name) for request in baseline.requests) or "none"
        raise Undefined(f"the baseline has no request {', '.join(map(repr, sorted(names)))}; it has {have}")
    metric = replace(gate.metric, request=None)
    try:
        return scope_of(baseline.model_copy(update={"requests": chosen}), metric)
    except ConfigError as error:
        raise Undefined(f"the baseline: {error.message}") from None


def _left_out(shown: Comparison) -> list[str]:
    found = []
    for names, text in (
        (shown.only_candidate, "only in this run"),
        (shown.only_baseline, "only in the baseline"),
        (shown.dropped, "without a verdict in one run, so the pair is dropped"),
    ):
        if names:
            what = "1 task is" if len(names) == 1 else f"{len(names)} tasks are"
            found.append(f"{what} {text}: {names_text(names)}")
    return found
