"""Many attempts at once in one process: the concurrent engine.

Order is priority: work is taken from the front of the declared order whenever a slot is free, and each
attempt is handed on as it finishes. Attempts of one task run one after another where the strategy asks
for it; the rest of a satisfied task is skipped.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..contracts.outcome import FailureMode
from ..errors import AttemptSkipped
from .attempt import Attempt
from .reuse import take_over

if TYPE_CHECKING:
    from ..contracts.record import AttemptRecord
    from ..contracts.task import TaskSpec
    from .run import RequestContext, RunContext

__all__ = ["Engine", "Job"]


@dataclass(slots=True)
class Job:
    """One attempt to make; *payload* is the caller's.

    *limit* is (seconds, reason): an attempt that takes longer, with all its tries, is cancelled for the reason.
    """

    context: RequestContext
    task: TaskSpec
    number: int
    payload: Any = None
    limit: tuple[float, str] | None = None

    @property
    def key(self) -> tuple[str, str]:
        """The task that the job belongs to."""
        return self.context.request.name, self.task.task_id


@dataclass(slots=True)
class _Slot:
    """One of the engine's slots, which may be given back for a while."""

    free: asyncio.Semaphore
    held: bool = True

    def give(self) -> None:
        """Let another attempt have it; harmless when done twice."""
        if self.held:
            self.held = False
            self.free.release()

    @asynccontextmanager
    async def resting(self) -> AsyncIterator[None]:
        """Be without the slot for the time of the block."""
        self.give()
        yield
        await self.free.acquire()
        self.held = True


@dataclass(slots=True)
class Engine:
    """Runs jobs with at most *slots* attempts in flight and hands each finished one to *on_done*."""

    run: RunContext
    slots: int
    on_done: Callable[[Job, Attempt], None]
    active: dict[int, Attempt] = field(default_factory=dict)
    _stopping: bool = False

    async def run_jobs(self, jobs: Sequence[Job]) -> None:
        """Make all attempts of *jobs*; cancelling this coroutine cancels and releases what is in flight."""
        chains = self._chains(jobs)
        free = self.run.limits.slots = asyncio.Semaphore(self.slots)
        async with asyncio.TaskGroup() as group:
            for chain in chains:
                await free.acquire()
                if self._stopping:
                    free.release()
                    break
                slot = _Slot(free)
                task = group.create_task(self._run_chain(chain, slot))
                task.add_done_callback(lambda _, slot=slot: slot.give())  # type: ignore[misc]

    def stop(self) -> None:
        """Take no new work."""
        self._stopping = True

    def _chains(self, jobs: Sequence[Job]) -> list[list[Job]]:
        """Group the jobs that must run one after another; all others stand alone."""
        chains: list[list[Job]] = []
        open_chains: dict[tuple[str, str], list[Job]] = {}
        for job in jobs:
            if not job.context.strategy.sequential:
                chains.append([job])
            elif job.key in open_chains:
                open_chains[job.key].append(job)
            else:
                open_chains[job.key] = [job]
                chains.append(open_chains[job.key])
        return chains

    async def _run_chain(self, chain: list[Job], slot: _Slot) -> None:
        records: list[AttemptRecord] = []
        for job in chain:
            if self._stopping:
                return
            attempt = Attempt(self.run, job.context, job.task, job.number)
            for listener in self.run.on_started:
                listener(*job.key, job.number)
            if len(chain) > 1 and job.context.strategy.satisfied(records):
                skip(attempt)
            elif not await take_over(attempt):
                if job.limit is not None:
                    attempt.stop_at, attempt.stop_reason = time.monotonic() + job.limit[0], job.limit[1]
                attempt = await self._make(attempt, slot)
            if attempt.abandoned:
                self.stop()
                return
            if attempt.record is not None:
                records.append(attempt.record)
            self.on_done(job, attempt)

    async def _make(self, attempt: Attempt, slot: _Slot) -> Attempt:
        key = id(attempt)
        attempt.has_slot = True
        self.active[key] = attempt
        try:
            return await attempt.execute(slot.resting)
        finally:
            del self.active[key]


def skip(attempt: Attempt) -> None:
    """Record that the attempt is not needed: the task's strategy is satisfied."""
    reason = "the task was solved by an earlier attempt (strategy pass)"
    attempt.stop(AttemptSkipped(reason, FailureMode.STRATEGY_SATISFIED.value), "plan")
    attempt.finish()
