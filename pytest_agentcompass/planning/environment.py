"""The sandbox of an attempt: what the request sets, over what the task hints."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ValidationError

from ..components.shape import explain
from ..contracts.environment import EnvironmentSpec, Resources
from ..contracts.task import TaskSpec
from ..errors import PlanningError

__all__ = ["keep_users_choice", "merged_environment", "task_hints", "task_label"]

_PER_KEY = ("params", "extra_hosts", "env_variables", "run_env_variables", "evaluation_env_variables")
#: Two ways to say which image: a request that sets one replaces the task's other one.
_EXCLUSIVE = {"image": "build", "build": "image"}


def task_label(task: TaskSpec) -> str:
    """Return how messages call *task*: its id and where it was written."""
    return f"task {task.task_id!r}" + (f" ({task.source})" if task.source else "")


def task_hints(task: TaskSpec) -> EnvironmentSpec:
    """Return the task's hints, validated; PlanningError names the task and the field."""
    try:
        return EnvironmentSpec.model_validate(task.environment)
    except ValidationError as error:
        problems = explain(error, EnvironmentSpec, task.environment, "environment")
        raise PlanningError(f"{task_label(task)}: {problems}") from error


def merged_environment(request: EnvironmentSpec, hints: EnvironmentSpec, default_id: str) -> EnvironmentSpec:
    """Return a deep copy of *request* with *hints* underneath.

    What the request sets wins; variables, hosts and params merge by key, resources by field. The
    provider is the request's alone (or *default_id*).
    """
    merged = request.model_copy(deep=True)
    low = hints.model_copy(deep=True)
    update: dict[str, Any] = {"id": request.id or default_id}
    for name in low.model_fields_set - {"id"}:
        update.update(_field(name, merged, low))
    for name, other in _EXCLUSIVE.items():
        if name in request.model_fields_set and other not in request.model_fields_set:
            update[other] = None
    return merged.model_copy(update=update)


def _field(name: str, high: EnvironmentSpec, low: EnvironmentSpec) -> dict[str, Any]:
    below = getattr(low, name)
    if name in _PER_KEY:
        return {name: {**below, **getattr(high, name)}}
    if name == "resources":
        return {name: _over(below, high.resources)}
    return {} if name in high.model_fields_set else {name: below}


def _over(low: Resources, high: Resources) -> Resources:
    return low.model_copy(update=_set_fields(high))


def _set_fields(model: BaseModel) -> dict[str, Any]:
    return {name: getattr(model, name) for name in model.model_fields_set}


def keep_users_choice(now: EnvironmentSpec, request: EnvironmentSpec) -> tuple[EnvironmentSpec, list[str]]:
    """Return *now* with everything that *request* sets as it was set, and the names of what had been changed."""
    update: dict[str, Any] = {}
    for name in sorted(request.model_fields_set):
        chosen, current = getattr(request, name), getattr(now, name)
        if name == "id" and not chosen:
            continue
        wanted = chosen
        if name in _PER_KEY:
            wanted = {**current, **chosen}
        elif name == "resources":
            wanted = _over(current, chosen)
        if wanted != current:
            update[name] = wanted
    return now.model_copy(update=update, deep=True), list(update)
