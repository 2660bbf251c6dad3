"""Taking over what an earlier, interrupted run of the same directory finished."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..components.calls import call
from ..errors import AgentCompassError
from ..results.fingerprints import run_fingerprint
from ..results.resume import reusable

if TYPE_CHECKING:
    from .attempt import Attempt

__all__ = ["take_over"]


async def take_over(attempt: Attempt) -> bool:
    """Give *attempt* its stored record if the run is resumed and the record may stand; say whether it did.

    A graded attempt with the same run fingerprint stands; anything else is made again.
    """
    run = attempt.run_context
    if not run.resumed:
        return False
    record = run.directory.read_record(attempt.request.name, attempt.task.task_id, attempt.number)
    if record is None:
        return False
    try:
        plan = await call(run.planner.plan, attempt.request, attempt.task)
    except AgentCompassError:
        return False  # it cannot be planned: making the attempt will say why
    version = attempt.context.harness.version if attempt.context.harness else ""
    fingerprint = run_fingerprint(attempt.task, plan, attempt.request, version)
    reason = reusable(record, fingerprint, anyway=run.resume_anyway)
    if reason is not None:
        run.events.emit(
            "reuse_refused", request=record.request, task=record.task_id, attempt=record.attempt, reason=reason
        )
        return False
    attempt.plan = plan
    attempt.record = record
    run.events.emit("reuse_loaded", request=record.request, task=record.task_id, attempt=record.attempt)
    return True
