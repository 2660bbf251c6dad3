"""Harness `mini_swe_agent`: the real package `mini-swe-agent`, its loop and prompts, on our sandbox and our client.

Needs the extra `mini-swe-agent`. The package's own agent (`DefaultAgent`) runs in a thread; its model is a client
of ours (any protocol, tokens and cost counted here) and its environment the attempt's sandbox.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import tempfile
from collections.abc import Coroutine, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, Field

from ..components.environment import EnvironmentSession
from ..components.trajectory import shorten
from ..components.yaml_file import load_yaml_mapping, typed
from ..contracts.environment import EnvironmentSpec
from ..contracts.outcome import FailureMode, RunResult
from ..contracts.plan import HarnessPlan
from ..contracts.request import ModelSpec, RunRequest
from ..contracts.task import PreparedTask, ToolDef
from ..contracts.trajectory import Observation, TrajectoryStep
from ..errors import (
    AgentFailure,
    ConfigError,
    EnvironmentGone,
    HarnessError,
    PlanningError,
    SandboxError,
    SetupError,
    nearest,
)
from ..models.messages import ChatMessage, parse_arguments
from .model_agent import AgentRun, ModelAgent, ModelParams


@contextmanager
def _quietly() -> Iterator[None]:
    """Import the package without its banner and without the user's own settings for it."""
    kept = {name: os.environ.get(name) for name in ("MSWEA_SILENT_STARTUP", "MSWEA_GLOBAL_CONFIG_DIR")}
    try:
        with tempfile.TemporaryDirectory() as empty:  # it makes the folder and reads variables from a file in it
            os.environ |= {"MSWEA_SILENT_STARTUP": "1", "MSWEA_GLOBAL_CONFIG_DIR": empty}
            yield
    finally:
        for name, value in kept.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


__all__ = ["MiniSweAgentHarness", "MiniSweAgentParams"]

_T = TypeVar("_T")
_EXTRA = "pip install 'pytest-agentcompass[mini-swe-agent]'"
_DONE = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
_MODES = {
    "LimitsExceeded": (FailureMode.AGENT_ERROR, "the agent reached its limit of steps or cost"),
    "RepeatedFormatError": (FailureMode.PARSE_ERROR, "the model's answers could not be read, again and again"),
}
_END_SECONDS = 5.0


class MiniSweAgentParams(ModelParams):
    """`harness.params` of mini_swe_agent.

    *config* is the name of one of the package's own files (`mini`, `benchmarks/swebench`) or the path of a YAML
    file. *step_limit* and *cost_limit* (US dollars, 0: none) replace the file's. *command_timeout* is in seconds.
    """

    config: str = "mini"
    step_limit: int | None = Field(default=None, ge=0)
    cost_limit: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    command_timeout: float = Field(default=180.0, gt=0, allow_inf_nan=False)


class MiniSweAgentHarness(ModelAgent):
    """mini-swe-agent on the attempt's sandbox."""

    id: ClassVar[str] = "mini_swe_agent"
    params_model: ClassVar[type[BaseModel] | None] = MiniSweAgentParams

    def __init__(self) -> None:
        self.version = f"mini-swe-agent {_installed() or 'is not installed'}"  # type: ignore[misc] # the package's

    def supports(self, environment: EnvironmentSpec, model: ModelSpec) -> bool:
        """Say what is missing: the package, a model, a protocol."""
        if not _installed():
            raise PlanningError(f"harness {self.id!r} needs the package mini-swe-agent; {_EXTRA}")
        return super().supports(environment, model)

    async def run_task(
        self, session: EnvironmentSession | None, prepared: PreparedTask, req: RunRequest, plan: HarnessPlan
    ) -> RunResult:
        """Let the agent work until it submits.

        Its step and cost limits are `agent_error`, unreadable answers `parse_error`; the result is graded.
        """
        if session is None:
            raise HarnessError("harness 'mini_swe_agent' needs an environment to work in")
        params: MiniSweAgentParams = self.params(req)
        config = _load_config(params.config)
        run = AgentRun(self, prepared, req, params)
        async with run.running(prepared.run_timeout_seconds):
            work = _Work(run, session, asyncio.get_running_loop(), params)
            environment = _Environment(work, config.get("environment") or {}, await _uname(session))
            model = _Model(work, config.get("model") or {})
            agent = _package().agent(model, environment, **_agent_config(config, params))
            try:
                _judge(await work.follow(agent, prepared.input.prompt), run.result)
            finally:
                work.close_step()
        return run.result


def _installed() -> str:
    try:
        return metadata.version("mini-swe-agent")
    except metadata.PackageNotFoundError:
        return ""


