"""Rules of TB1 verdicts: report, output and status must agree, and something must have been verified."""

from __future__ import annotations

import pytest

from pytest_agentcompass.benchmarks.terminal_bench.verdicts import Evidence, judge, short_names, tail
from pytest_agentcompass.errors import EvaluationError

START = " test session starts ".center(80, "=")
SUMMARY = " short test summary info ".center(80, "=")


def out(counts: str, *lines: str) -> str:
    """Return the output of a run of pytest."""
    return "\n".join([START, "collected 2 items", SUMMARY, *lines, f" {counts} in 0.01s ".center(80, "="), ""])


def report(*cases: str) -> bytes:
    """Return a JUnit report."""
    return f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>".encode()


def case(name: str, inside: str = "", path: str = "test_a.py", classname: str = "test_a") -> str:
    """Return one testcase."""
    return f'<testcase classname="{classname}" name="{name}" file="{path}">{inside}</testcase>'


def mode(parser: str, evidence: Evidence) -> str:
    """Return the failure mode of evidence that gives no verdict."""
    with pytest.raises(EvaluationError) as caught:
        judge(parser, evidence)
    return caught.value.failure_mode


GOOD = out("1 passed", "PASSED test_a.py::test_x")


@pytest.mark.parametrize(
    ("evidence", "correct", "tests"),
    [
        (Evidence(GOOD, 0), True, {"test_x": "passed"}),
        (Evidence(GOOD, 0, report(case("test_x")), True), True, {"test_x": "passed"}),
        (Evidence("", 0, report(case("test_x")), True), True, {"test_x": "passed"}),
        (Evidence(out("1 passed, 1 skipped", "PASSED test_a.py::test_x"), 0), True, {"test_x": "passed"}),
        (Evidence(out("1 xfailed", "XFAIL test_a.py::test_x - r"), 0), True, {"test_x": "xfailed"}),
        (Evidence(out("1 xpassed", "XPASS test_a.py::test_x - r"), 0), False, {"test_x": "xpassed"}),
        (
            Evidence(out("1 passed, 1 xpassed", "XPASS test_a.py::test_y"), 0, report(case("test_x"), case("test_y"))),
            False,
            {"test_x": "passed", "test_y": "xpassed"},
        ),
        (Evidence(out("1 passed, 1 xpassed"), 0, report(case("test_x"), case("test_y"))), False, None),
        (Evidence(out("1 error", "ERROR ../tests/test_a.py - OSError"), 2), False, {"test_a.py": "error"}),
        (Evidence(out("1 failed", "FAILED test_a.py::test_x - m"), 0), False, {"test_x": "failed"}),
        (Evidence(out("1 failed"), 1, report(case("test_x", "<failure/>"))), False, {"test_x": "failed"}),
        (Evidence(f"{SUMMARY}\nPASSED x::all\n", 0), True, {"all": "passed"}),
        (Evidence(f"{SUMMARY}\nFAILED all\n", 1), False, {"all": "failed"}),
    ],
)
def test_pytest_verdicts(evidence: Evidence, correct: bool, tests: dict[str, str] | None) -> None:
    """Passed and xfailed pass, one failure, error or xpass fails, skipped tests do not count."""
    verdict = judge("pytest", evidence)
    assert verdict.correct is correct
    assert tests is None or verdict.tests == tests


@pytest.mark.parametrize(
    ("evidence", "wanted"),
    [
        (Evidence("", 0), "no_tests"),
        (Evidence("whatever", 1), "no_tests"),
        (Evidence("bash: line 1: uv: command not found", 127), "verifier_not_started"),
        (Evidence(f"{SUMMARY}\n", 3), "no_tests"),
        (Evidence(out("2 skipped"), 0), "no_tests"),
        (Evidence(f"{START}\n no tests ran in 0.01s \n".replace(" no", "no"), 5), "evaluation_error"),
        (Evidence(out("no tests ran"), 5), "no_tests"),
        (Evidence("", 0, report()), "no_tests"),
        (Evidence(GOOD, 3), "contradiction"),
        (Evidence(GOOD, 0, report(case("test_x", "<failure/>"))), "contradiction"),
        (Evidence(GOOD, 0, None, True), "contradiction"),
        (Evidence(f"{START}\ncollected 3 items\n", 0), "evaluation_error"),
        (Evidence(GOOD + f"\n{SUMMARY}\nFAILED all\n", 0), "contradiction"),
        (Evidence(GOOD, 0, b"<broken"), "evaluation_error"),
        (Evidence(GOOD, 0, b'<!DOCTYPE x [<!ENTITY a "b">]><x/>'), "evaluation_error"),
    ],
)
def test_no_pytest_verdict(evidence: Evidence, wanted: str) -> None:
    """Nothing run, all skipped, no report or a contradiction is an error that names what it is."""
    assert mode("pytest", evidence) == wanted


