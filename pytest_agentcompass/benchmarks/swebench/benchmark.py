"""The benchmark itself: instances in, model patches out, verdicts by the official rules."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel

from ...components.benchmark import BaseBenchmark
from ...components.environment import EnvironmentSession
from ...components.predictions import read_predictions
from ...contracts.environment import EnvironmentSpec, EvaluationMode
from ...contracts.metrics import MetricContract, MetricSpec
from ...contracts.outcome import FailureMode, RunResult
from ...contracts.plan import BenchmarkPlan, ExecutionPlan
from ...contracts.record import AttemptRecord
from ...contracts.request import RunRequest
from ...contracts.task import PreparedTask, ReferenceSolution, TaskInput, TaskProblem, TaskSpec
from ...errors import EnvironmentGone, EvaluationError, PlanningError, SandboxError
from .evaluating import PATCH, evaluate_patch, fail_unapplied, flag, keep_patch, stored_patch
from .integrity import sensitive_flag
from .loading import WORKDIR, load_instances, row_of, select_instances
from .params import SwebenchParams
from .parsers import parser_problem
from .patches import is_empty, take_patch, with_final_newline
from .preparing import Start, activate_conda, ensure_repository, prepare_repository
from .prompt import render
from .report import write_reports
from .rows import Row, missing_columns_message

__all__ = ["SwebenchBenchmark"]

_KEY = "swebench"
_EVALUATION_SECONDS = 1800.0  # the official limit
#: harnesses that read nothing in the sandbox: looking through its history would only take time
_NO_AGENT = frozenset({"oracle", "nop", "predictions"})


class SwebenchBenchmark(BaseBenchmark):
    """SWE-bench: a real problem of a real repository, graded by the tests of its fix."""

    id: ClassVar[str] = "swebench"
    params_model: ClassVar[type[BaseModel] | None] = SwebenchParams
    default_environment: ClassVar[str] = "docker"
    evaluation_environment_mode: ClassVar[EvaluationMode] = "fresh"
    metric_contract: ClassVar[MetricContract] = MetricContract(
        {
            "resolved": MetricSpec("binary", primary=True, display="resolved"),
            "partial": MetricSpec("scalar", display="share of FAIL_TO_PASS"),
        }
    )

    def load_tasks(self, req: RunRequest) -> list[TaskSpec | TaskProblem]:
        """Return one task per row; the rows' patches and scripts stay where they are."""
        found = load_instances(self.params(req), req)
        if req.harness.id == "predictions" and isinstance(req.harness.params.get("path"), str):
            _warn_of_unknown(found, req.harness.params["path"])
        return found

    def select_tasks(self, tasks: list[TaskSpec], req: RunRequest) -> list[TaskSpec]:
        """Return the tasks that `repo`, `difficulty`, `sample_ids` and `limit` leave."""
        return super().select_tasks(select_instances(tasks, self.params(req)), req)

    def build_plan(self, task: TaskSpec, req: RunRequest, environment: EnvironmentSpec) -> BenchmarkPlan:
        """Refuse what could not be graded before anything opens, and set the official limit of 1800 s."""
        mode = environment.evaluation_environment_mode
        if mode not in (None, "fresh"):
            raise PlanningError(
                f"benchmark 'swebench' grades patches in a fresh sandbox; evaluation mode {mode!r} cannot"
            )
        missing = task.metadata.get("missing_columns")
        if missing:
            raise PlanningError(f"{task.source}: {missing_columns_message(tuple(missing))}")
        if task.metadata.get("image_assets"):
            raise PlanningError(
                f"task {task.task_id!r} brings binary files beside its patches (image_assets), which are not supported"
            )
        problem = parser_problem(task.metadata["log_parser"])
        if problem:
            raise PlanningError(f"task {task.task_id!r}: {problem}")
        seconds = task.evaluation_timeout_seconds or _EVALUATION_SECONDS
        return BenchmarkPlan(
            run_timeout_seconds=task.run_timeout_seconds, evaluation_timeout_seconds=seconds, data={"graded": "fresh"}
        )

    async def prepare_task(
        self, task: TaskSpec, env: EnvironmentSession | None, req: RunRequest, plan: BenchmarkPlan
    ) -> PreparedTask:
        """Check the repository, remove its future, activate the tests' Python, and write the prompt."""
        row, params = row_of(task), self.params(req)
        start = None
        if env is not None:
            await ensure_repository(env, row, params)
            start = await prepare_repository(env, row, params, scrub=req.harness.id not in _NO_AGENT)
            await activate_conda(env)
        return _prepared(task, row, params, env, start)

    def prepare_evaluation(self, task: TaskSpec, req: RunRequest, plan: BenchmarkPlan) -> PreparedTask:
        """Return the task without a sandbox: grading needs the stored patch alone."""
        return _prepared(task, row_of(task), self.params(req), None, None)

    async def collect_artifacts(
        self,
        task: TaskSpec,
        prepared: PreparedTask,
        result: RunResult,
        req: RunRequest,
        plan: ExecutionPlan,
        env: EnvironmentSession,
    ) -> None:
        """Take the model patch: all changes since the start, as bytes, without build products."""
        if PATCH in result.artifacts:
            return
        start: Start = prepared.metadata[_KEY]
        await env.kill_leftovers(keep_services=False)
        try:
            patch = await take_patch(env, None, start.reference, req.execution.artifact_limit_bytes)
        except EnvironmentGone:
            raise
        except (
            SandboxError,
            FileNotFoundError,
        ) as error:  # git worked before the agent came: what broke it is the agent's
            result.note("collect_artifacts", "no_patch", f"no patch could be taken from the sandbox: {error}", "error")
            return
        keep_patch(prepared, result, patch, source=f"git diff {start.reference}")

    def settle(
        self, task: TaskSpec, prepared: PreparedTask, result: RunResult, req: RunRequest, plan: ExecutionPlan
    ) -> RunResult | None:
        """Grade an attempt without a patch: no sandbox is opened for it."""
        _note_start(prepared, result)
        patch = stored_patch(prepared, result)
        if patch is None:
            broken = next((issue.message for issue in result.issues if issue.code == "no_patch"), "there is no patch")
            return fail_unapplied(result, FailureMode.EMPTY_PATCH, f"empty patch: {broken}")
        if is_empty(patch):
            return fail_unapplied(result, FailureMode.EMPTY_PATCH, "empty patch: nothing was changed")
        return None

    async def evaluate(
        self,
        task: TaskSpec,
        prepared: PreparedTask,
        result: RunResult,
        req: RunRequest,
        plan: ExecutionPlan,
        env: EnvironmentSession | None = None,
    ) -> RunResult:
        """Apply the model patch in the fresh sandbox, run the row's script and grade its log."""
        settled = self.settle(task, prepared, result, req, plan)
        if settled is not None:
            return settled
        if env is None:
            raise EvaluationError(f"task {task.task_id!r} is graded in a sandbox of its own", "verifier_not_started")
        row, params = row_of(task), self.params(req)
        patch = stored_patch(prepared, result)
        assert patch is not None
        await ensure_repository(env, row, params)
        sensitive = sensitive_flag(row.instance_id, params.quarantine)
        if sensitive:
            flag(result, *sensitive, severity="info")
        result = await evaluate_patch(env, row, patch, result, plan.evaluation_timeout_seconds)
        if req.harness.id == "oracle" and not result.metrics.get("resolved"):
            flag(result, "environment_sensitive", f"{row.instance_id}: its own solution does not resolve it here")
        return result

    def write_extra_reports(
        self,
        directory: Path,
        attempts: Sequence[tuple[AttemptRecord, Path]],
        planned: Sequence[tuple[str, int]],
        req: RunRequest,
    ) -> list[Path]:
        """Write the official report and a predictions file of each attempt number."""
        return write_reports(directory, attempts, planned, req)


