"""The circuit breaker: when the engine or the endpoint is plainly gone, the run takes no new work.

Opens (stops the run) when

* an endpoint refuses the key, the quota or the model (`ModelUnavailable(..., kind=...)` with one of
  `FATAL_KINDS`): at once;
* three attempts in a row, over all processes of the run, ended in the same infrastructure error
  (`environment_error` of one provider, `model_unavailable` of one endpoint) with no graded one between.
  A provider that can be asked (`preflight`) is asked after two: when it says that it can open no sandbox, that is
  enough; when it says that it can, it gets more time: the tasks may be at fault;
* a record cannot be stored (a full disk): what would run next could not be kept either.

Attempts that did not start have no record: they are pending, and a resume makes them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..components.calls import call
from ..components.environment import BaseEnvironment
from ..components.machine import SharedValue
from ..contracts.outcome import FailureMode
from ..errors import AgentCompassError

if TYPE_CHECKING:
    from ..contracts.record import AttemptRecord
    from ..contracts.request import RunRequest

__all__ = ["FATAL_KINDS", "Breaker", "RunStopped"]

#: values of `ModelUnavailable.kind` that no later attempt can get past
FATAL_KINDS = frozenset({"authentication", "not_found", "quota"})
_THRESHOLD = 3
_ASKED = 2  # failures in a row after which a provider is asked: with several attempts in flight one more may follow
_PATIENCE = 3  # times the threshold for a provider that says that it is well


class RunStopped(AgentCompassError):
    """The run takes no new work; an attempt that meets this leaves no record."""


class Breaker:
    """Counts failures in a row, in a file that all processes of the run share."""

    def __init__(self, path: Path) -> None:
        self._value = SharedValue(path)
        self._own = ""  # why this process stops, whatever the disk holds

    @property
    def reason(self) -> str:
        """Why the run takes no new work; empty while it does."""
        return self._own or str(self._value.read().get("reason", ""))

    def open(self, reason: str) -> None:
        """Take no new work for *reason*, in this process also where the others cannot be told."""
        self._own = reason
        with contextlib.suppress(OSError):
            self._value.update(lambda old: {"reason": reason, **old})

    def reset(self) -> None:
        """Forget everything: a new session begins."""
        self._value.path.unlink(missing_ok=True)

    def note(self, record: AttemptRecord, request: RunRequest, fatal: str = "") -> None:
        """Take in how an attempt ended; *fatal* is one of FATAL_KINDS or empty."""
        cause = _cause(record, request)
        if record.score is not None:
            if self._value.read().get("count"):
                self._value.update(lambda old: {**old, "count": 0})
        elif fatal:
            text = f"{cause or 'the model endpoint'} refuses: {fatal} ({_message(record)})"
            self._value.update(lambda old: {"reason": text, **old})
        elif cause:
            self._value.update(lambda old: _counted(old, cause, _message(record)))

    async def check(self, environment: BaseEnvironment, request: RunRequest, in_flight: int = 1) -> str:
        """Return why no new attempt may start, or an empty text; opens the breaker when it is time.

        *in_flight* attempts may have failed by one and the same hiccup, which a provider that is well
        again is forgiven.
        """
        if self._own:
            return self._own
        value = self._value.read()
        if value.get("reason") or value.get("count", 0) < _ASKED:
            return str(value.get("reason", ""))
        problem = await self._problem(value, environment, request, in_flight)
        if problem is None:
            return ""
        text = f"{value['cause']} seems to be gone: {value['count']} attempts in a row failed ({problem})"
        return str(self._value.update(lambda old: {"reason": text, **old})["reason"])

    async def _problem(
        self, value: Mapping[str, Any], environment: BaseEnvironment, request: RunRequest, in_flight: int
    ) -> str | None:
        """Return what is wrong, or None when it is too early to say."""
        many = value["count"] >= _THRESHOLD
        if value["cause"] != _provider(request):
            # of a model, or of another request's provider, whom those attempts will ask
            return str(value["message"]) if many and value["cause"].startswith("the endpoint") else None
        if type(environment).preflight is BaseEnvironment.preflight:
            return str(value["message"]) if many else None
        problem = await call(environment.preflight, request)
        late = value["count"] >= _PATIENCE * _THRESHOLD + in_flight
        return str(problem) if problem else (str(value["message"]) if late else None)


def _provider(request: RunRequest) -> str:
    return f"environment {request.environment.id!r}"


def _cause(record: AttemptRecord, request: RunRequest) -> str:
    if record.failure_mode is FailureMode.ENVIRONMENT_ERROR:
        return _provider(request)
    if record.failure_mode is FailureMode.MODEL_UNAVAILABLE:
        return f"the endpoint of {request.model.base_url or request.model.id or 'the model'}"
    return ""


def _counted(old: Mapping[str, Any], cause: str, message: str) -> dict[str, Any]:
    count = old.get("count", 0) + 1 if old.get("cause") == cause else 1
    return {**old, "cause": cause, "message": message, "count": count}


def _message(record: AttemptRecord) -> str:
    errors = [issue["message"] for issue in record.issues if issue.get("severity") == "error"]
    text = " ".join(errors[-1].split()) if errors else record.failure_mode.value
    return text if len(text) <= 300 else text[:300] + "..."
