"""Attempts whose process died before they could be recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..results.layout import escape_id

if TYPE_CHECKING:
    from .session import AgentCompassRun

__all__ = ["record_lost"]


def record_lost(run: AgentCompassRun, nodeid: str, message: str) -> None:
    """Record the planned attempt that *nodeid* names as an infrastructure error, unless it has a record."""
    from ..execution.attempt import Attempt

    assert run.context is not None
    directory = run.context.directory
    for name, task_id, number in directory.planned():
        if f"::{escape_id(name)}::{escape_id(task_id)}::attempt{number}" not in f"::{nodeid}":
            continue
        request = run.requests.get(name) or run.request_named(name)
        if request is None or directory.read_record(name, task_id, number) is not None:
            return
        task = next((task for task in directory.read_tasks(name).tasks if task.task_id == task_id), None)
        if task is not None:
            Attempt(run.context, run.context.request(request), task, number).lost(message)
        return
