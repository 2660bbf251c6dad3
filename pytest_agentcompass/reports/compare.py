"""Comparing runs, paired by task: `compare A B [C...]`, as plain data, text and Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..contracts.summary import Summary, SummaryRequest
from ..errors import ConfigError, ResultsError
from ..metrics.gates import Comparison
from ..metrics.gates.names import MetricKind, MetricName, metric_name
from ..metrics.gates.paired import compare_rates
from ..metrics.gates.pairing import Pairing, pair
from ..metrics.gates.parser import Metric
from ..metrics.gates.scope import Scope, scope_of
from ..metrics.gates.values import Undefined, check_attempts
from ..metrics.statistics import holm
from .escape import markdown_text, one_line
from .words import count, percent

__all__ = ["Run", "RunComparison", "compare_markdown", "compare_runs", "compare_text"]

_NAMED = 20


@dataclass(frozen=True, slots=True)
class Run:
    """A run to compare: how a person named it, and its summary."""

    name: str
    summary: Summary


@dataclass(frozen=True, slots=True)
class _Row:
    """One run's figures for one request; *comparison* is None for the baseline itself."""

    run: str
    agent: str
    report: Mapping[str, Any]
    flaky: tuple[tuple[str, int, int], ...]
    comparison: Comparison | None = None
    better_any: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class RunComparison:
    """One request of the baseline with its counterpart in every other run; *foreign* tasks were left out."""

    request: str
    metric: str
    confidence: float
    rows: tuple[_Row, ...]
    foreign: tuple[str, ...] = ()


def compare_runs(
    runs: Sequence[Run], *, metric: str = "pass@1", confidence: float = 0.95, drop_changed: bool = False
) -> list[RunComparison]:
    """Compare every run with the first, request by request.

    Raises ConfigError for a metric that is no rate of solved tasks, ResultsError when runs share no request,
    or when tasks of one id are not the same tasks (unless *drop_changed* leaves those out).
    """
    name = metric_name(metric, ())
    if name is None or name.kind is not MetricKind.RATE:
        raise ConfigError(f"metric {metric!r} cannot be compared by task; take pass@K, pass^K, avg@K or mean")
    baseline, *candidates = runs
    found = [
        _compare(request, baseline, candidates, name, confidence, drop_changed) for request in baseline.summary.requests
    ]
    if not any(row.comparison for item in found for row in item.rows):
        notes = "; ".join(dict.fromkeys(row.note for item in found for row in item.rows if row.note))
        raise ResultsError(f"there is nothing to compare: {notes or 'the first run has no request'}")
    return found


def _compare(
    request: SummaryRequest,
    baseline: Run,
    candidates: Sequence[Run],
    name: MetricName,
    confidence: float,
    drop_changed: bool,
) -> RunComparison:
    scope = _scope(baseline.summary, request)
    rows = [_Row(baseline.name, _agent(request), request.report, _flaky(scope))]
    foreign: dict[str, None] = {}
    for run in candidates:
        other = _counterpart(request, baseline.summary, run.summary)
        if other is None:
            names = ", ".join(repr(item.name) for item in run.summary.requests) or "none"
            rows.append(_Row(run.name, "", {}, (), note=f"{run.name} has no request {request.name!r} (it has {names})"))
            continue
        theirs = _scope(run.summary, other)
        pairing = pair(theirs, scope)
        if pairing.foreign and not drop_changed:
            raise ResultsError(_foreign(pairing, request.name, baseline.name, run.name))
        foreign.update(dict.fromkeys(task for _, task in pairing.foreign))
        rows.append(_row(run, other, theirs, scope, pairing, name, confidence))
    return RunComparison(request.name, name.text, confidence, tuple(_adjusted(rows)), tuple(foreign))


def _row(
    run: Run,
    request: SummaryRequest,
    candidate: Scope,
    baseline: Scope,
    pairing: Pairing,
    name: MetricName,
    confidence: float,
) -> _Row:
    note, comparison = "", None
    try:
        check_attempts(candidate, name)
        check_attempts(baseline, name)
        comparison = compare_rates(pairing, name, confidence)
    except Undefined as reason:
        note = f"{run.name}: {reason}"
    if pairing.unmarked:
        note = f"{run.name}: {count(len(pairing.unmarked), 'task')} without a fingerprint were taken as the same"
    return _Row(run.name, _agent(request), request.report, _flaky(candidate), comparison, note=note)


def _adjusted(rows: Sequence[_Row]) -> list[_Row]:
    """Add Holm's adjustment: with several candidates, `better on any` must pay for the number of looks."""
    places = [place for place, row in enumerate(rows) if row.comparison and row.comparison.p_better is not None]
    if len(places) < 2:
        return list(rows)
    values = holm([rows[place].comparison.p_better or 0.0 for place in places])  # type: ignore[union-attr]
    adjusted = dict(zip(places, values, strict=True))
    return [
        _Row(row.run, row.agent, row.report, row.flaky, row.comparison, adjusted.get(place), row.note)
        for place, row in enumerate(rows)
    ]


def _scope(summary: Summary, request: SummaryRequest) -> Scope:
    name = metric_name("mean")
    assert name is not None
    return scope_of(summary.model_copy(update={"requests": (request,)}), Metric(name))


def _counterpart(request: SummaryRequest, baseline: Summary, other: Summary) -> SummaryRequest | None:
    if len(baseline.requests) == 1 and len(other.requests) == 1:
        return other.requests[0]
    return next((item for item in other.requests if item.name == request.name), None)


def _foreign(pairing: Pairing, request: str, baseline: str, run: str) -> str:
    names = ", ".join(task for _, task in pairing.foreign[:_NAMED])
    return (
        f"request {request!r}: {count(len(pairing.foreign), 'task')} differ between {baseline} and {run} (text, "
        f"grader, image or limits), so outcomes cannot be compared: {names}. Leave them out with --drop-changed"
    )


