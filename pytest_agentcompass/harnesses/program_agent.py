"""What command-line agents have in common: the program in the sandbox, the gateway, the run, the reading of its end."""

from __future__ import annotations

import abc
import asyncio
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from pydantic import BaseModel, Field

from ..components.calls import in_thread
from ..components.context import keep_partial
from ..components.environment import EnvironmentSession
from ..components.harness import BaseHarness
from ..components.trajectory import TrajectoryLog, shorten
from ..contracts.environment import EnvironmentSpec
from ..contracts.network import NetworkMode
from ..contracts.outcome import ExecResult, FailureMode, RunResult
from ..contracts.plan import HarnessPlan
from ..contracts.request import ModelSpec, RunRequest
from ..contracts.task import PreparedTask
from ..contracts.trajectory import TrajectoryStep
from ..errors import AgentFailure, ConfigError, EnvironmentGone, HarnessError, PlanningError, SandboxError, SetupError
from ..models.gateway import Gateway
from ..models.prices import Price
from ..models.protocol import choose_protocol
from .gateway_access import count_calls, gateway_address, make_gateway, same_machine
from .model_agent import task_marks

__all__ = ["ProgramAgent", "ProgramParams", "ProgramSession"]

_OUTPUT_BYTES = 20_000_000  # an agent's own trajectory is printed; all of it is wanted
_SETTLE_SECONDS = 5.0
_LATE_SECONDS = 0.3  # likewise when the time limit is over, and the attempt's own slack is a second
_VERSION = re.compile(r"\d+\.\d+\.\d+[\w.+-]*")


class ProgramParams(BaseModel):
    """`harness.params` of command-line agents.

    *program* is the path of the program on this machine (default: what the sandbox's PATH has, else what
    this machine's has). *arguments* are added to its command line. *budget_tokens* limits what one attempt may
    spend. *prices* maps model ids to US dollars per million tokens.
    """

    model_config = {"frozen": True, "extra": "forbid"}

    program: str | None = None
    arguments: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    budget_tokens: int | None = Field(default=None, ge=1)
    request_timeout: float = Field(default=600.0, gt=0, allow_inf_nan=False)
    prices: dict[str, Price] = Field(default_factory=dict)


@dataclass(slots=True)
class ProgramSession:
    """The agent's side of an attempt: the sandbox, where the program is in it, a folder of its own, the gateway."""

    env: EnvironmentSession
    program: str
    version: str
    folder: str
    gateway: Gateway


