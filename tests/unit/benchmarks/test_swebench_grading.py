"""Rules of grading: the official verdicts, and what allows none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_agentcompass.benchmarks.swebench.grading import (
    Verdict,
    failure_reason,
    grade,
    instance_report,
    with_exit_code,
)
from pytest_agentcompass.benchmarks.swebench.parsers import OWN_PARSERS
from pytest_agentcompass.benchmarks.swebench.rows import parse_row
from pytest_agentcompass.contracts.outcome import FailureMode

SHARED = Path(__file__).parents[3].parent / "shared" / "swebench"
PYTEST = OWN_PARSERS["parse_log_pytest"]


def log(*body: str, code: int | None = 0, before: str = "", end: bool = True) -> str:
    """Return the log of an eval script whose tests printed *body*."""
    lines = [before, "+ : '>>>>> Start Test Output'", *body]
    if end:
        lines.append("+ : '>>>>> End Test Output'")
    if code is not None:
        lines += [f"+ echo '>>>>> Test Exit Code: {code}'", f">>>>> Test Exit Code: {code}"]
    return "\n".join(lines) + "\n"


def verdict(text: str, fail: list[str] | None = None, keep: list[str] | None = None, **columns: Any) -> Verdict:
    """Grade *text* for the required tests."""
    base = {"instance_id": "a__b-1", "repo": "a/b", "base_commit": "abcdef", "eval_type": "pass_and_fail"}
    lists = {"FAIL_TO_PASS": ["t::f"] if fail is None else fail, "PASS_TO_PASS": ["t::k"] if keep is None else keep}
    return grade(text, parse_row({**base, **lists, **columns}), PYTEST)


@pytest.mark.parametrize(
    ("body", "resolved", "level"),
    [
        (["PASSED t::f", "PASSED t::k"], True, "FULL"),
        (["XFAIL t::f", "XFAIL t::k"], True, "FULL"),
        (["PASSED t::f", "SKIPPED t::k"], True, "FULL"),
        (["SKIPPED t::f", "PASSED t::k"], False, "NO"),
        (["PASSED t::f", "FAILED t::k"], False, "NO"),
        (["PASSED t::f"], False, "NO"),
        (["PASSED t::k"], False, "NO"),
        (["FAILED t::f", "PASSED t::k"], False, "NO"),
        (["ERROR t::f", "PASSED t::k"], False, "NO"),
    ],
)
def test_statuses(body: list[str], resolved: bool, level: str) -> None:
    """All of FAIL_TO_PASS and PASS_TO_PASS must hold; absent is failed; skipped holds for PASS_TO_PASS only."""
    found = verdict(log(*body))
    assert (found.invalid, found.resolved, found.level) == (None, resolved, level)


def test_partial_is_the_share_of_fail_to_pass() -> None:
    """Some of FAIL_TO_PASS with all of PASS_TO_PASS is partial; an empty list counts as 1."""
    found = verdict(log("PASSED t::a", "FAILED t::b", "PASSED t::k"), fail=["t::a", "t::b"])
    assert (found.partial, found.level) == (0.5, "PARTIAL")
    assert verdict(log("PASSED t::a", "FAILED t::k"), fail=["t::a", "t::b"]).level == "NO"
    assert verdict(log("PASSED t::k"), fail=[]).partial == 1.0
    assert verdict("nothing").partial == 0.0


@pytest.mark.parametrize(
    ("body", "resolved"),
    [
        (["PASSED t::p[a", "PASSED t::k"], True),
        (["PASSED t::p[a-1]", "XFAIL t::p[a-2]", "PASSED t::k"], True),
        (["PASSED t::p[a-1]", "FAILED t::p[a-2]", "PASSED t::k"], False),
        (["PASSED t::p", "PASSED t::k"], False),
    ],
)
def test_cut_ids(body: list[str], resolved: bool) -> None:
    """An id with an open bracket stands for all that begin with it, where they agree."""
    assert verdict(log(*body), fail=["t::p[a"]).resolved is resolved


def test_an_exact_id_with_brackets_is_exact() -> None:
    """Only ids that are cut match by their beginning."""
    assert not verdict(log("PASSED t::p[a]x", "PASSED t::k"), fail=["t::p[a]"]).resolved


def test_other_failing_tests_do_not_matter() -> None:
    """A failing test that no list names, with its exit code 1, leaves the verdict alone."""
    assert verdict(log("PASSED t::f", "PASSED t::k", "FAILED t::z", code=1)).resolved


@pytest.mark.parametrize(
    ("text", "mode", "words"),
    [
        ("no markers", FailureMode.NO_TESTS, "never ran"),
        (log("PASSED t::f", end=False, code=None), FailureMode.NO_TESTS, "never ran"),
        (log("collected 0 items"), FailureMode.NO_TESTS, "no test result"),
        (log("Executed 0 of 0"), FailureMode.NO_TESTS, "no test result"),
        (log("PASSED t::f", "PASSED t::k", code=3), FailureMode.CONTRADICTION, "status 3"),
        (log("PASSED t::f", "PASSED t::k", code=-1), FailureMode.CONTRADICTION, "status -1"),
        (log("PASSED t::f", ">>>>> Tests Errored", "PASSED t::k"), FailureMode.CONTRADICTION, "Tests Errored"),
        (log("PASSED t::f", before=">>>>> Patch Apply Failed"), FailureMode.CONTRADICTION, "Patch Apply Failed"),
    ],
)
def test_logs_that_allow_no_verdict(text: str, mode: FailureMode, words: str) -> None:
    """No tests and contradictions are invalid with a reason, never unresolved and never resolved."""
    found = verdict(text)
    assert found.invalid is mode
    assert words in found.reason
    assert not found.resolved
    assert found.fail_to_pass == ([], [])


def test_results_outside_of_the_markers() -> None:
    """When nothing stands between the markers, the whole log is read."""
    text = "PASSED t::f\nPASSED t::k\n" + log()
    assert verdict(text).resolved
    assert not verdict("PASSED t::f\n" + log("PASSED t::k")).resolved


def test_fail_only() -> None:
    """Where a runner names failures only, absent is passed; a run that never started is no pass."""
    only = {"eval_type": "fail_only"}
    assert verdict(log("Tests:  3 passed"), **only).resolved
    assert not verdict(log("FAILED t::f", code=1), **only).resolved
    assert verdict(log("Failed to launch"), **only).invalid is FailureMode.NO_TESTS


def test_line_ends_do_not_matter() -> None:
    """Carriage returns in a log are line ends, as when a file is read as text."""
    assert verdict(log("PASSED t::f", "PASSED t::k").replace("\n", "\r\n")).resolved


def test_forged_markers_and_exit_codes_are_noted() -> None:
    """A test that prints the markers or an exit code of its own is seen; the official verdict stays."""
    found = verdict(log(">>>>> Test Exit Code: 0", "PASSED t::f", "PASSED t::k", ">>>>> End Test Output", code=1))
    assert {code for code, _ in found.notes} == {"forged_markers", "forged_exit_code"}
    assert found.exit_code == 0
    assert verdict(log("PASSED t::f")).notes == []


def test_words_that_are_no_status_count_as_failed() -> None:
    """`PASSED:` is neither passed nor failed for the official rules; a required test that is not passed fails here."""
    found = verdict(log("PASSED: t::f", "PASSED t::k"))
    assert not found.resolved
    assert [code for code, _ in found.notes] == ["odd_status"]


def test_the_exit_code_is_recorded() -> None:
    """The script prints the test command's own status behind the end marker, and traces what it does."""
    script = "#!/bin/bash\nset -uxo pipefail\nrun\n: '>>>>> End Test Output'\ngit checkout x\n"
    lines = with_exit_code(script).split("\n")
    assert lines[:2] == ["#!/bin/bash", "set -uxo pipefail"]
    assert lines[3:6] == [
        "AGENTCOMPASS_TEST_STATUS=$?",
        ": '>>>>> End Test Output'",
        'echo ">>>>> Test Exit Code: $AGENTCOMPASS_TEST_STATUS"',
    ]
    assert with_exit_code("run") == "#!/bin/bash\nset -uxo pipefail\nrun\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x\nKilled\ny", ("out_of_memory", True)),
        ("Could not resolve host: a", ("network_unreachable", True)),
        ("ModuleNotFoundError: x", ("missing_module", False)),
        ("fine", None),
    ],
)
def test_reasons(text: str, expected: tuple[str, bool] | None) -> None:
    """The official labels of what may have gone wrong, with whether the environment is to blame."""
    assert failure_reason(text) == expected


@pytest.mark.skipif(not SHARED.is_dir(), reason="the folder ../shared/swebench is not there")
@pytest.mark.parametrize("name", ["sympy__sympy-20590", "psf__requests-6028"])
@pytest.mark.parametrize("kind", ["gold", "noop"])
def test_recorded_verdicts(name: str, kind: str) -> None:
    """Real logs give exactly the recorded official reports, per test."""
    rows = {row["instance_id"]: row for row in map(json.loads, (SHARED / "instances.jsonl").read_text().splitlines())}
    row, text = parse_row(rows[name]), (SHARED / "logs" / f"{name}.{kind}.txt").read_text()
    found = grade(text, row, OWN_PARSERS[row.log_parser])
    report = json.loads(json.dumps(instance_report(name, found, text)))
    assert report == json.loads((SHARED / "logs" / f"{name}.{kind}.report.json").read_text())
    assert found.statuses == json.loads((SHARED / "logs" / "status_maps.json").read_text())[f"{name}.{kind}"]
