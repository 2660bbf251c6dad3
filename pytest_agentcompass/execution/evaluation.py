"""The part of an attempt that grades what the agent left, in the mode of the plan."""

from __future__ import annotations

import copy

from ..components.calls import call, is_cancellation
from ..components.environment import EnvironmentSession
from ..contracts.outcome import RunResult
from ..errors import HarnessError, InfrastructureError
from .agent_run import AgentRun
from .analysis import analyze
from .artifacts import restore_artifacts
from .attempt_state import error_text
from .checkpoint import save_checkpoint
from .guarded import guarded
from .recording import build_record

__all__ = ["Evaluation"]

_EVALUATION_SLACK = 30.0  # seconds beyond its limit that a verifier has, whose command has the limit itself


class Evaluation(AgentRun):
    """A try whose result can be graded."""

    async def evaluate(self) -> RunResult:
        """Grade what the agent left, in the mode of the plan, and check the observations."""
        with self._phase("evaluate"):
            assert self.plan is not None
            mode = self.plan.evaluation_environment_mode
            if mode != "reuse" and not self.restored:
                self.before_evaluation = build_record(self)
                save_checkpoint(self, self.before_evaluation)
                self.pay(self.before_evaluation.usage)
            if mode == "reuse":
                await self._evaluate_in(self.environment)
            elif mode == "none":
                await self._close_environment()
                await self._evaluate_in(None)
            else:
                await self._evaluate_fresh()
            self.context.benchmark.metric_contract.check(self.result.metrics)
            self.evaluated = True
        with self._phase("analyze"):
            await analyze(self.run_context.registry, self.task, self.result, self.request)
        return self.result

    async def _evaluate_in(self, environment: EnvironmentSession | None) -> None:
        assert self.plan is not None
        if environment is not None:
            await self._switch("evaluation")
            self._use_variables("evaluation")
        limit = self.plan.evaluation_timeout_seconds
        try:
            result = await guarded(
                lambda: self._grade(environment), limit, _EVALUATION_SLACK, "the evaluation's time limit"
            )
        except TimeoutError as error:
            raise InfrastructureError(f"the evaluation did not end: {error}", "evaluation_error") from None
        if result is not self.result:
            self.result = result

    async def _grade(self, environment: EnvironmentSession | None) -> RunResult:
        result = await call(
            self.context.benchmark.evaluate,
            copy.deepcopy(self.task), self.prepared, self.result, self.request, self.plan, environment,
        )  # fmt: skip
        if not isinstance(result, RunResult):
            raise HarnessError(
                f"benchmark {self.context.benchmark.id!r}: evaluate returned {type(result).__name__}, not a RunResult"
            )
        return result

    async def _evaluate_fresh(self) -> None:
        assert self.plan is not None and self.plan.evaluation_environment is not None
        await self._close_environment()
        assert self.prepared is not None
        settled = await call(
            self.context.benchmark.settle, self.task, self.prepared, self.result, self.request, self.plan
        )
        if settled is not None:
            self.result = settled
            return
        plan = copy.copy(self.plan)
        plan.environment = self.plan.evaluation_environment
        plan.baseline_network_policy = self.plan.evaluation_network_policy
        if self._permits is None:
            await self.admit()
        else:
            await self.run_context.limits.pace(self.context.environment.id, self._waits)
        self.environment = await call(self.context.environment.open, self.request, plan)
        self._own_environment = True
        self.environment_info = self.environment_info or self.environment.info
        await restore_artifacts(self.attempt_context, self.result, self.environment)
        await self._evaluate_in(self.environment)

    async def _close_environment(self) -> None:
        environment = self.environment
        if environment is None or not self._own_environment:
            self.environment = None
            return
        if self.request.execution.keep_environment:
            self._note_once("close", "kept", f"the sandbox was kept: {environment.info}")
            self.environment = None
            return
        try:
            limit = self.run_context.options.cleanup_grace_seconds
            await guarded(environment.close, limit, 0.0, f"the time to close the sandbox ({limit:g} s)")
            self.environment = None
        except BaseException as error:  # whatever a provider raises: the next attempt must not suffer from it
            if is_cancellation(error):
                raise
            self.result.note("close", "close_failed", f"the sandbox could not be closed: {error_text(error)}")
