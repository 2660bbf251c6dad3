"""The benchmark itself: a question, perhaps with media and a file; an answer; a grader."""

from __future__ import annotations

import os
import re
import secrets
from typing import Any, ClassVar

from pydantic import BaseModel

from ...components.benchmark import BaseBenchmark
from ...components.environment import EnvironmentSession
from ...contracts.environment import EvaluationMode
from ...contracts.outcome import FailureMode, RunResult
from ...contracts.plan import BenchmarkPlan, ExecutionPlan
from ...contracts.request import RunRequest
from ...contracts.task import (
    FileRef,
    MediaItem,
    Message,
    PreparedTask,
    ReferenceSolution,
    TaskInput,
    TaskProblem,
    TaskSpec,
)
from ...errors import EnvironmentGone, EvaluationError, SandboxError, TaskLoadError
from .extracting import code_block
from .graders import grade
from .params import QaParams
from .tasks import KEY, load_tasks, oracle_answer

__all__ = ["QaBenchmark"]

_CODE_SECONDS = 60.0
_TAIL = 4_000


class QaBenchmark(BaseBenchmark):
    """Questions of any dataset."""

    id: ClassVar[str] = "qa"
    params_model: ClassVar[type[BaseModel] | None] = QaParams
    default_environment: ClassVar[str] = "host_process"
    evaluation_environment_mode: ClassVar[EvaluationMode] = "none"

    def __init__(self) -> None:
        self._judges: dict[str, Any] = {}

    def load_tasks(self, req: RunRequest) -> list[TaskSpec | TaskProblem]:
        """Return a task for each row that the filter keeps."""
        params: QaParams = self.params(req)
        if params.grader.kind == "judge":
            _judging()
        return load_tasks(params)

    async def prepare_task(
        self, task: TaskSpec, env: EnvironmentSession | None, req: RunRequest, plan: BenchmarkPlan
    ) -> PreparedTask:
        """Copy the question's file into the sandbox."""
        own = _own(task)
        prepared = self.prepare_evaluation(task, req, plan)
        if env is not None and own.get("file"):
            name = os.path.basename(own["file"])
            await env.upload(own["file"], name)
            where = f"{env.default_workdir}/{name}" if env.default_workdir else name
            prepared.input.files.append(FileRef(where))
            prepared.input.prompt += f"\n\nThe file {where} belongs to the question."
        prepared.input.workspace = env.default_workdir if env is not None else None
        return prepared

    def prepare_evaluation(self, task: TaskSpec, req: RunRequest, plan: BenchmarkPlan) -> PreparedTask:
        """Return the question."""
        own = _own(task)
        params: QaParams = self.params(req)
        return PreparedTask(
            task.task_id,
            task.category,
            task.ground_truth,
            TaskInput(
                task.question,
                system_prompt=own.get("system_prompt") or None,
                media=[MediaItem(**item) for item in own.get("media", ())],
                messages=[Message(**item) for item in own.get("messages", ())],
            ),
            solution=_solution(task, params),
        )

    async def evaluate(
        self,
        task: TaskSpec,
        prepared: PreparedTask,
        result: RunResult,
        req: RunRequest,
        plan: ExecutionPlan,
        env: EnvironmentSession | None = None,
    ) -> RunResult:
        """Grade the answer."""
        params: QaParams = self.params(req)
        given = result.final_answer
        answer = "" if given is None else given if isinstance(given, str) else str(given)
        if params.answer_pattern:
            answer = _found(answer, params.answer_pattern)
        if params.grader.kind == "code":
            correct = await self._run_code(task, answer, params, result, plan, env)
        elif params.grader.kind == "judge" and answer.strip():
            correct = await self._ask_judge(task, answer, params, result)
        else:
            correct, said = grade(answer, task.ground_truth, params.grader, _own(task).get("choices"))
            if not correct:
                result.note("evaluate", "wrong_answer" if answer.strip() else "no_answer", said, "info")
        result.ground_truth = task.ground_truth
        result.metrics["correct"] = correct
        return result

    async def _ask_judge(self, task: TaskSpec, answer: str, params: QaParams, result: RunResult) -> bool:
        assert params.grader.judge is not None
        key = repr(params.grader.judge)
        judge = self._judges.setdefault(key, _judging()(params.grader.judge))
        reference = task.ground_truth
        text = " or ".join(map(str, reference)) if isinstance(reference, list) else str(reference)
        verdict = await judge.decide(_own(task)["plain_question"] or task.question, text, answer, result)
        if not verdict.correct:
            result.note("evaluate", "wrong_answer", f"expected {text[:200]!r}; judge: {verdict.reasoning}", "info")
        return bool(verdict.correct)

    async def _run_code(
        self,
        task: TaskSpec,
        answer: str,
        params: QaParams,
        result: RunResult,
        plan: ExecutionPlan,
        env: EnvironmentSession | None,
    ) -> bool:
        if not answer.strip():
            result.note("evaluate", "no_answer", "no answer was given", "info")
            return False
        if env is None:
            raise EvaluationError(
                "a code grader needs a sandbox; use evaluation_environment_mode reuse or fresh", "verifier_not_started"
            )
        await env.kill_leftovers(keep_services=False)
        code, folder = params.grader.code, f"{env.scratch_dir}/agentcompass-grade-{secrets.token_hex(6)}"
        await env.write_text(f"{folder}/{code.file}", code_block(answer))
        await env.write_text(f"{folder}/{code.tests_file}", _own(task)["tests"])
        limit = plan.evaluation_timeout_seconds or _CODE_SECONDS
        try:
            done = await env.exec(list(code.command), cwd=folder, env={"PYTHONNOUSERSITE": "1"}, timeout=limit)
        except EnvironmentGone:
            raise
        except SandboxError as error:
            raise EvaluationError(f"the grader was not started: {error.message}", "verifier_not_started") from error
        result.verifier_output = done.output[-_TAIL:]
        if done.timed_out:
            result.fail(FailureMode.TEST_TIMEOUT, "evaluate", f"the tests did not end within {limit:g} s")
            return False
        if done.returncode in (126, 127):
            raise EvaluationError(
                f"the grader {' '.join(code.command)!r} cannot be run (status {done.returncode}): {done.output[-500:]}",
                "verifier_not_started",
            )
        return done.ok


def _judging() -> Any:
    """Return the class of judges, the only grader that needs the extra `models`."""
    try:
        from .judge import Judge
    except ImportError as error:
        raise TaskLoadError(
            f"a grader of kind judge needs a library: {error}; pip install 'pytest-agentcompass[models]'"
        ) from error
    return Judge


def _own(task: TaskSpec) -> dict[str, Any]:
    own: dict[str, Any] = task.metadata.get(KEY, {})
    return own


def _found(answer: str, pattern: str) -> str:
    hits = list(re.finditer(pattern, answer[-100_000:]))
    if not hits:
        return answer
    last = hits[-1]
    return (last[1] if last.re.groups else last[0]) or ""


def _solution(task: TaskSpec, params: QaParams) -> ReferenceSolution | None:
    answer = oracle_answer(task, params)
    return ReferenceSolution(answer=answer) if answer else None