def test_two_runs_and_the_report_of_the_last() -> None:
    """The report of a second run does not hide a failure of the first."""
    first = out("1 failed", "FAILED test_a.py::test_x - m").replace("test_a", "test_b")
    verdict = judge("pytest", Evidence(first + GOOD, 0, report(case("test_x")), True))
    assert verdict.correct is False
    assert verdict.tests == {"test_b.py::test_x": "failed", "test_a.py::test_x": "passed"}


def test_classes_in_reports() -> None:
    """Node ids come out of file, classname and name, whatever stands in the name."""
    tests = judge(
        "pytest",
        Evidence(
            "", 0,
            report(case("test_m[a.b]", classname="pkg.test_a.TestC.TestD", path="pkg/test_a.py")),
        ),
    ).tests  # fmt: skip
    assert tests == {"TestC::TestD::test_m[a.b]": "passed"}


def block(word: str) -> str:
    """Return swebench's markers around a word."""
    return f"FAILED before\nSWEBench results starts here\n{word}\nSWEBench results ends here\nPASSED after\n"


@pytest.mark.parametrize(
    ("parser", "output", "correct"),
    [
        ("swebench", block("PASSED"), True),
        ("swebench", block("FAILED"), False),
        ("swebench", block("PASSED") + block("PASSED"), True),
        ("sweperf", "SWE-Perf results starts here\nPASSED\nSWE-Perf results ends here", True),
        ("mlebench", "x\nALL TESTS PASSED\n", True),
        ("mlebench", "2 tests FAILED\n", False),
        ("swelancer", "SWE Lancer Success", True),
        ("swelancer", "swe lancer failure", False),
        ("swelancer", "user_tool ... completed", True),
    ],
)
def test_other_parsers(parser: str, output: str, correct: bool) -> None:
    """The other parsers read one result from the places that the format names."""
    verdict = judge(parser, Evidence(output, 0))
    assert (verdict.correct, verdict.tests) == (correct, {"tests": "passed" if correct else "failed"})


@pytest.mark.parametrize(
    ("parser", "output", "wanted"),
    [
        ("swebench", "PASSED", "no_tests"),
        ("swebench", block("PASSED?"), "no_tests"),
        ("swebench", block("PASSED") + block("FAILED"), "contradiction"),
        ("sweperf", block("PASSED"), "no_tests"),
        ("mlebench", "nothing", "no_tests"),
        ("swelancer", "swe lancer success swe lancer failure", "contradiction"),
        ("swelancer", "", "no_tests"),
    ],
)
def test_other_parsers_are_strict(parser: str, output: str, wanted: str) -> None:
    """Missing markers and different results are errors."""
    assert mode(parser, Evidence(output, 0)) == wanted


def test_status_against_a_marker() -> None:
    """A script that says PASSED and ends with an error contradicts itself."""
    assert mode("swebench", Evidence(block("PASSED"), 1)) == "contradiction"


def test_names() -> None:
    """Names are short where that is unambiguous, whole where it is not."""
    tests = {"a.py::test_x": "passed", "b.py::test_x": "failed", "b.py::test_y": "passed", "../tests/c.py": "error"}
    wanted = {"a.py::test_x": "passed", "b.py::test_x": "failed", "test_y": "passed", "c.py": "error"}
    assert short_names(tests) == wanted


def test_tail() -> None:
    """The end of the output is shown without control characters, or said to be missing."""
    assert tail("\x1b[31m" + "\n".join(map(str, range(50)))).splitlines()[-1] == "  49"
    assert tail("\n") == "there was no output"
