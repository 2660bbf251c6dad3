"""The oracle: plays a task's own solution, to show that the task can be solved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from ..components.context import current_attempt
from ..components.harness import BaseHarness
from ..components.terminal import TerminalSession, TerminalTimeout
from ..contracts.outcome import RunResult
from ..errors import AgentFailure, HarnessError

if TYPE_CHECKING:
    from ..components.environment import EnvironmentSession
    from ..contracts.outcome import ExecResult
    from ..contracts.plan import HarnessPlan
    from ..contracts.request import RunRequest
    from ..contracts.task import Keystroke, PreparedTask, ReferenceSolution, TaskSpec

__all__ = ["OracleHarness"]

_SHOWN = 20_000


@dataclass(slots=True)
class _Session:
    env: EnvironmentSession | None
    output: str = ""


class OracleHarness(BaseHarness):
    """Runs `PreparedTask.solution`; an attempt at a task that has none is skipped."""

    id: ClassVar[str] = "oracle"

    def unavailable(self, task: TaskSpec, req: RunRequest) -> str | None:
        """Return the reason when *task* has no reference solution."""
        return None if task.has_solution else f"task {task.task_id!r} has no reference solution"

    async def start_session(self, env: EnvironmentSession | None, req: RunRequest, plan: HarnessPlan) -> _Session:
        """Return the session: the sandbox and the output so far."""
        return _Session(env)

    async def run_task(
        self, session: _Session, prepared: PreparedTask, req: RunRequest, plan: HarnessPlan
    ) -> RunResult:
        """Play the solution. A script that ends with an error is noted and graded all the same."""
        solution = prepared.solution
        if solution is None:
            raise HarnessError(f"task {prepared.task_id!r} was prepared without its reference solution")
        result = RunResult(task_id=prepared.task_id, category=prepared.category)
        if solution.answer is not None:
            result.final_answer = solution.answer
            return result
        if session.env is None:
            raise HarnessError("the reference solution needs a sandbox, and this attempt has none")
        before = len(session.output)
        try:
            await _play(session, session.env, solution, prepared, result)
        finally:
            result.agent_output = session.output[before:][-_SHOWN:]
            current_attempt().write_log("agent.txt", session.output)
        return result


async def _play(
    session: _Session, env: EnvironmentSession, solution: ReferenceSolution, prepared: PreparedTask, result: RunResult
) -> None:
    if solution.directory is not None:
        await env.reset_dir(solution.target)
        source = Path(solution.directory)
        if source.is_file():
            await env.upload(source, f"{solution.target}/{source.name}")
        else:
            await env.upload_dir(source, solution.target)
    if solution.command is not None:
        _end(session, await _run(env, solution.command, solution, prepared), prepared, result)
    if solution.patch is not None:
        path = f"{solution.target}/solution.patch"
        await env.write_bytes(path, solution.patch, mode=0o644)
        _end(
            session,
            await _run(env, ["git", "apply", "--whitespace=nowarn", path], solution, prepared),
            prepared,
            result,
        )
    if solution.keystrokes is not None:
        terminal = await TerminalSession.open(env, "agent", record=bool(prepared.metadata.get("record_terminal")))
        await terminal.save_pane("pre-agent")
        await _type(terminal, solution.keystrokes, result)
        session.output += await terminal.capture()


async def _run(
    env: EnvironmentSession, command: Sequence[str] | str, solution: ReferenceSolution, prepared: PreparedTask
) -> ExecResult:
    return await env.exec(
        command, shell=isinstance(command, str), env=solution.env, timeout=prepared.run_timeout_seconds
    )


def _end(session: _Session, done: ExecResult, prepared: PreparedTask, result: RunResult) -> None:
    session.output += done.output
    if done.timed_out:
        result.agent_output = done.output[-_SHOWN:]
        limit = prepared.run_timeout_seconds or 0.0
        raise AgentFailure(f"the solution was stopped at its limit of {limit:g} s", "agent_timeout", result=result)
    if done.returncode != 0:
        result.note("run", "solution_status", f"the solution ended with status {done.returncode}")


async def _type(terminal: TerminalSession, keystrokes: list[Keystroke], result: RunResult) -> None:
    for item in keystrokes:
        try:
            await terminal.send_keys(
                item.command,
                enter=item.append_enter,
                block=item.block,
                min_timeout=item.min_timeout_sec,
                max_timeout=item.max_timeout_sec,
            )
        except TerminalTimeout as error:
            result.note("run", "solution_blocked", error.message)
