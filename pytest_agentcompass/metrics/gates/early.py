"""`stop_when_decided`: whether what is left of a run can still change a gate's verdict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ...contracts.summary import Summary
from ...errors import ConfigError
from .evaluate import RunState, evaluate_gate, too_many_errors
from .names import MetricKind
from .parser import Threshold
from .scope import Scope, scope_of
from .settings import Gate
from .verdicts import Verdict

__all__ = ["all_decided", "decided"]

# Totals only grow, so a limit that is passed stays passed.
_GROWING = ("cost_usd", "tokens", "input_tokens", "output_tokens", "model_calls", "duration_total", "duration_max")


def decided(gate: Gate, summary: Summary, baseline: Summary | None, requests: Sequence[str] | None = None) -> bool:
    """Whether no outcome of the attempts that are still missing in *summary* can change the verdict of *gate*.

    For thresholds on solved tasks, and for comparisons with a baseline of one attempt per task, in both
    directions; for what only grows (cost, errors) once it is too much. That infrastructure errors of the
    rest might make the run INVALID is not counted as an outcome.
    """
    try:
        scope = scope_of(summary, gate.metric, requests)
    except ConfigError:
        return False
    kind = gate.metric.name.kind
    if kind is not MetricKind.SHARE and too_many_errors(scope, gate.settings.max_infra_errors):
        return True
    if gate.metric.name.name == "errors" and isinstance(gate.rule, Threshold) and gate.rule.comparison.startswith("<"):
        return True
    may_pass, may_fail = _directions(gate, scope)
    if not may_pass and not may_fail:
        return False
    open_gate = replace(gate, settings=replace(gate.settings, allow_partial=True, policy="fail"))
    verdict = evaluate_gate(open_gate, summary, baseline, RunState(), requests).verdict
    return (verdict is Verdict.PASS and may_pass) or (verdict is Verdict.FAIL and may_fail)


def _directions(gate: Gate, scope: Scope) -> tuple[bool, bool]:
    """Return whether a PASS and a FAIL of the unfinished run are final."""
    name = gate.metric.name
    single = all(task.n <= 1 or task.early for task in scope.tasks)
    if name.kind is MetricKind.RATE:
        plain = isinstance(gate.rule, Threshold) and gate.settings.confidence is None
        return (True, True) if plain or single else (False, False)
    if isinstance(gate.rule, Threshold) and gate.rule.comparison.startswith("<"):
        growing = name.kind is MetricKind.SHARE or name.name in _GROWING
        return False, growing and gate.settings.confidence is None
    return False, False


def all_decided(sets: Iterable[tuple[Sequence[Gate], Summary | None, Sequence[str] | None]], summary: Summary) -> bool:
    """Whether every gate of *sets* (gates, their baseline, their requests) is decided, and one asks to stop then."""
    found = list(sets)
    gates = [gate for group, _, _ in found for gate in group]
    if not any(gate.settings.stop_when_decided for gate in gates):
        return False
    return all(decided(gate, summary, baseline, names) for group, baseline, names in found for gate in group)
