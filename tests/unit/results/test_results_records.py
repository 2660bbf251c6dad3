"""Records as bytes and back."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_agentcompass import redaction
from pytest_agentcompass.contracts.outcome import FailureMode, Status
from pytest_agentcompass.contracts.record import AttemptRecord
from pytest_agentcompass.errors import ResultsError
from pytest_agentcompass.results.records import DamagedRecord, cap, decode_record, encode_record, shown, slim


def make(**changes: Any) -> AttemptRecord:
    """Return a graded record."""
    values: dict[str, Any] = {"request": "main", "task_id": "t", "attempt": 1, "status": Status.COMPLETED}
    return AttemptRecord(**{**values, "passed": True, "score": 1.0, "metrics": {"correct": True}, **changes})


VALID_TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | VALID_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(VALID_TEXT, inner, max_size=3),
    max_leaves=10,
)


@given(VALID_TEXT, JSON, st.dictionaries(VALID_TEXT, VALID_TEXT, max_size=3), st.sampled_from(FailureMode))
def test_records_come_back(task_id: str, answer: Any, tests: dict[str, str], mode: FailureMode) -> None:
    """What was stored is what is read."""
    record = make(task_id=task_id, final_answer=answer, tests=tests, failure_mode=mode, details={"x": answer})
    raw = encode_record(record)
    assert raw.endswith(b"}\n")
    assert raw.count(b"\n") == 1
    assert decode_record(raw, "main", task_id, 1) == record


@given(st.data())
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_no_part_of_a_record_is_a_record(data: st.DataObject) -> None:
    """A record cut anywhere, or with a byte run zeroed, is damaged."""
    raw = encode_record(make(agent_output="output " * 5))
    cut = data.draw(st.integers(0, len(raw) - 3))
    with pytest.raises(DamagedRecord):
        decode_record(raw[:cut])
    with pytest.raises(DamagedRecord):
        decode_record(raw[:cut] + b"\0" * (len(raw) - cut))


@given(st.binary(max_size=300))
def test_any_bytes_are_refused_politely(raw: bytes) -> None:
    """Foreign bytes are a DamagedRecord, nothing else."""
    with pytest.raises(DamagedRecord):
        decode_record(raw)


def _edited(**changes: Any) -> bytes:
    return json.dumps({**json.loads(encode_record(make())), **changes}).encode()


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "empty"),
        (b"\0" * 50, "empty or zeroed"),
        (b"[1, 2]", "not an attempt record but a list"),
        (b"null", "NoneType"),
        (_edited(score=math.nan), "NaN is not JSON"),
        (_edited(details={"x": math.inf}), "Infinity is not JSON"),
        (encode_record(make()).replace(b'"score":1.0', b'"score":1e999'), "too large"),
        (_edited(schema_version=2), "schema version 2"),
        (_edited(schema_version=2, invented=1), "schema version 2"),
        (_edited(schema_version="1"), "schema version '1'"),
        (_edited(invented=1), "invented"),
        (_edited(score="1"), "score"),
        (_edited(passed="yes"), "passed"),
        (_edited(status="done"), "status"),
        (_edited(task_id="other"), "belongs to another attempt: main, task 'other', attempt 1"),
        (_edited(request="other"), "belongs to another attempt"),
        (_edited(attempt=2), "belongs to another attempt"),
        (b"[" * 200_000, "."),
    ],
)
def test_a_damaged_record_says_why(raw: bytes, reason: str) -> None:
    """The reason names the field or what the file holds instead."""
    with pytest.raises(DamagedRecord, match=reason):
        decode_record(raw, "main", "t", 1)


@pytest.mark.parametrize("changes", [{"score": math.nan}, {"score": math.inf}, {"metrics": {"speed": -math.inf}}])
def test_a_score_that_is_no_number_is_refused(changes: dict[str, Any]) -> None:
    """NaN and infinities never reach the disk as a score; the message names task and metric."""
    with pytest.raises(ResultsError, match=r"task 't' attempt 1: (score|speed) is"):
        encode_record(make(**changes))


def test_usage_that_is_no_number_is_left_out() -> None:
    """An agent's odd bookkeeping does not cost its result."""
    record = decode_record(
        encode_record(make(usage={"cost_usd": math.inf, "input_tokens": 3}, durations={"run": math.nan}))
    )
    assert record.usage == {"input_tokens": 3}
    assert record.durations == {}


