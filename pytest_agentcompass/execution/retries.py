"""Whether a try of an attempt is discarded, for how long to wait, and where the discarded try is kept.

Back-off is exponential with full jitter: a uniform draw from 0 to min(max, min * 2**n).
"""

from __future__ import annotations

import json
import random
import re
import shutil
from typing import TYPE_CHECKING

from ..contracts.outcome import FailureMode, Fault, Status, decisive_mode
from ..redaction import plain
from .budget import unpaid

if TYPE_CHECKING:
    from ..contracts.record import AttemptRecord
    from ..contracts.request import ExecutionSpec
    from .attempt import Attempt

__all__ = ["keep_discarded", "retry_delay"]

#: the verifier ran: breaking the grader must not buy the agent another try
_GRADER_RAN = frozenset(
    {FailureMode.EVALUATION_ERROR, FailureMode.NO_REWARD, FailureMode.NO_TESTS, FailureMode.CONTRADICTION}
)
_KEPT = ("logs", "artifacts", "panes", "trajectory.jsonl", "recording.cast", "commands.txt")
_KEPT_OF_EVALUATION = ("logs",)  # the agent's artifacts are graded again


def retry_delay(record: AttemptRecord, execution: ExecutionSpec, used: int) -> float | None:
    """Return the seconds to wait before the attempt is tried again, or None when *record* stands.

    *used* is the number of tries discarded so far. A scored result, the agent's own failure and a
    cancellation are never retried, whatever the patterns say.
    """
    if used >= execution.max_retries or record.score is not None or record.status is Status.SKIPPED:
        return None
    mode = decisive_mode(record.failure_mode, record.issues)
    if mode.fault is not Fault.INFRASTRUCTURE or mode is FailureMode.CANCELLED:
        return None
    if not _matches(record, mode, execution.retry_pattern_list):
        return None
    ceiling = min(execution.retry_max_delay_seconds, execution.retry_min_delay_seconds * 2**used)
    return random.uniform(0.0, ceiling)


def _matches(record: AttemptRecord, mode: FailureMode, patterns: tuple[str, ...] | None) -> bool:
    if patterns is None:
        return mode not in _GRADER_RAN
    text = "\n".join([mode.value, *(issue["message"] for issue in record.issues)])
    return any(re.search(pattern, text) for pattern in patterns)


def keep_discarded(attempt: Attempt, record: AttemptRecord, wait: float) -> None:
    """Keep a discarded try under the attempt's `retries/`: its record as `<m>.json`, its files in `<m>/`."""
    folder = attempt.attempt_context.directory / "retries"
    number = len(attempt.retries) + 1
    before = attempt.before_evaluation if attempt.failed_phase == "evaluate" else None
    scope = "attempt" if before is None else "evaluation"
    (folder / str(number)).mkdir(parents=True, exist_ok=True)
    for name in _KEPT if scope == "attempt" else _KEPT_OF_EVALUATION:
        source = attempt.attempt_context.directory / name
        if source.exists():
            shutil.move(source, folder / str(number) / name)
    (folder / f"{number}.json").write_text(json.dumps(plain(record), ensure_ascii=False), encoding="utf-8")
    attempt.retries.append(
        {
            "number": number,
            "stage": attempt.failed_phase,
            "scope": scope,
            "usage": record.usage if before is None else unpaid(record.usage, before.usage),
            "failure_mode": record.failure_mode.value,
            "message": record.issues[-1]["message"] if record.issues else "",
            "wait_seconds": round(wait, 3),
        }
    )
