"""Gates, comparisons and GitHub output as text, Markdown and XML."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from junitparser import JUnitXml

from pytest_agentcompass.contracts.record import AttemptRecord
from pytest_agentcompass.contracts.summary import Summary
from pytest_agentcompass.errors import ConfigError, ResultsError
from pytest_agentcompass.reports.compare import Run, compare_markdown, compare_runs, compare_text
from pytest_agentcompass.reports.gates import gate_cases, gate_headline, gate_lines, gate_markdown, overall_verdict
from pytest_agentcompass.reports.github import workflow_commands, write_step_summary
from pytest_agentcompass.reports.junit_xml import document, make_suite

NASTY = "a\x00b\x1b[31m|`<b>\ud800::set-output\n::error::x%0A"


def gate(verdict: str = "PASS", text: str = "pass@1 >= 0.5", **fields: Any) -> dict[str, Any]:
    """Return a gate as a run stores it."""
    return {"gate": text, "verdict": verdict, "figure": "50.0% of 4 tasks", "why": ["needs >= 50.0%"], **fields}


# -- gates --------------------------------------------------------------------------------------


def test_a_gate_is_a_block() -> None:
    """Verdict, gate and figure on one line, reasons below it."""
    assert gate_lines([gate("FAIL")]) == [
        "FAIL          pass@1 >= 0.5: 50.0% of 4 tasks",
        "              needs >= 50.0%",
    ]


def test_reasons_of_all_gates_stand_once() -> None:
    """A partial run need be explained only once."""
    lines = gate_lines([gate("INVALID", why=["partial"]), gate("INVALID", "errors <= 2%", why=["partial"])])
    assert [line for line in lines if "partial" in line] == ["              partial"]


def test_changed_tasks_are_named() -> None:
    """Which tasks broke is what a person needs; long lists are cut."""
    comparison = {"worse": [["r", f"t{n}"] for n in range(12)], "better": [["r", "x"]], "p_worse": 0.01}
    text = "\n".join(gate_lines([gate("FAIL", comparison=comparison)], 200))
    assert "worse than the baseline: t0, t1" in text
    assert "and 2 more" in text
    assert "better than the baseline: x" in text


@pytest.mark.parametrize(
    ("verdicts", "headline"),
    [
        (["PASS", "PASS"], "PASS: every gate holds"),
        (["PASS", "FAIL"], "FAIL: 1 of 2 gates does not hold"),
        (["FAIL", "FAIL"], "FAIL: 2 of 2 gates do not hold"),
        (["WARN", "PASS"], "WARN: no gate fails; what is inconclusive only warns"),
        (["INVALID", "FAIL"], "INVALID: this run cannot be judged by 1 of 2 gates"),
    ],
)
def test_headline(verdicts: list[str], headline: str) -> None:
    """One line says what all gates together mean."""
    gates = [gate(verdict) for verdict in verdicts]
    assert gate_headline(gates) == headline
    assert overall_verdict(gates) == headline.partition(":")[0]


def test_gates_in_junit_parse_strictly_and_are_distinct() -> None:
    """Cases 68 and 70: whatever a text holds, the XML parses, and no two gates share a name."""
    gates = [gate("FAIL", why=[NASTY]), gate("PASS"), gate("INVALID", NASTY), gate("WARN", "x")]
    text = b"".join(document("r", [make_suite("agentcompass.gates", gate_cases(gates))]))
    assert len(list(JUnitXml.fromstring(text))) == 1
    root = ElementTree.fromstring(text)
    cases = list(root.iter("testcase"))
    assert len({(case.get("classname"), case.get("name")) for case in cases}) == 4
    assert [[child.tag for child in case][:1] for case in cases] == [
        ["failure"],
        ["system-out"],
        ["error"],
        ["system-out"],
    ]


def test_gates_in_markdown_hold_no_markup_of_others() -> None:
    """A gate's text cannot break the table or smuggle HTML."""
    text = gate_markdown([gate("FAIL", "a | b", why=[NASTY])])
    assert "\\|" in text
    assert "<b>" not in text
    assert "\x1b" not in text
    assert gate_markdown([]) == ""


# -- GitHub -------------------------------------------------------------------------------------


def test_workflow_commands_are_one_line_each_and_escaped() -> None:
    """What an agent wrote can never become a command of its own."""
    record = AttemptRecord(
        request="r",
        task_id=NASTY,
        attempt=1,
        status="run_error",
        failure_mode="environment_error",
        issues=({"phase": "open", "severity": "error", "code": "environment_error", "message": NASTY},),
    )
    lines = list(workflow_commands([gate("FAIL", why=[NASTY]), gate("PASS"), gate("WARN")], [record, record]))
    assert [line.partition(" title=")[0] for line in lines] == ["::error", "::warning", "::warning"]
    assert all("\n" not in line and "\r" not in line for line in lines)
    assert "%250A" in lines[0]
    assert "title=2 infrastructure errors::" in lines[2]


def test_step_summary_is_appended_and_capped(tmp_path: Path) -> None:
    """GitHub refuses a summary of 1 MiB; a target that cannot be written is said."""
    markdown, target = tmp_path / "s.md", tmp_path / "target"
    markdown.write_text("é" * 600_000)
    target.write_text("before\n")
    assert write_step_summary(target, markdown) is None
    assert target.read_bytes().startswith(b"before\n")
    assert target.stat().st_size < 1_000_000
    target.read_text(encoding="utf-8")
    assert "could not be written" in str(write_step_summary(tmp_path / "no" / "x", markdown))


