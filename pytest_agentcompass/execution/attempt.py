"""One attempt's lifecycle: small phases over one explicit state object.

Both drivers call the same phases: the item driver from fixtures and the item's body, the engine
in one go (`execute`). Order: plan -> open -> prepare -> start harness -> run (with the steps of a
task that has several) -> close harness -> collect artifacts -> evaluate -> analyze -> record ->
release. A phase that fails sets the outcome and raises `AttemptStopped`; release always runs.
"""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ..components.benchmark import BaseBenchmark, HarnessFreeBenchmark
from ..components.calls import call
from ..components.context import AttemptContext, set_current_attempt
from ..contracts.outcome import FailureMode, Fault, Issue, RunResult, Status
from ..errors import AgentCompassError, AgentFailure, AttemptSkipped, EnvironmentGone, HarnessError, InfrastructureError
from ..planning.network import restriction_notice
from .analysis import analyze
from .artifacts import collect_artifacts, restore_artifacts
from .breaker import FATAL_KINDS, RunStopped
from .checkpoint import drop_checkpoint, restore, save_checkpoint
from .deadline import DeadlineCut
from .guarded import guarded
from .recording import build_record
from .retries import keep_discarded, retry_delay

if TYPE_CHECKING:
    from ..components.environment import EnvironmentSession
    from ..contracts.plan import ExecutionPlan
    from ..contracts.record import AttemptRecord
    from ..contracts.task import PreparedTask, TaskSpec
    from ..results.lock import Claim
    from .limits import Permits
    from .run import RequestContext, RunContext

__all__ = ["Attempt", "AttemptStopped"]

_CLAIM_POLL = 0.2
_WAITED = 0.05  # seconds; a shorter wait for permits is none
_RUN_SLACK = 1.0  # seconds that a harness has to notice its own limit before it is cancelled
_EVALUATION_SLACK = 30.0  # likewise for a verifier, whose command has the limit itself


class AttemptStopped(AgentCompassError):
    """The attempt cannot go on; its state holds the reason."""


