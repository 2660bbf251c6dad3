"""Gates as text, Markdown and JUnit, from the plain data that a run stores of them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .escape import markdown_text, one_line, xml_text
from .junit_xml import Case, Result, make_case

__all__ = [
    "gate_cases",
    "gate_headline",
    "gate_lines",
    "gate_markdown",
    "gate_reasons",
    "overall_verdict",
    "shared_reasons",
]

_ORDER = ("PASS", "WARN", "INCONCLUSIVE", "FAIL", "INVALID")
_MEANING = {
    "PASS": "every gate holds",
    "WARN": "no gate fails; what is inconclusive only warns",
    "FAIL": "{} of {} gates {} not hold",
    "INCONCLUSIVE": "{} of {} gates cannot be decided by these results",
    "INVALID": "this run cannot be judged by {} of {} gates",
}
_INDENT = " " * 14
_NAMED = 10
GateData = Mapping[str, Any]


def overall_verdict(gates: Iterable[GateData]) -> str:
    """Return the verdict of several gates: INVALID before FAIL before INCONCLUSIVE before PASS."""
    found = [str(gate["verdict"]) for gate in gates]
    return max(found, key=_ORDER.index, default="PASS")


def gate_headline(gates: Sequence[GateData]) -> str:
    """Return the verdict of all gates and what it means."""
    verdict = overall_verdict(gates)
    hits = sum(gate["verdict"] == verdict for gate in gates)
    return f"{verdict}: " + _MEANING[verdict].format(hits, len(gates), "does" if hits == 1 else "do")


def gate_lines(gates: Sequence[GateData], width: int = 100) -> list[str]:
    """Return a block per gate: verdict, gate, figure, then what decided it."""
    lines: list[str] = []
    shared = shared_reasons(gates)
    for gate in gates:
        head = f"{gate['verdict']:<14}{one_line(gate['gate'], 200)}"
        lines.append(head + (f": {gate['figure']}" if gate["figure"] else ""))
        for text in gate_reasons(gate):
            if text not in shared:
                lines += _wrapped(text, width)
    if shared:
        lines.append("for all gates:")
        lines += [line for text in shared for line in _wrapped(text, width)]
    return lines


def gate_reasons(gate: GateData) -> list[str]:
    """Return what decided a gate, and the tasks that a comparison found changed."""
    return [*gate["why"], *_changes(gate)]


def shared_reasons(gates: Sequence[GateData]) -> list[str]:
    """Return the reasons that several gates all have: a partial run need be explained only once."""
    if len(gates) < 2:
        return []
    return [text for text in gates[0]["why"] if all(text in gate["why"] for gate in gates)]


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(
        one_line(text, 1000),
        max(40, width),
        initial_indent=_INDENT,
        subsequent_indent=_INDENT + "  ",
        break_on_hyphens=False,
        break_long_words=False,
    )


def _changes(gate: GateData) -> list[str]:
    """Name the tasks that a comparison found changed."""
    found = gate.get("comparison")
    if not found:
        return []
    return [
        f"{title}: {_names(found[key])}"
        for key, title in (("worse", "worse than the baseline"), ("better", "better than the baseline"))
        if found[key] and found.get("p_worse") is not None
    ]


def _names(tasks: Sequence[Sequence[str]]) -> str:
    several = len({request for request, _ in tasks}) > 1
    shown = [f"{request}::{task}" if several else task for request, task in tasks[:_NAMED]]
    more = f" and {len(tasks) - _NAMED} more" if len(tasks) > _NAMED else ""
    return ", ".join(shown) + more


def gate_markdown(gates: Sequence[GateData]) -> str:
    """Return the gates as a Markdown section, or an empty text where there are none."""
    if not gates:
        return ""
    rows = [
        f"| **{gate['verdict']}** | {markdown_text(gate['gate'])} | {markdown_text(gate['figure'] or '-', 300)} "
        f"| {markdown_text('; '.join([*gate['why'], *_changes(gate)]), 1200)} |"
        for gate in gates
    ]
    head = ["| verdict | gate | figure | why |", "| --- | --- | --- | --- |"]
    return f"## Gates: {gate_headline(gates)}\n\n" + "\n".join([*head, *rows])


def gate_cases(gates: Sequence[GateData]) -> list[Case]:
    """Return the testcases of the JUnit suite `agentcompass.gates`: one per gate, names distinct and stable."""
    cases = []
    seen: dict[str, int] = {}
    for gate in gates:
        text = str(gate["gate"])
        seen[text] = seen.get(text, 0) + 1
        cases.append(_case(gate, text if seen[text] == 1 else f"{text} ({seen[text]})"))
    return cases


def _case(gate: GateData, name: str) -> Case:
    text = "\n".join(part for part in (gate["figure"], *gate_reasons(gate)) if part)
    kind = {"FAIL": "failure", "INCONCLUSIVE": "failure", "INVALID": "error"}.get(gate["verdict"])
    if kind is None:
        return make_case("agentcompass.gates", name, output=xml_text(f"{gate['verdict']}\n{text}"))
    message = one_line(f"{gate['verdict']}: {text}", 300)
    return make_case("agentcompass.gates", name, result=Result(kind, gate["verdict"].lower(), message, xml_text(text)))
