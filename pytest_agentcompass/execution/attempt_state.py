"""The state of one try of an attempt, its phases and its outcome."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..components.context import AttemptContext, set_current_attempt
from ..contracts.outcome import FailureMode, Fault, Issue, RunResult, Status
from ..errors import AgentCompassError, AgentFailure, AttemptSkipped, EnvironmentGone, InfrastructureError
from .breaker import FATAL_KINDS, RunStopped
from .budget import unpaid
from .deadline import DeadlineCut
from .recording import build_record

if TYPE_CHECKING:
    from ..components.environment import EnvironmentSession
    from ..contracts.plan import ExecutionPlan
    from ..contracts.record import AttemptRecord
    from ..contracts.task import PreparedTask, TaskSpec
    from ..results.lock import Claim
    from .limits import Permits
    from .run import RequestContext, RunContext

__all__ = ["AttemptState", "AttemptStopped", "error_text"]


class AttemptStopped(AgentCompassError):
    """The attempt cannot go on; its state holds the reason."""


class AttemptState:
    """What is known of one try; a phase that fails sets the outcome and raises `AttemptStopped`."""

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
        self.unstored = ""  # why the record could not be stored; it is in memory alone then
        self.status: Status | None = None
        self.phase_name = "plan"
        self.durations: dict[str, float] = {}
        self.retries: list[dict[str, Any]] = []
        self.environment_info: dict[str, Any] = {}
        self.evaluated = False
        self.failed_phase = ""
        self.restored = False
        self.before_evaluation: AttemptRecord | None = None
        self.paid: dict[str, int | float] = {}  # what the run's budget already knows of
        self.retry_wait: float | None = None
        self._draft: AttemptRecord | None = None
        self.released = False
        self._claim_held: Claim | None = None
        self.has_slot = False  # the engine gave it one of this process's slots
        self.abandoned = False  # the run takes no new work: no record, a resume makes the attempt
        self.fatal = ""  # why no later attempt can get past the endpoint either
        self.lasting = False  # the error is no passing one: another try would end in it too
        self.stop_at: float | None = None  # moment (monotonic) at which the attempt is cut, all its tries together
        self.stop_reason = ""
        self._permits: Permits | None = None
        self._cut = DeadlineCut()
        self.started_at = _now()
        self.harness_is_open = False
        self._own_environment = True

    @cached_property
    def attempt_context(self) -> AttemptContext:
        """What components may know of the attempt; an attempt that stands from an earlier run has no use for it."""
        return AttemptContext(
            run_id=self.run_context.run_id,
            request=self.request.name,
            task_id=self.task.task_id,
            attempt=self.number,
            directory=self.run_context.directory.attempt_dir(self.request.name, self.task.task_id, self.number),
            labels={
                **self.run_context.labels(),
                "agentcompass.request": self.request.name,
                "agentcompass.attempt": str(self.number),
            },
            output_limit_bytes=self.request.execution.output_limit_bytes,
        )

    def stop(self, error: BaseException, phase: str | None = None) -> None:
        """Take *error* as the reason why the attempt ended (first reason wins)."""
        phase = phase or self.phase_name
        self.failed_phase = self.failed_phase or phase
        if isinstance(error, AttemptSkipped) and not self._hides_failure(error):
            self.status = Status.SKIPPED
            self.result.failure_mode = FailureMode(error.failure_mode)
            self.result.issues.append(Issue(phase, "info", error.failure_mode, error.message))
            return
        mode, message = _reading(error, phase)
        kind = str(getattr(error, "kind", ""))
        self.fatal = kind if kind in FATAL_KINDS else self.fatal
        self.lasting = bool(getattr(error, "lasting", False))
        self.result.fail(mode, phase, message)
        if self.status is None:
            earlier_agent = self.result.failure_mode.fault is Fault.AGENT
            late = Status.RUN_ERROR_OR_EVAL_ERROR if earlier_agent else Status.EVAL_ERROR
            self.status = late if phase in ("evaluate", "analyze") else Status.RUN_ERROR

    def _hides_failure(self, skip: AttemptSkipped) -> bool:
        """Whether *skip* is a component's wish that comes after the agent's failure: that is a missing grade."""
        failed = self.result.failure_mode is not FailureMode.NONE
        return failed and skip.failure_mode == FailureMode.SKIP_REQUESTED.value

    @contextmanager
    def _phase(self, name: str, announce: bool = True) -> Iterator[None]:
        set_current_attempt(self.attempt_context)
        self.phase_name = name
        if announce:
            self._emit("phase_changed", phase=name)
        start = time.monotonic()
        armed = self._cut.arm(self._seconds_left())
        try:
            yield
        except AttemptStopped:
            raise
        except RunStopped as error:
            self.abandoned = True
            raise AttemptStopped(error.message) from error
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            raise  # about this process; those of components come as errors (`calls.contained`)
        except BaseException as error:  # whatever a component raises
            cut = self._cut.taken()
            self.stop(self._over(name) if cut else self.run_context.translate(error), name)
            if isinstance(error, asyncio.CancelledError) and not cut:
                raise
            raise AttemptStopped(str(error)) from error
        finally:
            if armed:
                self._cut.disarm()
            self.durations[name] = round(self.durations.get(name, 0.0) + time.monotonic() - start, 6)

    def _seconds_left(self) -> float | None:
        """Return the seconds until the run's deadline or the attempt's own end, whichever comes first."""
        own = None if self.stop_at is None else max(0.0, self.stop_at - time.monotonic())
        return min(
            (item for item in (own, self.run_context.admission.seconds_left()) if item is not None), default=None
        )

    def _over(self, phase: str) -> AgentCompassError:
        """Return what the end of the time did: keep the attempt from starting, or cancel it."""
        if self.stop_at is not None and time.monotonic() >= self.stop_at:
            return InfrastructureError(self.stop_reason, FailureMode.CANCELLED.value)
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

    def pay(self, usage: Mapping[str, int | float]) -> None:
        """Count *usage*, all that the attempt has spent by now, against the run's budget, each part of it once."""
        self.run_context.admission.spend(unpaid(usage, self.paid))
        self.paid = dict(usage)

    def _store(self, draft: AttemptRecord | None = None) -> None:
        self.record = draft or build_record(self)
        self.run_context.directory.write_record(self.record)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def error_text(error: BaseException) -> str:
    """Return the message of *error*, with its type where it is not one of ours."""
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
        why = f": {error}" if isinstance(error, asyncio.CancelledError) and str(error) else ""
        return FailureMode.CANCELLED, f"the attempt was cancelled{why}"
    if isinstance(error, EnvironmentGone):
        return FailureMode.ENVIRONMENT_ERROR, error.message
    if isinstance(error, AgentFailure | InfrastructureError):
        return FailureMode(error.failure_mode), error.message
    return _PHASE_MODES.get(phase, FailureMode.UNKNOWN), error_text(error)
