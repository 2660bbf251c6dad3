"""Rules of the harnesses nop and scripted."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from pydantic import ValidationError

from pytest_agentcompass.components.context import AttemptContext, set_current_attempt
from pytest_agentcompass.contracts.environment import EnvironmentSpec
from pytest_agentcompass.contracts.outcome import RunResult
from pytest_agentcompass.contracts.plan import ExecutionPlan, HarnessPlan
from pytest_agentcompass.contracts.request import BenchmarkSpec, HarnessSpec, RunRequest
from pytest_agentcompass.contracts.task import PreparedTask, TaskInput
from pytest_agentcompass.environments.host_process import HostProcessEnvironment
from pytest_agentcompass.errors import (
    AgentFailure,
    EvaluationError,
    HarnessError,
    InfrastructureError,
    ModelUnavailable,
    SandboxError,
    SetupError,
)
from pytest_agentcompass.harnesses.nop import NopHarness, NopParams
from pytest_agentcompass.harnesses.scripted import ScriptedHarness, ScriptedParams


def request_with(**params: object) -> RunRequest:
    """Return a request for the scripted harness."""
    return RunRequest(benchmark=BenchmarkSpec(id="tasks"), harness=HarnessSpec(id="scripted", params=params))


def task(task_id: str = "t") -> PreparedTask:
    """Return a task that is ready for an agent."""
    return PreparedTask(task_id, "", None, TaskInput("x"))


def follow(harness: ScriptedHarness, req: RunRequest, task_id: str = "t") -> RunResult:
    """Run the script once without a sandbox."""
    return asyncio.run(harness.run_task(None, task(task_id), req, HarnessPlan()))


def test_nop_does_nothing() -> None:
    """nop ends at once with no answer, and takes no params."""
    req = RunRequest(benchmark=BenchmarkSpec(id="tasks"), harness=HarnessSpec(id="nop"))
    result = asyncio.run(NopHarness().run_task(None, task(), req, HarnessPlan()))
    assert result == RunResult("t", category="")
    with pytest.raises(ValidationError):
        NopParams.model_validate({"x": 1})


def test_steps_act_in_the_sandbox(tmp_path: Path) -> None:
    """Steps write files, run commands, say things and answer, in this order."""
    req = request_with(
        steps=[{"output": "hi", "write": {"a/b": "text"}, "run": "cat a/b"}, {"answer": "1"}, {"answer": "2"}]
    )
    plan = ExecutionPlan(environment=EnvironmentSpec(params={"root": str(tmp_path / "boxes")}))

    async def main() -> RunResult:
        session = await HostProcessEnvironment().open(req, plan)
        try:
            return await ScriptedHarness().run_task(session, task(), req, HarnessPlan())
        finally:
            await session.close()

    result = asyncio.run(main())
    assert result.agent_output == "hi\ntext"
    assert result.final_answer == "2"


def test_usage_adds_up() -> None:
    """The steps' usage is added; what no step tells stays unknown."""
    req = request_with(steps=[{"usage": {"input_tokens": 3, "cost_usd": 0.5}}, {"usage": {"input_tokens": 4}}])
    assert follow(ScriptedHarness(), req).usage.known() == {"input_tokens": 7, "cost_usd": 0.5}


def test_script_of_a_task_goes_before_the_common_one() -> None:
    """A task that is named has its own steps, all others the common ones."""
    req = request_with(steps=[{"answer": "common"}], tasks={"own": [{"answer": "own"}]})
    harness = ScriptedHarness()
    assert [follow(harness, req, name).final_answer for name in ("own", "other")] == ["own", "common"]


@pytest.mark.parametrize(
    ("mode", "kind"),
    [
        ("agent_error", AgentFailure),
        ("context_length", AgentFailure),
        ("agent_timeout", AgentFailure),
        ("environment_error", SandboxError),
        ("setup_error", SetupError),
        ("harness_error", HarnessError),
        ("model_unavailable", ModelUnavailable),
        ("cancelled", InfrastructureError),
        ("exception", RuntimeError),
    ],
)
def test_failures_are_of_their_kind(mode: str, kind: type[Exception]) -> None:
    """A failing step raises the error of its mode, with its message; the agent's own carry the result."""
    req = request_with(steps=[{"answer": "so far", "fail": mode, "message": "on purpose"}, {"answer": "never"}])
    with pytest.raises(kind, match="on purpose") as caught:
        follow(ScriptedHarness(), req)
    assert type(caught.value) is kind
    if kind is not RuntimeError:
        assert caught.value.failure_mode == mode  # type: ignore[attr-defined]
    if kind is AgentFailure:
        assert caught.value.result.final_answer == "so far"  # type: ignore[attr-defined]
    assert not isinstance(caught.value, EvaluationError)


def test_fail_times_counts_the_tries_of_one_attempt(tmp_path: Path) -> None:
    """With fail_times the first tries of each attempt fail and the next one goes on."""
    req = request_with(steps=[{"fail": "environment_error", "fail_times": 2}, {"answer": "at last"}])
    harness = ScriptedHarness()

    def attempt(number: int) -> RunResult:
        set_current_attempt(AttemptContext("r", "main", "t", number, tmp_path / str(number)))
        try:
            return follow(harness, req)
        finally:
            set_current_attempt(None)

    for number in (1, 2):
        for _ in range(2):
            with pytest.raises(SandboxError):
                attempt(number)
        assert attempt(number).final_answer == "at last"


def test_sandbox_steps_need_an_environment() -> None:
    """A step that writes or runs without a sandbox is an error of the harness that says so."""
    for step in ({"run": "true"}, {"write": {"a": "b"}}):
        with pytest.raises(HarnessError, match="need an environment"):
            follow(ScriptedHarness(), request_with(steps=[step]))


@pytest.mark.parametrize(
    "params",
    [{"steps": [{"fail": "agent_eror"}]}, {"steps": [{"rnu": "x"}]}, {"steps": [{"fail": "none"}]}, {"step": []}],
)
def test_wrong_scripts_are_refused(params: dict[str, object]) -> None:
    """Unknown keys and failure modes are found before anything runs; the nearest mode is named."""
    with pytest.raises(ValidationError, match=r"did you mean 'agent_error'|Extra inputs|no failure mode"):
        ScriptedParams.model_validate(params)
