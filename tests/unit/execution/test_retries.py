"""Rules of retries: what is tried again, and what never is."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_agentcompass.contracts.outcome import AGENT_MODES, INFRASTRUCTURE_MODES, SKIP_MODES, FailureMode, Status
from pytest_agentcompass.contracts.record import AttemptRecord
from pytest_agentcompass.contracts.request import ExecutionSpec
from pytest_agentcompass.execution.retries import retry_delay

GRADER_RAN = {"evaluation_error", "no_reward", "no_tests", "contradiction"}


def record(mode: str, *issues: tuple[str, str], **fields: Any) -> AttemptRecord:
    """Return a record without a score."""
    return AttemptRecord(
        request="r",
        task_id="t",
        attempt=1,
        status=fields.pop("status", Status.RUN_ERROR),
        failure_mode=FailureMode(mode),
        issues=tuple({"phase": "run", "severity": "error", "code": code, "message": text} for code, text in issues),
        **fields,
    )


def is_retried(kept: AttemptRecord, used: int = 0, **execution: Any) -> bool:
    """Whether the attempt would be tried again."""
    return retry_delay(kept, ExecutionSpec(**{"max_retries": 2, **execution}), used) is not None


@pytest.mark.parametrize("mode", sorted(mode.value for mode in INFRASTRUCTURE_MODES))
def test_infrastructure_errors_are_retried(mode: str) -> None:
    """Missing data is tried again, but a grader that ran is not, and a cancellation neither."""
    assert is_retried(record(mode)) is (mode not in GRADER_RAN | {"cancelled"})


@pytest.mark.parametrize("mode", sorted(mode.value for mode in AGENT_MODES | SKIP_MODES))
def test_the_agents_failures_and_skips_stand(mode: str) -> None:
    """Whatever the patterns say."""
    assert not is_retried(record(mode, (mode, "timeout")))
    assert not is_retried(record(mode, (mode, "timeout")), retry_pattern_list=("timeout",))


def test_a_score_stands() -> None:
    """A scored result is never retried."""
    scored = record("agent_error", status=Status.COMPLETED, passed=False, score=0.0)
    assert not is_retried(scored, retry_pattern_list=(".*",))


def test_an_error_after_the_agents_failure_is_retried_as_that_error() -> None:
    """An agent that failed does not keep its engine's failure from being made good; a grader that ran still does."""
    agent = ("agent_error", "status 1")
    for code in ("environment_error", "verifier_not_started"):
        assert is_retried(record("agent_error", agent, (code, "gone"), status=Status.RUN_ERROR_OR_EVAL_ERROR))
    for code in GRADER_RAN:
        assert not is_retried(record("agent_error", agent, (code, "bad"), status=Status.RUN_ERROR_OR_EVAL_ERROR))


def test_patterns_and_the_budget_of_tries() -> None:
    """Patterns choose by mode or message; the delay is bounded; used-up tries are the end."""
    failed = record("environment_error", ("environment_error", "connection reset"))
    assert is_retried(failed, retry_pattern_list=("reset",))
    assert is_retried(failed, retry_pattern_list=("environment_.*",))
    assert not is_retried(failed, retry_pattern_list=("refused",))
    assert not is_retried(failed, retry_pattern_list=())
    assert not is_retried(failed, used=2)
    spec = ExecutionSpec(max_retries=9, retry_min_delay_seconds=2, retry_max_delay_seconds=5)
    for used, most in enumerate((2, 4, 5, 5)):
        delay = retry_delay(failed, spec, used)
        assert delay is not None
        assert 0 <= delay <= most