# -- compare ------------------------------------------------------------------------------------


def summary(outcomes: dict[str, str], name: str = "r", mark: str = "f") -> Summary:
    """Return a run of one request; each text holds a task's attempts (P, F, E)."""
    words = {"P": "passed", "F": "failed", "E": "error"}
    tasks = [
        {
            "task_id": task,
            "fingerprint": f"{mark}{task}",
            "attempts": [{"attempt": n, "outcome": words[letter]} for n, letter in enumerate(text, 1)],
        }
        for task, text in outcomes.items()
    ]
    graded = [text for text in outcomes.values() if "E" not in text]
    head = {
        "value": sum(text.count("P") / len(text) for text in outcomes.values()) / len(outcomes),
        "tasks": len(outcomes),
        "over_scored": sum(text.count("P") / len(text) for text in graded) / max(1, len(graded)),
        "over_scored_tasks": len(graded),
    }
    errors = sum(text.count("E") for text in outcomes.values())
    k = max(map(len, outcomes.values()))
    report = {"k": k, "headline": head, "attempts": {"errors": errors}}
    request = {"name": name, "harness": "h", "model": "m", "report": report, "tasks": tasks}
    base = {"schema_version": 1, "kind": "agentcompass-summary", "complete": True}
    return Summary.model_validate({**base, "requests": [request]})


def test_compare_names_broken_fixed_and_dropped_tasks() -> None:
    """Case 56: both denominators and the errors are shown, and a pair without a verdict is dropped and said."""
    old = summary({"a": "P", "b": "F", "c": "P", "d": "P"})
    new = summary({"a": "F", "b": "P", "c": "P", "d": "E"})
    text = "\n".join(compare_text(compare_runs([Run("old", old), Run("new", new)])))
    for part in (
        "newly broken: 1: a",
        "newly fixed: 1: b",
        "no verdict in one run: 1: d",
        "smallest drop",
        "over scored",
    ):
        assert part in text
    row = next(line for line in text.splitlines() if line.startswith("new "))
    assert "50.0% of 4" in row
    assert "66.7% of 3" in row


def test_flaky_tasks_are_named() -> None:
    """Mixed outcomes over attempts make a task flaky, in whichever run."""
    old, new = summary({"a": "PPF", "b": "PPP"}), summary({"a": "PPP", "b": "FFF"})
    text = "\n".join(compare_text(compare_runs([Run("old", old), Run("new", new)])))
    assert "flaky in old: 1: a (2 of 3)" in text
    assert "solved less often: 1: b" in text


def test_several_candidates_pay_for_their_number() -> None:
    """`Better on any` is adjusted by Holm once there are two candidates."""
    base = Run("base", summary({f"t{n}": "F" for n in range(8)}))
    better = summary({f"t{n}": "P" if n < 6 else "F" for n in range(8)})
    single = compare_runs([base, Run("x", better)])
    both = compare_runs([base, Run("x", better), Run("y", better)])
    assert single[0].rows[1].better_any is None
    assert both[0].rows[1].better_any == pytest.approx(2 * 0.015625)
    assert "p better (Holm)" in compare_text(both)[1]


def test_changed_tasks_are_refused_or_left_out() -> None:
    """Another text or grader is another task."""
    old = summary({"a": "P", "b": "P"})
    data = summary({"a": "P", "b": "P"}).model_dump()
    data["requests"][0]["tasks"][0]["fingerprint"] = "other"
    new = Summary.model_validate(data)
    with pytest.raises(ResultsError, match=r"1 task differ.*: a\. Leave them out with --drop-changed"):
        compare_runs([Run("old", old), Run("new", new)])
    found = compare_runs([Run("old", old), Run("new", new)], drop_changed=True)
    assert found[0].foreign == ("a",)
    assert "changed tasks, left out: 1: a" in "\n".join(compare_text(found))


def test_nothing_to_compare_is_an_error() -> None:
    """No common request, no common task, or a metric that is no rate: said, not an empty table."""
    old = summary({"a": "P"})
    with pytest.raises(ResultsError, match="nothing to compare"):
        compare_runs([Run("old", old), Run("new", summary({"z": "P"}))])
    two = old.model_copy(update={"requests": (*old.requests, *summary({"a": "P"}, "second").requests)})
    with pytest.raises(ResultsError, match="has no request"):
        compare_runs([Run("old", two), Run("new", summary({"a": "P"}, "other"))])
    with pytest.raises(ConfigError, match="cannot be compared by task"):
        compare_runs([Run("old", old), Run("new", old)], metric="cost_usd")
    with pytest.raises(ResultsError, match="needs 3 attempts"):
        compare_runs([Run("old", old), Run("new", old)], metric="pass@3")


def test_compare_markdown_is_safe() -> None:
    """Ids are data: they act neither as markup nor as table cells."""
    run = summary({"a|b`<i>": "P", "c": "F"})
    worse = summary({"a|b`<i>": "F", "c": "F"})
    text = compare_markdown(compare_runs([Run("x|y", run), Run("z", worse)]))
    assert "<i>" not in text
    assert "x\\|y" in text
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len({line.replace("\\|", "").count("|") for line in lines}) == 1