def _agent(request: SummaryRequest) -> str:
    return " ".join(part for part in (request.harness, request.model) if part)


def _flaky(scope: Scope) -> tuple[tuple[str, int, int], ...]:
    """Return the tasks with mixed outcomes: id, passed and graded attempts."""
    return tuple((task.task.task_id, task.passed, task.valid) for task in scope.tasks if 0 < task.passed < task.valid)


# -- text ---------------------------------------------------------------------------------------


def _cells(item: RunComparison) -> list[list[str]]:
    level = f"{(2 * item.confidence - 1) * 100:.3g}%"
    head = ["run", "agent", "solved", "over scored", "errors", item.metric, "change", f"{level} interval"]
    head += ["p worse", "p better"]
    if any(row.better_any is not None for row in item.rows):
        head.append("p better (Holm)")
    return [head, *[_line(row, len(head)) for row in item.rows if row.report]]


def _line(row: _Row, columns: int) -> list[str]:
    head, errors = row.report["headline"], row.report["attempts"]["errors"]
    cells = [
        row.run,
        row.agent or "-",
        f"{percent(head['value'])} of {head['tasks']}",
        f"{percent(head['over_scored'])} of {head['over_scored_tasks']}",
        str(errors),
    ]
    found = row.comparison
    if found is None:
        return [*cells, *["-"] * (columns - len(cells))]
    bounds = f"{found.interval.low * 100:+.1f} to {found.interval.high * 100:+.1f} pt" if found.interval else "-"
    values = [
        percent(found.candidate),
        f"{found.difference * 100:+.1f} pt",
        bounds,
        _p(found.p_worse),
        _p(found.p_better),
    ]
    if columns > 10:
        values.append(_p(row.better_any))
    return [*cells, *values]


def _p(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}" if value >= 0.001 else "<0.001"


def _facts(item: RunComparison) -> list[tuple[str, str]]:
    """Return what stands below a table: (what, text)."""
    facts = []
    for row in item.rows:
        if row.note:
            facts.append(("note", row.note))
        found = row.comparison
        if found is not None:
            facts += _about(row.run, found)
    for row in item.rows:
        if row.flaky:
            names = [f"{task} ({passed} of {valid})" for task, passed, valid in row.flaky]
            facts.append((f"flaky in {row.run}", f"{len(names)}: {_listed(names)}"))
    if item.foreign:
        facts.append(("changed tasks, left out", f"{len(item.foreign)}: {_listed(item.foreign)}"))
    return facts


def _about(run: str, found: Comparison) -> list[tuple[str, str]]:
    facts = [(f"{run}: paired", f"{count(found.pairs, 'task')}; {found.method}")]
    if found.mde is not None and found.flip_rate is not None:
        effect = f"{found.mde * 100:.1f} pt (80% power, one-sided, {percent(found.flip_rate)} flips)"
        facts.append((f"{run}: smallest drop that these pairs can show", effect))
    single = found.method.startswith("exact McNemar")
    for names, title in (
        (found.worse, "newly broken" if single else "solved less often"),
        (found.better, "newly fixed" if single else "solved more often"),
        (found.only_candidate, "only in this run"),
        (found.only_baseline, "only in the baseline"),
        (found.dropped, "pairs dropped, no verdict in one run"),
    ):
        if names:
            facts.append((f"{run}: {title}", f"{len(names)}: {_listed([task for _, task in names])}"))
    return facts


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


_EXPLAINED = (
    "solved: errored, missing and cut attempts count as not solved; over scored: only attempts with a verdict. "
    "p worse, p better: one-sided, paired by task; a high p does not prove that nothing changed."
)


def compare_text(found: Sequence[RunComparison]) -> list[str]:
    """Return the comparison as lines for a terminal; the first row of each table is the baseline."""
    lines: list[str] = []
    for item in found:
        cells = [[one_line(cell, 50) for cell in row] for row in _cells(item)]
        sizes = [max(len(row[place]) for row in cells) for place in range(len(cells[0]))]
        lines.append(f"request {one_line(item.request, 60)} ({item.metric}; the first run is the baseline)")
        lines += [_aligned(row, sizes) for row in cells]
        lines += [f"  {one_line(title, 100)}: {one_line(text, 1500)}" for title, text in _facts(item)]
        lines.append("")
    return [*lines, _EXPLAINED]


def _aligned(row: Sequence[str], sizes: Sequence[int]) -> str:
    texts = [cell.ljust(size) for cell, size in zip(row[:2], sizes[:2], strict=True)]
    numbers = [cell.rjust(size) for cell, size in zip(row[2:], sizes[2:], strict=True)]
    return "  ".join([*texts, *numbers]).rstrip()


def compare_markdown(found: Sequence[RunComparison]) -> str:
    """Return the comparison as Markdown; nothing in ids acts as markup."""
    blocks = ["# Comparison"]
    explained = f"The first run of each table is the baseline. {_EXPLAINED}"
    for item in found:
        cells = [[markdown_text(cell, 80) for cell in row] for row in _cells(item)]
        rule = ["---" if place < 2 else "---:" for place in range(len(cells[0]))]
        blocks.append(f"## {markdown_text(item.request)} ({markdown_text(item.metric)})")
        blocks.append("\n".join(f"| {' | '.join(row)} |" for row in (cells[0], rule, *cells[1:])))
        facts = [f"- {markdown_text(title)}: {markdown_text(text, 1500)}" for title, text in _facts(item)]
        blocks.append("\n".join(facts))
    return "\n\n".join([*(block for block in blocks if block), explained]) + "\n"
