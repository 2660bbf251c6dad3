"""Harness `scripted`: a deterministic agent for tests, examples and extension authors.

    harness:
      id: scripted
      params:
        steps:                          # for every task that `tasks` does not name
          - run: "echo hello > hello.txt"
          - write: {notes.txt: "done"}
          - answer: "42"
        tasks:
          flaky-task:
            - fail: environment_error   # on the first try only: the retry goes on
              fail_times: 1
            - answer: "42"

A step does one thing or several, in this order: sleep, output, write, run, answer, usage, fail.
"""

from __future__ import annotations

import asyncio
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field, field_validator

from ..components.context import current_attempt, keep_partial
from ..components.environment import EnvironmentSession
from ..components.harness import BaseHarness
from ..contracts.outcome import FailureMode, Fault, RunResult, Usage
from ..contracts.plan import HarnessPlan
from ..contracts.request import RunRequest
from ..contracts.task import PreparedTask
from ..errors import (
    AgentCompassError,
    AgentFailure,
    HarnessError,
    InfrastructureError,
    ModelUnavailable,
    SandboxError,
    SetupError,
    nearest,
)

__all__ = ["ScriptedHarness", "ScriptedParams", "ScriptedStep", "ScriptedUsage"]

_RAISES = "exception"  # a fault of the adapter itself: an error that is none of ours
_FAILURES = tuple(mode.value for mode in FailureMode if mode.fault in (Fault.AGENT, Fault.INFRASTRUCTURE))
_KINDS: dict[str, type[InfrastructureError]] = {
    "environment_error": SandboxError,
    "harness_error": HarnessError,
    "model_unavailable": ModelUnavailable,
    "setup_error": SetupError,
}


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ScriptedUsage(_Strict):
    """What a step pretends to have spent; the steps are added up."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    cost_usd: float | None = None
    model_calls: int | None = None


class ScriptedStep(_Strict):
    """One step of a script.

    *run* is a shell command in the sandbox (its status does not matter unless *must_succeed*). *fail* is a
    failure mode, or `exception` for an error out of the adapter's code; with *fail_times* it fails only in
    the first so many tries of an attempt.
    """

    sleep: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    output: str = ""
    write: dict[str, str] = Field(default_factory=dict)
    run: str | None = None
    must_succeed: bool = False
    answer: str | None = None
    usage: ScriptedUsage | None = None
    fail: str | None = None
    fail_times: int | None = Field(default=None, ge=1)
    message: str = "scripted failure"

    @field_validator("fail")
    @classmethod
    def _known(cls, value: str | None) -> str | None:
        known = (*_FAILURES, _RAISES)
        if value is not None and value not in known:
            raise ValueError(f"{value!r} is no failure mode; {nearest(value, known)}")
        return value


class ScriptedParams(_Strict):
    """`harness.params` of scripted: the *steps* of all tasks, or of the *tasks* named by id."""

    steps: tuple[ScriptedStep, ...] = ()
    tasks: dict[str, tuple[ScriptedStep, ...]] = Field(default_factory=dict)


class ScriptedHarness(BaseHarness):
    """An agent that follows a script."""

    id: ClassVar[str] = "scripted"
    params_model: ClassVar[type[BaseModel] | None] = ScriptedParams

    def __init__(self) -> None:
        self._tries: dict[str, int] = {}

    async def run_task(
        self, session: EnvironmentSession | None, prepared: PreparedTask, req: RunRequest, plan: HarnessPlan
    ) -> RunResult:
        """Follow the steps; what a failing step says is raised, with the result so far as `result`."""
        params: ScriptedParams = self.params(req)
        steps = params.tasks.get(prepared.task_id, params.steps)
        number = self._count_try(req, prepared)
        result = RunResult(prepared.task_id, category=prepared.category)
        keep_partial(lambda: result)
        for step in steps:
            await _follow(step, session, result)
            if step.fail is not None and (step.fail_times is None or number <= step.fail_times):
                raise _failure(step, result)
        return result

    def _count_try(self, req: RunRequest, prepared: PreparedTask) -> int:
        """Return which try of its attempt this is, from 1."""
        try:
            attempt = str(current_attempt().directory)
        except AgentCompassError:  # run by a script, outside of a run
            attempt = f"{req.name}/{prepared.task_id}"
        key = f"{attempt}\0{prepared.step or ''}"
        self._tries[key] = self._tries.get(key, 0) + 1
        return self._tries[key]


async def _follow(step: ScriptedStep, session: EnvironmentSession | None, result: RunResult) -> None:
    if step.sleep:
        await asyncio.sleep(step.sleep)
    if step.output:
        result.agent_output += f"{step.output}\n"
    if (step.write or step.run is not None) and session is None:
        raise HarnessError("harness 'scripted': steps with write or run need an environment")
    if session is not None:
        await _act(step, session, result)
    if step.answer is not None:
        result.final_answer = step.answer
    if step.usage is not None:
        _add_usage(result.usage, step.usage)


async def _act(step: ScriptedStep, session: EnvironmentSession, result: RunResult) -> None:
    for path, text in step.write.items():
        await session.write_text(path, text)
    if step.run is None:
        return
    done = await session.exec(step.run, shell=True)
    result.agent_output += done.output
    if step.must_succeed and not done.ok:
        raise AgentFailure(f"{step.run!r} ended with status {done.returncode}", "agent_error", result=result)


def _add_usage(total: Usage, spent: ScriptedUsage) -> None:
    for name, value in spent.model_dump(exclude_none=True).items():
        setattr(total, name, (getattr(total, name) or 0) + value)


def _failure(step: ScriptedStep, result: RunResult) -> Exception:
    if step.fail == _RAISES:
        return RuntimeError(step.message)
    mode = FailureMode(step.fail)
    if mode.fault is Fault.AGENT:
        return AgentFailure(step.message, mode.value, result=result)
    return _KINDS.get(mode.value, InfrastructureError)(step.message, mode.value, result=result)
