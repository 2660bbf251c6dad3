"""How an attempt begins: may it start, is it ours, what is the plan, is there room for it."""

from __future__ import annotations

import asyncio

from ..contracts.plan import ExecutionPlan
from ..errors import AttemptSkipped, InfrastructureError
from .attempt_state import AttemptState, AttemptStopped
from .breaker import RunStopped

__all__ = ["AttemptEntry"]

_CLAIM_POLL = 0.2  # seconds between looks at a claim that another process holds
_WAITED = 0.05  # seconds; a shorter wait for permits is none


class AttemptEntry(AttemptState):
    """A try that can be planned, claimed and admitted."""

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
        """Raise when the run takes no new work: AttemptSkipped for budget and deadline, else RunStopped."""
        run = self.run_context
        refusal = run.admission.refusal()
        if refusal is not None:
            raise refusal
        if stopped := run.admission.stopped:
            raise RunStopped(stopped)
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
