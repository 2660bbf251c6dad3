"""junit.xml: strict XML, counts that add up, distinct and stable names."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from junitparser import JUnitXml

from pytest_agentcompass.contracts.metrics import MetricContract
from pytest_agentcompass.contracts.record import AttemptRecord
from pytest_agentcompass.metrics.report import build_report
from pytest_agentcompass.reports.junit import build_junit, case_name
from pytest_agentcompass.reports.summary import RequestResult

MakeRecord = Callable[..., AttemptRecord]
ANY_TEXT = st.text(st.characters(codec=None, categories=None), max_size=60)
HOSTILE = b"ctl \x00\x01\x08\x0b\x1b[31m del \x7f c1 \xc2\x85 ffff \xef\xbf\xbf amp <&>]]> \xff\n".decode(
    errors="surrogateescape"
)


def result(name: str, records: list[AttemptRecord], planned: list[Any] | None = None, k: int = 1) -> RequestResult:
    """Make the result of one request."""
    planned = planned or [(item.request, item.task_id, item.attempt) for item in records]
    return RequestResult(name, build_report(records, planned, MetricContract(), k=k, request=name), records, planned)


def path(request: str, task_id: str, attempt: int) -> str:
    """Stand in for the run directory."""
    return f"attempts/{request}/{task_id}/{attempt}/record.json"


def parsed(*requests: RequestResult) -> ElementTree.Element:
    """Write the report and parse it strictly."""
    return ElementTree.fromstring(b"".join(build_junit({"run_id": "x"}, requests, path)))


def test_each_outcome_has_its_element(make_record: MakeRecord) -> None:
    """Passed has none, failed <failure>, error <error>, skipped <skipped>, missing <error>; each with a message."""
    kinds = ["passed", "failed", "error", "satisfied"]
    records = [make_record(kind, task=kind) for kind in kinds]
    planned = [("r", task, 1) for task in [*kinds, "missing"]]
    cases = parsed(result("r", records, planned)).findall(".//testcase")
    found = [[child.tag for child in case if child.tag in ("failure", "error", "skipped")] for case in cases]
    assert found == [[], ["failure"], ["error"], ["skipped"], ["error"]]
    error = cases[2].find("error")
    assert error is not None
    assert error.get("message") == "the environment failed: image foo:1 is not there"
    assert error.get("type") == "environment_error"
    assert "record: attempts/r/error/1/record.json" in (error.text or "")
    missing = cases[4].find("error")
    assert missing is not None
    assert missing.get("type") == "missing"


def test_counts_add_up_including_missing(make_record: MakeRecord) -> None:
    """Suite and document count every planned attempt; time is the sum of cases."""
    kinds = ["passed", "failed", "failed", "error", "satisfied"]
    records = [make_record(kind, task=f"t{place}", durations={"run": 1.5}) for place, kind in enumerate(kinds)]
    planned = [("r", f"t{place}", 1) for place in range(6)]
    root = parsed(result("r", records, planned), result("q", [make_record("passed", "q")]))
    suite = root.findall("testsuite")[0]
    names = ("tests", "failures", "errors", "skipped")
    assert [suite.get(name) for name in names] == ["6", "2", "2", "1"]
    assert [root.get(name) for name in names] == ["7", "2", "2", "1"]
    assert float(suite.get("time", "")) == 7.5


def test_properties_tell_what_a_reader_needs(make_record: MakeRecord) -> None:
    """Score, status, failure mode, phases and the record's path are properties of the testcase."""
    record = make_record("failed", durations={"run": 2.0}, usage={"cost_usd": 0.25}, model="m")
    case = parsed(result("r", [record])).find(".//testcase")
    assert case is not None
    found = {item.get("name"): item.get("value") for item in case.findall("properties/property")}
    assert found["score"] == "0.0"
    assert found["status"] == "completed"
    assert found["failure_mode"] == "none"
    assert found["seconds.run"] == "2.0"
    assert found["usage.cost_usd"] == "0.25"
    assert found["model"] == "m"
    assert found["record"] == "attempts/r/t1/1/record.json"


