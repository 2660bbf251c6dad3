"""The text a person sees for one attempt."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_agentcompass.contracts.outcome import FailureMode
from pytest_agentcompass.contracts.record import AttemptRecord
from pytest_agentcompass.reports.attempt_text import _PHRASES, cause, failing_tests, failure_text, reason

MakeRecord = Callable[..., AttemptRecord]


def issue(code: str, message: str, severity: str = "error", phase: str = "run") -> dict[str, str]:
    """Make one issue of a record."""
    return {"phase": phase, "severity": severity, "code": code, "message": message}


def test_every_failure_mode_has_a_phrase() -> None:
    """No mode is shown as a bare code."""
    assert set(_PHRASES) == set(FailureMode) - {FailureMode.NONE}


def test_reason_names_the_tests_that_failed(make_record: MakeRecord) -> None:
    """A failed attempt says how many of its tests did not pass and which."""
    tests = {f"t{n}": "FAILED" for n in range(5)} | {"ok": "PASSED", "skip": "skipped", "x": "XFAIL"}
    record = make_record("failed", tests=tests)
    assert reason(record) == "5 of 8 tests did not pass: t0, t1, t2 and 2 more"
    assert [name for name, _ in failing_tests(record)] == ["t0", "t1", "t2", "t3", "t4"]


def test_reason_takes_the_issue_that_gave_the_mode(make_record: MakeRecord) -> None:
    """A later error does not hide the first cause."""
    issues = (
        issue("note", "slow engine", severity="warning"),
        issue("environment_error", "image x is not there"),
        issue("evaluation_error", "no result file"),
    )
    assert reason(make_record("error", issues=issues)) == "the environment failed: image x is not there"


def test_an_error_after_the_agents_failure_is_named(make_record: MakeRecord) -> None:
    """Where an agent failed and then the verifier did not start, the reason is why there is no score."""
    issues = (
        issue("agent_error", "the agent ended with status 1"),
        issue("verifier_not_started", "the verifier './x' was not started", phase="evaluate"),
    )
    record = make_record("error", status="run_error_or_eval_error", failure_mode="agent_error", issues=issues)
    assert cause(record) is FailureMode.VERIFIER_NOT_STARTED
    assert reason(record) == "the verifier './x' was not started"
    assert "  error (run): the agent ended with status 1" in failure_text(record, "p")


@pytest.mark.parametrize(
    ("kind", "fields", "text"),
    [
        ("passed", {}, "passed"),
        ("passed", {"failure_mode": "agent_timeout"}, "passed: the agent ran out of time"),
        ("failed", {}, "not solved"),
        ("failed", {"score": 0.25}, "not solved: score 0.25"),
        (
            "failed",
            {"failure_mode": "agent_timeout", "issues": (issue("agent_timeout", "after 60 s"),)},
            "the agent ran out of time: after 60 s",
        ),
        ("failed", {"issues": (issue("none", "wrong answer"),)}, "wrong answer"),
        (
            "failed",
            {"issues": (issue("verifier_failed", "the verifier ended with status 124", severity="info"),)},
            "not solved: the verifier ended with status 124",
        ),
        (
            "failed",
            {"failure_mode": "agent_error", "issues": (issue("agent_error", "the agent ended with status 3"),)},
            "the agent ended with status 3",
        ),
        ("error", {"issues": ()}, "the environment failed"),
        ("satisfied", {}, "an earlier attempt of the task passed"),
        ("error", {"failure_mode": "none"}, "image foo:1 is not there"),
        ("error", {"failure_mode": "none", "issues": ()}, "error, no reason recorded"),
    ],
)
def test_reasons(make_record: MakeRecord, kind: str, fields: dict[str, object], text: str) -> None:
    """Each outcome is explained in words."""
    assert reason(make_record(kind, **fields)) == text


def test_failure_text_holds_what_one_needs_to_act(make_record: MakeRecord) -> None:
    """Reason, expected, came, failing tests, notes, tries, both outputs' last lines, the record's path."""
    record = make_record(
        "failed",
        tests={"a::b": "FAILED", "a::c": "PASSED"},
        details={"expected": "42"},
        final_answer="41",
        issues=(issue("teardown", "container stayed", severity="warning", phase="close"),),
        retries=({"stage": "open"},),
        agent_output="".join(f"step {n}\n" for n in range(1, 41)),
        verifier_output="E assert 41 == 42\n",
    )
    assert failure_text(record, "runs/x/record.json", lines=3).splitlines() == [
        "1 of 2 tests did not pass: a::b",
        "  expected: 42",
        "  came:     41",
        "  tests that did not pass (1 of 2):",
        "    a::b: FAILED",
        "  warning (close): container stayed",
        "  1 earlier try discarded, see retries/",
        "--- verifier output, all (1) ---",
        "E assert 41 == 42",
        "--- agent output, last lines (3) ---",
        "step 38",
        "step 39",
        "step 40",
        "record: runs/x/record.json",
    ]


def test_an_empty_answer_is_said(make_record: MakeRecord) -> None:
    """Nothing came where something was expected."""
    text = failure_text(make_record("failed", details={"expected": ["a", 1]}, final_answer=""), "p")
    assert '  expected: ["a", 1]\n  came:     nothing\n' in text
    assert "--- agent output: nothing ---" in text


def test_many_failing_tests_and_notes_are_cut_with_a_count(make_record: MakeRecord) -> None:
    """A thousand failing tests do not flood the terminal."""
    issues = tuple(issue("w", f"note {n}", severity="warning") for n in range(50))
    record = make_record("failed", tests={f"t{n}": "FAILED" for n in range(1000)}, issues=issues)
    text = failure_text(record, "p")
    assert "and 990 more" in text
    assert "and 45 more notes" in text
    assert len(text.splitlines()) < 30


def test_hostile_output_is_harmless(make_record: MakeRecord) -> None:
    """Escapes, NUL, lone surrogates and huge lines come out as short printable text."""
    record = make_record(
        "failed", agent_output="\x1b[2J\x00\udcff" + "z" * 10_000_000, final_answer={"a": "\x1b[1m\udcff"}
    )
    text = failure_text(record, "p\x1b[0m")
    text.encode()
    assert "\x1b" not in text
    assert len(text) < 10_000
