"""Harness `tool_loop`: the reference agent, a loop of one tool (`bash`) over the sandbox's own commands.

The model is called from this process, so neither key nor network is needed in the sandbox. Each command runs in
a shell of its own. The run ends when the model answers without a tool call: that text is the final answer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from pydantic import BaseModel, Field

from ..components.environment import EnvironmentSession
from ..components.trajectory import shorten
from ..contracts.outcome import ExecResult, FailureMode, RunResult
from ..contracts.plan import HarnessPlan
from ..contracts.request import RunRequest
from ..contracts.task import PreparedTask, ToolDef
from ..contracts.trajectory import Observation, TrajectoryStep
from ..errors import AgentFailure, EnvironmentGone, HarnessError, SandboxError
from ..models.messages import ChatMessage, ModelReply, ToolCall
from .model_agent import AgentRun, ModelAgent, ModelParams
from .openai_chat import task_messages

__all__ = ["BASH", "ToolLoopHarness", "ToolLoopParams"]

BASH = ToolDef(
    "bash",
    "Run a shell command in the sandbox and get its output. Every call is a new shell in the working directory.",
    {
        "type": "object",
        "properties": {
            "command": {"type": "string", "description": "the command"},
            "timeout": {"type": "number", "description": "seconds after which it is stopped"},
        },
        "required": ["command"],
    },
)
_SYSTEM = (
    "You solve a task in a sandbox by calling the tool bash. Look before you change things, and check your work. "
    "Nobody can answer questions. When the task is done, answer without calling a tool: your last message is the "
    "final answer, so give there what was asked for, if anything, and nothing else."
)
_CUT = "[removed to make room]"
_NUDGES = 3  # how often a reply that leads nowhere is answered with a hint


class ToolLoopParams(ModelParams):
    """`harness.params` of tool_loop.

    *max_steps* are model calls. *command_timeout* (seconds) is for one command, *output_limit* the characters of
    its output that the model sees. *system_prompt* replaces ours.
    """

    max_steps: int = Field(default=100, ge=1)
    command_timeout: float = Field(default=180.0, gt=0, allow_inf_nan=False)
    output_limit: int = Field(default=10_000, ge=200)
    system_prompt: str | None = None


class ToolLoopHarness(ModelAgent):
    """A small agent with a shell."""

    id: ClassVar[str] = "tool_loop"
    params_model: ClassVar[type[BaseModel] | None] = ToolLoopParams

    async def run_task(
        self, session: EnvironmentSession | None, prepared: PreparedTask, req: RunRequest, plan: HarnessPlan
    ) -> RunResult:
        """Let the model work until it answers.

        Failure modes: `agent_error` at the step limit, `context_length` when even the shortened conversation is
        too long, `output_length`, `parse_error` for tool calls that stay unreadable, `model_refused`,
        `agent_timeout`; the result so far is graded in each case.
        """
        if session is None:
            raise HarnessError("harness 'tool_loop' needs an environment to work in")
        params: ToolLoopParams = self.params(req)
        run = AgentRun(self, prepared, req, params)
        async with run.running(prepared.run_timeout_seconds):
            await _Loop(run, session, params).work()
        return run.result


class _Loop:
    def __init__(self, run: AgentRun, session: EnvironmentSession, params: ToolLoopParams) -> None:
        self.run = run
        self.session = session
        self.params = params
        self.messages = task_messages(run.prepared, params.system_prompt or _SYSTEM)
        self.seen = 0
        self.nudges = 0
        self.shell = "bash"

    async def work(self) -> None:
        has_bash = await self.session.exec("command -v bash >/dev/null", shell=True, timeout=30)
        self.shell = "bash" if has_bash.ok else "sh"
        for _ in range(self.params.max_steps):
            reply, step = await self._ask()
            self.messages.append(reply.message())
            self.seen = len(self.messages)
            try:
                over = await self._take(reply, step)
            finally:
                self.run.log.add(step)
            if over:
                return
        self.run.result.fail(
            FailureMode.AGENT_ERROR, "run", f"the agent was not done after {self.params.max_steps} steps (max_steps)"
        )

    async def _ask(self) -> tuple[ModelReply, TrajectoryStep]:
        try:
            return await self.run.ask(self.messages, (BASH,), seen=self.seen)
        except AgentFailure as failure:
            if failure.failure_mode != "context_length" or not self._make_room():
                raise
        return await self.run.ask(self.messages, (BASH,), seen=self.seen)

    def _make_room(self) -> bool:
        """Empty all command outputs but the last; False when that frees nothing worth a try."""
        outputs = [at for at, message in enumerate(self.messages) if message.role == "tool" and message.text != _CUT]
        freed = 0
        for at in outputs[:-1]:
            freed += len(self.messages[at].text)
            self.messages[at] = replace(self.messages[at], text=_CUT)
        if freed:
            self.run.result.note("run", "context_cut", f"{freed} characters of old output were dropped", "info")
        return freed > 1_000

    async def _take(self, reply: ModelReply, step: TrajectoryStep) -> bool:
        """Follow *reply*; True when the run is over."""
        if self.run.refused(reply):
            return True
        if reply.tool_calls:
            await self._call_tools(reply.tool_calls, step)
            return self._gave_up(all(item.is_error for item in step.observations), FailureMode.PARSE_ERROR)
        if reply.stop_reason == "length":
            self._hint("Your message was cut at the output limit. Go on in smaller steps.")
            return self._gave_up(True, FailureMode.OUTPUT_LENGTH)
        if not reply.text.strip():
            self._hint("Your message was empty. Call the tool bash, or give the final answer.")
            return self._gave_up(True, FailureMode.PARSE_ERROR)
        self.run.result.final_answer = reply.text.strip()
        self.run.result.agent_output += reply.text
        return True

    def _hint(self, text: str) -> None:
        self.messages.append(ChatMessage("user", text))

    def _gave_up(self, useless: bool, mode: FailureMode) -> bool:
        """Count replies in a row that lead nowhere; too many of them end the run with *mode*."""
        self.nudges = self.nudges + 1 if useless else 0
        if self.nudges <= _NUDGES:
            return False
        self.run.result.fail(mode, "run", f"{self.nudges} replies in a row could not be used (the last: {mode.value})")
        return True

    async def _call_tools(self, calls: tuple[ToolCall, ...], step: TrajectoryStep) -> None:
        for call in calls:
            seen = await self._call(call)
            step.observations.append(seen)
            self.messages.append(ChatMessage("tool", seen.content, call_id=call.id, is_error=seen.is_error))

    async def _call(self, call: ToolCall) -> Observation:
        command = call.arguments.get("command")
        if call.problem:
            return Observation(f"error: {call.problem}", call.id, is_error=True)
        if call.name != BASH.name:
            return Observation(f"error: there is no tool {call.name!r}; the only one is bash", call.id, is_error=True)
        if not isinstance(command, str) or not command.strip() or "\0" in command:
            return Observation("error: bash needs `command`, a text that is not empty", call.id, is_error=True)
        wanted = call.arguments.get("timeout")
        limit = self.params.command_timeout
        if isinstance(wanted, (int, float)) and not isinstance(wanted, bool) and 0 < wanted < limit:
            limit = float(wanted)
        try:
            done = await self.session.exec([self.shell, "-c", command], timeout=limit)
        except EnvironmentGone:
            raise
        except SandboxError as error:  # too long for an argument, say: the model can do something about it
            return Observation(f"error: the command was not started: {error.message}", call.id, is_error=True)
        self.run.result.agent_output += f"$ {shorten(command, 2_000)}\n{shorten(done.output, 4_000)}\n"
        return Observation(
            self._shown(done, limit), call.id, done.returncode, done.timed_out, done.truncated,
            seconds=round(done.duration_seconds, 4),
        )  # fmt: skip

    def _shown(self, done: ExecResult, limit: float) -> str:
        text = shorten(done.output, self.params.output_limit).rstrip("\n")
        if done.timed_out:
            end = f"stopped after {limit:g} s"
        else:
            end = f"exit status {done.returncode}" + (" (killed for memory)" if done.out_of_memory else "")
        return f"{text}\n[{end}]" if text else f"[{end}, no output]"