class Attempt:
    """The state of one attempt at one task."""

    def __init__(self, run: RunContext, context: RequestContext, task: TaskSpec, number: int) -> None:
        self.run_context = run
        self.context = context
        self.request = context.request
        self.task = task
        self.number = number
        self.plan: ExecutionPlan | None = None
        self.environment: EnvironmentSession | None = None
        self.prepared: PreparedTask | None = None
        self.session: Any = None
        self.result = RunResult(task_id=task.task_id, category=task.category or None, ground_truth=task.ground_truth)
        self.record: AttemptRecord | None = None
        self.status: Status | None = None
        self.phase_name = "plan"
        self.durations: dict[str, float] = {}
        self.retries: list[dict[str, Any]] = []
        self.environment_info: dict[str, Any] = {}
        self.evaluated = False
        self.failed_phase = ""
        self.restored = False
        self._before_evaluation: AttemptRecord | None = None
        self.retry_wait: float | None = None
        self._draft: AttemptRecord | None = None
        self.released = False
        self._claim_held: Claim | None = None
        self.has_slot = False  # the engine gave it one of this process's slots
        self.abandoned = False  # the run takes no new work: no record, a resume makes the attempt
        self.fatal = ""  # why no later attempt can get past the endpoint either
        self._permits: Permits | None = None
        self._cut = DeadlineCut()
        self.started_at = _now()
        self.harness_is_open = False
        self._own_environment = True
        self.attempt_context = AttemptContext(
            run_id=run.run_id,
            request=self.request.name,
            task_id=task.task_id,
            attempt=number,
            directory=run.directory.attempt_dir(self.request.name, task.task_id, number),
            labels={**run.labels(), "agentcompass.request": self.request.name, "agentcompass.attempt": str(number)},
            output_limit_bytes=self.request.execution.output_limit_bytes,
        )

    # -- phases -----------------------------------------------------------------------------

    async def make_plan(self) -> ExecutionPlan:
        """Plan the attempt (once: a retry keeps the plan) and check that the provider can do it."""
        with self._phase("plan"):
            await self._may_start()
            await self._claim()
            harness, environment = self.context.harness, self.context.environment
            if harness is not None and (reason := harness.unavailable(self.task, self.request)):
                raise AttemptSkipped(reason)
            if self.plan is None:
                self.plan = self.run_context.planner.plan(self.request, self.task)
            problems = environment.check(self.plan.environment)
            if problems:
                raise InfrastructureError("; ".join(problems), "setup_error")
            for note in environment.notes(self.plan.environment):
                self._note_once("plan", "not_enforced", note)
            self._emit("execution_plan_resolved", **self.plan.audit())
        return self.plan

    async def _claim(self) -> None:
        """Take the attempt for this process: whoever offers it, it is made once.

        Where another process (a worker that outlived its run) is making it, wait and take its record over.
        """
        directory, key = self.run_context.directory, (self.request.name, self.task.task_id, self.number)
        waited = False
        while (claim := directory.claim(*key)) is None:
            if not waited:
                self._emit("phase_changed", phase="claim_wait")
            waited = True
            await asyncio.sleep(_CLAIM_POLL)
        self._claim_held = claim
        record = directory.read_record(*key) if waited else None
        if record is not None and record.score is not None:
            self.record = record
            raise AttemptStopped("another process made this attempt")

    async def _may_start(self) -> None:
        """Raise when the run takes no new work: AttemptSkipped for budget and deadline, RunStopped for the breaker."""
        run = self.run_context
        refusal = run.admission.refusal()
        if refusal is not None:
            raise refusal
        in_flight = run.options.task_concurrency or 1
        reason = await run.admission.breaker.check(self.context.environment, self.request, in_flight)
        if reason:
            raise RunStopped(reason)

    async def admit(self) -> None:
        """Wait for the permits of the attempt (see `limits`), once; whoever opens a sandbox calls this first."""
        if self._permits is not None:
            return
        with self._phase("limit_wait", announce=False):
            self._permits = await self.run_context.limits.take(
                self.context.environment, self.request.model, self._waits, has_slot=self.has_slot
            )
            await self._may_start()
        waited = self.durations.pop("limit_wait")  # not the attempt's own time
        if waited >= _WAITED:
            self.result.telemetry["limit_wait_seconds"] = waited

    def _waits(self, what: str) -> None:
        self._emit("phase_changed", phase="limit_wait", limit=what)

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

    async def run_and_evaluate(self) -> RunResult:
        """Let the agent work and grade what it left."""
        await self.run()
        return await self.evaluate()

    async def run(self) -> RunResult:
        """Let the agent work (all steps), close its session and take out what is to be kept."""
        await self._switch("run")
        try:
            while True:
                await self._run_once()
                if not await self._next_step():
                    break
        finally:
            await self.close_harness()
        if self.environment is not None:
            with self._phase("collect_artifacts"):
                await self._collect()
        return self.result

    async def evaluate(self) -> RunResult:
        """Grade what the agent left, in the mode of the plan, and check the observations."""
        with self._phase("evaluate"):
            assert self.plan is not None
            mode = self.plan.evaluation_environment_mode
            if mode != "reuse" and not self.restored:
                self._before_evaluation = build_record(self)
                save_checkpoint(self, self._before_evaluation)
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

    async def release(self) -> None:
        """Close what is open, inside out; failures are warnings on the record."""
        if not self.released:
            self.released = True
            try:
                await asyncio.shield(self._release())
            finally:
                if self._permits is not None:
                    self._permits.release()
                if self._claim_held is not None:
                    self._claim_held.release()

    async def execute(self, resting: Callable[[], AbstractAsyncContextManager[None]] = nullcontext) -> Attempt:
        """Do all phases of all tries in one go; return the try that stands, its record stored.

        A retry waits within `resting()`, where the engine gives its slot to others. An attempt that may not
        start because the run takes no new work comes back `abandoned`, without a record.
        """
        attempt = self
        while True:
            try:
                await attempt.make_plan()
                if not attempt.restored:
                    await attempt.open()
                    await attempt.prepare_and_start()
                    await attempt.run()
                await attempt.evaluate()
            except AttemptStopped:
                pass
            finally:
                if not attempt.abandoned:
                    attempt.conclude()
                await attempt.release()
            if attempt.retry_wait is None:
                return attempt
            async with resting():
                attempt = await attempt.next_try()

    def conclude(self) -> AttemptRecord:
        """Return the record of this try: stored, or only drafted when it will be tried again (`retry_wait`)."""
        if self.record is not None:
            return self.record
        draft = self._draft = build_record(self)
        self.retry_wait = retry_delay(draft, self.request.execution, len(self.retries))
        if self.fatal or (self.retry_wait is not None and self.run_context.admission.refusal() is not None):
            self.retry_wait = None  # a try that could not succeed, or that the budget does not allow
        if self.retry_wait is None:
            return self.finish()
        return draft

    async def next_try(self) -> Attempt:
        """Keep this try aside, wait, and return a new attempt with the same plan."""
        assert self.retry_wait is not None and self._draft is not None
        keep_discarded(self, self._draft, self.retry_wait)
        self.run_context.admission.discarded(self._draft)
        self._emit("attempt_retry", number=len(self.retries), failure_mode=self._draft.failure_mode.value)
        self._emit("phase_changed", phase="retry_wait")
        await asyncio.sleep(self.retry_wait)
        again = Attempt(self.run_context, self.context, self.task, self.number)
        again.plan, again.retries, again.has_slot = self.plan, self.retries, self.has_slot
        if self.failed_phase == "evaluate" and self._before_evaluation is not None:
            restore(again, self._before_evaluation)  # the agent is not run (and paid) again
            again._before_evaluation = self._before_evaluation
        return again

    def finish(self) -> AttemptRecord:
        """Store the record (once) and tell whoever listens."""
        if self.record is None:
            self._store(self._draft)
            assert self.record is not None
            if self.evaluated and self.plan is not None and self.plan.evaluation_environment_mode != "reuse":
                drop_checkpoint(self)
            self.run_context.admission.finished(self.record, self.request, self.fatal)
            self._emit(
                "attempt_finished",
                status=self.record.outcome,
                failure_mode=self.record.failure_mode.value,
                seconds=round(self.record.seconds, 3),
                cost_usd=self.record.usage.get("cost_usd"),
            )
            for listener in self.run_context.on_finished:
                listener(self.record)
        return self.record

    def lost(self, message: str) -> None:
        """Record that the process dies in the middle of the attempt."""
        if self.record is None:
            self.result.fail(FailureMode.HARNESS_ERROR, self.phase_name, message)
            self.status = self.status or Status.RUN_ERROR
            self.evaluated = False
            self.finish()

    def stop(self, error: BaseException, phase: str | None = None) -> None:
        """Take *error* as the reason why the attempt ended (first reason wins)."""
        phase = phase or self.phase_name
        self.failed_phase = self.failed_phase or phase
        if isinstance(error, AttemptSkipped):
            self.status = Status.SKIPPED
            self.result.failure_mode = FailureMode(error.failure_mode)
            self.result.issues.append(Issue(phase, "info", error.failure_mode, error.message))
            return
        mode, message = _reading(error, phase)
        kind = str(getattr(error, "kind", ""))
        self.fatal = kind if kind in FATAL_KINDS else self.fatal
        self.result.fail(mode, phase, message)
        if self.status is None:
            earlier_agent = self.result.failure_mode.fault is Fault.AGENT
            late = Status.RUN_ERROR_OR_EVAL_ERROR if earlier_agent else Status.EVAL_ERROR
            self.status = late if phase in ("evaluate", "analyze") else Status.RUN_ERROR

    # -- inside -----------------------------------------------------------------------------

    @contextmanager
    def _phase(self, name: str, announce: bool = True) -> Iterator[None]:
        set_current_attempt(self.attempt_context)
        self.phase_name = name
        if announce:
            self._emit("phase_changed", phase=name)
        start = time.monotonic()
        armed = self._cut.arm(self.run_context.admission.seconds_left())
        try:
            yield
        except AttemptStopped:
            raise
        except RunStopped as error:
            self.abandoned = True
            raise AttemptStopped(error.message) from error
        except (Exception, asyncio.CancelledError) as error:
            cut = self._cut.taken()
            self.stop(self._over(name) if cut else error, name)
            if isinstance(error, asyncio.CancelledError) and not cut:
                raise
            raise AttemptStopped(str(error)) from error
        finally:
            if armed:
                self._cut.disarm()
            self.durations[name] = round(self.durations.get(name, 0.0) + time.monotonic() - start, 6)

    def _over(self, phase: str) -> AgentCompassError:
        """Return what the run's deadline did: keep the attempt from starting, or cancel it."""
        over = self.run_context.admission.deadline_over()
        started = phase not in ("plan", "limit_wait")
        return InfrastructureError(over.message, FailureMode.CANCELLED.value) if started else over

    def _emit(self, kind: str, **payload: Any) -> None:
        self.run_context.events.emit(
            kind, request=self.request.name, task=self.task.task_id, attempt=self.number, **payload
        )

    def _note_once(self, phase: str, code: str, message: str) -> None:
        if not any(issue.code == code and issue.message == message for issue in self.result.issues):
            self.result.note(phase, code, message)

    def _announce_network(self) -> None:
        assert self.plan is not None and self.prepared is not None
        policy = self.plan.run_network_policy
        if policy is not None and policy.restricted and self.plan.harness_plan.inject_network_restriction_notice:
            self.prepared.input.prompt += "\n\n" + restriction_notice(policy)

    async def _switch(self, phase: str) -> None:
        """Switch to *phase*'s policy; a failing switch stops the attempt before the agent's first command."""
        assert self.plan is not None
        policy = getattr(self.plan, f"{phase}_network_policy")
        if self.environment is not None and policy is not None and policy != self.environment.network_policy:
            with self._phase("switch_network"):
                await self.environment.set_network_policy(policy)

    async def _run_once(self) -> None:
        assert self.plan is not None and self.prepared is not None
        with self._phase("run"):
            limit = self._run_limit()
            self.prepared.run_timeout_seconds = limit
            try:
                result = await guarded(
                    self._agent, limit, _RUN_SLACK, f"the agent's time limit of {limit:g} s" if limit else ""
                )
                self._take(result)
            except AgentFailure as failure:
                self._take(getattr(failure, "result", None))
                self.result.fail(failure.failure_mode, "run", failure.message)
            except TimeoutError as error:
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
        """Close the agent's session, once."""
        if not self.harness_is_open:
            return
        self.harness_is_open = False
        try:
            with self._phase("close_harness"):
                assert self.context.harness is not None
                await asyncio.shield(call(self.context.harness.close_session, self.session))
        except AttemptStopped:
            pass

    async def _collect(self) -> None:
        assert self.plan is not None and self.prepared is not None and self.environment is not None
        await collect_artifacts(self.plan.artifacts, self.environment, self.attempt_context, self.result, self.request)
        await call(
            self.context.benchmark.collect_artifacts,
            self.task, self.prepared, self.result, self.request, self.plan, self.environment,
        )  # fmt: skip

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
            await environment.close()
            self.environment = None
        except Exception as error:
            self.result.note("close", "close_failed", f"the sandbox could not be closed: {_text(error)}")

    async def _release(self) -> None:
        set_current_attempt(self.attempt_context)
        before = len(self.result.issues)
        start = time.monotonic()
        self._emit("phase_changed", phase="close")
        await self.close_harness()
        for terminal in list(getattr(self.environment, "terminals", {}).values()):
            try:
                await terminal.close()
            except AgentCompassError as error:
                self.result.note("close", "terminal", _text(error), "info")
        await self._close_environment()
        self.durations["close"] = round(time.monotonic() - start, 6)
        if self.record is not None and len(self.result.issues) > before:
            self._store()

    def _store(self, draft: AttemptRecord | None = None) -> None:
        self.record = draft or build_record(self)
        self.run_context.directory.write_record(self.record)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _text(error: BaseException) -> str:
    return error.message if isinstance(error, AgentCompassError) else f"{type(error).__name__}: {error}"


