"""The official grading rules, pure: from a test log to a verdict. Compared with swebench 5.0.2."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from ...contracts.outcome import FailureMode
from .parsers import StatusMap
from .rows import Row

__all__ = [
    "END_MARKER",
    "EXIT_CODE_MARKER",
    "START_MARKER",
    "Verdict",
    "failure_reason",
    "grade",
    "instance_report",
    "with_exit_code",
]

START_MARKER = ">>>>> Start Test Output"
END_MARKER = ">>>>> End Test Output"
EXIT_CODE_MARKER = ">>>>> Test Exit Code"
_VARIABLE = "AGENTCOMPASS_TEST_STATUS"
_HEADER = ("#!/bin/bash", "set -uxo pipefail")
_BAD = (">>>>> Patch Apply Failed", ">>>>> Reset Failed", ">>>>> Tests Errored", ">>>>> Tests Timed Out")
_EXIT_CODE = re.compile(rf"{EXIT_CODE_MARKER}:\s*(-?\d+)")
_PASSING = frozenset({"PASSED", "XFAIL"})
_FAILING = frozenset({"FAILED", "ERROR"})
_KNOWN = _PASSING | _FAILING | {"SKIPPED"}
# What runners print that name failures only. A count of zero is no sign that anything ran.
_RAN = re.compile(
    "|".join(
        (
            r"Executed [1-9]\d* of \d+",
            r"TOTAL: [1-9]\d* (?:SUCCESS|FAILED)",
            r"[1-9]\d* passing",
            r"Tests:\s+[1-9]\d*",
            r"Test Suites:\s+(?:\d+ \w+, )*[1-9]\d* total",
            r"^# tests [1-9]\d*",
            r"[1-9]\d* specs?, \d+ failures?",
            r"': ok$",
        )
    ),
    re.MULTILINE,
)
# Reasons that the official report gives for what is not resolved: label, whether the environment is to blame, sign.
_REASONS = tuple(
    (label, environment, re.compile(sign, re.MULTILINE))
    for label, environment, sign in (
        ("browser_launch_failed", True, "Failed to launch|Failed to connect to the bus"),
        ("display_unavailable", True, "cannot open display|Missing X server|unable to open X display"),
        ("out_of_memory", True, "Cannot allocate memory|OutOfMemoryError|^Killed$"),
        ("container_unavailable", True, "Error response from daemon|Cannot connect to the Docker daemon"),
        ("network_unreachable", True, "Could not resolve host|Temporary failure in name resolution"),
        ("missing_module", False, "Cannot find module|MODULE_NOT_FOUND|ModuleNotFoundError"),
        ("no_tests_collected", False, "no tests ran|collected 0 items"),
        ("tests_timed_out", False, r"Timeout error: \d+ seconds exceeded"),
    )
)


@dataclass(slots=True)
class Verdict:
    """What a log says of an instance.

    *invalid* is the failure mode of a log that allows no verdict (`no_tests` or `contradiction`), with
    *reason*; the lists are then empty. *statuses* holds every test that the parser saw.
    """

    resolved: bool = False
    invalid: FailureMode | None = None
    reason: str = ""
    statuses: StatusMap = field(default_factory=dict)
    fail_to_pass: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))
    pass_to_pass: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))
    exit_code: int | None = None
    notes: list[tuple[str, str]] = field(default_factory=list)

    @property
    def partial(self) -> float:
        """The share of FAIL_TO_PASS that passes; 1 when there is none."""
        good, bad = self.fail_to_pass
        total = len(good) + len(bad)
        return len(good) / total if total and self.invalid is None else float(self.invalid is None)

    @property
    def level(self) -> str:
        """`FULL`, `PARTIAL` (some of FAIL_TO_PASS and all of PASS_TO_PASS) or `NO`."""
        if self.resolved:
            return "FULL"
        return "PARTIAL" if self.invalid is None and self.fail_to_pass[0] and not self.pass_to_pass[1] else "NO"


def with_exit_code(script: str) -> str:
    """Return the eval script with the test command's own exit status printed behind the end marker.

    The script ends with a checkout, so its own status tells nothing; `set -x` is what prints the markers.
    """
    lines = [line for line in script.strip().split("\n") if line not in _HEADER]
    at = next((number for number, line in enumerate(lines) if END_MARKER in line), None)
    if at is not None:
        lines[at : at + 1] = [f"{_VARIABLE}=$?", lines[at], f'echo "{EXIT_CODE_MARKER}: ${_VARIABLE}"']
    return "\n".join([*_HEADER, *lines]) + "\n"


def grade(log: str, row: Row, parse: Callable[[str], StatusMap]) -> Verdict:
    """Return the verdict of *log* by the rules for *row*; *parse* is the row's log parser."""
    log = log.replace("\r\n", "\n").replace("\r", "\n")
    codes = [int(code) for code in _EXIT_CODE.findall(log)]
    verdict = Verdict(exit_code=codes[0] if codes else None, notes=_oddities(log, codes))
    bad = [code for code in _BAD if code in log]
    if bad:
        return _invalid(verdict, FailureMode.CONTRADICTION, f"the log holds {bad[0]!r}")
    if START_MARKER not in log or END_MARKER not in log:
        return _invalid(
            verdict,
            FailureMode.NO_TESTS,
            "the log does not hold the markers around the test output: the tests never ran",
        )
    verdict.statuses = parse(log.split(START_MARKER)[1].split(END_MARKER)[0]) or parse(log)
    if not verdict.statuses and not _RAN.search(log):
        return _invalid(verdict, FailureMode.NO_TESTS, "no test result can be read from the log, and no runner ran")
    if verdict.exit_code and verdict.statuses and not _FAILING.intersection(verdict.statuses.values()):
        return _invalid(
            verdict,
            FailureMode.CONTRADICTION,
            f"the test command ended with status {verdict.exit_code}, but the log names no failed test",
        )
    _count(verdict, row)
    return verdict