def _load_config(name: str) -> dict[str, Any]:
    path = Path(os.path.expanduser(name))
    if not path.is_file():
        configs = _package().configs
        known = [str(item.relative_to(configs).with_suffix("")) for item in configs.rglob("*.yaml")]
        path = configs / f"{name}.yaml"
        if name not in known:
            raise ConfigError(
                f"harness.config: {name!r} is neither a file nor one of the package's; {nearest(name, known)}"
            )
    config: dict[str, Any] = typed(load_yaml_mapping(path))
    return config


def _agent_config(config: Mapping[str, Any], params: MiniSweAgentParams) -> dict[str, Any]:
    agent = dict(config.get("agent") or {})
    for name in ("step_limit", "cost_limit"):
        if getattr(params, name) is not None:
            agent[name] = getattr(params, name)
    return {**agent, "output_path": None}


def _judge(end: Mapping[str, Any], result: RunResult) -> None:
    result.final_answer = str(end.get("submission") or "").strip()
    mode, text = _MODES.get(str(end.get("exit_status")), (None, ""))
    if mode is not None:
        result.fail(mode, "run", text)


async def _uname(session: EnvironmentSession) -> dict[str, str]:
    done = await session.exec("uname -s; uname -r; uname -v; uname -m", shell=True, timeout=30)
    values = [*done.stdout.splitlines(), "", "", "", ""]
    return dict(zip(("system", "release", "version", "machine"), values, strict=False))


@dataclass(frozen=True, slots=True)
class _Package:
    """What is used of mini-swe-agent, imported when it is first needed."""

    configs: Path
    agent: Any
    submitted: Any
    format_error: Any
    bash_tool: dict[str, Any]
    parse: Any
    format: Any


@lru_cache(maxsize=1)
def _package() -> _Package:
    try:
        with _quietly():
            import minisweagent
            from minisweagent.agents.default import DefaultAgent
            from minisweagent.exceptions import FormatError, Submitted
            from minisweagent.models.utils import actions_toolcall
    except ImportError as error:
        raise SetupError(f"mini-swe-agent cannot be imported: {error}; {_EXTRA}") from error
    return _Package(
        configs=Path(minisweagent.__file__).parent / "config",
        agent=DefaultAgent,
        submitted=Submitted,
        format_error=FormatError,
        bash_tool=actions_toolcall.BASH_TOOL,
        parse=actions_toolcall.parse_toolcall_actions,
        format=actions_toolcall.format_toolcall_observation_messages,
    )


class _Stopped(Exception):
    """The run is over; the agent's thread ends with this."""


@dataclass(slots=True)
class _Work:
    """The bridge between the agent's thread and the event loop."""

    run: AgentRun
    session: EnvironmentSession
    loop: asyncio.AbstractEventLoop
    params: MiniSweAgentParams
    step: TrajectoryStep | None = None
    stopped: bool = False
    pending: Future[Any] | None = field(default=None)

    def wait(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run *work* on the event loop and wait for it, in the agent's thread."""
        if self.stopped:
            work.close()
            raise _Stopped
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        self.pending = future
        return future.result()

    async def follow(self, agent: Any, task: str) -> dict[str, Any]:
        """Run the agent in a thread of its own; a cancelled run ends what is under way, and the thread."""
        pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="mini-swe-agent")
        context = contextvars.copy_context()
        thread = self.loop.run_in_executor(pool, lambda: context.run(agent.run, task))
        try:
            return dict(await asyncio.shield(thread))
        except asyncio.CancelledError:
            self.stopped = True
            if self.pending is not None:
                self.pending.cancel()
            await asyncio.wait({thread}, timeout=_END_SECONDS)
            if thread.done():
                thread.exception()  # seen: the cancellation goes first
            raise
        finally:
            pool.shutdown(wait=False)

    def open_step(self, step: TrajectoryStep) -> None:
        """Begin a step; the one before is over."""
        self.close_step()
        self.step = step

    def close_step(self) -> None:
        """Write the step that is open."""
        if self.step is not None:
            self.run.log.add(self.step)
            self.step = None


