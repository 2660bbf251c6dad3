"""Taking over what an earlier, interrupted run of the same directory finished."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ..components.calls import call
from ..errors import AgentCompassError, ConfigError
from ..results.files import json_bytes, locked, write_atomic
from ..results.fingerprints import basis_fingerprint, differences, request_parts, run_fingerprint
from ..results.resume import reusable
from .checkpoint import load_checkpoint, restore

if TYPE_CHECKING:
    from ..contracts.record import AttemptRecord
    from ..contracts.request import RunRequest
    from ..results.rundir import RunDirectory
    from .attempt import Attempt
    from .run import RunContext

__all__ = ["check_request", "stands_unplanned", "take_over"]


def check_request(run: RunContext, request: RunRequest) -> None:
    """Store what counts of *request*, or refuse to resume a run that was made with other settings.

    Raises ConfigError with a table of the differences; `--agentcompass-resume-anyway` lets it pass.
    """
    run.request(request)  # a run to reuse that does not exist is told here
    path = run.directory.task_file(request.name).with_name("request.json")
    harness = None if request.harness.id == "none" else run.registry.make("harness", request.harness.id)
    now = request_parts(request, harness.version if harness else "")
    with locked(path.with_name(".request.lock")):
        try:
            before = json.loads(path.read_bytes())
        except (FileNotFoundError, IsADirectoryError, ValueError):
            before = None
        if not isinstance(before, dict):  # there is none yet, or it is damaged
            before = now
            write_atomic(path, json_bytes(now))
    changed = differences(before, now)
    if changed and not run.resume_anyway:
        rows = "\n".join(f"  {key}: was {old}, is {new}" for key, old, new in changed)
        raise ConfigError(
            f"request {request.name!r} is not what the run was made with:\n{rows}\n"
            "Resume with the same settings, start a new run, or keep the old results anyway with "
            "--agentcompass-resume-anyway (the report will say so)"
        )
    if changed:
        run.directory.update_run_info(resumed_anyway=[f"{request.name}: {key}" for key, _, _ in changed])


async def take_over(attempt: Attempt) -> bool:
    """Give *attempt* what a resumed run, or the run to reuse, has of it, and say whether a record stands.

    A graded attempt with the same run fingerprint stands; where the agent was done and only the
    evaluation is missing, it is restored from its checkpoint (`attempt.restored`) and will be graded;
    anything else is made again.
    """
    run, source = attempt.run_context, attempt.context.source
    if not run.resumed and source is None:
        return False
    if stands_unplanned(attempt):
        return True
    try:
        plan = await call(run.planner.plan, attempt.request, attempt.task)
    except AgentCompassError:
        return False  # it cannot be planned: making the attempt will say why
    version = attempt.context.harness.version if attempt.context.harness else ""
    fingerprint = run_fingerprint(attempt.task, plan, attempt.request, version)
    attempt.plan = plan
    if run.resumed and _stands(attempt, run.directory, fingerprint, anyway=run.resume_anyway):
        return True
    if source is not None and _stands(attempt, source, fingerprint):
        assert attempt.record is not None
        details = {**attempt.record.details, "reused_from": str(source.path)}
        attempt.record = attempt.record.model_copy(update={"run_id": run.run_id, "details": details})
        run.directory.write_record(attempt.record)
        return True
    if run.resumed:
        _restore(attempt, fingerprint)
    return False


def stands_unplanned(attempt: Attempt) -> bool:
    """Take the attempt's stored record over where that needs no planning: all that a plan is made from is the same."""
    run, context = attempt.run_context, attempt.context
    if not run.resumed or not context.digest:
        return False
    record = run.directory.read_record(attempt.request.name, attempt.task.task_id, attempt.number, keep=True)
    if record is None or record.fingerprint.get("basis") != basis_fingerprint(attempt.task, context.digest):
        return False
    return _take(attempt, record, reusable(record, record.fingerprint.get("run", "")))


def _stands(attempt: Attempt, directory: RunDirectory, fingerprint: str, anyway: bool = False) -> bool:
    """Take the attempt's record in *directory* if it may stand for the attempt as it would be made now."""
    record = directory.read_record(attempt.request.name, attempt.task.task_id, attempt.number, keep=True)
    if record is None:
        return False
    return _take(attempt, record, reusable(record, fingerprint, anyway=anyway))


def _take(attempt: Attempt, record: AttemptRecord, reason: str | None) -> bool:
    """Make *record* the attempt's own unless there is a *reason* against it; say whether it is."""
    attempt.run_context.events.emit(
        "reuse_loaded" if reason is None else "reuse_refused",
        request=record.request,
        task=record.task_id,
        attempt=record.attempt,
        reason=reason or "",
    )
    if reason is None:
        attempt.record = record
    return reason is None


def _restore(attempt: Attempt, fingerprint: str) -> None:
    checkpoint = load_checkpoint(attempt, fingerprint)
    if checkpoint is not None and restore(attempt, checkpoint):
        attempt.run_context.events.emit(
            "checkpoint_loaded", request=checkpoint.request, task=checkpoint.task_id, attempt=checkpoint.attempt
        )
