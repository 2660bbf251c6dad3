"""What a provider's refusal means: who is at fault, whether to try again, whether the run can go on at all.

| kind | answers | again? | outcome |
|---|---|---|---|
| `rate_limit` | 429 | yes, after retry-after | `model_unavailable` |
| `overload` | 5xx, 529, 409 | yes | `model_unavailable` |
| `network`, `timeout` | resets, refused connections, 408, no answer in time | yes | `model_unavailable` |
| `quota` | 402, 429 that says the quota is used up | no, stops the run | `model_unavailable` |
| `authentication` | 401, 403 | no, stops the run | `model_unavailable` |
| `not_found` | 404 | no, stops the run | `model_unavailable` |
| `bad_request`, `bad_response` | other 4xx; an answer that is none | no | `model_unavailable` |
| `context_length` | any status whose text says so, 413 | no | the agent's `context_length` |
| `output_length` | a text that says so | no | the agent's `output_length` |
| `content_filter` | a refusal by a policy | no | the agent's `model_refused` |
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ..errors import AgentCompassError, AgentFailure, ModelUnavailable
from ..redaction import clean_text

__all__ = ["ErrorKind", "ModelRefusal", "Refusal", "classify_answer", "classify_error_object", "classify_exception"]

_SHOWN = 500  # characters of a provider's text in a message
_LONGEST_WAIT = 120.0  # seconds; an endpoint that wants longer is not waited for


class ErrorKind(str, Enum):
    """The closed list of reasons for which a model call gives no answer."""

    RATE_LIMIT = "rate_limit"
    OVERLOAD = "overload"
    QUOTA = "quota"
    AUTHENTICATION = "authentication"
    CONTEXT_LENGTH = "context_length"
    OUTPUT_LENGTH = "output_length"
    CONTENT_FILTER = "content_filter"
    NOT_FOUND = "not_found"
    NETWORK = "network"
    TIMEOUT = "timeout"
    BAD_REQUEST = "bad_request"
    BAD_RESPONSE = "bad_response"


_AGAIN = frozenset({ErrorKind.RATE_LIMIT, ErrorKind.OVERLOAD, ErrorKind.NETWORK, ErrorKind.TIMEOUT})
_STOPS_RUN = frozenset({ErrorKind.QUOTA, ErrorKind.AUTHENTICATION, ErrorKind.NOT_FOUND})
_AGENT_MODES = {
    ErrorKind.CONTEXT_LENGTH: "context_length",
    ErrorKind.OUTPUT_LENGTH: "output_length",
    ErrorKind.CONTENT_FILTER: "model_refused",
}
_ADVICE = {
    ErrorKind.AUTHENTICATION: "check api_key (the endpoint does not take it)",
    ErrorKind.QUOTA: "the account has no quota or credit left",
    ErrorKind.NOT_FOUND: "check model= and base_url= (the endpoint does not know that model or path)",
    ErrorKind.BAD_RESPONSE: "check base_url (a proxy's page, or another kind of endpoint?) and model.api_protocol",
    ErrorKind.BAD_REQUEST: "check model.params and model.api_protocol",
    ErrorKind.NETWORK: "check base_url and the network",
}

_CONTEXT = re.compile(
    r"context[ _-]?(length|window|size|limit)|maximum context|prompt is too long|input (is |was )?too (long|large)"
    r"|token count exceeds|too many (input |prompt )?tokens|request_too_large|exceeds? the (model'?s? )?max(imum)?"
    r" (number of |input )?tokens|reduce the length",
    re.IGNORECASE,
)
_QUOTA = re.compile(
    r"insufficient[_ ]quota|exceeded your current quota|credit balance|out of credits?"
    r"|insufficient[_ ](balance|funds|credits?)"
    r"|payment required|billing[_ ](hard[_ ])?limit|spend(ing)? limit",
    re.IGNORECASE,
)
_FILTER = re.compile(
    r"content[_ ](filter|management policy|policy)|content_policy_violation|responsible[ _]?ai|safety system"
    r"|prompt was flagged|violat\w+ .{0,40}(usage|content) polic",
    re.IGNORECASE,
)
_OUTPUT = re.compile(r"could not finish the message because max_tokens|output limit was reached", re.IGNORECASE)
_NAMED: dict[str, int] = {
    "overloaded_error": 529,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "api_error": 500,
    "server_error": 500,
    "timeout_error": 504,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "billing_error": 402,
    "request_too_large": 413,
    "invalid_request_error": 400,
    "context_length_exceeded": 400,
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """One refused or failed call. *retry_after* is in seconds, where the endpoint names it."""

    kind: ErrorKind
    message: str
    status: int | None = None
    retry_after: float | None = None

    @property
    def again(self) -> bool:
        """Whether the same call may succeed later."""
        return self.kind in _AGAIN and (self.retry_after or 0.0) <= _LONGEST_WAIT

    @property
    def stops_run(self) -> bool:
        """Whether every other attempt at this endpoint would fail too."""
        return self.kind in _STOPS_RUN

    def error(self, endpoint: str, tries: int = 1) -> AgentCompassError:
        """Return the error to raise: AgentFailure for what is the agent's, else ModelUnavailable.

        The latter has the attributes `kind`, `stop_run`, `http_status` and `lasting` (no other try helps).
        """
        mode = _AGENT_MODES.get(self.kind)
        status = f" (HTTP {self.status})" if self.status is not None else ""
        said = clean_text(self.message.strip())[:_SHOWN] or "no text"
        if mode is not None:
            return AgentFailure(f"the model call ended with {self.kind.value}{status}: {said}", mode)
        often = f" after {tries} tries" if tries > 1 else ""
        advice = f"; {_ADVICE[self.kind]}" if self.kind in _ADVICE else ""
        text = f"the model endpoint {endpoint} gave no answer{often}: {self.kind.value}{status}: {said}{advice}"
        lasting = self.kind not in _AGAIN
        return ModelUnavailable(
            text, kind=self.kind.value, stop_run=self.stops_run, http_status=self.status, lasting=lasting
        )


class ModelRefusal(AgentCompassError):
    """Carries a `Refusal` (the attribute *refusal*) from a protocol's code to the retry loop."""

    def __init__(self, message: str, refusal: Refusal | None = None, **data: object) -> None:
        super().__init__(message, refusal=refusal, **data)
        self.refusal = refusal or Refusal(ErrorKind.BAD_RESPONSE, message)