class _Environment:
    """The sandbox, as mini-swe-agent calls one."""

    def __init__(self, work: _Work, config: Mapping[str, Any], system: Mapping[str, str]) -> None:
        self.config = SimpleNamespace(**config)
        self._work = work
        self._variables = {str(key): str(value) for key, value in (config.get("env") or {}).items()}
        self._system = dict(system)

    def execute(self, action: dict[str, Any], cwd: str = "") -> dict[str, Any]:
        """Run the command of *action*; raises Submitted when it says that the task is done."""
        output = self._work.wait(self._execute(str(action.get("command", "")), cwd))
        lines = output["output"].lstrip().splitlines(keepends=True)
        if lines and lines[0].strip() == _DONE and output["returncode"] == 0:
            submission = "".join(lines[1:])
            extra = {"exit_status": "Submitted", "submission": submission}
            raise _package().submitted({"role": "exit", "content": submission, "extra": extra})
        return output

    async def _execute(self, command: str, cwd: str) -> dict[str, Any]:
        limit = self._work.params.command_timeout
        try:
            done = await self._work.session.exec(
                ["bash", "-c", f"exec 2>&1\n{command}"], cwd=cwd or None, env=self._variables, timeout=limit
            )
        except EnvironmentGone:
            raise
        except SandboxError as error:
            return {"output": "", "returncode": -1, "exception_info": f"the command was not started: {error.message}"}
        self._note(command, done.output, done.returncode, done.timed_out)
        info = f"the command was stopped after {limit:g} s" if done.timed_out else ""
        return {"output": done.output, "returncode": done.returncode, "exception_info": info}

    def _note(self, command: str, output: str, code: int, timed_out: bool) -> None:
        self._work.run.result.agent_output += f"$ {shorten(command, 2_000)}\n{shorten(output, 4_000)}\n"
        if self._work.step is not None:
            self._work.step.observations.append(Observation(output, exit_code=code, timed_out=timed_out))

    def get_template_vars(self, **more: Any) -> dict[str, Any]:
        """Return what prompts may use: the sandbox's system, never this machine's environment."""
        return {**vars(self.config), **self._system, **more}

    def serialize(self) -> dict[str, Any]:
        """Return nothing: our own trajectory tells it all."""
        return {}


class _Model:
    """The request's model, as mini-swe-agent calls one."""

    def __init__(self, work: _Work, config: Mapping[str, Any]) -> None:
        self.config = SimpleNamespace(**config)
        self._work = work
        function = _package().bash_tool["function"]
        self._tools = (ToolDef(function["name"], function["description"], function["parameters"]),)
        self._seen = 0

    def query(self, messages: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        """Return the model's answer with the commands in it; raises FormatError where they cannot be read."""
        chat = [_chat(message) for message in messages]
        self._work.close_step()
        reply, step = self._work.wait(self._work.run.ask(chat, self._tools, seen=self._seen))
        self._seen = len(messages) + 1
        self._work.open_step(step)
        if self._work.run.refused(reply):
            raise AgentFailure("the model refused", "model_refused")
        calls = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.raw}}
            for call in reply.tool_calls
        ]
        extra: dict[str, Any] = {"cost": step.cost_usd or 0.0, "native": reply.native}
        wanted = [SimpleNamespace(id=call["id"], function=SimpleNamespace(**call["function"])) for call in calls]  # type: ignore[arg-type]
        try:
            extra["actions"] = _package().parse(
                wanted,
                format_error_template=getattr(self.config, "format_error_template", "{{ error }}"),
                template_kwargs={"finish_reason": reply.stop_reason},
            )
        except _package().format_error as error:
            error.messages[0]["extra"].update(extra)
            raise
        return {"role": "assistant", "content": reply.text, "tool_calls": calls, "extra": extra}

    def format_message(self, **message: Any) -> dict[str, Any]:
        """Return a message as it is."""
        return message

    def format_observation_messages(
        self, message: dict[str, Any], outputs: list[dict[str, Any]], template_vars: dict[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        """Return the messages that tell the model what its commands did."""
        default = "<returncode>{{output.returncode}}</returncode>\n<output>\n{{output.output}}</output>"
        found: list[dict[str, Any]] = _package().format(
            actions=message.get("extra", {}).get("actions", []),
            outputs=outputs,
            observation_template=getattr(self.config, "observation_template", default),
            template_vars=template_vars,
        )
        return found

    def get_template_vars(self, **more: Any) -> dict[str, Any]:
        """Return what prompts may use."""
        return {**vars(self.config), **more}

    def serialize(self) -> dict[str, Any]:
        """Return nothing: our own trajectory tells it all."""
        return {}


def _chat(message: Mapping[str, Any]) -> ChatMessage:
    content = message.get("content")
    text = content if isinstance(content, str) else ""
    if message["role"] == "tool":
        return ChatMessage("tool", text, call_id=str(message.get("tool_call_id")))
    calls = tuple(
        parse_arguments(call["id"], call["function"]["name"], call["function"]["arguments"])
        for call in message.get("tool_calls") or ()
    )
    return ChatMessage(message["role"], text, calls, native=(message.get("extra") or {}).get("native"))
