"""junit.xml: one suite per request, one testcase per planned attempt, strict XML whatever it holds."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from junitparser import Error, Failure, JUnitXml, Properties, Property, Skipped, TestCase, TestSuite

from ..contracts.outcome import FailureMode
from ..contracts.record import AttemptRecord
from ..metrics.tallies import Planned
from ..redaction import scrub
from ..results.layout import escape_id
from .attempt_text import cause, failure_text, reason
from .escape import cap, xml_name, xml_text
from .gates import gate_suite
from .summary import RequestResult

__all__ = ["build_junit", "case_name"]

# Characters of agent and of verifier output in one testcase; of one that passed less is worth reading.
_OUTPUT_CAP = 20_000
_PASSED_CAP = 2_000
# An infrastructure error is missing data: where gates decide it may be skipped, but it never looks passed.
_RESULTS: dict[str, dict[str, Any]] = {
    "failure": {"failed": Failure, "error": Error, "skipped": Skipped},
    "skipped": {"failed": Skipped, "error": Skipped, "skipped": Skipped},
    "passed": {"error": Skipped, "skipped": Skipped},
}
RecordPath = Callable[[str, str, int], str]
_UNTYPED_PROPERTIES: Any = Properties  # its constructor has no annotations


def case_name(request: str, task_id: str, attempt: int) -> tuple[str, str]:
    """Return class name and name of an attempt's testcase: distinct for distinct attempts, and stable.

    Attempts of one task share the class. A dot in the request's name is escaped too, so that the second
    dot always ends it.
    """
    return f"agentcompass.{escape_id(request).replace('.', '+2e')}.{escape_id(task_id)}", f"attempt{attempt}"


def build_junit(run_info: Mapping[str, Any], requests: Sequence[RequestResult], record_path: RecordPath) -> bytes:
    """Return the run as JUnit XML (UTF-8).

    An attempt without a record is an error, so that counts add up to the plan. *record_path* gives the
    path of an attempt's record. Where gates decide (`gates` of *run_info*), they are a suite of their own,
    and `unresolved` says by request how attempts that did not pass appear: `failure`, `skipped` or `passed`.
    """
    document: Any = JUnitXml(xml_name(f"agentcompass {run_info.get('run_id') or ''}".strip()))
    gates = run_info.get("gates") or ()
    unresolved = run_info.get("unresolved") if gates else None
    for request in requests:
        choice = unresolved.get(request.name) if isinstance(unresolved, Mapping) else None
        document.append(_suite(request, record_path, choice or "failure"))
    if gates:
        document.append(gate_suite(gates))
    document.update_statistics()
    buffer = io.BytesIO()
    document.write(buffer)
    return buffer.getvalue()


def _suite(request: RequestResult, record_path: RecordPath, unresolved: str) -> Any:
    suite = TestSuite(xml_name(request.name))
    head = request.report["headline"]
    started = sorted(record.started_at for record in request.records if record.started_at)
    if started:
        suite.timestamp = xml_name(started[0])
    for name, value in (("solved", head["value"]), ("tasks", head["tasks"]), ("over", head["over"])):
        suite.add_property(f"agentcompass.{name}", xml_text(str(value)))
    cases = [
        _case((request.name, item.task_id, number), record, record_path, unresolved)
        for item in request.tallies()
        for number, record in item.attempts
    ]
    suite.add_testcases(cases)
    return suite


def _case(key: Planned, record: AttemptRecord | None, record_path: RecordPath, unresolved: str) -> Any:
    classname, name = case_name(*key)
    case: Any = TestCase(xml_name(name), xml_name(classname), round(_seconds(record), 3))
    path = record_path(*key)
    case.append(_properties(key, record, path))
    if record is None:
        case.append(
            _result(Error, "missing", "planned, but there is no record of it", "run it again by resuming the run")
        )
        return case
    kind = _RESULTS[unresolved].get(record.outcome)
    if kind is not None:
        mode = cause(record)
        code = "not_solved" if mode is FailureMode.NONE else mode.value
        case.append(_result(kind, code, reason(record), failure_text(record, path)))
    output = _output(record)
    if output:
        case.system_out = output
    return case


def _result(kind: Any, mode: str, message: str, text: str) -> Any:
    result = kind(xml_name(scrub(message)), xml_name(mode))
    result.text = xml_text(text)
    return result


def _properties(key: Planned, record: AttemptRecord | None, path: str) -> Any:
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
    found: Any = _UNTYPED_PROPERTIES()
    for name, value in values.items():
        found.add_property(Property(xml_name(name), xml_name(str(value))))
    return found


def _seconds(record: AttemptRecord | None) -> float:
    value = record.seconds if record is not None else 0.0
    return value if math.isfinite(value) else 0.0


def _output(record: AttemptRecord) -> str:
    limit = _PASSED_CAP if record.outcome == "passed" else _OUTPUT_CAP
    parts = [("agent output", record.agent_output), ("verifier output", record.verifier_output)]
    return "\n".join(f"--- {title} ---\n{xml_text(cap(scrub(text), limit))}" for title, text in parts if text)
