"""The metric report of one request: every figure labelled with what it averages over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..contracts.metrics import MetricContract
from ..contracts.outcome import FailureMode
from ..contracts.record import AttemptRecord
from ..errors import ConfigError, nearest
from .aggregation import Hierarchy, category_mean, parse_hierarchy
from .estimators import mean
from .figures import Aggregate, View, attempt_figures, figure, solved_sum, solved_value
from .intervals import Interval, bootstrap
from .tallies import Planned, TaskTally, tally
from .totals import duration_figures, failure_modes, metric_figures, usage_figures

__all__ = ["REPORT_SCHEMA_VERSION", "build_report", "request_status"]

REPORT_SCHEMA_VERSION = 1
_HEADLINE = "tasks solved / tasks selected; an errored, missing or cut attempt counts as not solved"
_OVER = {
    "micro_weighted": "mean over tasks",
    "category_mean": "unweighted mean over categories of each category's mean over tasks",
}


def build_report(
    records: Sequence[AttemptRecord],
    planned: Sequence[Planned],
    contract: MetricContract,
    *,
    k: int,
    strategy: str = "avg",
    aggregation_mode: str = "micro_weighted",
    category_hierarchy: Mapping[str, Any] | None = None,
    categories: Mapping[str, str] | None = None,
    defined_tasks: int | None = None,
    early_stop: bool | None = None,
    request: str = "",
) -> dict[str, Any]:
    """Return the report of one request as plain data (strict JSON).

    *planned* are its selected attempts (request, task id, attempt); what belongs to another request than
    *request* (default: the first one met) is left out; *categories* gives categories of tasks
    without a record; *defined_tasks* is how many tasks the suite has before selection; *early_stop* says
    that outcomes decided how many attempts were made (default: seen from the strategy and the records).
    Raises ConfigError for an aggregation mode or a hierarchy that cannot be used.
    """
    if aggregation_mode not in _OVER:
        raise ConfigError(f"aggregation mode {aggregation_mode!r} is not known; {nearest(aggregation_mode, _OVER)}")
    hierarchy = parse_hierarchy(category_hierarchy) if category_hierarchy else None
    name = request or _name(records, planned)
    tallies, extra = tally(_of(name, records), [item for item in planned if item[0] == name], categories)
    counted = [item for item in tallies if item.n]
    early = strategy == "pass" or any(item.satisfied for item in tallies) if early_stop is None else early_stop
    seen = [record for item in tallies for record in item.records]
    report: dict[str, Any] = {
        "schema_version": REPORT_SCHEMA_VERSION,
        "request": name,
        "k": k,
        "strategy": strategy,
        "early_stop": early,
        "aggregation_mode": aggregation_mode,
        "metric": _metric_head(contract),
        "tasks": _task_counts(tallies, defined_tasks, early),
        "attempts": _attempt_counts(tallies, seen, extra),
        "headline": figure(counted, _solved(early), _HEADLINE),
        "figures": attempt_figures(counted, k, early),
        "categories": _category_rows(tallies, early),
        "metrics": metric_figures(tallies, contract),
        "usage": usage_figures(seen),
        "durations": duration_figures(seen),
        "failure_modes": failure_modes(tallies),
        "missing": [[item.task_id, number] for item in tallies for number, record in item.attempts if record is None],
        "no_solution_tasks": [item.task_id for item in tallies if item.no_solution and not item.n],
    }
    chosen = "hierarchy" if hierarchy else aggregation_mode
    report["aggregations"] = _aggregations(counted, early, hierarchy, report["headline"], chosen)
    report["score"] = report["aggregations"][chosen]
    report["partial_reasons"] = _partial_reasons(tallies, report["tasks"])
    report["partial"] = bool(report["partial_reasons"])
    report["status"] = request_status(tallies)
    report["notes"] = _notes(report, hierarchy, counted)
    return report


def request_status(tallies: Iterable[TaskTally]) -> str:
    """Name the state of a request: completed, partial_failure, failed, timed_out or cancelled."""
    items = list(tallies)
    modes = {record.failure_mode for item in items for record in item.records}
    if FailureMode.CANCELLED in modes:
        return "cancelled"
    if FailureMode.DEADLINE in modes:
        return "timed_out"
    if not any(item.unknown for item in items):
        return "completed"
    return "partial_failure" if any(item.valid for item in items) else "failed"


def _solved(early: bool) -> Any:
    def estimate(item: TaskTally, view: View) -> float | None:
        return solved_value(item, view, early)

    return estimate


def _name(records: Sequence[AttemptRecord], planned: Sequence[Planned]) -> str:
    return planned[0][0] if planned else records[0].request if records else ""


def _of(name: str, records: Sequence[AttemptRecord]) -> list[AttemptRecord]:
    return [record for record in records if record.request == name]


def _metric_head(contract: MetricContract) -> dict[str, str]:
    spec = contract.metrics[contract.primary]
    return {
        "id": contract.primary,
        "kind": spec.kind,
        "unit": spec.unit,
        "direction": spec.direction,
        "display": spec.display or contract.primary,
    }


def _task_counts(tallies: Sequence[TaskTally], defined: int | None, early: bool) -> dict[str, Any]:
    """Count tasks by state; scored, errored, unfinished and skipped add up to selected."""
    states = [_task_state(item, early) for item in tallies]
    counts = {name: states.count(name) for name in ("scored", "errored", "unfinished", "skipped")}
    counted = [item for item in tallies if item.n]
    return {
        "planned": len(tallies) if defined is None else defined,
        "selected": len(tallies),
        "headline": len(counted),
        **counts,
        "solved": solved_sum(counted, early),
        "over": "planned: the suite; selected: this run; headline: selected without those that have no solution; "
        "errored: an attempt errored; unfinished: an attempt is missing or was cut; the rest is scored or skipped",
    }


def _task_state(item: TaskTally, early: bool) -> str:
    if not item.n:
        return "skipped"
    if early and item.passed:
        return "scored"
    if item.errors:
        return "errored"
    return "unfinished" if item.unknown else "scored"


def _attempt_counts(
    tallies: Sequence[TaskTally], seen: Sequence[AttemptRecord], extra: Sequence[AttemptRecord]
) -> dict[str, int]:
    """Count attempts; passed, failed, errors, skipped and missing add up to planned."""
    return {
        "planned": sum(len(item.attempts) for item in tallies),
        "finished": len(seen),
        **_sums(tallies),
        "scored": sum(item.valid for item in tallies),
        "discarded_tries": sum(len(record.retries) for record in seen),
        "unplanned": len(extra),
    }


def _sums(tallies: Sequence[TaskTally]) -> dict[str, int]:
    names = ("passed", "failed", "errors", "skipped", "missing")
    return {name: sum(getattr(item, name) for item in tallies) for name in names}


def _category_rows(tallies: Sequence[TaskTally], early: bool) -> list[dict[str, Any]]:
    """Return one row per category, in order of first appearance; every column adds up to the total."""
    groups: dict[str, list[TaskTally]] = {}
    for item in tallies:
        groups.setdefault(item.category, []).append(item)
    return [_category_row(name, items, early) for name, items in groups.items()]


def _category_row(name: str, items: Sequence[TaskTally], early: bool) -> dict[str, Any]:
    counted = [item for item in items if item.n]
    return {
        "category": name,
        "tasks": len(items),
        "headline_tasks": len(counted),
        "solved": solved_sum(counted, early),
        "value": mean(solved_value(item, "worst", early) or 0.0 for item in counted),
        "planned": sum(len(item.attempts) for item in items),
        **_sums(items),
    }


def _aggregations(
    counted: Sequence[TaskTally], early: bool, hierarchy: Hierarchy | None, headline: dict[str, Any], chosen: str
) -> dict[str, Any]:
    """Return every aggregation; resampling is costly, so only the chosen one has its interval."""
    rules: dict[str, tuple[str, Aggregate]] = {"category_mean": (_OVER["category_mean"], category_mean)}
    if hierarchy is not None:
        over = f"{hierarchy.aggregation} mean over the groups of the category hierarchy"
        rules["hierarchy"] = (over, hierarchy.value)
    found = {"micro_weighted": {**headline, "over": _OVER["micro_weighted"]}}
    for name, (over, aggregate) in rules.items():
        found[name] = figure(counted, _solved(early), over, aggregate, _resampled(aggregate, name == chosen))
    return found


def _resampled(aggregate: Aggregate, wanted: bool) -> Any:
    def interval(pairs: Sequence[tuple[str, float]]) -> Interval | None:
        return bootstrap(pairs, aggregate) if wanted else None

    return interval


def _partial_reasons(tallies: Sequence[TaskTally], tasks: Mapping[str, Any]) -> list[str]:
    missing = sum(item.missing for item in tallies)
    cut = sum(item.cut for item in tallies)
    reasons = []
    if tasks["selected"] < tasks["planned"]:
        reasons.append(f"{tasks['selected']} of {tasks['planned']} tasks were selected")
    if missing:
        reasons.append(
            "1 planned attempt has no record" if missing == 1 else f"{missing} planned attempts have no record"
        )
    if cut:
        what = "1 attempt was" if cut == 1 else f"{cut} attempts were"
        reasons.append(f"{what} cut by a budget, a deadline or a skip")
    return reasons


def _notes(report: Mapping[str, Any], hierarchy: Hierarchy | None, counted: Sequence[TaskTally]) -> list[str]:
    notes = []
    if report["early_stop"]:
        notes.append(f"tasks stop at their first success, so only pass@{report['k']} can be reported")
    if report["no_solution_tasks"]:
        notes.append(f"{len(report['no_solution_tasks'])} task(s) have no solution to run; they are in no denominator")
    if report["attempts"]["unplanned"]:
        notes.append(f"{report['attempts']['unplanned']} record(s) belong to no planned attempt and count nowhere")
    undefined = {name: item["undefined_tasks"] for name, item in report["figures"].items() if item["undefined_tasks"]}
    notes += [f"{name} is undefined for {count} tasks with too few attempts" for name, count in undefined.items()]
    if hierarchy is not None and (rest := sorted({item.category for item in counted} - hierarchy.categories())):
        notes.append(f"categories outside the hierarchy count as groups of their own: {', '.join(map(repr, rest))}")
    return notes
