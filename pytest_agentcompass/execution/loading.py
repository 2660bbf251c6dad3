"""Loading a request's tasks, once, with the checks that need no sandbox (the preflight)."""

from __future__ import annotations

import re
from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Set
from typing import TYPE_CHECKING, Any

from ..components.calls import call, in_thread
from ..contracts.task import TaskProblem, TaskSpec
from ..errors import ConfigError, TaskLoadError
from ..metrics.aggregation import parse_hierarchy
from ..planning.preflight import static_problems
from .run import RequestContext

if TYPE_CHECKING:
    from ..components.registry import Registry
    from ..contracts.request import RunRequest

__all__ = ["load_tasks"]


async def load_tasks(request: RunRequest, registry: Registry) -> tuple[list[TaskSpec], list[TaskProblem], int]:
    """Return the selected tasks of *request* in order, those that cannot be used, and how many the suite defines.

    Raises ConfigError or TaskLoadError when the request as a whole cannot run.
    """
    context = RequestContext.make(request, registry)
    if context.harness is None and not context.benchmark.harness_free:
        raise ConfigError(f"benchmark {request.benchmark.id!r} needs a harness: harness=ID")
    if request.benchmark.category_hierarchy:
        parse_hierarchy(request.benchmark.category_hierarchy)
    loaded = await _items(context.benchmark.load_tasks, request)
    problems = [item for item in loaded if isinstance(item, TaskProblem)]
    good = [item for item in loaded if isinstance(item, TaskSpec)]
    good, refused = _usable(good)
    defined = len(good)
    tasks = await _items(context.benchmark.select_tasks, good, _without(request, problems))
    if request.benchmark.sample_ids is not None:
        wanted = set(request.benchmark.sample_ids)
        problems = [item for item in problems if item.task_id in wanted]
    faults = static_problems(request, tasks, registry)
    if faults:
        raise TaskLoadError("; ".join(faults))
    return tasks, [*problems, *refused], defined


async def _items(method: Callable[..., Any], *args: Any) -> list[Any]:
    """Return what *method* gives as a list in an order that every run comes to."""
    name = f"{type(getattr(method, '__self__', None)).__name__}.{getattr(method, '__name__', 'load_tasks')}"
    found = await call(method, *args)
    if isinstance(found, AsyncIterable):
        items = [item async for item in found]
    elif isinstance(found, Iterable) and not isinstance(found, str | bytes):
        values = found.values() if isinstance(found, Mapping) else found
        items = await in_thread(list, values)  # a generator works while it is read
    else:
        raise TaskLoadError(f"{name} gave {found!r:.80}; it must give a list of TaskSpec")
    for item in items:
        if not isinstance(item, TaskSpec | TaskProblem):
            raise TaskLoadError(f"{name} gave {item!r:.80} among its tasks; each must be a TaskSpec (or a TaskProblem)")
    unordered = isinstance(found, Set | Mapping)
    return sorted(items, key=lambda item: _natural(str(item.task_id))) if unordered else items


def _natural(text: str) -> tuple[list[tuple[int, str]], str]:
    """Return the key by which `t2` comes before `t10`."""
    parts = re.split(r"([0-9]+)", text)
    return [(int(part), "") if place % 2 else (0, part) for place, part in enumerate(parts)], text


def _without(request: RunRequest, problems: list[TaskProblem]) -> RunRequest:
    """Return *request* without the sample ids of broken tasks: those are reported as broken, not as unknown."""
    if request.benchmark.sample_ids is None:
        return request
    broken = {item.task_id for item in problems}
    left = tuple(sample for sample in request.benchmark.sample_ids if sample not in broken)
    return request.model_copy(update={"benchmark": request.benchmark.model_copy(update={"sample_ids": left})})


def _usable(tasks: list[TaskSpec]) -> tuple[list[TaskSpec], list[TaskProblem]]:
    """Refuse ids that nothing can carry: empty, blank, with NUL or lone surrogates."""
    good, refused = [], []
    for task in tasks:
        reason = _refusal(task.task_id)
        if reason:
            refused.append(TaskProblem(repr(task.task_id), f"{task.source or 'a task'}: {reason}", task.source))
        else:
            good.append(task)
    return good, refused


def _refusal(task_id: object) -> str | None:
    if not isinstance(task_id, str) or not task_id.strip():
        return f"the id is {task_id!r}; it must be a text that is not blank"
    if "\0" in task_id:
        return f"the id {task_id!r} holds a NUL character, which no process can take"
    try:
        task_id.encode()
    except UnicodeEncodeError:
        return f"the id {task_id!r} holds a lone surrogate, which is no valid text"
    return None
