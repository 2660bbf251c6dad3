"""The part of an attempt up to the end of the agent's work: open, prepare, start, run, collect."""

from __future__ import annotations

import asyncio
from typing import Any

from ..components.benchmark import BaseBenchmark, HarnessFreeBenchmark
from ..components.calls import call, is_cancellation
from ..components.environment import EnvironmentSession
from ..contracts.outcome import FailureMode, RunResult
from ..contracts.task import PreparedTask
from ..errors import AgentCompassError, AgentFailure, EnvironmentGone, InfrastructureError
from ..planning.network import restriction_notice, with_host
from .artifacts import collect_artifacts
from .attempt_state import AttemptStopped, error_text
from .entry import AttemptEntry
from .guarded import guarded

__all__ = ["AgentRun"]

_RUN_SLACK = 1.0  # seconds that a harness has to notice its own limit before it is cancelled


class AgentRun(AttemptEntry):
    """A try whose agent can work."""

    async def open(self) -> EnvironmentSession | None:
        """Open the sandbox under the baseline policy; None when neither agent nor evaluation works in it."""
        await self.admit()
        with self._phase("open_environment"):
            assert self.plan is not None
            harness, mode = self.context.harness, self.plan.evaluation_environment_mode
            if harness is not None and not harness.needs_environment and mode == "fresh":
                return None
            self.environment = await call(self.context.environment.open, self.request, self.plan)
            self.environment_info = self.environment.info
            self._use_variables("run")
        return self.environment

    def use_environment(self, environment: EnvironmentSession | None) -> None:
        """Work in a sandbox that somebody else (a user's fixture) opened and will close."""
        if environment is not self.environment:
            self.environment, self._own_environment = environment, False
            self.environment_info = getattr(environment, "info", {})

    async def prepare(self) -> PreparedTask:
        """Make the task ready in the sandbox."""
        await self.admit()  # where a fixture of the user's own opened the sandbox
        with self._phase("prepare_task"):
            assert self.plan is not None
            self.prepared = await call(
                self.context.benchmark.prepare_task, self.task, self.environment, self.request, self.plan.benchmark_plan
            )
            self._announce_network()
        return self.prepared

    async def start_harness(self) -> Any:
        """Start the agent's session, still under the baseline policy."""
        if self.context.harness is not None:
            with self._phase("start_harness"):
                assert self.plan is not None
                self.session = await call(
                    self.context.harness.start_session, self.environment, self.request, self.plan.harness_plan
                )
                self.harness_is_open = True
        return self.session

    async def prepare_and_start(self) -> Any:
        """Make the task ready and start the agent's session."""
        await self.prepare()
        return await self.start_harness()

    async def run(self) -> RunResult:
        """Let the agent work (all steps), close its session and take out what is to be kept."""
        await self._switch("run")
        try:
            while True:
                await self._run_once()
                if not await self._next_step():
                    break
        except AttemptStopped as stopped:
            if isinstance(stopped.__cause__, EnvironmentGone):
                await self._keep_what_is_left()
            raise
        finally:
            await self.close_harness()
        if self.environment is not None:
            with self._phase("collect_artifacts"):
                await self._collect()
                await self.environment.observe()
        return self.result

    def _announce_network(self) -> None:
        assert self.plan is not None and self.prepared is not None
        policy = self.plan.run_network_policy
        if policy is not None and policy.restricted and self.plan.harness_plan.inject_network_restriction_notice:
            self.prepared.input.prompt += "\n\n" + restriction_notice(policy)

    async def _switch(self, phase: str) -> None:
        """Switch to *phase*'s policy; a failing switch stops the attempt before the agent's first command."""
        assert self.plan is not None
        policy = getattr(self.plan, f"{phase}_network_policy")
        if phase == "run" and policy is not None and self.harness_is_open and self.context.harness is not None:
            for host in self.context.harness.endpoints(self.session):
                policy = with_host(policy, host)
            if policy != self.plan.run_network_policy:
                self.environment_info["run_network_policy"] = str(policy)
        if self.environment is not None and policy is not None and policy != self.environment.network_policy:
            with self._phase("switch_network"):
                if phase == "evaluation" and self.environment.network_policy.restricted:
                    # What the agent left must not wait for the evaluation's network.
                    await call(
                        self.context.benchmark.end_leftovers, self.task, self.result, self.request, self.environment
                    )
                await self.environment.set_network_policy(policy)

    async def _run_once(self) -> None:
        assert self.plan is not None and self.prepared is not None
        with self._phase("run"):
            limit = self._run_limit()
            self.prepared.run_timeout_seconds = limit
            self.attempt_context.partial = None
            try:
                await self._run_guarded(limit)
            finally:
                self._take_partial()

    async def _run_guarded(self, limit: float | None) -> None:
        what = f"the agent's time limit of {limit:g} s" if limit else ""
        try:
            self._take(await guarded(self._agent, limit, _RUN_SLACK, what))
        except AgentFailure as failure:
            self._take(getattr(failure, "result", None))
            self.result.fail(failure.failure_mode, "run", failure.message)
        except InfrastructureError as error:
            self._take(getattr(error, "result", None))  # what was spent before it is spent
            raise
        except TimeoutError as error:
            self._take_partial()  # the agent's own reason goes first
            self.result.fail(FailureMode.AGENT_TIMEOUT, "run", str(error))

    async def _agent(self) -> RunResult:
        assert self.plan is not None and self.prepared is not None
        benchmark = self.context.benchmark
        if self.context.harness is None:
            assert isinstance(benchmark, HarnessFreeBenchmark)
            return await call(  # type: ignore[no-any-return]
                benchmark.run_task, self.task, self.prepared, self.request, self.plan, self.environment
            )
        return await call(  # type: ignore[no-any-return]
            self.context.harness.run_task, self.session, self.prepared, self.request, self.plan.harness_plan
        )

    def _run_limit(self) -> float | None:
        assert self.plan is not None and self.prepared is not None
        step = self.prepared.run_timeout_seconds
        if step is None or self.request.execution.run_timeout_seconds is not None:
            return self.plan.run_timeout_seconds
        return step * self.request.execution.timeout_multiplier

    def _take(self, result: RunResult | None) -> None:
        """Merge what the harness returned into the attempt's result."""
        if result is None or result is self.result:
            return
        self.attempt_context.partial = None
        mine = self.result
        mine.final_answer = result.final_answer if result.final_answer is not None else mine.final_answer
        mine.trajectory = (mine.trajectory or []) + result.trajectory if result.trajectory else mine.trajectory
        mine.issues.extend(result.issues)
        mine.artifacts.update(result.artifacts)
        mine.metrics.update(result.metrics)
        mine.telemetry.update(result.telemetry)
        mine.metadata.update(result.metadata)
        mine.tests.update(result.tests)
        mine.agent_output += result.agent_output
        for name, value in result.usage.known().items():
            setattr(mine.usage, name, (getattr(mine.usage, name) or 0) + value)
        if result.failure_mode is not FailureMode.NONE and mine.failure_mode is FailureMode.NONE:
            mine.failure_mode = result.failure_mode

    def _take_partial(self) -> None:
        """Take what the agent had done where its run ended without a result (Ctrl-C, a limit that it did not heed)."""
        partial = self.attempt_context.partial
        self._take(partial() if partial is not None else None)

    async def _next_step(self) -> bool:
        """Grade a finished step and prepare the next; False when the run is over."""
        assert self.plan is not None and self.prepared is not None
        benchmark = self.context.benchmark
        if type(benchmark).next_step is BaseBenchmark.next_step:
            return False
        with self._phase("evaluate"):
            await self._switch("evaluation")
            self._use_variables("evaluation")
            following = await call(
                benchmark.next_step, self.task, self.prepared, self.result, self.request, self.plan, self.environment
            )
            if following is None:
                return False
            self.prepared = following
            self._announce_network()
        await self._switch("run")
        self._use_variables("run")
        return True

    def _use_variables(self, phase: str) -> None:
        """Let commands of the sandbox see the environment variables of *phase*."""
        if self.environment is not None and self.plan is not None:
            self.environment.phase_env = dict(getattr(self.plan.environment, f"{phase}_env_variables"))

    async def close_harness(self) -> None:
        """Close the agent's session, once; a failure is a warning and never hides the attempt's own result."""
        if not self.harness_is_open:
            return
        self.harness_is_open = False
        harness = self.context.harness
        assert harness is not None
        limit = self.run_context.options.cleanup_grace_seconds
        what = f"the time to close the agent's session ({limit:g} s)"
        with self._phase("close_harness"):
            try:
                await asyncio.shield(guarded(lambda: call(harness.close_session, self.session), limit, 0.0, what))
            except BaseException as error:  # whatever a harness raises: the sandbox must be closed all the same
                if is_cancellation(error):
                    raise
                note = f"the agent's session could not be closed: {error_text(error)}"
                self.result.note("close_harness", "close_failed", note)

    async def _keep_what_is_left(self) -> None:
        """Take the artifacts out of a sandbox that stopped; why the attempt ended is said already."""
        assert self.plan is not None and self.environment is not None
        limit = self.run_context.options.cleanup_grace_seconds
        what = f"the time to take artifacts out of a stopped sandbox ({limit:g} s)"
        plan, sandbox, result = self.plan, self.environment, self.result
        with self._phase("collect_artifacts"):
            try:
                await guarded(
                    lambda: collect_artifacts(plan.artifacts, sandbox, self.attempt_context, result, self.request),
                    limit, 0.0, what,
                )  # fmt: skip
            except (AgentCompassError, OSError) as error:  # TimeoutError is one
                result.note("collect_artifacts", "artifact_failed", error_text(error))

    async def _collect(self) -> None:
        assert self.plan is not None and self.prepared is not None and self.environment is not None
        await collect_artifacts(self.plan.artifacts, self.environment, self.attempt_context, self.result, self.request)
        await call(
            self.context.benchmark.collect_artifacts,
            self.task, self.prepared, self.result, self.request, self.plan, self.environment,
        )  # fmt: skip
