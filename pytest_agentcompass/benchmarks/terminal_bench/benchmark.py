"""The benchmark `terminal_bench`: tasks of both formats, their preparation and their grading."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ...components.benchmark import BaseBenchmark
from ...contracts.metrics import MetricContract, MetricSpec
from ...contracts.outcome import FailureMode, RunResult
from ...contracts.task import PreparedTask, TaskProblem, TaskSpec
from ...errors import EvaluationError, SetupError
from .grading import clear_leftovers, grade_tb1, grade_tb2
from .loading import load_folder
from .params import TerminalBenchParams
from .preparing import guard_of, make_folders, prepare_first, step_table
from .rewards import Reward
from .steps import final_reward, gate_holds, prepare_step, remember, step_after

if TYPE_CHECKING:
    from ...components.environment import EnvironmentSession
    from ...contracts.plan import BenchmarkPlan, ExecutionPlan
    from ...contracts.request import RunRequest

__all__ = ["TerminalBench"]


class TerminalBench(BaseBenchmark):
    """Terminal-Bench tasks: `task.yaml` folders (TB1) and `task.toml` folders (TB2, Harbor)."""

    id: ClassVar[str] = "terminal_bench"
    params_model = TerminalBenchParams
    default_environment: ClassVar[str] = "docker"
    metric_contract: ClassVar[MetricContract] = MetricContract(
        {
            "correct": MetricSpec("binary", primary=True, display="solved"),
            "reward": MetricSpec("scalar", display="reward"),
        },
        open_scalars=True,
    )

    def load_tasks(self, req: RunRequest) -> list[TaskSpec | TaskProblem]:
        """Return the tasks of `benchmark.path`, sorted by name; a broken one is a `TaskProblem`."""
        return load_folder(self._params(req))

    def _params(self, req: RunRequest) -> TerminalBenchParams:
        return TerminalBenchParams.model_validate(req.benchmark.params)

    async def prepare_task(
        self, task: TaskSpec, env: EnvironmentSession | None, req: RunRequest, plan: BenchmarkPlan
    ) -> PreparedTask:
        """Make the log folders (and the terminal that the tests share with the agent)."""
        if env is None:
            raise SetupError("terminal_bench needs a sandbox")
        return await prepare_first(task, env)

    async def collect_artifacts(
        self,
        task: TaskSpec,
        prepared: PreparedTask,
        result: RunResult,
        req: RunRequest,
        plan: ExecutionPlan,
        env: EnvironmentSession,
    ) -> None:
        """Save the panes of terminals that the agent used."""
        for name, terminal in env.terminals.items():
            if not terminal.closed:
                await terminal.save_pane("post-agent" if name == "agent" else f"post-agent-{name}")

    async def next_step(
        self,
        task: TaskSpec,
        prepared: PreparedTask,
        result: RunResult,
        req: RunRequest,
        plan: ExecutionPlan,
        env: EnvironmentSession | None,
    ) -> PreparedTask | None:
        """Grade the finished step; prepare the next one where its gate holds."""
        if prepared.step is None:
            if env is not None and plan.evaluation_environment_mode == "fresh":
                await self._before_separate(task, result, req, env)
            return None
        if env is None:
            raise EvaluationError("a task with steps is graded in its sandbox, which is gone")
        params = self._params(req)
        await clear_leftovers(env, result, params.verifier.leftovers, same_shell=False)
        table = step_table(task, prepared.step)
        limit = _limit(req, table["verifier_timeout"] or task.metadata["verifier_default_timeout"])
        reward = await grade_tb2(task, env, prepared, params, limit, result, prepared.step)
        entry = remember(result, prepared.step, reward)
        _note(reward, result)
        following = step_after(task, prepared.step)
        if following is None:
            return None
        if not gate_holds(task, entry):
            message = f"stopped after step {prepared.step!r}: its reward {entry['reward']:g} is below its min_reward"
            result.note("evaluate", "step_gate", message, "info")
            return None
        return await prepare_step(task, following, prepared, env)

    async def end_leftovers(self, task: TaskSpec, result: RunResult, req: RunRequest, env: EnvironmentSession) -> None:
        """End what the agent left by the rule of the request; tests in the agent's shell need it alive."""
        if not task.metadata.get("same_shell"):
            await clear_leftovers(env, result, self._params(req).verifier.leftovers, same_shell=False)

    async def _before_separate(
        self, task: TaskSpec, result: RunResult, req: RunRequest, env: EnvironmentSession
    ) -> None:
        """End what the agent left, and run `verifier.collect` before the artifacts are taken out."""
        await clear_leftovers(env, result, self._params(req).verifier.leftovers, same_shell=False)
        for item in task.metadata.get("collect", []):
            done = await env.exec(item["command"], shell=True, user=item["user"], timeout=item["timeout"])
            if not done.ok:
                message = f"verifier.collect {item['command']!r} ended with status {done.returncode}"
                result.note("collect_artifacts", "collect_command", f"{message}: {done.output.strip()[-300:]}")

    async def evaluate(
        self,
        task: TaskSpec,
        prepared: PreparedTask,
        result: RunResult,
        req: RunRequest,
        plan: ExecutionPlan,
        env: EnvironmentSession | None = None,
    ) -> RunResult:
        """Run the verifier and set the metrics `correct` and `reward`."""
        if prepared.step is not None:
            return _finish_steps(task, result)
        if env is None:
            raise EvaluationError("terminal_bench grades in a sandbox; evaluation mode 'none' has none")
        params = self._params(req)
        if plan.evaluation_environment_mode == "fresh":
            await make_folders(env, ["/logs/artifacts"])
        else:
            await clear_leftovers(
                env, result, params.verifier.leftovers, same_shell=bool(task.metadata.get("same_shell"))
            )
        limit = plan.evaluation_timeout_seconds
        if task.metadata["format"] == "tb1":
            await grade_tb1(task, env, guard_of(prepared), limit, result)
        else:
            _set_reward(await grade_tb2(task, env, prepared, params, limit, result), result)
        return result


def _limit(req: RunRequest, seconds: float) -> float:
    own = req.execution.evaluation_timeout_seconds
    return own if own is not None else seconds * req.execution.timeout_multiplier


def _note(reward: Reward | None, result: RunResult) -> None:
    for code, severity, message in reward.notes if reward else []:
        result.note("evaluate", code, message, severity)


def _set_reward(reward: Reward | None, result: RunResult) -> None:
    _note(reward, result)
    result.metrics.update(correct=bool(reward and reward.correct), reward=reward.reward if reward else 0.0)
    if reward is not None:
        result.metadata["rewards"] = dict(reward.values)
        result.metadata["reward_source"] = reward.source
        result.metrics.update({f"reward.{key}": value for key, value in reward.values.items() if key != "reward"})


def _finish_steps(task: TaskSpec, result: RunResult) -> RunResult:
    done = result.metadata.get("steps", [])
    if not done:
        raise EvaluationError("no step of the task was graded", "no_reward")
    reward, correct = final_reward(task, done)
    result.metrics.update(correct=correct, reward=reward)
    result.metadata["rewards"] = {"reward": reward}
    result.tests = {f"{entry['name']}/{name}": status for entry in done for name, status in entry["tests"].items()}
    if result.failure_mode is FailureMode.TEST_TIMEOUT:
        result.metrics["correct"] = False
    return result