_PHASE_MODES = {
    "plan": FailureMode.SETUP_ERROR,
    "open_environment": FailureMode.ENVIRONMENT_ERROR,
    "prepare_task": FailureMode.SETUP_ERROR,
    "start_harness": FailureMode.HARNESS_ERROR,
    "run": FailureMode.HARNESS_ERROR,
    "close_harness": FailureMode.HARNESS_ERROR,
    "collect_artifacts": FailureMode.ENVIRONMENT_ERROR,
    "switch_network": FailureMode.ENVIRONMENT_ERROR,
    "evaluate": FailureMode.EVALUATION_ERROR,
    "analyze": FailureMode.EVALUATION_ERROR,
}


def _reading(error: BaseException, phase: str) -> tuple[FailureMode, str]:
    """Return the failure mode and the message of an exception that came out of *phase*."""
    if isinstance(error, asyncio.CancelledError | KeyboardInterrupt):
        return FailureMode.CANCELLED, "the attempt was cancelled"
    if isinstance(error, EnvironmentGone):
        return FailureMode.ENVIRONMENT_ERROR, error.message
    if isinstance(error, AgentFailure | InfrastructureError):
        return FailureMode(error.failure_mode), error.message
    return _PHASE_MODES.get(phase, FailureMode.UNKNOWN), _text(error)
