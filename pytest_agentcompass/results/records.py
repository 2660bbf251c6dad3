"""Attempt records as bytes and back: strict JSON out, nothing doubtful in."""

from __future__ import annotations

import math
import re
from typing import Any

from pydantic import ValidationError

from ..contracts.record import SCHEMA_VERSION, AttemptRecord
from ..errors import ResultsError
from ..redaction import plain
from .files import json_bytes, parse_json

__all__ = ["DamagedRecord", "cap", "decode_record", "encode_record", "shown", "slim"]

_TEXT_CAP = 200_000  # characters of an output kept in a record; the whole stands in the attempt's logs
# Characters of agent and of verifier output that a report shows; of one that passed less is worth reading.
_SHOWN = 20_000
_SHOWN_PASSED = 2_000
_NOTE_ROOM = 100  # characters that the note of a cut may add
_DEPTH = 100  # levels of nesting in one field; pydantic's JSON reader stops near 200
# Identity is never masked: a variable PASSWORD=password must not rename the task `password-recovery`.
_EXACT = frozenset(
    {"schema_version", "run_id", "request", "task_id", "attempt", "fingerprint", "started_at", "finished_at"}
)
_HUGE_NUMBER = re.compile(rb"[:,\[\s]-?[0-9]+(?:\.[0-9]+)?[eE]\+?[0-9]{3}")


_FIELDS = set(AttemptRecord.model_fields)
_NOT_SHOWN: dict[str, Any] = {"plan": {}, "environment": {}, "telemetry": {}}


class DamagedRecord(ResultsError):
    """A record's bytes are torn, foreign or of another schema; the attempt counts as not done."""


def encode_record(record: AttemptRecord) -> bytes:
    """Return *record* as one line of strict JSON, scrubbed.

    ResultsError for a score or metric that is no finite number: it would spoil every mean, and leaving
    it out would turn an error into a score. Usage and durations that are not finite are left out.
    """
    for name, value in (("score", record.score), *record.metrics.items()):
        if value is not None and not math.isfinite(value):
            raise ResultsError(
                f"{record.request}: task {record.task_id!r} attempt {record.attempt}: {name} is {value}, "
                "not a finite number; a benchmark must report finite observations or an error"
            )
    row = {name: _field(name, getattr(record, name)) for name in AttemptRecord.model_fields}
    return json_bytes(row)


def _field(name: str, value: Any) -> Any:
    if name in _EXACT:
        return value
    if name in ("usage", "durations"):
        value = {key: number for key, number in value.items() if math.isfinite(number)}
    elif name in ("agent_output", "verifier_output") and len(value) > _TEXT_CAP:
        half = _TEXT_CAP // 2
        value = f"{value[:half]}\n[{len(value) - _TEXT_CAP} characters cut; see logs/]\n{value[-half:]}"
    return _shallow(value)


def _shallow(value: Any, levels: int = 2) -> Any:
    """Return *value* as plain data; parts that JSON readers would refuse become a note."""
    try:
        row = plain(value)
        json_bytes(row)
        if _depth(row) <= _DEPTH:
            return row
    except (RecursionError, ValueError):  # ValueError: a number of thousands of digits
        pass
    if levels and isinstance(value, dict):
        return {plain(str(key)): _shallow(item, levels - 1) for key, item in value.items()}
    if levels and isinstance(value, (list, tuple)):
        return [_shallow(item, levels - 1) for item in value]
    return "[nested too deeply, or a number too long, to be stored]"


def _depth(row: Any) -> int:
    """Return how many containers of plain data lie in each other."""
    level, depth = [row], 0
    while level := [item for item in level if isinstance(item, (dict, list))]:
        depth += 1
        level = [inner for item in level for inner in (item.values() if isinstance(item, dict) else item)]
    return depth


def decode_record(
    raw: bytes, request: str | None = None, task_id: str | None = None, attempt: int | None = None
) -> AttemptRecord:
    """Return the record in *raw*; DamagedRecord, saying why, when it is none or not the one asked for."""
    try:
        if not raw or b"NaN" in raw or b"Infinity" in raw or _HUGE_NUMBER.search(raw):
            parse_json(raw)
        record = AttemptRecord.model_validate_json(raw, strict=True)
    except ValidationError as error:
        raise DamagedRecord(_reason(raw, error)) from None
    except ValueError as error:
        raise DamagedRecord(f"not strict JSON: {error}" if raw else "empty") from None
    if record.schema_version != SCHEMA_VERSION:
        raise DamagedRecord(_other_schema(record.schema_version))
    asked, found = (request, task_id, attempt), (record.request, record.task_id, record.attempt)
    if any(want is not None and want != have for want, have in zip(asked, found, strict=True)):
        raise DamagedRecord(f"belongs to another attempt: {found[0]}, task {found[1]!r}, attempt {found[2]}")
    return record


def shown(record: AttemptRecord) -> int:
    """Return how many characters of each output of *record* a report shows."""
    return _SHOWN_PASSED if record.outcome == "passed" else _SHOWN


def cap(text: str, limit: int) -> str:
    """Return *text* or its head and tail with a line between that states the cut (characters).

    What was cut to the same limit before stays as it is.
    """
    if len(text) <= limit + _NOTE_ROOM:
        return text
    half = limit // 2
    note = f"[... {len(text) - 2 * half} characters cut; the attempt's record holds more ...]"
    return f"{text[:half]}\n{note}\n{text[-half:]}"


def slim(record: AttemptRecord) -> AttemptRecord:
    """Return *record* with what reports show of it: thousands are held at once, and outputs may be huge."""
    limit = shown(record)
    changes = {
        **_NOT_SHOWN,
        "agent_output": cap(record.agent_output, limit),
        "verifier_output": cap(record.verifier_output, limit),
        "fingerprint": {"task": record.fingerprint.get("task", "")},
    }
    small = record.model_copy(update=changes)
    object.__setattr__(small, "__pydantic_fields_set__", _FIELDS)  # all records share one: a set of 30 takes 2 kB
    return small


def _reason(raw: bytes, error: ValidationError) -> str:
    """Say what is wrong with a record that does not validate."""
    try:
        value = parse_json(raw)
    except ValueError as cause:
        return "empty or zeroed" if not raw.strip(b"\0 \r\n\t") else f"not strict JSON: {cause}"
    if not isinstance(value, dict):
        return f"not an attempt record but a {type(value).__name__}"
    if value.get("schema_version", SCHEMA_VERSION) != SCHEMA_VERSION:
        return _other_schema(value["schema_version"])
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(map(str, first["loc"])) or "record"
    return f"{where}: {first['msg']}"


def _other_schema(version: object) -> str:
    return f"schema version {version!r}; this version of pytest-agentcompass reads {SCHEMA_VERSION}"
