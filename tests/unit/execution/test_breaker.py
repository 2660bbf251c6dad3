"""The circuit breaker: what opens it, what does not, and that all processes see it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pytest_agentcompass.contracts.outcome import FailureMode, Status
from pytest_agentcompass.contracts.record import AttemptRecord
from pytest_agentcompass.contracts.request import RunRequest
from pytest_agentcompass.environments.host_process import HostProcessEnvironment
from pytest_agentcompass.execution.breaker import Breaker

REQUEST = RunRequest.model_validate(
    {
        "model": {"id": "m", "base_url": "https://models.example/v1"},
        "benchmark": {"id": "tasks"},
        "environment": {"id": "box"},
    }
)


class Provider(HostProcessEnvironment):
    """A provider that says what the test wants."""

    id = "box"
    problem: str | None = None

    async def preflight(self, req: RunRequest) -> str | None:
        """Return the problem."""
        return self.problem


def record(mode: FailureMode, message: str = "it broke") -> AttemptRecord:
    """Return a record that ended in *mode* (none: passed)."""
    passed = mode is FailureMode.NONE or None
    return AttemptRecord(
        request="r",
        task_id="t",
        attempt=1,
        status=Status.COMPLETED if passed else Status.RUN_ERROR,
        failure_mode=mode,
        passed=passed,
        score=1.0 if passed else None,
        issues=() if passed else ({"phase": "run", "severity": "error", "code": mode.value, "message": message},),
    )


def check(breaker: Breaker, provider: Any = None, in_flight: int = 1) -> str:
    """Return why no attempt may start."""
    return asyncio.run(breaker.check(provider or Provider(), REQUEST, in_flight))


def gone() -> Provider:
    """Return a provider whose engine is gone."""
    provider = Provider()
    provider.problem = "the engine does not answer"
    return provider


def test_two_in_a_row_open_it_when_the_engine_is_gone(tmp_path: Path) -> None:
    """One failure is bad luck; after the second the engine is asked, and all processes hear the answer."""
    breaker, other = Breaker(tmp_path / "b.json"), Breaker(tmp_path / "b.json")
    breaker.note(record(FailureMode.ENVIRONMENT_ERROR), REQUEST)
    assert check(breaker, gone()) == ""
    other.note(record(FailureMode.ENVIRONMENT_ERROR), REQUEST)
    reason = check(breaker, gone())
    assert "environment 'box' seems to be gone: 2 attempts in a row" in reason
    assert "the engine does not answer" in reason
    assert other.reason == reason
    other.note(record(FailureMode.NONE), REQUEST)  # one that was under way
    assert breaker.reason == reason


def test_an_engine_that_is_well_gets_more_time(tmp_path: Path) -> None:
    """While the provider says that it is well, the tasks may be at fault: more failures are needed."""
    breaker = Breaker(tmp_path / "b.json")
    for _ in range(9):
        breaker.note(record(FailureMode.ENVIRONMENT_ERROR, "no such image"), REQUEST)
        assert check(breaker) == ""
    breaker.note(record(FailureMode.ENVIRONMENT_ERROR, "no such image"), REQUEST)
    assert "no such image" in check(breaker)


def test_a_hiccup_under_many_attempts_is_forgiven(tmp_path: Path) -> None:
    """One hiccup fails all that are in flight; as many more are needed where the provider is well again."""
    breaker = Breaker(tmp_path / "b.json")
    for _ in range(50):
        breaker.note(record(FailureMode.ENVIRONMENT_ERROR), REQUEST)
    assert check(breaker, in_flight=50) == ""
    assert check(breaker, gone(), in_flight=50) != ""


def test_a_provider_that_cannot_tell_is_given_up_after_three(tmp_path: Path) -> None:
    """Without a preflight of its own nobody can say that the provider is well."""

    class Mute(Provider):
        preflight = HostProcessEnvironment.__mro__[1].preflight  # type: ignore[attr-defined]

    breaker = Breaker(tmp_path / "b.json")
    for _ in range(3):
        assert check(breaker, Mute()) == ""
        breaker.note(record(FailureMode.ENVIRONMENT_ERROR), REQUEST)
    assert "it broke" in check(breaker, Mute())


def test_a_graded_attempt_between_starts_over(tmp_path: Path) -> None:
    """Any attempt with a score shows that the engine and the endpoint work."""
    breaker = Breaker(tmp_path / "b.json")
    for _ in range(5):
        for _ in range(2):
            breaker.note(record(FailureMode.ENVIRONMENT_ERROR), REQUEST)
        breaker.note(record(FailureMode.NONE), REQUEST)
    assert check(breaker, gone()) == ""


def test_different_causes_do_not_add_up(tmp_path: Path) -> None:
    """Failures of the engine and of the endpoint in turn are no row of either."""
    breaker = Breaker(tmp_path / "b.json")
    for _ in range(4):
        breaker.note(record(FailureMode.ENVIRONMENT_ERROR), REQUEST)
        breaker.note(record(FailureMode.MODEL_UNAVAILABLE), REQUEST)
    assert check(breaker, gone()) == ""


def test_three_model_failures_open_it(tmp_path: Path) -> None:
    """An endpoint cannot be asked how it is: three in a row are enough, and the message names it."""
    breaker = Breaker(tmp_path / "b.json")
    for _ in range(3):
        breaker.note(record(FailureMode.MODEL_UNAVAILABLE, "503"), REQUEST)
    reason = check(breaker)
    assert "the endpoint of https://models.example/v1" in reason
    assert "503" in reason


@pytest.mark.parametrize("kind", ["authentication", "quota"])
def test_what_no_attempt_gets_past_opens_it_at_once(tmp_path: Path, kind: str) -> None:
    """A refused key or a used-up quota stops the run with the first attempt that meets it."""
    breaker = Breaker(tmp_path / "b.json")
    breaker.note(record(FailureMode.MODEL_UNAVAILABLE, "401"), REQUEST, fatal=kind)
    assert kind in breaker.reason
    assert check(breaker) == breaker.reason


@pytest.mark.parametrize(
    "mode",
    [
        mode
        for mode in FailureMode
        if mode not in (FailureMode.NONE, FailureMode.ENVIRONMENT_ERROR, FailureMode.MODEL_UNAVAILABLE)
    ],
)
def test_other_endings_never_open_it(tmp_path: Path, mode: FailureMode) -> None:
    """Set-up errors, cancellations and everything that is the agent's say nothing about engine or endpoint."""
    breaker = Breaker(tmp_path / "b.json")
    for _ in range(20):
        breaker.note(record(mode), REQUEST)
    assert check(breaker, gone()) == ""


def test_the_first_reason_stays(tmp_path: Path) -> None:
    """Attempts that end after the breaker opened do not change what the last screen says."""
    breaker = Breaker(tmp_path / "b.json")
    breaker.note(record(FailureMode.MODEL_UNAVAILABLE, "first"), REQUEST, fatal="quota")
    breaker.note(record(FailureMode.MODEL_UNAVAILABLE, "second"), REQUEST, fatal="authentication")
    assert "first" in breaker.reason
    breaker.reset()
    assert breaker.reason == ""


def test_long_messages_are_cut(tmp_path: Path) -> None:
    """The reason fits a line whatever the engine printed."""
    breaker = Breaker(tmp_path / "b.json")
    breaker.note(record(FailureMode.MODEL_UNAVAILABLE, "x\n" * 5000), REQUEST, fatal="quota")
    assert len(breaker.reason) < 500
    assert "\n" not in breaker.reason