def classify_answer(status: int, body: str, headers: Mapping[str, str] | None = None) -> Refusal:
    """Return what an HTTP answer that is no success means."""
    after = _retry_after(headers or {}, body)
    return Refusal(_kind(status, body, after), _said(body), status, after)


def classify_error_object(error: Any) -> Refusal:
    """Return what an error object in a stream or in an answer with status 200 means."""
    fields = error if isinstance(error, Mapping) else {"message": str(error)}
    named = [str(fields.get(key) or "") for key in ("code", "type", "status")]
    status = next((int(name) for name in named if name.isdecimal() and 400 <= int(name) < 600), None)
    if status is None:
        status = next((_NAMED[name] for name in named if name in _NAMED), 500)
    text = json.dumps(fields, default=str)
    return Refusal(_kind(status, text, None), str(fields.get("message") or text), status)


def classify_exception(error: BaseException) -> Refusal:
    """Return what an exception out of the HTTP library means: a time-out, or the network."""
    names = {kind.__name__ for kind in type(error).__mro__}
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if "TimeoutException" in names or isinstance(error, TimeoutError):
        return Refusal(ErrorKind.TIMEOUT, text)
    if names & {"UnsupportedProtocol", "InvalidURL", "LocalProtocolError"}:
        return Refusal(ErrorKind.BAD_REQUEST, text)
    return Refusal(ErrorKind.NETWORK, text)


def _kind(status: int, body: str, after: float | None) -> ErrorKind:
    if status == 402 or _is_quota(status, body, after):
        return ErrorKind.QUOTA
    if status == 401:
        return ErrorKind.AUTHENTICATION
    if status == 429:
        return ErrorKind.RATE_LIMIT
    if status == 413 or (status != 404 and _CONTEXT.search(body)):
        return ErrorKind.CONTEXT_LENGTH
    if _OUTPUT.search(body):
        return ErrorKind.OUTPUT_LENGTH
    if status != 404 and _FILTER.search(body):
        return ErrorKind.CONTENT_FILTER
    if status in (408, 504):
        return ErrorKind.TIMEOUT
    if status >= 500 or status in (409, 425):
        return ErrorKind.OVERLOAD
    return _client_kind(status, body)


def _client_kind(status: int, body: str) -> ErrorKind:
    if body.lstrip()[:1] == "<" or 300 <= status < 400:
        return ErrorKind.BAD_RESPONSE  # a page of some machine in between
    if status in (403, 404):
        return ErrorKind.AUTHENTICATION if status == 403 else ErrorKind.NOT_FOUND
    return ErrorKind.BAD_REQUEST if 400 <= status < 500 else ErrorKind.BAD_RESPONSE


def _is_quota(status: int, body: str, after: float | None) -> bool:
    if status >= 500 or status in (401, 404) or not _QUOTA.search(body):
        return False
    # Some providers call a limit per minute a quota too, and say when to come back.
    return "insufficient_quota" in body or status != 429 or after is None


def _retry_after(headers: Mapping[str, str], body: str) -> float | None:
    lowered = {key.lower(): value for key, value in headers.items()}
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = _seconds(lowered.get(name, ""))
        if value is not None:
            return value * unit
    hint = re.search(r'"retryDelay"\s*:\s*"([0-9.]+)s"', body)
    return _seconds(hint[1]) if hint else None


def _seconds(text: str) -> float | None:
    """Return a number of seconds; a date gives none (clocks differ), so the shared back-off decides."""
    return float(text) if re.fullmatch(r"\s*\d{1,9}(\.\d{1,9})?\s*", text) else None


def _said(body: str) -> str:
    try:
        data = json.loads(body)
    except ValueError:
        return " ".join(body.split())
    error = data.get("error", data) if isinstance(data, dict) else data
    if isinstance(error, dict) and error.get("message"):
        code = error.get("code") or error.get("type")
        return f"{error['message']} ({code})" if code else str(error["message"])
    return error if isinstance(error, str) else json.dumps(error)