@pytest.mark.parametrize("depth", [110, 250, 400, 5_000])
def test_deep_nesting_does_not_cost_the_record(depth: int) -> None:
    """An answer that is nested too deeply becomes a note beside what can be kept."""
    nested: list[Any] = []
    for _ in range(depth):
        nested = [nested]
    record = decode_record(
        encode_record(make(final_answer={"deep": nested, "flat": 1}, details={"deep": nested, "flat": 2}))
    )
    assert record.final_answer["flat"] == 1
    assert record.details["flat"] == 2
    assert record.passed is True


def test_a_number_of_thousands_of_digits_does_not_cost_the_record() -> None:
    """Python refuses to write such numbers; the rest of the answer is kept."""
    record = decode_record(encode_record(make(final_answer={"n": 10**5_000, "m": 10**400})))
    assert record.final_answer["m"] == 10**400
    assert "number" in record.final_answer["n"]


def test_huge_output_is_cut_in_the_middle() -> None:
    """Head and tail stay and the cut is stated."""
    record = decode_record(encode_record(make(agent_output="a" * 300_000 + "the end")))
    assert record.agent_output.endswith("the end")
    assert "characters cut" in record.agent_output
    assert len(record.agent_output) < 201_000


def test_odd_texts_are_stored_as_valid_text() -> None:
    """Lone surrogates, control characters and bytes become readable escapes; the file is UTF-8."""
    raw = encode_record(make(final_answer=["a\udcff", b"\xff\0", "\x1b[31m\0"]))
    assert decode_record(raw).final_answer == ["a\\udcff", "\\xff\0", "\x1b[31m\0"]
    assert b"\0" not in raw
    assert b"\x1b" not in raw


def test_secrets_are_masked_and_identity_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key is scrubbed wherever an agent prints it; a word of a task's id is not a leak."""
    for name, value in (("_values", set()), ("_pattern", None), ("_bytes_pattern", None)):
        monkeypatch.setattr(redaction, name, value, raising=False)
    redaction.add_secret("sk-very-secret")
    redaction.add_secret("password")
    record = make(task_id="password-recovery", final_answer="sk-very-secret", tests={"sk-very-secret": "passed"})
    raw = encode_record(record)
    assert b"sk-very-secret" not in raw
    assert decode_record(raw, "main", "password-recovery", 1).final_answer == redaction.MASK


def test_a_typical_record_is_small() -> None:
    """A record without long output stays under ten kilobytes."""
    tests = {f"tests/test_module.py::test_{n}": "passed" for n in range(100)}
    assert len(encode_record(make(tests=tests, agent_output="x" * 3_000))) < 10_000


def test_a_cut_text_states_what_is_left_out_and_is_cut_once() -> None:
    """Head and tail stay, the line between them counts the rest, and a second cut changes nothing."""
    text = "a" * 500 + "b" * 500
    short = cap(text, 100)
    assert short == "a" * 50 + "\n[... 900 characters cut; the attempt's record holds more ...]\n" + "b" * 50
    assert cap(short, 100) == short
    assert cap("short", 100) == "short"


@pytest.mark.parametrize("passed", [True, False])
def test_a_slim_record_is_small_and_reports_the_same(passed: bool) -> None:
    """Outputs are as long as a report shows them; verdict, figures and tests are those of the whole record."""
    record = make(
        passed=passed, agent_output="x" * 900_000, tests={"t": "passed"}, usage={"cost_usd": 1.0}, plan={"a": 1}
    )
    small = slim(record)
    assert len(small.agent_output) < shown(record) + 200
    assert cap(small.agent_output, shown(small)) == cap(record.agent_output, shown(record))
    assert small.plan == {}
    left_out = {"plan": {}, "environment": {}, "telemetry": {}, "agent_output": "", "fingerprint": {}}
    assert small.model_copy(update=left_out) == record.model_copy(update=left_out)
