"""The benchmark itself: prepare the sandbox, then grade by a command, by an answer, or by both."""

from __future__ import annotations

import os
import re
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, field_validator

from ...components.answers import MATCHES, matches
from ...components.benchmark import BaseBenchmark
from ...components.context import current_attempt
from ...components.environment import EnvironmentSession
from ...contracts.outcome import ExecResult, FailureMode, RunResult
from ...contracts.plan import BenchmarkPlan, ExecutionPlan
from ...contracts.request import RunRequest
from ...contracts.task import (
    FileRef,
    OutputFileSpec,
    PreparedTask,
    ReferenceSolution,
    TaskInput,
    TaskOutput,
    TaskProblem,
    TaskSpec,
)
from ...errors import AgentCompassError, EnvironmentGone, EvaluationError, SandboxError, SetupError, nearest
from .fields import KEY
from .loading import load_path

__all__ = ["TasksBenchmark", "TasksParams"]

_ANSWER_BYTES = 1_000_000
_SETUP_SECONDS = 600.0
_LAST_CHARACTERS = 4000
_PYTEST = re.compile(r"(?<![\w-])(?:pytest|py\.test)(?![\w-])")
_PYTEST_NO_TESTS = 5
#: what an agent left in its own site-packages must not run inside the verifier
_VERIFIER_ENV = {"PYTHONNOUSERSITE": "1"}


class TasksParams(BaseModel):
    """`benchmark.params` of tasks: *path* is a file (.yaml, .jsonl) or a folder of such files.

    *match* is how answers are compared where a task does not say it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    match: str = "exact"

    @field_validator("match")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in MATCHES:
            raise ValueError(f"{value!r} is not known; {nearest(value, MATCHES)}")
        return value


class TasksBenchmark(BaseBenchmark):
    """Tasks of one's own: an instruction, files, and a command or an answer that decides."""

    id: ClassVar[str] = "tasks"
    params_model: ClassVar[type[BaseModel] | None] = TasksParams
    default_environment: ClassVar[str] = "host_process"

    def load_tasks(self, req: RunRequest) -> list[TaskSpec | TaskProblem]:
        """Return the tasks of `benchmark.params.path` in the order in which they are written."""
        params: TasksParams = self.params(req)
        return load_path(os.path.expanduser(params.path), params.match)

    async def prepare_task(
        self, task: TaskSpec, env: EnvironmentSession | None, req: RunRequest, plan: BenchmarkPlan
    ) -> PreparedTask:
        """Write the task's files and run its setup commands."""
        own = _own(task)
        if env is not None:
            await _write_files(env, own.get("files", {}))
            for command in own.get("setup", ()):
                await _set_up(env, command)
        return _prepared(task, own, env.default_workdir if env is not None else None)

    def prepare_evaluation(self, task: TaskSpec, req: RunRequest, plan: BenchmarkPlan) -> PreparedTask:
        """Return the task of a question; a task with a verify command needs its sandbox."""
        own = _own(task)
        if "verify" in own:
            raise EvaluationError(
                f"task {task.task_id!r} is verified in its sandbox and cannot be graded again from a record"
            )
        return _prepared(task, own, None)

    async def collect_artifacts(
        self,
        task: TaskSpec,
        prepared: PreparedTask,
        result: RunResult,
        req: RunRequest,
        plan: ExecutionPlan,
        env: EnvironmentSession,
    ) -> None:
        """Take the answer from the task's answer file, where the agent left one."""
        path = _own(task).get("answer_file")
        if path is None:
            return
        try:
            raw = await env.read_bytes(path, limit=_ANSWER_BYTES)
        except FileNotFoundError:
            return
        except EnvironmentGone:
            raise
        except SandboxError as error:  # a folder, a fifo or a link out of the sandbox in its place
            result.note("collect_artifacts", "answer_file", f"the answer file cannot be used: {error.message}")
            return
        result.final_answer = raw.decode("utf-8", "replace")

    async def evaluate(
        self,
        task: TaskSpec,
        prepared: PreparedTask,
        result: RunResult,
        req: RunRequest,
        plan: ExecutionPlan,
        env: EnvironmentSession | None = None,
    ) -> RunResult:
        """Run the verify command, compare the answer, or both: the attempt is correct when all of it holds."""
        own = _own(task)
        correct = True
        if "verify" in own:
            if env is None:
                raise EvaluationError(
                    f"task {task.task_id!r} has a verify command, which needs a sandbox; "
                    "use evaluation_environment_mode reuse or fresh",
                    "verifier_not_started",
                )
            correct = await _verify(own, result, plan, env)
        if task.ground_truth is not None:
            correct = _grade_answer(task.ground_truth, own, result) and correct
            result.ground_truth = task.ground_truth
        result.metrics["correct"] = correct
        return result


def _own(task: TaskSpec) -> dict[str, Any]:
    own: dict[str, Any] = task.metadata.get(KEY, {})
    return own


def _prepared(task: TaskSpec, own: dict[str, Any], workdir: str | None) -> PreparedTask:
    answer_file = own.get("answer_file")
    return PreparedTask(
        task.task_id,
        task.category,
        task.ground_truth,
        TaskInput(task.question, files=[FileRef(path) for path in own.get("files", {})], workspace=workdir),
        TaskOutput(files=[OutputFileSpec(answer_file, "the final answer")] if answer_file else []),
        metadata={key: value for key, value in task.metadata.items() if key != KEY},
        solution=_solution(task, own),
    )


