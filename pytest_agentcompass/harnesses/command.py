"""Harness `command`: any program as the agent, in the sandbox or on this machine.

The program is told what to do by environment variables, never by arguments (they can be read by every
user of a machine):

    AGENTCOMPASS_INSTRUCTION_FILE   file that holds the instruction
    AGENTCOMPASS_INSTRUCTION        the instruction itself, unless it is too long for a variable
    AGENTCOMPASS_TASK_ID            the task's id
    AGENTCOMPASS_WORKDIR            the working directory in the sandbox
    AGENTCOMPASS_ANSWER_FILE        where a final answer may be written
    AGENTCOMPASS_MODEL, AGENTCOMPASS_BASE_URL, AGENTCOMPASS_API_KEY   the model, where the request names one
                                    (with model.wrap_api_key: a gateway's address and a token, never the key)
    AGENTCOMPASS_SANDBOX_*          what the environment tells of the sandbox (with `where: host`)

The final answer is the content of the answer file, else the last line of standard output that is not
blank. A status other than 0 is the agent's failure; the task is graded all the same.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from ..components.calls import in_thread
from ..components.context import current_attempt
from ..components.environment import EnvironmentSession
from ..components.harness import BaseHarness
from ..components.processes import ProcessRunner, minimal_environment, shielded
from ..contracts.outcome import ExecResult, RunResult
from ..contracts.plan import HarnessPlan
from ..contracts.request import ModelSpec, RunRequest
from ..contracts.task import PreparedTask
from ..errors import AgentCompassError, AgentFailure, EnvironmentGone, HarnessError, SandboxError, SetupError
from ..redaction import add_secret

__all__ = ["CommandHarness", "CommandParams"]

_VARIABLE_BYTES = 100_000  # Linux takes 131,072 bytes for one `NAME=value`
_ANSWER_BYTES = 1_000_000
_LAST_CHARACTERS = 4000
#: variables that are handed on but are no secrets, and would blacken every report if they were masked
_NO_SECRETS = frozenset({"HOME", "PATH", "USER", "LOGNAME", "LANG", "SHELL", "TERM", "TMPDIR", "PWD", "TZ"})


class CommandParams(BaseModel):
    """`harness.params` of command.

    *command* is one shell text or a list of arguments. *pass_env* names variables of this machine that
    the agent gets (API keys); nothing else of the caller's environment is passed on. *cwd* and
    *answer_file* are paths in the sandbox (with `where: host` on this machine). *timeout* is in seconds
    and can only shorten the task's own.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    command: str | tuple[str, ...]
    where: Literal["sandbox", "host"] = "sandbox"
    env: dict[str, str] = Field(default_factory=dict)
    pass_env: tuple[str, ...] = ()
    cwd: str | None = None
    answer_file: str | None = None
    timeout: float | None = Field(default=None, gt=0, allow_inf_nan=False)

    @field_validator("command")
    @classmethod
    def _not_empty(cls, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
        if not value or not (value if isinstance(value, str) else value[0]).strip():
            raise ValueError("is empty; give the program that is the agent")
        return value


class CommandHarness(BaseHarness):
    """Runs a command as the agent."""

    id: ClassVar[str] = "command"
    params_model: ClassVar[type[BaseModel] | None] = CommandParams

    async def run_task(
        self, session: EnvironmentSession | None, prepared: PreparedTask, req: RunRequest, plan: HarnessPlan
    ) -> RunResult:
        """Run the command to its end.

        Raises AgentFailure for a status other than 0 (`agent_error`) and for the time limit
        (`agent_timeout`); its attribute `result` holds what the agent left. HarnessError when the command
        cannot be started.
        """
        params: CommandParams = self.params(req)
        if not req.model.wrap_api_key:
            return await self._run(session, prepared, params, _model_variables(req.model), lambda result: None)
        access = _gateways()
        inside = session if params.where == "sandbox" else None
        async with access.open_gateway(req.model, prepared, inside) as gateway:
            count = lambda result: access.count_gateway(gateway, req.model, result)  # noqa: E731
            variables = access.model_variables(req.model, gateway)
            return await self._run(session, prepared, params, variables, count)

    async def _run(
        self,
        session: EnvironmentSession | None,
        prepared: PreparedTask,
        params: CommandParams,
        model: Mapping[str, str],
        count: Callable[[RunResult], None],
    ) -> RunResult:
        env = {**_passed_on(params.pass_env), **params.env, **model}
        limits = [item for item in (params.timeout, prepared.run_timeout_seconds) if item is not None]
        timeout = min(limits, default=None)
        if params.where == "host":
            done, answer = await _run_on_host(params, prepared, env, session, timeout)
        elif session is None:
            raise HarnessError("harness 'command' with where=sandbox needs an environment; set where: host")
        else:
            done, answer = await _run_in_sandbox(params, prepared, env, session, timeout)
        return _result(prepared, done, answer, timeout, count)


def _gateways() -> Any:
    """Return the module that opens gateways; it needs the extra `models`."""
    try:
        from . import gateway_access
    except ImportError as error:
        raise SetupError(
            f"model.wrap_api_key needs a library: {error}; pip install 'pytest-agentcompass[models]'"
        ) from error
    return gateway_access


def _passed_on(names: tuple[str, ...]) -> dict[str, str]:
    values = {}
    for name in names:
        value = os.environ.get(name)
        if value is None:
            raise SetupError(f"harness.pass_env: the variable {name!r} is not set on this machine; export it first")
        if name not in _NO_SECRETS:
            add_secret(value)
        values[name] = value
    return values


def _model_variables(model: ModelSpec) -> dict[str, str]:
    values = {}
    if model.id:
        values["AGENTCOMPASS_MODEL"] = model.id
    if model.base_url:
        values["AGENTCOMPASS_BASE_URL"] = model.base_url
    if model.api_key is not None:
        key = model.api_key.get_secret_value()
        add_secret(key)
        values["AGENTCOMPASS_API_KEY"] = key
    return values


def _task_variables(prepared: PreparedTask, instruction_file: str, answer_file: str, workdir: str) -> dict[str, str]:
    values = {
        "AGENTCOMPASS_TASK_ID": prepared.task_id,
        "AGENTCOMPASS_INSTRUCTION_FILE": instruction_file,
        "AGENTCOMPASS_ANSWER_FILE": answer_file,
        "AGENTCOMPASS_WORKDIR": workdir,
    }
    prompt = prepared.input.prompt
    if "\0" not in prompt and len(prompt.encode("utf-8", "surrogateescape")) <= _VARIABLE_BYTES:
        values["AGENTCOMPASS_INSTRUCTION"] = prompt
    return values


async def _run_in_sandbox(
    params: CommandParams,
    prepared: PreparedTask,
    env: Mapping[str, str],
    session: EnvironmentSession,
    timeout: float | None,
) -> tuple[ExecResult, str]:
    folder = f"{session.scratch_dir}/agentcompass-{secrets.token_hex(4)}"
    instruction_file = f"{folder}/instruction.md"
    await session.write_bytes(instruction_file, _prompt(prepared), mode=0o644)
    answer_file = params.answer_file or _expected_file(prepared) or f"{folder}/answer.txt"
    variables = _task_variables(prepared, instruction_file, answer_file, session.default_workdir or "/")
    try:
        done = await session.exec(
            params.command,
            shell=isinstance(params.command, str),
            cwd=params.cwd,
            env={**variables, **env},
            timeout=timeout,
        )
    except EnvironmentGone as error:
        _keep_output(prepared, error)
        raise
    except SandboxError as error:
        raise HarnessError(f"the agent's command was not started: {error.message}") from error
    return done, await _answer_in_sandbox(session, answer_file)


def _keep_output(prepared: PreparedTask, error: EnvironmentGone) -> None:
    """Put what the agent printed before its sandbox went away on *error*, for the record."""
    done: ExecResult | None = getattr(error, "partial", None)
    if done is not None:
        _log(done)
        result = RunResult(prepared.task_id, category=prepared.category, agent_output=_last(done.output))
        error.result = result  # type: ignore[attr-defined]


async def _answer_in_sandbox(session: EnvironmentSession, path: str) -> str:
    try:
        raw = await session.read_bytes(path, limit=_ANSWER_BYTES)
    except FileNotFoundError:
        return ""
    except EnvironmentGone:
        raise
    except SandboxError:  # a folder or a fifo in its place is no answer
        return ""
    return raw.decode("utf-8", "replace").strip()


async def _run_on_host(
    params: CommandParams,
    prepared: PreparedTask,
    env: Mapping[str, str],
    session: EnvironmentSession | None,
    timeout: float | None,
) -> tuple[ExecResult, str]:
    folder = tempfile.mkdtemp(prefix="agentcompass-agent-")
    runner = ProcessRunner(root=folder, output_limit=_output_limit())
    try:
        instruction_file = Path(folder, "instruction.md")
        instruction_file.write_bytes(_prompt(prepared))
        local = session.local_workdir if session is not None else None
        cwd = os.path.abspath(os.path.expanduser(params.cwd)) if params.cwd else local or folder
        answer_file = os.path.join(cwd, params.answer_file or _expected_file(prepared) or f"{folder}/answer.txt")
        inside = session.default_workdir if session is not None else None
        variables = {
            **minimal_environment(folder, folder),
            **_sandbox_variables(session),
            **_task_variables(prepared, str(instruction_file), answer_file, inside or cwd),
            **env,
        }
        try:
            done = await runner.run(
                params.command, shell=isinstance(params.command, str), cwd=cwd, env=variables, timeout=timeout
            )
        except SandboxError as error:
            raise HarnessError(f"the agent's command was not started: {error.message}") from error
        return done, _answer_on_host(answer_file)
    finally:
        await shielded(_leave_host(runner, folder))


async def _leave_host(runner: ProcessRunner, folder: str) -> None:
    await runner.close()
    await in_thread(shutil.rmtree, folder, ignore_errors=True)


def _sandbox_variables(session: EnvironmentSession | None) -> dict[str, str]:
    info = session.info if session is not None else {}
    return {
        f"AGENTCOMPASS_SANDBOX_{name.upper().replace('-', '_')}": str(value)
        for name, value in info.items()
        if isinstance(value, (str, int)) and "\0" not in str(value)
    }


def _answer_on_host(path: str) -> str:
    if not os.path.isfile(path):
        return ""
    with open(path, "rb") as stream:
        return stream.read(_ANSWER_BYTES).decode("utf-8", "replace").strip()


def _prompt(prepared: PreparedTask) -> bytes:
    return prepared.input.prompt.encode("utf-8", "surrogateescape")


def _expected_file(prepared: PreparedTask) -> str | None:
    """Return the one file in which the task wants its answer, if it says so."""
    return prepared.output.files[0].path if len(prepared.output.files) == 1 else None


def _output_limit() -> int:
    try:
        return current_attempt().output_limit_bytes
    except AgentCompassError:  # run by a script, outside of a run
        return 1_000_000


def _result(
    prepared: PreparedTask,
    done: ExecResult,
    answer: str,
    timeout: float | None,
    count: Callable[[RunResult], None] = lambda result: None,
) -> RunResult:
    result = RunResult(prepared.task_id, category=prepared.category, agent_output=_last(done.output))
    count(result)
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    result.final_answer = answer or (lines[-1].strip() if lines else "")
    if len(_prompt(prepared)) > _VARIABLE_BYTES:
        text = (
            "the instruction is too long for AGENTCOMPASS_INSTRUCTION; it stands in AGENTCOMPASS_INSTRUCTION_FILE only"
        )
        result.note("run", "instruction_too_long", text, severity="info")
    if done.truncated:
        result.note(
            "run", "output_cut", "the agent's output was cut, or a background process still held it", severity="info"
        )
    _log(done)
    if done.timed_out:
        raise AgentFailure(
            f"the agent did not end within {timeout or 0.0:g} s and was stopped", "agent_timeout", result=result
        )
    if done.returncode != 0:
        message = "\n".join([_ending(done), *([_last(done.output)] if done.output.strip() else [])])
        raise AgentFailure(message, "out_of_memory" if done.out_of_memory else "agent_error", result=result)
    return result


def _ending(done: ExecResult) -> str:
    if done.out_of_memory:
        return f"the agent was killed because the sandbox had no memory left (status {done.returncode})"
    killed = f", as after signal {done.returncode - 128}" if 128 < done.returncode <= 192 else ""
    return f"the agent ended with status {done.returncode}{killed}" + (":" if done.output.strip() else "")


def _last(text: str) -> str:
    return text if len(text) <= _LAST_CHARACTERS else "[...]" + text[-_LAST_CHARACTERS:]


def _log(done: ExecResult) -> None:
    try:
        attempt = current_attempt()
    except AgentCompassError:  # run by a script, outside of a run
        return
    attempt.write_log("agent.txt", done.output)