class ProgramAgent(BaseHarness):
    """Base of agents that are programs: they run inside of the sandbox and reach the model by the gateway."""

    needs_model: ClassVar[bool] = True
    params_model: ClassVar[type[BaseModel] | None] = ProgramParams
    #: the protocol that the program speaks, its name on a PATH, and the npm package that has it
    protocol: ClassVar[str]
    program: ClassVar[str]
    package: ClassVar[str]

    @abc.abstractmethod
    def command(self, session: ProgramSession, req: RunRequest, params: ProgramParams) -> list[str]:
        """Return the command line; the instruction comes from standard input."""

    @abc.abstractmethod
    def variables(self, session: ProgramSession, req: RunRequest) -> dict[str, str]:
        """Return the variables that tell the program of gateway, token and its folder."""

    @abc.abstractmethod
    def read(self, events: Iterable[Mapping[str, Any]], log: TrajectoryLog, result: RunResult) -> None:
        """Take trajectory and final answer from what the program printed."""

    def real_program(self, path: Path) -> Path:
        """Return the binary behind *path*, which may be a link or a script that starts it."""
        return path.resolve()

    def supports(self, environment: EnvironmentSpec, model: ModelSpec) -> bool:
        """Say what is missing: the protocol, or a way to the gateway."""
        try:
            choose_protocol(model, (self.protocol,))
        except ConfigError as error:
            raise PlanningError(f"harness {self.id!r}: {error.message}") from error
        policy = environment.run_network_policy
        if policy is not None and policy.mode is NetworkMode.DENYLIST:
            raise PlanningError(
                f"harness {self.id!r} runs inside of the sandbox and reaches the model through this machine, which "
                f"the run network policy {policy} forbids; use an agent that runs outside (tool_loop, mini_swe_agent)"
            )
        return True

    async def start_session(self, env: EnvironmentSession | None, req: RunRequest, plan: HarnessPlan) -> ProgramSession:
        """Bring the program in, and open the gateway where the sandbox can reach it."""
        if env is None:
            raise HarnessError(f"harness {self.id!r} needs an environment to work in")
        params: ProgramParams = self.params(req)
        folder = f"{env.scratch_dir}/agentcompass-{self.id}-{secrets.token_hex(4)}"
        made = await env.exec(["mkdir", "-p", folder], timeout=30)  # by the agent's user, who writes into it
        if not made.ok:
            raise SetupError(f"the folder {folder} for the agent could not be made: {shorten(made.output, 500)}")
        program = await self._bring(env, params, folder)
        version = await self._ask_version(env, program)
        gateway = make_gateway(
            req.model,
            self.protocol,
            await env.machine_address() or await gateway_address(env),
            timeout=params.request_timeout,
            budget_tokens=params.budget_tokens,
        )
        return ProgramSession(env, program, version, folder, gateway)

    def endpoints(self, session: ProgramSession) -> list[str]:
        """Return the gateway's address, which the run policy must let through."""
        return [urlsplit(session.gateway.url).netloc]

    async def close_session(self, session: ProgramSession) -> None:
        """Close the gateway: the token is worth nothing from now on."""
        await in_thread(session.gateway.close)

    async def run_task(
        self, session: ProgramSession, prepared: PreparedTask, req: RunRequest, plan: HarnessPlan
    ) -> RunResult:
        """Run the program to its end and read what it did.

        Raises AgentFailure for its failure and time limit, ModelUnavailable when the endpoint refused,
        HarnessError when it never reached the gateway; each carries the result so far.
        """
        params: ProgramParams = self.params(req)
        session.gateway.upstream.headers.update(task_marks(req.model, prepared))
        result = RunResult(prepared.task_id, category=prepared.category)
        result.telemetry["agent_version"] = session.version
        before = len(session.gateway.calls)
        started = time.monotonic()
        keep_partial(lambda: self._count(session, req, result, before))
        try:
            done = await self._run(session, prepared, req, params)
            await in_thread(session.gateway.settle, _LATE_SECONDS if done.timed_out else _SETTLE_SECONDS)
        except asyncio.CancelledError:
            limit = prepared.run_timeout_seconds
            if limit is None or time.monotonic() - started < limit:
                raise
            # its limit was over and ending it took long: what it spent still counts
            raise _timeout(limit, self._count(session, req, result, before)) from None
        self._finish(session, done, prepared, req, result, before)
        self._judge(session, done, prepared, result, before)
        return result

    async def _run(
        self, session: ProgramSession, prepared: PreparedTask, req: RunRequest, params: ProgramParams
    ) -> ExecResult:
        instruction = f"{session.folder}/instruction.md"
        prompt = "\n\n".join(text for text in (prepared.input.system_prompt, prepared.input.prompt) if text)
        await session.env.write_bytes(instruction, prompt.encode("utf-8", "surrogateescape"), mode=0o644)
        line = ["sh", "-c", 'exec "$@" < "$0"', instruction, *self.command(session, req, params), *params.arguments]
        env = {**self.variables(session, req), **params.env}
        try:
            return await session.env.exec(
                line, env=env, timeout=prepared.run_timeout_seconds, output_limit=_OUTPUT_BYTES
            )
        except EnvironmentGone:
            raise
        except SandboxError as error:
            raise HarnessError(f"{self.program} was not started: {error.message}") from error

    def _finish(
        self, session: ProgramSession, done: ExecResult, prepared: PreparedTask, req: RunRequest, result: RunResult,
        before: int,
    ) -> None:  # fmt: skip
        log = TrajectoryLog(self.id, session.version, req.model.id)
        result.trajectory = log.rows
        result.agent_output = shorten(done.stderr, 4_000)
        self.read(_events(done.stdout), log, result)
        self._count(session, req, result, before)
        if session.gateway.denied:
            text = f"the gateway denied {session.gateway.denied} calls (a wrong token, or no call of a model)"
            result.note("run", "gateway_denied", text)

    def _count(self, session: ProgramSession, req: RunRequest, result: RunResult, before: int) -> RunResult:
        prices = self.params(req).prices
        count_calls(session.gateway.calls[before:], req.model, result, prices)
        return result

    def _judge(
        self, session: ProgramSession, done: ExecResult, prepared: PreparedTask, result: RunResult, before: int
    ) -> None:
        calls = session.gateway.calls[before:]
        refusal = calls[-1].refusal if calls else None
        if done.timed_out and (refusal is None or not refusal.stops_run):
            raise _timeout(prepared.run_timeout_seconds or 0.0, result)
        if refusal is not None:
            error = refusal.error(session.gateway.endpoint)
            error.result = result  # type: ignore[attr-defined]
            raise error
        if session.gateway.budget_is_spent:
            text = f"the attempt's budget of {session.gateway.budget_tokens} tokens is spent (harness.budget_tokens)"
            raise AgentFailure(text, "agent_error", result=result)
        stop = next((call.reply.stop_reason for call in reversed(calls) if call.reply is not None), "")
        if not calls and (done.returncode != 0 or not result.final_answer):
            tail = shorten(done.output, 1_500).strip()
            raise HarnessError(
                f"{self.program} never called the model at {session.gateway.url} "
                f"(status {done.returncode}); is that address within reach of the sandbox? It printed:\n{tail}",
                result=result,
            )
        if done.returncode != 0:
            tail = shorten(done.stderr or done.stdout, 1_500).strip()
            mode = "out_of_memory" if done.out_of_memory else "agent_error"
            raise AgentFailure(f"{self.program} ended with status {done.returncode}:\n{tail}", mode, result=result)
        if stop in ("refusal", "content_filter"):
            result.fail(FailureMode.MODEL_REFUSED, "run", "the model refused")
        elif stop == "length":
            result.fail(FailureMode.OUTPUT_LENGTH, "run", "the last answer was cut at the output limit of tokens")

    async def _bring(self, env: EnvironmentSession, params: ProgramParams, folder: str) -> str:
        """Return where the program is in the sandbox; it is copied in when the sandbox has none."""
        if params.program is None:
            found = await env.exec(f"command -v {self.program}", shell=True, timeout=30)
            if found.ok and found.stdout.strip():
                return found.stdout.strip().splitlines()[-1]
        path = self._local(params)
        if env.local_workdir is not None and await same_machine(env):
            return str(path)
        target = f"{folder}/bin/{self.program}"
        await env.upload(path, target, mode=0o755)
        return target

    def _local(self, params: ProgramParams) -> Path:
        given = os.path.expanduser(params.program) if params.program else shutil.which(self.program)
        if not given or not Path(given).is_file():
            what = f"{params.program!r} is no file" if params.program else "neither the sandbox nor this machine has it"
            raise SetupError(
                f"harness {self.id!r} needs the program {self.program!r}: {what}; "
                f"install it with `npm install -g {self.package}`, or set harness.program=PATH"
            )
        return self.real_program(Path(given))

    async def _ask_version(self, env: EnvironmentSession, program: str) -> str:
        done = await env.exec([program, "--version"], timeout=60)
        if not done.ok:
            raise SetupError(
                f"{self.program} cannot be run in the sandbox (status {done.returncode}): {shorten(done.output, 500)}"
            )
        found = _VERSION.search(done.stdout)
        return found[0] if found else done.stdout.strip()[:80]


def _timeout(limit: float, result: RunResult) -> AgentFailure:
    text = f"the agent did not finish within {limit:g} s and was stopped"
    return AgentFailure(text, "agent_timeout", result=result)


def _events(text: str) -> Iterable[Mapping[str, Any]]:
    for line in text.splitlines():
        if line.lstrip()[:1] == "{":
            try:
                value = json.loads(line)
            except ValueError:  # cut in the middle of the output, or the program's own chatter
                continue
            if isinstance(value, dict):
                yield value


def open_step(log: TrajectoryLog, event: Mapping[str, Any]) -> TrajectoryStep:
    """Return a new step, begun when *event* says so: it is read after the run."""
    step = log.new()
    step.started_at = str(event.get("timestamp") or "")
    return step


def close_step(log: TrajectoryLog, step: TrajectoryStep | None) -> None:
    """Write *step*, if one is open."""
    if step is not None:
        log.add(step)