def _prepared(
    task: TaskSpec, row: Row, params: SwebenchParams, env: EnvironmentSession | None, start: Start | None
) -> PreparedTask:
    workdir = (env.default_workdir if env is not None else None) or WORKDIR
    solution = None
    if row.patch.strip():
        patch = with_final_newline(row.patch.encode("utf-8", "surrogateescape"))
        target = f"{env.scratch_dir}/solution" if env is not None else "/solution"
        solution = ReferenceSolution(patch=patch, target=target)
    return PreparedTask(
        task.task_id,
        task.category,
        None,
        TaskInput(render(params.template, row, workdir, hints=params.hints), workspace=workdir),
        metadata={_KEY: start} if start is not None else {},
        solution=solution,
    )


def _note_start(prepared: PreparedTask, result: RunResult) -> None:
    """Put what was met while the sandbox was made ready on the record."""
    start = prepared.metadata.get(_KEY)
    for severity, code, message in start.notes if isinstance(start, Start) else ():
        if severity == "warning":
            flag(result, code, message)
        elif all(issue.message != message for issue in result.issues):
            result.note("prepare_task", code, message, severity)


def _warn_of_unknown(found: list[TaskSpec | TaskProblem], path: str) -> None:
    """Put one warning on the first task when the predictions file names instances that are not here."""
    known = {item.task_id for item in found}
    unknown = sorted(set(read_predictions(path)) - known)
    first = next((item for item in found if isinstance(item, TaskSpec)), None)
    if unknown and first is not None:
        shown = ", ".join(unknown[:5]) + (f" and {len(unknown) - 5} more" if len(unknown) > 5 else "")
        first.warnings = (*first.warnings, f"{path}: predictions for instances that the dataset does not have: {shown}")
