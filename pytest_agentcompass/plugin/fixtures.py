"""The fixtures of an attempt; each can be overridden in a conftest.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from .handle import AttemptHandle
from .state import attempt_of, run_of

if TYPE_CHECKING:
    from ..components.environment import EnvironmentSession
    from ..contracts.plan import ExecutionPlan
    from ..contracts.request import RunRequest
    from ..contracts.task import TaskSpec

__all__: list[str] = []


@pytest.fixture(scope="module")
def agentcompass_request(request: pytest.FixtureRequest) -> RunRequest:
    """The request that the current attempt belongs to."""
    found: RunRequest = request.param if hasattr(request, "param") else request.node.request
    return found


@pytest.fixture(scope="class")
def agentcompass_task(request: pytest.FixtureRequest) -> TaskSpec:
    """The task of the current attempt."""
    found: TaskSpec = request.param if hasattr(request, "param") else request.node.task
    return found


@pytest.fixture
def execution_plan(
    request: pytest.FixtureRequest, agentcompass_request: RunRequest, agentcompass_task: TaskSpec
) -> Iterator[ExecutionPlan]:
    """The plan of the attempt, which may start now (permits are held); nothing is open yet."""
    attempt, portal = attempt_of(request), run_of(request.config).portal
    try:
        plan = portal.call(attempt.make_plan)
        portal.call(attempt.admit)
        yield plan
    finally:
        portal.call(attempt.release)  # also where a fixture of the user's own opened (and closed) the sandbox


@pytest.fixture
def environment_session(
    request: pytest.FixtureRequest, execution_plan: ExecutionPlan
) -> Iterator[EnvironmentSession | None]:
    """The attempt's sandbox, opened under the baseline policy; closed at teardown unless it is kept.

    None for a harness that works in none.
    """
    attempt, portal = attempt_of(request), run_of(request.config).portal
    try:
        yield portal.call(attempt.open)
    finally:
        portal.call(attempt.release)


@pytest.fixture
def harness_session(request: pytest.FixtureRequest, environment_session: EnvironmentSession | None) -> Iterator[Any]:
    """The agent's session in the prepared sandbox."""
    attempt, portal = attempt_of(request), run_of(request.config).portal
    attempt.use_environment(environment_session)
    try:
        yield portal.call(attempt.prepare_and_start)
    finally:
        if attempt.harness_is_open:
            portal.call(attempt.close_harness)


@pytest.fixture
def agentcompass_attempt(request: pytest.FixtureRequest, harness_session: Any) -> AttemptHandle:
    """The handle of the attempt: `run()`, `evaluate()`, `record`."""
    attempt = attempt_of(request)
    attempt.session = harness_session
    return AttemptHandle(attempt, run_of(request.config).portal)
