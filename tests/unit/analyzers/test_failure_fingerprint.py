"""Rules of the failure fingerprint: alike failures have one name, others have another."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_agentcompass.analyzers.failures import FailureFingerprintAnalyzer
from pytest_agentcompass.contracts.outcome import RunResult
from pytest_agentcompass.contracts.request import BenchmarkSpec, RunRequest
from pytest_agentcompass.contracts.task import TaskSpec

REQUEST = RunRequest(benchmark=BenchmarkSpec(id="tasks"))


def name(message: str, mode: str = "agent_error") -> dict[str, Any]:
    """Return what the analyzer says of one failure."""
    result = RunResult()
    result.note("run", "hint", "an earlier note")
    result.fail(mode, "run", message)
    analyzer = FailureFingerprintAnalyzer()
    assert analyzer.applies(TaskSpec("t"), result, REQUEST)
    return analyzer.analyze(TaskSpec("t"), result, REQUEST)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ended with status 3 after 1.5 s", "ended with status 17 after 200 s"),
        ("no file /tmp/a-12/b.txt", "no file /var/x"),
        ("container 4f5e6d7c8b9a is gone", "container 00aa11bb22cc is gone"),
        ("unknown tool 'python'", 'unknown tool "perl"'),
        ("at http://127.0.0.1:4711/v1", "at   https://example.org/"),
    ],
)
def test_failures_that_are_alike_have_one_name(one: str, other: str) -> None:
    """Numbers, paths, addresses, ids and quoted texts make no difference."""
    assert name(one)["fingerprint"] == name(other)["fingerprint"]


def test_failures_that_differ_have_different_names() -> None:
    """Words and the failure mode make a difference."""
    assert name("it was stopped")["fingerprint"] != name("it was killed")["fingerprint"]
    assert name("it ended")["fingerprint"] != name("it ended", "parse_error")["fingerprint"]


def test_nothing_is_said_where_nothing_failed() -> None:
    """Notes and warnings are no failure."""
    result = RunResult()
    result.note("run", "hint", "a note")
    assert not FailureFingerprintAnalyzer().applies(TaskSpec("t"), result, REQUEST)
