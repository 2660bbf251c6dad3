"""One attempt's lifecycle: small phases over one explicit state object.

Both drivers call the same phases: the item driver from fixtures and the item's body, the engine
in one go (`execute`). Order: plan -> permits -> open -> prepare -> start harness -> run (with the steps
of a task that has several) -> close harness -> collect artifacts -> evaluate -> analyze -> record ->
release. A phase that fails sets the outcome and raises `AttemptStopped`; release always runs.

The parts stand in modules of their own, each building on the one before: `attempt_state` (state, phases,
outcome), `entry` (claim, plan, permits), `agent_run` (up to the end of the agent's work), `evaluation`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext

from ..components.calls import finish, is_cancellation
from ..components.context import set_current_attempt
from ..contracts.outcome import FailureMode, RunResult, Status
from ..contracts.record import AttemptRecord
from ..errors import AgentCompassError, ResultsError
from .attempt_state import AttemptStopped, error_text
from .checkpoint import drop_checkpoint, restore
from .evaluation import Evaluation
from .recording import build_record
from .retries import keep_discarded, retry_delay

__all__ = ["Attempt", "AttemptStopped"]

_STOP_POLL = 0.5  # seconds between looks whether the run goes on, while a retry waits


class Attempt(Evaluation):
    """One try of one attempt at one task: all phases, from the plan to the release."""

    async def run_and_evaluate(self) -> RunResult:
        """Let the agent work and grade what it left."""
        await self.run()
        return await self.evaluate()

    async def release(self) -> None:
        """Close what is open, inside out; failures are warnings on the record."""
        if not self.released:
            self.released = True
            try:
                await finish(self._release())
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
            except BaseException as error:  # whatever a component raises: the other attempts go on
                if is_cancellation(error):
                    raise
                if attempt.status is None:
                    attempt.stop(self.run_context.translate(error))
            finally:
                try:
                    if not attempt.abandoned:
                        attempt.conclude()
                finally:
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
        if self.fatal or self.lasting or (self.retry_wait is not None and self._refused()):
            self.retry_wait = None  # a try that could not succeed, or that the budget does not allow
        if self.retry_wait is None:
            return self.finish()
        return draft

    def _refused(self) -> bool:
        admission = self.run_context.admission
        return admission.refusal() is not None or bool(admission.stopped)

    async def _wait(self, seconds: float) -> None:
        """Sleep, but no longer than the run goes on."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and not self.run_context.admission.stopped:
            await asyncio.sleep(min(left, _STOP_POLL))

    async def next_try(self) -> Attempt:
        """Keep this try aside, wait, and return a new attempt with the same plan."""
        assert self.retry_wait is not None and self._draft is not None
        keep_discarded(self, self._draft, self.retry_wait)
        self.pay(self._draft.usage)
        self._emit("attempt_retry", number=len(self.retries), failure_mode=self._draft.failure_mode.value)
        self._emit("phase_changed", phase="retry_wait")
        await self._wait(self.retry_wait)
        again = Attempt(self.run_context, self.context, self.task, self.number)
        again.plan, again.retries, again.has_slot = self.plan, self.retries, self.has_slot
        again.stop_at, again.stop_reason = self.stop_at, self.stop_reason
        if self.failed_phase == "evaluate" and self.before_evaluation is not None:
            restore(again, self.before_evaluation)  # the agent is not run (and paid) again
        return again

    def finish(self) -> AttemptRecord:
        """Store the record (once) and tell whoever listens.

        Where it cannot be stored, the run takes no new work, and the attempt counts as not made (`unstored`).
        """
        if self.record is None:
            try:
                self._store(self._draft)
            except ResultsError as error:
                self.unstored = error.message
                self.run_context.admission.breaker.open(f"results cannot be stored: {error.message}")
            assert self.record is not None
            if self.unstored:
                return self.record
            if self.evaluated and self.plan is not None and self.plan.evaluation_environment_mode != "reuse":
                drop_checkpoint(self)
            self.pay(self.record.usage)
            self.run_context.admission.finished(self.record, self.request, self.fatal)
            self._emit(
                "attempt_finished",
                status=self.record.outcome,
                failure_mode=self.record.failure_mode.value,
                seconds=round(self.record.seconds, 3),
                cost_usd=self.record.usage.get("cost_usd"),
                judge_cost_usd=self.record.usage.get("judge_cost_usd"),
            )
            for listener in self.run_context.on_finished:
                listener(self.record)
        return self.record

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
                self.result.note("close", "terminal", error_text(error), "info")
        await self._close_environment()
        self.durations["close"] = round(time.monotonic() - start, 6)
        if self.record is not None and len(self.result.issues) > before and not self.unstored:
            with contextlib.suppress(ResultsError):  # the record stands; what is lost are notes of the closing
                self._store()

    def lost(self, message: str) -> None:
        """Record that the process dies in the middle of the attempt."""
        if self.record is None:
            self._take_partial()
            self.result.fail(FailureMode.HARNESS_ERROR, self.phase_name, message)
            self.status = self.status or Status.RUN_ERROR
            self.evaluated = False
            self.finish()
