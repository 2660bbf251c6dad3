"""The evaluation checkpoint: what the agent left, kept so that it can be graded (again) without running it again.

Made before every evaluation that does not need the agent's own sandbox (modes `none` and `fresh`), in
the form of a record without a score, beside where the record will stand. `regrade` restores from finished
records in the same way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..contracts.outcome import FailureMode, Fault, Issue, RunResult, Status, Usage
from ..errors import AgentCompassError
from ..results.files import read_bytes, write_atomic
from ..results.records import DamagedRecord, decode_record, encode_record

if TYPE_CHECKING:
    from ..contracts.record import AttemptRecord
    from .attempt_state import AttemptState

__all__ = ["drop_checkpoint", "load_checkpoint", "restore", "save_checkpoint"]

_NAME = "checkpoint.json"
_CHEAP_SECONDS = 1.0  # an agent that worked for less, and used no model, is simply run again
_EVALUATION = ("evaluate", "analyze", "close")


def save_checkpoint(attempt: AttemptState, record: AttemptRecord) -> None:
    """Store *record* (drafted before the evaluation) as the attempt's checkpoint, if its agent cost anything."""
    if record.usage or record.durations.get("run", 0.0) >= _CHEAP_SECONDS:
        write_atomic(attempt.attempt_context.directory / _NAME, encode_record(record), sync=False)


def drop_checkpoint(attempt: AttemptState) -> None:
    """Remove the checkpoint: a graded record holds everything."""
    (attempt.attempt_context.directory / _NAME).unlink(missing_ok=True)


def load_checkpoint(attempt: AttemptState, fingerprint: str) -> AttemptRecord | None:
    """Return the attempt's checkpoint if it may be graded: whole, of the same run fingerprint, with nothing masked."""
    try:
        raw = read_bytes(attempt.attempt_context.directory / _NAME)
        record = decode_record(raw, attempt.request.name, attempt.task.task_id, attempt.number)
    except (FileNotFoundError, NotADirectoryError, DamagedRecord):
        return None
    masked = any(isinstance(entry, dict) and entry.get("scrubbed") for entry in record.artifacts.values())
    return None if masked or record.fingerprint.get("run") != fingerprint else record


def restore(attempt: AttemptState, record: AttemptRecord) -> bool:
    """Bring *attempt* to the moment before its evaluation, from *record*; False when its benchmark cannot.

    Costs of the agent, its answer, artifacts and its own failure are taken over; what the earlier
    evaluation said is not.
    """
    assert attempt.plan is not None
    try:
        prepared = attempt.context.benchmark.prepare_evaluation(
            attempt.task, attempt.request, attempt.plan.benchmark_plan
        )
    except AgentCompassError:
        return False
    spent = {name: value for name, value in record.usage.items() if not name.startswith("judge_")}
    own = record.failure_mode.fault is Fault.AGENT and record.failure_mode not in _GRADED
    attempt.prepared = prepared
    attempt.result = RunResult(
        task_id=record.task_id,
        status=Status.COMPLETED,
        category=record.category or None,
        final_answer=record.final_answer,
        ground_truth=attempt.task.ground_truth,
        issues=[Issue(**issue) for issue in record.issues if issue["phase"] not in _EVALUATION],
        artifacts=dict(record.artifacts),
        telemetry=dict(record.telemetry),
        metadata=dict(record.details),
        failure_mode=record.failure_mode if own else FailureMode.NONE,
        usage=Usage(**spent),  # type: ignore[arg-type]
        agent_output=record.agent_output,
    )
    attempt.durations = {name: value for name, value in record.durations.items() if name not in _EVALUATION}
    attempt.started_at = record.started_at
    attempt.environment_info = {name: value for name, value in record.environment.items() if name != "id"}
    attempt.restored, attempt.before_evaluation, attempt.paid = True, record, dict(spent)
    return True


#: agent modes that only an evaluation finds
_GRADED = frozenset({FailureMode.TEST_TIMEOUT, FailureMode.PATCH_NOT_APPLIED, FailureMode.EMPTY_PATCH})
