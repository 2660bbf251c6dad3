"""Terminal lines of a finished run: plain ASCII layout, each line something a person can act on."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..contracts.record import AttemptRecord
from ..metrics.tallies import Planned, tally
from .attempt_text import cause, reason
from .escape import one_line
from .words import count, interval_text, money, percent, seconds_text

__all__ = ["headline_lines", "problems", "request_table", "rerun_hint", "results_lines"]

Report = Mapping[str, Any]
_COLUMNS = ("request", "planned", "passed", "failed", "errors", "skipped", "missing", "solved", "95% interval")
_NAMED = 3


def request_table(reports: Sequence[Report], width: int = 80) -> list[str]:
    """Return a table with one row per request, or a block per request where *width* is too narrow.

    Figures that need a word of explanation are explained below it.
    """
    rows = [_row(report) for report in reports]
    if not rows:
        return ["no request was run"]
    columns = [
        *_COLUMNS,
        *[name for name in ("pass", "cost", "judges", "time/attempt") if any(row.get(name) for row in rows)],
    ]
    columns = [_title(name, reports) if name == "pass" else name for name in columns]
    cells = [
        columns,
        *[[row.get("pass" if name.startswith("pass@") else name, "-") or "-" for name in columns] for row in rows],
    ]
    sizes = [max(len(line[place]) for line in cells) for place in range(len(columns))]
    if sum(sizes) + 2 * (len(sizes) - 1) <= width:
        lines = [_aligned(line, sizes) for line in cells]
    else:
        lines = [line for report, row in zip(reports, rows, strict=True) for line in _block(report, row, width)]
    return lines + [line for report in reports for line in headline_lines(report, len(reports) > 1)]


def headline_lines(report: Report, name: bool = True) -> list[str]:
    """Return the lines that explain a request's headline where outcomes are not all scored."""
    head = report["headline"]
    prefix = f"{one_line(report['request'], 60)}: " if name else ""
    lines = []
    if head["best_case"] != head["value"]:
        scored = f"over the {count(head['over_scored_tasks'], 'scored task')} {percent(head['over_scored'])}"
        lines.append(f"{prefix}{_undecided(report)} as not solved; {scored}, best case {percent(head['best_case'])}")
    if report["score"]["over"] != report["aggregations"]["micro_weighted"]["over"]:
        score = report["score"]
        lines.append(f"{prefix}{percent(score['value'])} [{interval_text(score)}] as {score['over']}")
    lines += [f"{prefix}PARTIAL: {text}" for text in report["partial_reasons"]]
    return lines + [f"{prefix}{one_line(text, 300)}" for text in report["notes"]]


def problems(records: Sequence[AttemptRecord], planned: Sequence[Planned] = ()) -> list[str]:
    """Return the attempts that gave no result, grouped by cause, the most frequent first."""
    groups: dict[str, list[str]] = {}
    for record in records:
        if record.outcome == "error":
            key = f"{cause(record).value}: {reason(record, 160)}"
            groups.setdefault(key, []).append(_place(record.request, record.task_id, record.attempt))
    lines = [f"{count(len(places), 'error')}: {cause} ({_some(places)})" for cause, places in _ranked(groups)]
    missing = _missing(records, planned)
    if missing:
        lines.append(f"{len(missing)} missing: planned, but there is no record ({_some(missing)})")
    return lines


def results_lines(run_dir: str, files: Iterable[str] = ()) -> list[str]:
    """Return where the results are."""
    names = ", ".join(files)
    return [f"results: {one_line(run_dir, 4000)}{f' ({names})' if names else ''}"]


def rerun_hint(reports: Sequence[Report], run: str) -> str | None:
    """Return the command that makes what errored or is missing again in *run* (id or directory), or None."""
    errors = sum(report["attempts"]["errors"] for report in reports)
    left = sum(report["attempts"]["missing"] for report in reports)
    cut = sum(item["failure_modes"].get(mode, 0) for item in reports for mode in ("budget_spent", "deadline"))
    if not errors + left + cut:
        return None
    what = [
        text
        for number, text in ((errors, f"{errors} errored"), (left, f"{left} missing"), (cut, f"{cut} cut"))
        if number
    ]
    again = " and ".join(what)
    return f"to run the {again} again: pytest --agentcompass --agentcompass-resume={shlex.quote(one_line(run, 4000))}"


