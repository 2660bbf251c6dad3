"""What report.html says before its attempts: the verdict, the requests, why attempts went wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from .escape import one_line
from .gates import gate_headline, gate_reasons, overall_verdict, shared_reasons
from .html_elements import NAME, OUTCOMES, Html, chip, element, interval_bar, joined, outcome_bar, spaced, text
from .words import count, interval_text, money, percent, seconds_text

__all__ = ["overview", "page_title"]

Data = Mapping[str, Any]
_REASON = 1200  # characters of what decided a gate
_TOKENS = (("input_tokens", "in"), ("output_tokens", "out"))


def page_title(summary: Data) -> str:
    """Return the title of the page: it begins with the verdict, since a tab shows little of it."""
    name = f"run {summary['run'].get('run_id') or ''}".strip()
    if summary["gates"]:
        return f"{overall_verdict(summary['gates'])} - {name}"
    return f"{name}{'' if summary['complete'] else ' (partial)'}"


def overview(summary: Data) -> Html:
    """Return the head of the page: the run, its gates, what is missing, and a row per request."""
    requests = summary["requests"]
    rows = [_request(request) for request in requests]
    if len(rows) > 1:
        rows.insert(0, _all_requests(summary))
    parts = [_header(summary["run"]), _gates(summary["gates"]), _warning(summary)]
    if rows:
        parts.append(element("section", element("h2", text("Results")), *rows, _explanation(), class_="results"))
    else:
        parts.append(element("p", text("This run holds no request.")))
    return joined(parts, "\n")


def _header(run: Data) -> Html:
    facts = [text(f"{run['status']}")] if run.get("status") else []
    if run.get("started_at"):
        facts.append(_time("started", str(run["started_at"])))
    took = _took(run)
    if took:
        facts.append(text(f"took {took}"))
    versions = run.get("versions")
    if isinstance(versions, Mapping):
        facts += [
            text(f"{name} {versions[name]}", 80) for name in ("pytest-agentcompass", "python") if name in versions
        ]
    host = run.get("host")
    if isinstance(host, Mapping) and host.get("name"):
        facts.append(text(f"on {host['name']}", 80))
    title = element("h1", spaced(text("Benchmark run"), element("b", text(run.get("run_id") or "", 120))))
    return element("header", title, element("p", joined(facts, " &middot; "), class_="facts"))


def _time(word: str, value: str) -> Html:
    moment = _moment(value)
    shown = f"{moment:%Y-%m-%d %H:%M:%S} {moment.tzname() or ''}".strip() if moment else value
    return spaced(text(word), text(shown, 60))


def _took(run: Data) -> str:
    start, end = _moment(str(run.get("started_at") or "")), _moment(str(run.get("finished_at") or ""))
    if start is None or end is None or (start.tzinfo is None) != (end.tzinfo is None):
        return ""
    return seconds_text(max(0.0, (end - start).total_seconds()))


def _moment(value: str) -> datetime | None:
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        return None


# -- gates, and what the figures do not cover --------------------------------------------------


def _gates(gates: Sequence[Data]) -> Html:
    if not gates:
        return Html("")
    verdict, shared = overall_verdict(gates), shared_reasons(gates)
    word, _, meaning = gate_headline(gates).partition(": ")
    parts = [element("h2", chip(word), text(meaning)), *[_gate(gate, shared) for gate in gates]]
    if shared:
        parts.append(element("div", element("p", text("For all gates:")), _reasons(shared), class_="gate"))
    return element("section", *parts, class_=f"banner {verdict.lower()}")


def _gate(gate: Data, shared: Sequence[str]) -> Html:
    head = [chip(str(gate["verdict"])), element("code", text(gate["gate"]))]
    if gate["figure"]:
        head.append(element("span", text(gate["figure"])))
    reasons = [reason for reason in gate_reasons(gate) if reason not in shared]
    return element("div", element("p", *head), *([_reasons(reasons)] if reasons else []), class_="gate")


def _reasons(reasons: Sequence[str]) -> Html:
    return element("ul", *[element("li", text(reason, _REASON)) for reason in reasons])


def _warning(summary: Data) -> Html:
    lists = (
        ("Partial run: these figures do not cover everything that was planned", summary["partial_reasons"]),
        ("Problems with files of this run", summary["problems"]),
    )
    found = [
        element("section", element("h2", text(title)), element("ul", *_items(reasons)), class_="banner warn")
        for title, reasons in lists
        if reasons
    ]
    return joined(found)


def _items(lines: Sequence[str], limit: int = 50) -> list[Html]:
    items = [element("li", text(line)) for line in lines[:limit]]
    return [*items, element("li", text(f"and {len(lines) - limit} more"))] if len(lines) > limit else items


# -- requests ----------------------------------------------------------------------------------


def _request(request: Data) -> Html:
    report = request["report"]
    facts = [
        element("li", spaced(element("span", text(name)), text(request[name], 120)))
        for name in ("benchmark", "harness", "model", "environment")
        if request[name]
    ]
    return element(
        "article",
        element("div", element("h3", text(request["name"] or "-", 120)), element("ul", *facts, class_="asked")),
        _headline(report),
        _counts(report["attempts"], request["name"]),
        _spent(report["usage"], report["durations"]),
    )


def _headline(report: Data) -> Html:
    head = report["headline"]
    lines = [f"95% interval {interval_text(head)}"] if head["interval"] else []
    if head["best_case"] != head["value"]:
        scored = count(head["over_scored_tasks"], "scored task")
        lines.append(f"{percent(head['over_scored'])} over {scored}, best case {percent(head['best_case'])}")
    if report["k"] > 1:
        names = (f"pass@{report['k']}", f"pass^{report['k']}")
        lines += [f"{name} {percent(report['figures'][name]['value'])}" for name in names if name in report["figures"]]
    if report["score"]["over"] != report["aggregations"]["micro_weighted"]["over"]:
        lines.append(f"{percent(report['score']['value'])} as {report['score']['over']}")
    return _figure(head["value"], f"of {count(head['tasks'], 'task')} solved", head["interval"], lines)


def _figure(value: float | None, over: str, interval: Data | None, lines: Sequence[str]) -> Html:
    low, high = (interval["low"], interval["high"]) if interval else (None, None)
    label = f"{percent(value)}, {lines[0]}" if interval else percent(value)
    return element(
        "div",
        element("p", spaced(element("b", text(percent(value))), text(over)), class_="figure"),
        interval_bar(value, low, high, label),
        element("ul", *[element("li", text(line)) for line in lines]),
    )


def _counts(counts: Data, request: str | None = None) -> Html:
    """Return the outcomes of attempts as a sum that adds up to the plan."""
    terms, planned = [], counts["planned"]
    for name, outcome in OUTCOMES.items():
        shown = _show(outcome, request) if counts[name] else {}
        terms.append(
            element("li", spaced(element("b", text(f"{counts[name]:,}")), text(name)), class_=outcome, **shown)
        )
    title = element(
        "p", spaced(element("b", text(f"{planned:,}")), text(f"{'attempt' if planned == 1 else 'attempts'} planned ="))
    )
    return element("div", title, outcome_bar(counts), element("ul", *terms, class_="legend"))


def _show(outcome: str, request: str | None) -> dict[str, str]:
    """Return what makes a count a button that shows its attempts, where scripts run."""
    found = {"data_outcome": outcome}
    return found if request is None else {**found, "data_request": one_line(request, NAME)}


def _spent(usage: Data, durations: Data) -> Html:
    lines = []
    for name, title in (("cost_usd", "cost"), ("judge_cost_usd", "judges")):
        if name in usage:
            item = usage[name]
            again = f" (discarded tries {money(item['discarded_tries'])})" if item["discarded_tries"] else ""
            lines.append(f"{title} {money(item['total'] + item['discarded_tries'])}{again}")
    tokens = [
        f"{usage[name]['total'] + usage[name]['discarded_tries']:,} {word}" for name, word in _TOKENS if name in usage
    ]
    if tokens:
        lines.append(f"tokens {', '.join(tokens)}")
    if durations["mean"] is not None:
        lines.append(f"{seconds_text(durations['mean'])} per attempt, p95 {seconds_text(durations['p95'])}")
        lines.append(f"{seconds_text(durations['total'])} in all")
    return element("div", element("ul", *[element("li", text(line)) for line in lines]), class_="spent")


def _all_requests(summary: Data) -> Html:
    totals, averages = summary["totals"], summary["averages"]
    lines = [f"{percent(item['value'])} over {item['over']}" for name, item in averages.items() if name != "over_tasks"]
    spent = [
        f"{title} {money(totals[name])}"
        for name, title in (("cost_usd", "cost"), ("judge_cost_usd", "judges"))
        if totals[name] is not None
    ]
    spent.append(f"{seconds_text(totals['seconds'])} in all")
    name = element("h3", text("All requests"))
    asked = element("ul", element("li", text(count(len(summary["requests"]), "request"))), class_="asked")
    return element(
        "article",
        element("div", name, asked),
        _figure(averages["over_tasks"]["value"], f"over {averages['over_tasks']['over']}", None, lines),
        _counts(totals),
        element("div", element("ul", *[element("li", text(line)) for line in spent]), class_="spent"),
        class_="all",
    )


def _explanation() -> Html:
    words = (
        "Solved = tasks solved / tasks selected; an errored, missing or cut attempt counts as not solved. "
        "With several attempts a task counts by the share that passed, or, where tasks stop at their first success, "
        "as solved if any passed. Intervals treat the task, not the attempt, as the unit. "
        "Cost includes discarded tries."
    )
    return element("p", text(words, 600), class_="note")