def _solution(task: TaskSpec, own: dict[str, Any]) -> ReferenceSolution | None:
    if not task.has_solution:
        return None
    given = own.get("solution")
    if "verify" in own:
        return ReferenceSolution(command=given)
    if given is not None:
        return ReferenceSolution(answer=given if isinstance(given, str) else " ".join(given))
    return ReferenceSolution(answer=task.ground_truth[0] if isinstance(task.ground_truth, list) else task.ground_truth)


async def _write_files(
    env: EnvironmentSession, files: dict[str, dict[str, Any]], *, only_missing: bool = False
) -> None:
    for path, file in files.items():
        if only_missing and (await env.is_file(path) or await env.is_dir(path)):
            continue
        source = file.get("source")
        if source is None:
            await env.write_bytes(path, file["text"].encode(), mode=file.get("mode"))
        elif os.path.isdir(source):
            await env.upload_dir(source, path)
        else:
            await env.upload(source, path, mode=file.get("mode"))


async def _set_up(env: EnvironmentSession, command: str) -> None:
    done = await env.exec(command, shell=True, timeout=_SETUP_SECONDS)
    if not done.ok:
        how = f"took longer than {_SETUP_SECONDS:g} s" if done.timed_out else f"ended with status {done.returncode}"
        raise SetupError(f"the task's setup command {command!r} {how}:\n{_last(done)}")


async def _verify(own: dict[str, Any], result: RunResult, plan: ExecutionPlan, env: EnvironmentSession) -> bool:
    """Run the verifier on what the agent left and return its verdict."""
    keep = result.failure_mode is not FailureMode.AGENT_TIMEOUT
    for line in await env.kill_leftovers(keep_services=keep):
        result.note("evaluate", "leftover_process", line, severity="info")
    if plan.evaluation_environment_mode == "fresh":
        await _write_files(env, own.get("files", {}), only_missing=True)
    await _write_verifier_files(env, own.get("verify_files", {}))
    command = own["verify"]
    try:
        done = await env.exec(
            command, shell=isinstance(command, str), env=_VERIFIER_ENV, timeout=plan.evaluation_timeout_seconds
        )
    except EnvironmentGone:
        raise
    except SandboxError as error:
        raise EvaluationError(f"the verifier was not started: {error.message}", "verifier_not_started") from error
    result.verifier_output = _last(done)
    _log(done)
    return _verdict(command, done, result, plan)


async def _write_verifier_files(env: EnvironmentSession, files: dict[str, dict[str, Any]]) -> None:
    for path in files:
        if await env.is_dir(path):  # the agent's folder may not stand in the way, nor add to what is copied in
            await env.exec(["rm", "-rf", "--", path], timeout=60)
    await _write_files(env, files)


def _verdict(command: str | list[str], done: ExecResult, result: RunResult, plan: ExecutionPlan) -> bool:
    """Read the verifier's exit: 0 passed, anything else failed, unless it shows that nothing was verified."""
    if done.timed_out:
        seconds = plan.evaluation_timeout_seconds or 0.0
        result.fail(
            FailureMode.TEST_TIMEOUT, "evaluate", f"the verifier did not end within {seconds:g} s and was stopped"
        )
        return False
    code = done.returncode
    if code == 0:
        return True
    shown = command if isinstance(command, str) else " ".join(command)
    if code in (126, 127):
        raise EvaluationError(
            f"the verifier {shown!r} was not started or called a program that cannot be run (status {code}); "
            f"if that is the agent's own program, test for it first (test -x PROGRAM || exit 1):\n{_last(done)}",
            "verifier_not_started",
        )
    if code == _PYTEST_NO_TESTS and _PYTEST.search(shown):
        raise EvaluationError(f"pytest found no tests (status 5), so nothing was verified:\n{_last(done)}", "no_tests")
    note = f"the verifier ended with status {code}"
    if 128 < code <= 192:
        note += f", as after signal {code - 128}"
    result.note("evaluate", "verifier_failed", note, severity="info")
    return False


def _grade_answer(expected: str | list[str], own: dict[str, Any], result: RunResult) -> bool:
    answer = result.final_answer
    given = "" if answer is None else answer if isinstance(answer, str) else str(answer)
    wanted = expected if isinstance(expected, list) else [expected]
    match = own.get("match", "exact")
    if any(matches(given, item, match, own.get("tolerance", 0.0)) for item in wanted):
        return True
    shown = repr(given.strip()[:200]) if given.strip() else "no answer"
    text = f"expected {' or '.join(repr(item) for item in wanted)} (match: {match}), got {shown}"
    result.note("evaluate", "wrong_answer" if given.strip() else "no_answer", text, severity="info")
    return False


def _last(done: ExecResult) -> str:
    text = done.output
    return text if len(text) <= _LAST_CHARACTERS else "[...]" + text[-_LAST_CHARACTERS:]


def _log(done: ExecResult) -> None:
    try:
        attempt = current_attempt()
    except AgentCompassError:  # graded by a script, outside of a run
        return
    attempt.write_log("verifier.txt", done.output)
