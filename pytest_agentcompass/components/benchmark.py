"""Benchmarks: tasks, their preparation and their evaluation."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ..contracts.environment import EvaluationMode
from ..contracts.metrics import MetricContract
from ..contracts.outcome import FailureMode
from ..contracts.plan import BenchmarkPlan
from ..errors import ConfigError, EvaluationError, nearest

if TYPE_CHECKING:
    from pydantic import BaseModel

    from ..contracts.environment import EnvironmentSpec
    from ..contracts.outcome import RunResult
    from ..contracts.plan import ExecutionPlan
    from ..contracts.record import AttemptRecord
    from ..contracts.request import RunRequest
    from ..contracts.task import PreparedTask, TaskProblem, TaskSpec
    from .environment import EnvironmentSession

__all__ = ["BaseBenchmark", "HarnessFreeBenchmark"]


class BaseBenchmark(abc.ABC):
    """A set of tasks with one way to prepare and grade them.

    Every method may be written sync (it runs in a thread) or async. *params_model* validates
    `benchmark.params`; `params(req)` returns the validated object.
    """

    id: ClassVar[str] = ""
    params_model: ClassVar[type[BaseModel] | None] = None
    default_environment: ClassVar[str] = "host_process"
    evaluation_environment_mode: ClassVar[EvaluationMode] = "reuse"
    metric_contract: ClassVar[MetricContract] = MetricContract()
    #: whether the benchmark grades by itself, without an agent (harness=none)
    harness_free: ClassVar[bool] = False

    def params(self, req: RunRequest) -> Any:
        """Return the request's benchmark params, validated."""
        return (
            self.params_model.model_validate(req.benchmark.params) if self.params_model else dict(req.benchmark.params)
        )

    @abc.abstractmethod
    def load_tasks(self, req: RunRequest) -> list[TaskSpec | TaskProblem]:
        """Return all tasks in a fixed order; a task that cannot be used is a `TaskProblem`.

        A generator will do. What has no order of its own (a set, a mapping from ids) is put in the order of
        the ids. Raises `TaskLoadError` when nothing can be loaded. Tasks hold plain JSON data.
        """

    def select_tasks(self, tasks: list[TaskSpec], req: RunRequest) -> list[TaskSpec]:
        """Return the tasks that `sample_ids` and `limit` leave, in data order.

        Raises ConfigError for an id that does not exist.
        """
        wanted = req.benchmark.sample_ids
        if wanted is not None:
            known = {task.task_id for task in tasks}
            for sample in wanted:
                if sample not in known:
                    raise ConfigError(f"benchmark.sample_ids: no task has the id {sample!r}; {nearest(sample, known)}")
            chosen = set(wanted)
            tasks = [task for task in tasks if task.task_id in chosen]
        return tasks if req.benchmark.limit is None else tasks[: req.benchmark.limit]

    def build_plan(self, task: TaskSpec, req: RunRequest, environment: EnvironmentSpec) -> BenchmarkPlan:
        """Return what the benchmark decides for *task*: pure, no I/O."""
        return BenchmarkPlan(
            run_timeout_seconds=task.run_timeout_seconds, evaluation_timeout_seconds=task.evaluation_timeout_seconds
        )

    @abc.abstractmethod
    async def prepare_task(
        self, task: TaskSpec, env: EnvironmentSession | None, req: RunRequest, plan: BenchmarkPlan
    ) -> PreparedTask:
        """Make the sandbox ready and return what the agent is given."""

    async def next_step(
        self,
        task: TaskSpec,
        prepared: PreparedTask,
        result: RunResult,
        req: RunRequest,
        plan: ExecutionPlan,
        env: EnvironmentSession | None,
    ) -> PreparedTask | None:
        """Grade a finished step of a task with several, and prepare the next; None when there is no more.

        Called in the evaluation phase after each run of the agent, before `evaluate`.
        """
        return None

    async def end_leftovers(self, task: TaskSpec, result: RunResult, req: RunRequest, env: EnvironmentSession) -> None:
        """End what the agent left running, before the evaluation's network replaces a restricted one.

        All but services (what listens) by default, after a timeout of the agent's all. `evaluate` ends leftovers
        by rules of its own in any case.
        """
        await env.kill_leftovers(keep_services=result.failure_mode is not FailureMode.AGENT_TIMEOUT)

    async def collect_artifacts(
        self,
        task: TaskSpec,
        prepared: PreparedTask,
        result: RunResult,
        req: RunRequest,
        plan: ExecutionPlan,
        env: EnvironmentSession,
    ) -> None:
        """Take more out of the sandbox than the plan's artifacts (a diff, say); put it into *result*."""

    def settle(
        self, task: TaskSpec, prepared: PreparedTask, result: RunResult, req: RunRequest, plan: ExecutionPlan
    ) -> RunResult | None:
        """Return *result* graded when that needs no sandbox (nothing was left to grade, say), else None.

        Asked in the mode `fresh`, before a sandbox is opened for the evaluation.
        """
        return None

    @abc.abstractmethod
    async def evaluate(
        self,
        task: TaskSpec,
        prepared: PreparedTask,
        result: RunResult,
        req: RunRequest,
        plan: ExecutionPlan,
        env: EnvironmentSession | None = None,
    ) -> RunResult:
        """Grade what the agent left and return *result* with its metrics.

        Raises `EvaluationError` when there is no trustworthy verdict. The environment is the agent's
        (`reuse`), a new one (`fresh`) or None (`none`).
        """

    def prepare_evaluation(self, task: TaskSpec, req: RunRequest, plan: BenchmarkPlan) -> PreparedTask:
        """Return the prepared task without a sandbox, to evaluate again from stored artifacts."""
        raise EvaluationError(f"benchmark {self.id!r} cannot evaluate again from stored artifacts")

    def aggregate_metrics(self, report: dict[str, Any], req: RunRequest) -> dict[str, Any]:
        """Return the cross-task *report*, possibly with another rule for its figures."""
        return report

    def write_extra_reports(
        self,
        directory: Path,
        attempts: Sequence[tuple[AttemptRecord, Path]],
        planned: Sequence[tuple[str, int]],
        req: RunRequest,
    ) -> list[Path]:
        """Write files of the benchmark's own beside the summary and return their paths.

        *attempts* are the request's records with the folders of their attempts, *planned* all planned task
        ids and attempt numbers. Long outputs are cut and plan, environment and telemetry are left out of the
        records: `record.json` in the folder has all. Called at the end of a run and when reports are rebuilt.
        """
        return []


class HarnessFreeBenchmark(BaseBenchmark):
    """A benchmark that makes its own runs (harness=none)."""

    harness_free: ClassVar[bool] = True

    @abc.abstractmethod
    async def run_task(
        self,
        task: TaskSpec,
        prepared: PreparedTask,
        req: RunRequest,
        plan: ExecutionPlan,
        env: EnvironmentSession | None = None,
    ) -> RunResult:
        """Make the run that a harness would make."""
