"""Where the plugin keeps its state on pytest's objects."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ..contracts.outcome import FailureMode
from ..errors import AttemptSkipped

if TYPE_CHECKING:
    from ..execution.attempt import Attempt
    from .session import AgentCompassRun

__all__ = ["ATTEMPT", "RUN", "as_ours", "attempt_of", "case_of", "run_of"]

RUN: pytest.StashKey[AgentCompassRun] = pytest.StashKey()
ATTEMPT: pytest.StashKey[Attempt] = pytest.StashKey()


def run_of(config: pytest.Config) -> AgentCompassRun:
    """Return the active run; fails with a hint where there is none."""
    run = config.stash.get(RUN, None)
    if run is None:
        pytest.fail("the agentcompass fixtures need --agentcompass on the command line", pytrace=False)
    return run


def case_of(item: pytest.Item) -> tuple[str, str, int] | None:
    """Return (request, task id, attempt) of an item of ours, or of a marked test; None for any other."""
    if hasattr(item, "request_node"):
        return item.request_node.request.name, item.task.task_id, item.number  # type: ignore[attr-defined]
    callspec = getattr(item, "callspec", None)
    if callspec is None or "agentcompass_attempt" not in callspec.params:
        return None
    params = callspec.params
    return params["agentcompass_request"].name, params["agentcompass_task"].task_id, params["agentcompass_attempt"]


def as_ours(error: BaseException) -> BaseException:
    """Return what *error* means for an attempt: `pytest.skip()` and `pytest.xfail()` anywhere in it skip it."""
    if isinstance(error, (pytest.skip.Exception, pytest.xfail.Exception)):
        return AttemptSkipped(str(error), FailureMode.SKIP_REQUESTED.value)
    return error


def attempt_of(request: pytest.FixtureRequest) -> Attempt:
    """Return the attempt of the item that *request* (function scope) belongs to, made on first use."""
    item: pytest.Item = request.node
    if ATTEMPT not in item.stash:
        item.stash[ATTEMPT] = run_of(request.config).make_attempt(item)
    return item.stash[ATTEMPT]