def test_a_verifier_that_prints_everything(make_record: MakeRecord) -> None:
    """Control characters, U+FFFF and undecodable bytes leave the XML readable, with visible escapes."""
    record = make_record("failed", task=HOSTILE, verifier_output=HOSTILE, model=HOSTILE, agent_output=HOSTILE)
    case = parsed(result(HOSTILE, [record.model_copy(update={"request": HOSTILE})])).find(".//testcase")
    assert case is not None
    output = case.findtext("system-out") or ""
    assert "ctl #x00#x01#x08#x0B#x1B[31m del #x7F c1 #x85 ffff #xFFFF amp <&>]]> #xDCFF" in output
    model = case.find("properties/property[@name='model']")
    assert model is not None
    assert "#xDCFF" in (model.get("value") or "")


def test_output_is_capped(make_record: MakeRecord) -> None:
    """Megabytes of output do not make a report that no consumer can load; the cut is stated."""
    record = make_record("failed", agent_output="x" * 5_000_000, verifier_output="y" * 5_000_000)
    document = b"".join(build_junit({}, [result("r", [record])], path))
    assert len(document) < 120_000
    assert b"characters cut" in document
    passed = b"".join(build_junit({}, [result("r", [make_record("passed", agent_output="x" * 5_000_000)])], path))
    assert len(passed) < 5_000


def test_names_are_distinct_and_sort_by_task(make_record: MakeRecord) -> None:
    """2 tasks x 3 attempts and the same id in two requests give 12 distinct pairs; attempts share a class."""
    names = [case_name(request, task, n) for request in ("a", "b") for task in ("t1", "t2") for n in (1, 2, 3)]
    assert len(set(names)) == 12
    assert len({classname for classname, _ in names}) == 4
    assert names == sorted(names)
    assert names[0] == ("agentcompass.a.t1", "attempt1")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a.b", "c"), ("a", "b.c")),
        (("a", "x\x01"), ("a", "x#x01")),
        (("a", "x\x01"), ("a", "x+01")),
        (("a", "x y"), ("a", "x\ny")),
        (("a", "\u00e9"), ("a", "e\u0301")),
        (("a", "\ud800"), ("a", "\ufffd")),
    ],
)
def test_lookalikes_stay_apart(one: tuple[str, str], other: tuple[str, str]) -> None:
    """Ids that a careless escape would merge have different names."""
    assert case_name(*one, 1) != case_name(*other, 1)


@given(st.lists(st.tuples(ANY_TEXT, ANY_TEXT), unique=True, min_size=2, max_size=8))
def test_distinct_attempts_have_distinct_names(keys: list[tuple[str, str]]) -> None:
    """Whatever request names and ids hold, no two attempts share class and name."""
    assert len({case_name(request, task, 1) for request, task in keys}) == len(keys)


@settings(max_examples=40, deadline=None)
@given(text=ANY_TEXT, kind=st.sampled_from(["passed", "failed", "error", "satisfied"]))
def test_any_text_anywhere_parses(make_record: MakeRecord, text: str, kind: str) -> None:
    """Hostile text in every text field of a record gives XML that a strict parser and junitparser read."""
    record = make_record(
        kind,
        text,
        text,
        category=text,
        model=text,
        agent_output=text,
        verifier_output=text,
        final_answer=text,
        started_at=text,
        tests={text: text},
        issues=({"phase": text, "severity": text, "code": text, "message": text},),
        durations={text: 0.25},
        usage={text: 1},
        details={"expected": text},
    )
    document = b"".join(build_junit({"run_id": text}, [result(text, [record])], path))
    root = ElementTree.fromstring(document)
    assert root.get("tests") == "1"
    assert len(list(JUnitXml.fromstring(document))) == 1
    case = root.find(".//testcase")
    assert case is not None
    assert (case.get("classname"), case.get("name")) == case_name(text, text, 1)


def test_odd_numbers_do_not_break_the_times(make_record: MakeRecord) -> None:
    """A duration that is no number gives time 0, not a document that consumers refuse."""
    case = parsed(result("r", [make_record("passed", durations={"run": float("nan")})])).find(".//testcase")
    assert case is not None
    assert case.get("time") == "0.0"


def test_ten_attempts_stay_in_their_order(make_record: MakeRecord) -> None:
    """Cases come in planned order, attempt 10 after attempt 9."""
    records = [make_record("passed", attempt=n) for n in range(1, 12)]
    cases = parsed(result("r", records, k=11)).findall(".//testcase")
    assert [case.get("name") for case in cases] == [f"attempt{n}" for n in range(1, 12)]
