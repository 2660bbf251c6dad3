"""Why attempts went wrong, and the other figures of each request, for report.html."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ..contracts.outcome import FailureMode
from ..contracts.record import AttemptRecord
from .attempt_text import cause, mode_phrase, reason
from .html_elements import Html, chip, element, joined, share_bar, spaced, table, text
from .markdown import named_figures
from .summary import RequestResult
from .words import count, interval_text, money, percent, seconds_text

__all__ = ["causes", "request_details"]

Report = Mapping[str, Any]
_ORDER = ("error", "missing", "failed", "skipped")
_COLUMNS = 4  # requests that have a column of their own
_LISTED = 12
_FAULTS = {"failed": "the agent", "error": "the infrastructure", "skipped": "nobody", "missing": "not made yet"}
_COUNTED = ("planned", "passed", "failed", "errors", "skipped", "missing")


def causes(requests: Sequence[RequestResult]) -> Html:
    """Return how many attempts did not pass in which failure mode, errors apart from failures, and the errors."""
    found: dict[tuple[str, str], Counter[str]] = {}
    for request in requests:
        for task in request.tallies:
            for _, record in task.attempts:
                key = ("missing", "") if record is None else (record.outcome, record.failure_mode.value)
                if key[0] != "passed":
                    found.setdefault(key, Counter())[request.name] += 1
    title = element("h2", text("Why attempts did not pass"))
    if not found:
        nothing = (
            "Every attempt passed."
            if any(request.planned or request.records for request in requests)
            else "No attempt was planned."
        )
        return element("section", title, element("p", text(nothing)))
    return element("section", title, _modes(found, [request.name for request in requests]), _errors(requests))


def _modes(found: Mapping[tuple[str, str], Counter[str]], names: Sequence[str]) -> Html:
    own = names if 1 < len(names) <= _COLUMNS else []
    ranked = sorted(found.items(), key=lambda item: (_ORDER.index(item[0][0]), -item[1].total(), item[0][1]))
    most = max(counts.total() for counts in found.values())
    rows = []
    for (outcome, mode), counts in ranked:
        mode_shown = "-" if mode in ("", "none") else mode
        number = element("span", text(f"{counts.total():,}"), data_outcome=outcome, data_mode=mode_shown)
        rows.append(
            [
                chip(outcome),
                element("code", text(mode_shown)),
                joined([number, share_bar(counts.total(), most, outcome)]),
                text(_meaning(outcome, mode)),
                text(_FAULTS[outcome]),
                *[text(counts[name] or "-") for name in own],
            ]
        )
    head = ["outcome", "failure mode", "attempts", "what it means", "at fault", *own]
    return table(head, rows, words=(0, 1, 3, 4))


def _meaning(outcome: str, mode: str) -> str:
    if outcome == "missing":
        return "planned, but there is no record of it"
    if mode == "none":
        return "graded, and not solved" if outcome == "failed" else ""
    return mode_phrase(FailureMode(mode))


def _errors(requests: Sequence[RequestResult]) -> Html:
    """List the errors by cause: they say nothing about the agent, and want a look before the figures are used."""
    groups: dict[str, list[AttemptRecord]] = {}
    for record in (record for request in requests for record in request.records if record.outcome == "error"):
        groups.setdefault(f"{cause(record).value}: {reason(record, 200)}", []).append(record)
    if not groups:
        return Html("")
    ranked = sorted(groups.items(), key=lambda item: -len(item[1]))
    items = [_error(words, records) for words, records in ranked[:_LISTED]]
    if len(ranked) > _LISTED:
        items.append(element("li", text(f"and {len(ranked) - _LISTED} more causes: see the attempts")))
    note = "Errors by cause. They are missing data, not failures of the agent; resume the run to make them again."
    return joined([element("p", text(note)), element("ul", *items, class_="errors")])


def _error(words: str, records: Sequence[AttemptRecord]) -> Html:
    places = ", ".join(f"{item.request}::{item.task_id}::attempt{item.attempt}" for item in records[:3])
    more = f" and {len(records) - 3} more" if len(records) > 3 else ""
    place = element("small", text(f"{places}{more}", 400))
    return element("li", spaced(element("b", text(f"{len(records)} ×")), text(words), place))


# -- other figures of a request ----------------------------------------------------------------


def request_details(request: RequestResult) -> Html:
    """Return what else was measured of a request, folded: figures, categories, metrics, spending, time."""
    report = request.report
    parts = [_figures(report), _notes(report)]
    if len(report["categories"]) > 1:
        parts.append(_categories(report))
    parts += [_metrics(report), _usage(report), _phases(report)]
    title = element("summary", text(f"All figures of {request.name or '-'}", 200))
    return element("details", title, *[part for part in parts if part], class_="figures")


def _figures(report: Report) -> Html:
    rows = [
        [
            element("code", text(name, 60)),
            text(percent(item["value"])),
            text(interval_text(item)),
            text(f"{percent(item['over_scored'])} of {count(item['over_scored_tasks'], 'task')}"),
            text(percent(item["best_case"])),
            text(item["over"]),
        ]
        for name, item in named_figures(report).items()
    ]
    return table(
        ["figure", "value", "95% interval", "over scored attempts only", "best case", "what it is"], rows, (0, 5)
    )


def _notes(report: Report) -> Html:
    items = [element("li", text(note, 400)) for note in report["notes"]]
    return element("ul", *items) if items else Html("")


def _categories(report: Report) -> Html:
    rows = [
        [
            text(row["category"] or "(none)", 120),
            text(row["headline_tasks"]),
            text(f"{row['solved']:.2f}".rstrip("0").rstrip(".")),
            text(percent(row["value"])),
            *[text(row[name]) for name in _COUNTED],
        ]
        for row in report["categories"]
    ]
    return table(["category", "tasks", "solved", "share", *_COUNTED], rows)


def _metrics(report: Report) -> Html:
    rows = [
        [text(item["display"], 120), text(f"{item['value']:.6g} {item['unit'] or ''}".strip(), 80), text(item["tasks"])]
        for item in report["metrics"].values()
        if item["value"] is not None and not item["primary"]
    ]
    return table(["metric (mean over tasks with a scored attempt)", "value", "tasks"], rows) if rows else Html("")


def _usage(report: Report) -> Html:
    rows = []
    for name, item in report["usage"].items():
        shown = money if name.endswith("cost_usd") else _number
        rows.append(
            [text(name, 80), text(shown(item["total"])), text(item["attempts"]), text(shown(item["discarded_tries"]))]
        )
    return table(["spent", "sum over attempts", "known for attempts", "discarded tries"], rows) if rows else Html("")


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"


def _phases(report: Report) -> Html:
    rows = [[text(name, 80), text(seconds_text(value))] for name, value in report["durations"]["phases_mean"].items()]
    return table(["phase", "mean time per attempt"], rows) if rows else Html("")
