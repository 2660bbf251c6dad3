"""summary.md: what a lead pastes into a release note."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .escape import markdown_text as cell
from .gates import gate_markdown
from .words import count, interval_text, money, percent, seconds_text

__all__ = ["named_figures", "render_markdown"]

_LISTED = 20
_COUNTED = ("planned", "passed", "failed", "errors", "skipped", "missing")


def render_markdown(summary: Mapping[str, Any]) -> str:
    """Return a summary (`build_summary`) as Markdown; nothing in ids or messages acts as markup."""
    blocks = [
        _title(summary),
        gate_markdown(summary.get("gates", ())),
        *_warning(summary),
        _overview(summary["requests"]),
        _explanation(summary),
    ]
    for request in summary["requests"]:
        blocks += _request(request)
    return "\n\n".join(block for block in blocks if block) + "\n"


def _title(summary: Mapping[str, Any]) -> str:
    run, totals = summary["run"], summary["totals"]
    facts = [
        f"{name.replace('_', ' ')} {cell(str(run[name]))}"
        for name in ("status", "started_at", "finished_at")
        if run.get(name)
    ]
    facts.append(f"{count(totals['planned'], 'attempt')} planned, {totals['finished']} finished")
    if totals["cost_usd"] is not None:
        facts.append(f"cost {money(totals['cost_usd'])}")
    if totals["judge_cost_usd"] is not None:
        facts.append(f"judges {money(totals['judge_cost_usd'])}")
    name = f" {cell(str(run['run_id']))}" if run.get("run_id") else ""
    return f"# Benchmark run{name}\n\n{'; '.join(facts)}."


def _warning(summary: Mapping[str, Any]) -> list[str]:
    lines = [f"- {cell(text, 300)}" for text in (*summary["partial_reasons"], *summary["problems"])]
    if not lines:
        return []
    return ["**Partial run.** These figures do not cover everything that was planned:\n\n" + "\n".join(lines)]


def _overview(requests: Sequence[Mapping[str, Any]]) -> str:
    head = ["request", "benchmark", "harness", "model", "solved", "95% interval", *_COUNTED, "cost", "time per attempt"]
    return _table(head, [_overview_row(request) for request in requests], text=(0, 1, 2, 3))


def _overview_row(request: Mapping[str, Any]) -> list[str]:
    report = request["report"]
    figure, cost = report["headline"], report["usage"].get("cost_usd")
    return [
        *[cell(request[name] or "-") for name in ("name", "benchmark", "harness", "model")],
        f"**{percent(figure['value'])}** of {count(figure['tasks'], 'task')}",
        interval_text(figure),
        *[str(report["attempts"][name]) for name in _COUNTED],
        money(cost["total"] + cost["discarded_tries"]) if cost else "-",
        seconds_text(report["durations"]["mean"]),
    ]


def _explanation(summary: Mapping[str, Any]) -> str:
    text = (
        "Solved = tasks solved / tasks selected; an errored, missing or cut attempt counts as not solved. "
        "With several attempts a task counts by the share that passed, or, where tasks stop at their first success, "
        "as solved if any passed. Intervals treat the task, not the attempt, as the unit."
    )
    if len(summary["requests"]) < 2:
        return text
    lines = [f"- {percent(item['value'])} over {cell(item['over'])}" for item in summary["averages"].values()]
    return f"{text}\n\nAll requests together:\n\n" + "\n".join(lines)


def _request(request: Mapping[str, Any]) -> list[str]:
    report = request["report"]
    blocks = [f"## {cell(request['name'] or '-')}", _figures(report)]
    if len(report["categories"]) > 1:
        blocks.append(_categories(report))
    others = {
        name: item for name, item in report["metrics"].items() if item["value"] is not None and not item["primary"]
    }
    if others:
        blocks.append(_metrics(others))
    if report["failure_modes"]:
        modes = ", ".join(f"{cell(name)} {number}" for name, number in report["failure_modes"].items())
        blocks.append(f"How attempts went wrong: {modes}.")
    blocks.append("\n".join(f"- {cell(text, 300)}" for text in report["notes"]))
    blocks.append(_unresolved(request["tasks"]))
    return blocks


def named_figures(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of a request's report by name, the headline first; those that it equals are in its name."""
    name, figures = "solved", {}
    if report["k"] > 1:
        same = (f"avg@{report['k']}", "pass@1", "pass^1") if not report["early_stop"] else (f"pass@{report['k']}",)
        name = f"solved ({' = '.join(same)})"
        figures = {key: item for key, item in report["figures"].items() if key not in same}
    figures = {name: report["headline"], **figures}
    if report["score"]["over"] != report["aggregations"]["micro_weighted"]["over"]:
        figures["score"] = report["score"]
    return figures


def _figures(report: Mapping[str, Any]) -> str:
    head = ["figure", "value", "95% interval", "over scored attempts only", "best case", "what it is"]
    rows = [
        [
            cell(name),
            percent(item["value"]),
            interval_text(item),
            f"{percent(item['over_scored'])} of {count(item['over_scored_tasks'], 'task')}",
            percent(item["best_case"]),
            cell(item["over"]),
        ]
        for name, item in named_figures(report).items()
    ]
    return _table(head, rows, text=(0, 5))


def _categories(report: Mapping[str, Any]) -> str:
    rows = [_category_row(cell(row["category"] or "(none)"), row) for row in report["categories"]]
    names = ("headline_tasks", "solved", *_COUNTED)
    total: dict[str, Any] = {name: sum(row[name] for row in report["categories"]) for name in names}
    total["value"] = report["headline"]["value"]
    return _table(["category", "tasks", "solved", "share", *_COUNTED], [*rows, _category_row("**all**", total)])


def _category_row(name: str, row: Mapping[str, Any]) -> list[str]:
    solved = f"{row['solved']:.2f}".rstrip("0").rstrip(".")
    return [name, str(row["headline_tasks"]), solved, percent(row["value"]), *[str(row[item]) for item in _COUNTED]]


def _metrics(metrics: Mapping[str, Any]) -> str:
    rows = [
        [
            cell(item["display"]),
            f"{item['value']:.6g} {cell(item['unit']) if item['unit'] else ''}".strip(),
            str(item["tasks"]),
        ]
        for item in metrics.values()
    ]
    return _table(["metric (mean over tasks with a scored attempt)", "value", "tasks"], rows)


def _unresolved(tasks: Iterable[Mapping[str, Any]]) -> str:
    """List the attempts that gave no result: they are what needs a look before the figures are used."""
    found = [
        f"- {cell(task['task_id'])} attempt {attempt['attempt']}: {cell(_cause(attempt))}"
        for task in tasks
        for attempt in task["attempts"]
        if attempt["outcome"] in ("error", "missing")
    ]
    if not found:
        return ""
    more = [f"- and {len(found) - _LISTED} more"] if len(found) > _LISTED else []
    return "Attempts without a result:\n\n" + "\n".join([*found[:_LISTED], *more])


def _cause(attempt: Mapping[str, Any]) -> str:
    return "no record" if attempt["outcome"] == "missing" else str(attempt["failure_mode"])


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], text: Sequence[int] = (0,)) -> str:
    rule = ["---" if place in text else "---:" for place in range(len(head))]
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *rows))
