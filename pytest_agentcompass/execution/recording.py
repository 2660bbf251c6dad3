"""From an attempt's state to its record."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ..contracts.outcome import FailureMode, Fault, Status
from ..contracts.record import AttemptRecord
from ..redaction import plain
from ..results.fingerprints import basis_fingerprint, both_fingerprints

if TYPE_CHECKING:
    from .attempt_state import AttemptState

__all__ = ["build_record", "verdict"]

_TEXT_CAP = 3_000  # characters of output kept in the record itself; the logs hold all of it
_TESTS_CAP = 5_000


def _tail(text: str) -> str:
    return (
        text if len(text) <= _TEXT_CAP else f"[{len(text) - _TEXT_CAP} characters cut; see logs/]\n" + text[-_TEXT_CAP:]
    )


def verdict(attempt: AttemptState) -> tuple[bool | None, float | None]:
    """Return whether the attempt passed, and its score; both None when there is no score."""
    contract = attempt.context.benchmark.metric_contract
    value = attempt.result.metrics.get(contract.primary) if attempt.evaluated else None
    if value is None:
        return None, None
    if isinstance(value, bool):
        return value, float(value)
    threshold = attempt.request.execution.pass_threshold
    return value >= (1.0 if threshold is None else threshold), float(value)


def build_record(attempt: AttemptState) -> AttemptRecord:
    """Return the record of *attempt*: scrubbed, plain data."""
    result, request, task = attempt.result, attempt.request, attempt.task
    passed, score = verdict(attempt)
    mode = result.failure_mode
    status = attempt.status or Status.COMPLETED
    if status is Status.COMPLETED and passed is None:
        status = Status.RUN_ERROR
        mode = FailureMode.UNKNOWN if mode is FailureMode.NONE else mode
    if mode.fault is Fault.INFRASTRUCTURE:
        passed = None
    harness = attempt.context.harness
    return AttemptRecord(
        run_id=attempt.run_context.run_id,
        request=request.name,
        task_id=task.task_id,
        attempt=attempt.number,
        category=task.category,
        tags=tuple(task.tags),
        difficulty=task.difficulty,
        status=status,
        failure_mode=mode,
        passed=passed,
        score=score if passed is not None else None,
        metrics=plain(result.metrics) if attempt.evaluated else {},
        issues=tuple(plain(asdict(issue)) for issue in result.issues),
        started_at=attempt.started_at,
        finished_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        durations=dict(attempt.durations),
        usage=result.usage.known(),
        tests=plain(dict(list(result.tests.items())[:_TESTS_CAP])),
        final_answer=plain(result.final_answer),
        agent_output=plain(_tail(result.agent_output)),
        verifier_output=plain(_tail(result.verifier_output)),
        artifacts=plain(result.artifacts),
        retries=tuple(attempt.retries),
        plan=plain(attempt.plan.audit()) if attempt.plan else {},
        environment=plain({"id": request.environment.id, **attempt.environment_info}),
        harness={"id": request.harness.id, "version": harness.version if harness else ""},
        model=request.model.id,
        telemetry=plain(result.telemetry),
        details=plain(result.metadata),
        fingerprint=_fingerprint(attempt),
    )


def _fingerprint(attempt: AttemptState) -> dict[str, Any]:
    if attempt.plan is None:
        return {}
    version = attempt.context.harness.version if attempt.context.harness else ""
    digest = attempt.context.digest
    basis = {"basis": basis_fingerprint(attempt.task, digest)} if digest else {}
    return {**both_fingerprints(attempt.task, attempt.plan, attempt.request, version), **basis}