def _invalid(verdict: Verdict, mode: FailureMode, reason: str) -> Verdict:
    verdict.invalid, verdict.reason = mode, reason
    return verdict


def _oddities(log: str, codes: list[int]) -> list[tuple[str, str]]:
    """Say what no honest run prints: markers more than once, exit codes that differ."""
    found = []
    for marker in (START_MARKER, END_MARKER):
        if log.count(marker) > 1:
            found.append(("forged_markers", f"the log holds the marker {marker!r} {log.count(marker)} times"))
    if len(set(codes)) > 1:
        found.append(("forged_exit_code", f"the log tells different exit codes of the tests: {sorted(set(codes))}"))
    return found


def _count(verdict: Verdict, row: Row) -> None:
    """Sort the required tests into those that hold and those that do not."""
    for names, lists, fine in (
        (row.fail_to_pass, verdict.fail_to_pass, _PASSING),
        (row.pass_to_pass, verdict.pass_to_pass, _PASSING | {"SKIPPED"}),
    ):
        for name in names:
            if row.eval_type == "fail_only":
                holds = verdict.statuses.get(name) != "FAILED"
            else:
                holds = _status(name, verdict.statuses) in fine
            lists[0 if holds else 1].append(name)
    verdict.resolved = not verdict.fail_to_pass[1] and not verdict.pass_to_pass[1]
    odd = sorted({status for status in verdict.statuses.values() if status not in _KNOWN})
    if odd and not verdict.resolved:
        verdict.notes.append(("odd_status", f"the log holds words that are no status and count as failed: {odd[:5]}"))


def _status(name: str, statuses: StatusMap) -> str | None:
    """Return a required test's status; absent is None.

    Many recorded ids are cut inside their brackets: such an id stands for all tests that begin with it,
    as long as they agree on pass or fail.
    """
    if name in statuses:
        return statuses[name]
    if name.count("[") <= name.count("]"):
        return None
    found = [status for other, status in statuses.items() if other.startswith(name)]
    return found[0] if found and len({status in _PASSING for status in found}) == 1 else None


def failure_reason(log: str) -> tuple[str, bool] | None:
    """Return the official label of what may have gone wrong, and whether the environment is to blame.

    Advice only, searched in the whole log: it never changes a verdict.
    """
    return next(((label, environment) for label, environment, sign in _REASONS if sign.search(log)), None)


def instance_report(instance_id: str, verdict: Verdict, log: str) -> dict[str, object]:
    """Return the content of the official `report.json` of one instance."""
    report: dict[str, object] = {
        "patch_is_None": False,
        "patch_exists": True,
        "patch_successfully_applied": verdict.invalid is None,
        "resolved": verdict.resolved,
        "infra_failure": False,
    }
    if verdict.invalid is not None:
        reason = failure_reason(log)
        if reason is not None:
            report["infra_failure"], report["infra_failure_reason"] = reason[1], reason[0]
    else:
        lists = {"FAIL_TO_PASS": verdict.fail_to_pass, "PASS_TO_PASS": verdict.pass_to_pass}
        empty: tuple[list[str], list[str]] = ([], [])
        report["tests_status"] = {
            name: {"success": list(good), "failure": list(bad)}
            for name, (good, bad) in {**lists, "FAIL_TO_FAIL": empty, "PASS_TO_FAIL": empty}.items()
        }
    return {instance_id: report}
