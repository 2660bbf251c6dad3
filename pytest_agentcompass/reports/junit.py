"""junit.xml: one suite per request, one testcase per planned attempt, strict XML whatever it holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..contracts.outcome import FailureMode
from ..contracts.record import AttemptRecord
from ..metrics.tallies import Planned
from ..redaction import scrub
from ..results.layout import escape_id
from ..results.records import cap, shown
from .attempt_text import cause, failure_text, reason
from .escape import xml_text
from .gates import gate_cases
from .junit_xml import Case, Result, Suite, document, make_case, make_suite
from .summary import RequestResult

__all__ = ["build_junit", "case_name"]

# An infrastructure error is missing data: where gates decide it may be skipped, but it never looks passed.
_RESULTS: dict[str, dict[str, str]] = {
    "failure": {"failed": "failure", "error": "error", "skipped": "skipped"},
    "skipped": {"failed": "skipped", "error": "skipped", "skipped": "skipped"},
    "passed": {"error": "skipped", "skipped": "skipped"},
}
RecordPath = Callable[[str, str, int], str]


def case_name(request: str, task_id: str, attempt: int) -> tuple[str, str]:
    """Return class name and name of an attempt's testcase: distinct for distinct attempts, and stable.

    Attempts of one task share the class. A dot in the request's name is escaped too, so that the second
    dot always ends it.
    """
    return f"agentcompass.{escape_id(request).replace('.', '+2e')}.{escape_id(task_id)}", f"attempt{attempt}"


def build_junit(
    run_info: Mapping[str, Any], requests: Sequence[RequestResult], record_path: RecordPath
) -> Iterator[bytes]:
    """Return the run as JUnit XML (UTF-8), in parts.

    An attempt without a record is an error, so that counts add up to the plan. *record_path* gives the
    path of an attempt's record. Where gates decide (`gates` of *run_info*), they are a suite of their own,
    and `unresolved` says by request how attempts that did not pass appear: `failure`, `skipped` or `passed`.
    """
    gates = run_info.get("gates") or ()
    unresolved = run_info.get("unresolved") if gates else None
    suites = []
    for request in requests:
        choice = unresolved.get(request.name) if isinstance(unresolved, Mapping) else None
        suites.append(_suite(request, record_path, choice or "failure"))
    if gates:
        suites.append(make_suite("agentcompass.gates", gate_cases(gates)))
    return document(f"agentcompass {run_info.get('run_id') or ''}".strip(), suites)


def _suite(request: RequestResult, record_path: RecordPath, unresolved: str) -> Suite:
    head = request.report["headline"]
    properties = {
        "agentcompass.solved": head["value"],
        "agentcompass.tasks": head["tasks"],
        "agentcompass.over": head["over"],
    }
    cases = (
        _case((request.name, item.task_id, number), record, record_path, unresolved)
        for item in request.tallies
        for number, record in item.attempts
    )
    started = min((record.started_at for record in request.records if record.started_at), default="")
    return make_suite(request.name, cases, properties, started)


def _case(key: Planned, record: AttemptRecord | None, record_path: RecordPath, unresolved: str) -> Case:
    classname, name = case_name(*key)
    path = record_path(*key)
    properties = _properties(key, record, path)
    if record is None:
        result = Result("error", "missing", "planned, but there is no record of it", "run it again by resuming the run")
        return make_case(classname, name, 0.0, properties, result)
    return make_case(classname, name, record.seconds, properties, _result(record, path, unresolved), _output(record))


def _result(record: AttemptRecord, path: str, unresolved: str) -> Result | None:
    kind = _RESULTS[unresolved].get(record.outcome)
    if kind is None:
        return None
    mode = cause(record)
    code = "not_solved" if mode is FailureMode.NONE else mode.value
    return Result(kind, code, scrub(reason(record)), xml_text(failure_text(record, path)))


def _properties(key: Planned, record: AttemptRecord | None, path: str) -> dict[str, object]:
    values: dict[str, object] = {"request": key[0], "task_id": key[1], "attempt": key[2]}
    if record is not None:
        values |= {
            "outcome": record.outcome,
            "status": record.status.value,
            "score": "" if record.score is None else record.score,
            "failure_mode": record.failure_mode.value,
            "category": record.category,
            "model": scrub(record.model),
            "record": path,
        }
        values |= {f"seconds.{phase}": round(value, 3) for phase, value in record.durations.items()}
        values |= {f"usage.{name}": value for name, value in record.usage.items()}
    return values


def _output(record: AttemptRecord) -> str:
    parts = [("agent output", record.agent_output), ("verifier output", record.verifier_output)]
    limit = shown(record)
    return "\n".join(f"--- {title} ---\n{xml_text(cap(scrub(text), limit))}" for title, text in parts if text)
