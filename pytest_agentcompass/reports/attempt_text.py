"""What a person reads about one attempt: a reason in one line, and the failure text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..contracts.outcome import FailureMode, decisive_mode
from ..contracts.record import AttemptRecord
from .escape import one_line, tail

__all__ = ["cause", "failing_tests", "failure_text", "mode_phrase", "reason"]

_PHRASES = {
    FailureMode.AGENT_TIMEOUT: "the agent ran out of time",
    FailureMode.AGENT_ERROR: "the agent ended with an error",
    FailureMode.CONTEXT_LENGTH: "the agent exceeded the model's context length",
    FailureMode.OUTPUT_LENGTH: "the agent exceeded the model's output length",
    FailureMode.MODEL_REFUSED: "the model refused",
    FailureMode.PARSE_ERROR: "the agent's output could not be parsed",
    FailureMode.OUT_OF_MEMORY: "the agent ran out of memory",
    FailureMode.EMPTY_PATCH: "the agent changed nothing",
    FailureMode.PATCH_NOT_APPLIED: "the agent's patch does not apply",
    FailureMode.TEST_TIMEOUT: "the verifier ran out of time on what the agent left",
    FailureMode.SETUP_ERROR: "the sandbox or the task could not be set up",
    FailureMode.ENVIRONMENT_ERROR: "the environment failed",
    FailureMode.MODEL_UNAVAILABLE: "the model endpoint was not available",
    FailureMode.HARNESS_ERROR: "the harness adapter failed",
    FailureMode.VERIFIER_NOT_STARTED: "the verifier did not start",
    FailureMode.NO_REWARD: "the verifier left no usable reward",
    FailureMode.NO_TESTS: "the verifier ran no test",
    FailureMode.CONTRADICTION: "the verifier contradicts itself",
    FailureMode.EVALUATION_ERROR: "the evaluation failed",
    FailureMode.CANCELLED: "the attempt was cancelled",
    FailureMode.UNKNOWN: "something failed that has no name",
    FailureMode.STRATEGY_SATISFIED: "an earlier attempt of the task passed",
    FailureMode.NO_SOLUTION: "the task has no solution to run",
    FailureMode.BUDGET_SPENT: "the budget was spent",
    FailureMode.DEADLINE: "the run's deadline had passed",
    FailureMode.GATE_DECIDED: "not needed: the gates were decided",
    FailureMode.SKIP_REQUESTED: "skipped by a mark, a fixture or a component",
}
_FINE = frozenset({"passed", "pass", "ok", "success", "skipped", "skip", "xfail", "xfailed"})
_SHOWN_TESTS = 10
_SHOWN_NOTES = 5
#: notes in which a benchmark says why an answer or a state did not count
_VERDICTS = frozenset({"no_answer", "verifier_failed", "wrong_answer"})


def cause(record: AttemptRecord) -> FailureMode:
    """Return the failure mode that made the outcome."""
    return decisive_mode(record.failure_mode, record.issues) if record.outcome == "error" else record.failure_mode


def mode_phrase(mode: FailureMode) -> str:
    """Say what *mode* means, as a clause; empty for `none`."""
    return _PHRASES.get(mode, "")


def reason(record: AttemptRecord, limit: int = 200) -> str:
    """Say in one line why *record* ended as it did."""
    outcome, message = record.outcome, _message(record)
    phrase = _PHRASES.get(cause(record), "")
    if outcome == "failed" and record.failure_mode is FailureMode.NONE:
        message = _verdict(record, message)
    if outcome == "passed":
        parts = ["passed", phrase]
    elif phrase and message.split()[:2] == phrase.split()[:2]:
        parts = [message]  # it has the same subject and says more
    else:
        parts = [phrase, message]
    text = ": ".join(part for part in parts if part)
    return one_line(text or f"{outcome}, no reason recorded", limit)


def failing_tests(record: AttemptRecord) -> list[tuple[str, str]]:
    """Return name and status of the tests that did not pass."""
    return [(name, status) for name, status in record.tests.items() if status.lower() not in _FINE]


def failure_text(record: AttemptRecord, record_path: str, lines: int = 15) -> str:
    """Return what a person needs to act on an attempt that did not pass.

    The reason, what was expected and what came, the tests that failed, further notes, the last *lines*
    lines of agent and verifier output, and where the record is.
    """
    parts = [reason(record, 600), *_expectation(record), *_tests(record), *_notes(record)]
    parts += _output("verifier output", record.verifier_output, lines)
    parts += _output("agent output", record.agent_output, lines)
    parts.append(f"record: {one_line(record_path, 4000)}")
    return "\n".join(parts)


def _message(record: AttemptRecord) -> str:
    """Return the message of the issue that gave the failure mode, else of the first error."""
    wished = FailureMode.SKIP_REQUESTED.value  # no error, but its issue holds the reason
    errors = [
        issue for issue in record.issues if issue.get("severity", "error") == "error" or issue.get("code") == wished
    ]
    named = [issue for issue in errors if issue.get("code") == cause(record).value]
    chosen = (named or errors or [{}])[0]
    return chosen.get("message", "")


def _verdict(record: AttemptRecord, message: str) -> str:
    failing = failing_tests(record)
    if failing:
        names = ", ".join(name for name, _ in failing[:3])
        more = f" and {len(failing) - 3} more" if len(failing) > 3 else ""
        return f"{len(failing)} of {len(record.tests)} tests did not pass: {names}{more}"
    if message:
        return message
    if record.score:
        return f"not solved: score {record.score:g}"
    said = _said(record)
    return f"not solved: {said}" if said else "not solved"


def _said(record: AttemptRecord) -> str:
    """Return what the benchmark says of an attempt that did not count, where the reason shows it."""
    if (
        record.outcome != "failed"
        or record.failure_mode is not FailureMode.NONE
        or failing_tests(record)
        or record.score
    ):
        return ""
    said = [issue.get("message", "") for issue in record.issues if issue.get("code") in _VERDICTS]
    return said[-1] if said else ""


def _expectation(record: AttemptRecord) -> list[str]:
    expected = record.details.get("expected", record.details.get("ground_truth"))
    came = record.details.get("got", record.final_answer)
    parts = []
    if expected is not None:
        parts.append(f"  expected: {_value(expected)}")
    if came is not None or expected is not None:
        parts.append(f"  came:     {'nothing' if came in (None, '') else _value(came)}")
    return parts


def _value(value: Any) -> str:
    if isinstance(value, str):
        return one_line(value, 500)
    return one_line(json.dumps(value, ensure_ascii=False, default=str), 500)


def _tests(record: AttemptRecord) -> list[str]:
    failing = failing_tests(record)
    if not failing:
        return []
    parts = [f"  tests that did not pass ({len(failing)} of {len(record.tests)}):"]
    parts += [f"    {one_line(name)}: {one_line(status, 40)}" for name, status in failing[:_SHOWN_TESTS]]
    if len(failing) > _SHOWN_TESTS:
        parts.append(f"    and {len(failing) - _SHOWN_TESTS} more, see the record")
    return parts


def _notes(record: AttemptRecord) -> list[str]:
    used = {_message(record), _said(record)}
    notes = [issue for issue in record.issues if issue.get("message") and issue["message"] not in used]
    parts = [_note(issue) for issue in notes[:_SHOWN_NOTES]]
    if len(notes) > _SHOWN_NOTES:
        parts.append(f"  and {len(notes) - _SHOWN_NOTES} more notes, see the record")
    if record.retries:
        parts.append(
            f"  {len(record.retries)} earlier {'try' if len(record.retries) == 1 else 'tries'} discarded, see retries/"
        )
    return parts


def _note(issue: Mapping[str, str]) -> str:
    severity, phase = one_line(issue.get("severity", "note"), 20), one_line(issue.get("phase", "?"), 40)
    return f"  {severity} ({phase}): {one_line(issue['message'], 300)}"


def _output(title: str, text: str, lines: int) -> list[str]:
    if lines < 1:
        return []
    kept, more = tail(text, lines)
    if not kept:
        return [f"--- {title}: nothing ---"]
    return [f"--- {title}, {'last lines' if more else 'all'} ({len(kept)}) ---", *kept]
