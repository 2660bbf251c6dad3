"""Rules by which a provider's refusal is read: again or not, the agent's fault or not, the end of the run or not."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from pytest_agentcompass.errors import AgentFailure, ModelUnavailable
from pytest_agentcompass.execution.breaker import FATAL_KINDS
from pytest_agentcompass.models.errors import (
    ErrorKind,
    Refusal,
    classify_answer,
    classify_error_object,
    classify_exception,
)

CASES = Path(__file__).parents[3].parent / "shared" / "cases" / "64-provider-errors" / "errors.jsonl"
ANSWERS = [
    (429, "rate limited", {"retry-after": "2"}, "rate_limit", True, False),
    (429, "You exceeded your current quota", {}, "quota", False, True),
    (429, '{"error": {"code": "insufficient_quota", "message": "no"}}', {"retry-after": "2"}, "quota", False, True),
    (429, "You exceeded your current quota, per minute", {"retry-after": "7"}, "rate_limit", True, False),
    (429, "Limit 30000 tokens per minute: the input is too long", {}, "rate_limit", True, False),
    (429, "come back tomorrow", {"retry-after": "86400"}, "rate_limit", False, False),
    (400, "maximum context length is 16384 tokens", {}, "context_length", False, False),
    (500, "requested token count exceeds the model's maximum context length", {}, "context_length", False, False),
    (400, "prompt is too long: 210000 tokens > 200000 maximum", {}, "context_length", False, False),
    (413, "request_too_large", {}, "context_length", False, False),
    (400, "content management policy", {}, "content_filter", False, False),
    (400, '{"error": {"code": "content_filter", "message": "no"}}', {}, "content_filter", False, False),
    (400, "Could not finish the message because max_tokens was reached", {}, "output_length", False, False),
    (400, "Your credit balance is too low to access the API", {}, "quota", False, True),
    (401, "invalid api key", {}, "authentication", False, True),
    (401, "your quota is in another account: payment required", {}, "authentication", False, True),
    (402, "", {}, "quota", False, True),
    (403, '{"error": {"message": "no access"}}', {}, "authentication", False, True),
    (403, "<html>blocked by a firewall</html>", {}, "bad_response", False, False),
    (404, "model not found", {}, "not_found", False, True),
    (404, "model 'long-context-window' not found", {}, "not_found", False, True),
    (404, "<html>nginx</html>", {}, "bad_response", False, False),
    (302, "", {}, "bad_response", False, False),
    (400, "unknown parameter: temprature", {}, "bad_request", False, False),
    (408, "", {}, "timeout", True, False),
    (500, "", {}, "overload", True, False),
    (502, "<html>bad gateway</html>", {}, "overload", True, False),
    (503, "", {}, "overload", True, False),
    (504, "", {}, "timeout", True, False),
    (529, "overloaded", {}, "overload", True, False),
]  # fmt: skip


@pytest.mark.parametrize(("status", "body", "headers", "kind", "again", "stops"), ANSWERS)
def test_each_answer_has_one_reading(
    status: int, body: str, headers: dict[str, str], kind: str, again: bool, stops: bool
) -> None:
    """Status, text and headers decide what is tried again and what ends the run."""
    refusal = classify_answer(status, body, headers)
    assert (refusal.kind.value, refusal.again, refusal.stops_run) == (kind, again, stops)


@pytest.mark.skipif(not CASES.is_file(), reason="the handed cases (../shared/cases) are not there")
def test_the_handed_cases() -> None:
    """Each of the handed refusals is repeated or not as wanted, and stops the run where that is wanted."""
    for case in map(json.loads, CASES.read_text("utf-8").splitlines()):
        if case["status"] == "200":
            continue  # answers, which the client's tests cover
        if case["status"]:
            headers = {"retry-after": "2"} if "retry-after" in case["case"] else {}
            refusal = classify_answer(int(case["status"]), case["body"], headers)
        else:
            refusal = classify_exception(TimeoutError() if "Timeout" in case["body"] else ConnectionResetError())
        assert refusal.again is case["retry"], case
        assert refusal.stops_run is ("stop the run" in case["want"]), case


@pytest.mark.parametrize(
    ("headers", "body", "seconds"),
    [
        ({"Retry-After": "2"}, "", 2.0),
        ({"retry-after-ms": "250", "retry-after": "9"}, "", 0.25),
        ({}, '{"error": {"details": [{"retryDelay": "31.5s"}]}}', 31.5),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, "", None),
        ({"retry-after": "-5"}, "", None),
        ({"retry-after": "nan"}, "", None),
    ],
)
def test_the_time_to_come_back_is_read(headers: dict[str, str], body: str, seconds: float | None) -> None:
    """Seconds and milliseconds count; a date or nonsense is no time."""
    assert classify_answer(429, body, headers).retry_after == seconds


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ConnectionResetError(), "network"),
        (ConnectionRefusedError("no"), "network"),
        (OSError("no route"), "network"),
        (TimeoutError(), "timeout"),
    ],
)
def test_exceptions_of_the_network_are_tried_again(error: Exception, kind: str) -> None:
    """A reset or refused connection and a time-out are worth another try."""
    refusal = classify_exception(error)
    assert (refusal.kind.value, refusal.again) == (kind, True)


def test_exceptions_of_httpx_are_known_by_their_names() -> None:
    """What httpx raises is read without importing it; an address that is none is never tried again."""
    httpx = pytest.importorskip("httpx", reason="needs the extra models")
    assert classify_exception(httpx.ReadTimeout("slow")).kind is ErrorKind.TIMEOUT
    assert classify_exception(httpx.RemoteProtocolError("cut")).kind is ErrorKind.NETWORK
    assert classify_exception(httpx.UnsupportedProtocol("ftp")).again is False


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"type": "overloaded_error", "message": "Overloaded"}, "overload"),
        ({"code": 429, "message": "slow down"}, "rate_limit"),
        ({"code": "insufficient_quota", "message": "pay"}, "quota"),
        ({"type": "invalid_request_error", "message": "maximum context length is 10"}, "context_length"),
        ({"type": "something_new", "message": "?"}, "overload"),
        ("plain text", "overload"),
    ],
)
def test_errors_inside_of_an_answer_are_read_alike(error: object, kind: str) -> None:
    """An error event of a stream, or an error object with status 200, is classified like an answer."""
    assert classify_error_object(error).kind.value == kind


@pytest.mark.parametrize("kind", list(ErrorKind))
def test_whose_fault_it_is(kind: ErrorKind) -> None:
    """Context, output and policy are the agent's; all else is the endpoint's and says whether the run can go on."""
    error = Refusal(kind, "said", 400).error("http://x", tries=3)
    error = pickle.loads(pickle.dumps(error))
    if kind.value in ("context_length", "output_length", "content_filter"):
        assert isinstance(error, AgentFailure)
        assert error.failure_mode == ("model_refused" if kind.value == "content_filter" else kind.value)
        return
    assert isinstance(error, ModelUnavailable)
    assert error.kind == kind.value  # type: ignore[attr-defined]
    assert error.stop_run is (kind.value in FATAL_KINDS)  # type: ignore[attr-defined]
    assert error.lasting is not Refusal(kind, "no").again  # type: ignore[attr-defined]
    assert "http://x" in error.message
    assert "after 3 tries" in error.message


def test_what_the_provider_says_is_shown_short() -> None:
    """The message of a JSON error is shown with its code; a long page is cut."""
    said = classify_answer(400, '{"error": {"message": "bad thing", "code": "x1"}}').error("e").message
    assert "bad thing (x1)" in said
    assert len(classify_answer(400, "y" * 100_000).error("e").message) < 1_000