def _undecided(report: Report) -> str:
    counts, modes = report["attempts"], report["failure_modes"]
    cut = counts["skipped"] - modes.get("strategy_satisfied", 0) - modes.get("no_solution", 0)
    kinds = [
        (counts["errors"], count(counts["errors"], "error")),
        (counts["missing"], f"{counts['missing']} missing"),
        (cut, f"{cut} cut"),
    ]
    parts = [text for number, text in kinds if number]
    return f"{' and '.join(parts)} count{'s' if counts['errors'] + counts['missing'] + cut == 1 else ''}"


def _row(report: Report) -> dict[str, str]:
    counts, head = report["attempts"], report["headline"]
    row = {name: str(counts[name]) for name in ("planned", "passed", "failed", "errors", "skipped", "missing")}
    row["request"] = one_line(report["request"] or "(all)", 40)
    row["solved"] = f"{percent(head['value'])} of {count(head['tasks'], 'task')}"
    row["95% interval"] = interval_text(head)
    if report["k"] > 1 and not report["early_stop"]:
        row["pass"] = percent(report["figures"][f"pass@{report['k']}"]["value"])
    cost = report["usage"].get("cost_usd")
    if cost:
        known = "" if cost["attempts"] >= counts["scored"] + counts["errors"] else "+"
        row["cost"] = money(cost["total"] + cost["discarded_tries"]) + known
    judges = report["usage"].get("judge_cost_usd")
    if judges:
        row["judges"] = money(judges["total"] + judges["discarded_tries"])
    row["time/attempt"] = seconds_text(report["durations"]["mean"])
    return row


def _title(name: str, reports: Sequence[Report]) -> str:
    sizes = {report["k"] for report in reports if report["k"] > 1 and not report["early_stop"]}
    return f"pass@{sizes.pop()}" if len(sizes) == 1 else f"{name}@k"


def _aligned(cells: Sequence[str], sizes: Sequence[int]) -> str:
    first = cells[0].ljust(sizes[0])
    return "  ".join([first, *[cell.rjust(size) for cell, size in zip(cells[1:], sizes[1:], strict=True)]]).rstrip()


def _block(report: Report, row: Mapping[str, str], width: int) -> list[str]:
    counts = [f"{row[name]} {name}" for name in ("passed", "failed", "errors", "skipped", "missing")]
    facts = [f"{row['solved']} solved", f"95% interval {row['95% interval']}"]
    if row.get("pass"):
        facts.append(f"pass@{report['k']} {row['pass']}")
    if row.get("cost"):
        facts.append(f"cost {row['cost']}")
    if row.get("judges"):
        facts.append(f"judges {row['judges']}")
    facts.append(f"{row['time/attempt']} per attempt")
    return [f"{row['request']}: {row['planned']} planned", *_wrap(counts, width), *_wrap(facts, width)]


def _wrap(parts: Sequence[str], width: int) -> list[str]:
    lines = [f"  {parts[0]}"]
    for part in parts[1:]:
        if len(lines[-1]) + 2 + len(part) <= width:
            lines[-1] += f", {part}"
        else:
            lines[-1] += ","
            lines.append(f"  {part}")
    return lines


def _missing(records: Sequence[AttemptRecord], planned: Sequence[Planned]) -> list[str]:
    names = dict.fromkeys(name for name, _, _ in planned)
    found = []
    for name in names:
        tasks = tally(
            [item for item in records if item.request == name], [item for item in planned if item[0] == name]
        )[0]
        found += [
            _place(name, task.task_id, number) for task in tasks for number, record in task.attempts if record is None
        ]
    return found


def _place(request: str, task_id: str, attempt: int) -> str:
    return f"{one_line(request, 40)}::{one_line(task_id, 60)}::attempt{attempt}"


def _ranked(groups: Mapping[str, list[str]]) -> list[tuple[str, list[str]]]:
    return sorted(groups.items(), key=lambda item: -len(item[1]))


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
