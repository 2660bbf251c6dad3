"""Hooks that conftest.py files and other plugins may implement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from .components.registry import Registry
    from .contracts.record import AttemptRecord
    from .contracts.request import RunRequest
    from .contracts.task import TaskSpec

hookspec = pluggy.HookspecMarker("pytest")


@hookspec
def pytest_agentcompass_register(registry: Registry) -> None:
    """Add components: `registry.add("benchmark", MyBenchmark)`."""


@hookspec
def pytest_agentcompass_select_tasks(request: RunRequest, tasks: list[TaskSpec]) -> None:
    """Change the list of selected tasks in place, before items are made (every process must do the same)."""


@hookspec
def pytest_agentcompass_attempt_started(request: str, task_id: str, attempt: int) -> None:
    """Called in the process that makes the attempt, when it starts (with concurrency=N in a background thread)."""


@hookspec
def pytest_agentcompass_attempt_finished(record: AttemptRecord) -> None:
    """Called in the process that made the attempt, when its record is stored (see `attempt_started`)."""


@hookspec
def pytest_agentcompass_request_finalized(request: str, report: dict[str, Any]) -> None:
    """Called in the controller with the metric report of a request."""


@hookspec
def pytest_agentcompass_summary(reports: list[dict[str, Any]]) -> list[str] | None:
    """Return lines to show below the summary tables."""
