"""The part of a run that a gate is about: its requests, its category, its tasks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...contracts.summary import Summary, SummaryAttempt, SummaryRequest, SummaryTask
from ...errors import ConfigError, nearest
from .parser import Metric

__all__ = ["Scope", "ScopedTask", "infra_errors", "scope_of"]

_NOT_COUNTED = {"strategy_satisfied", "no_solution"}


@dataclass(frozen=True, slots=True)
class ScopedTask:
    """A task of a request, with its attempts counted as every report counts them.

    *n*: attempts that count; *passed* and *failed* have a verdict, *unknown* should have one.
    """

    request: str
    task: SummaryTask
    early: bool
    n: int
    passed: int
    failed: int
    unknown: int

    @property
    def valid(self) -> int:
        """Attempts with a verdict."""
        return self.passed + self.failed

    @property
    def decided(self) -> bool:
        """Whether no attempt without a verdict could change how the task counts."""
        return not self.unknown or (self.early and self.passed > 0)

    @property
    def key(self) -> tuple[str, str]:
        """The request and the task id."""
        return self.request, self.task.task_id


@dataclass(frozen=True, slots=True)
class Scope:
    """Requests and their tasks (without those that have no solution to run)."""

    requests: tuple[SummaryRequest, ...]
    tasks: tuple[ScopedTask, ...]
    category: str | None = None

    @property
    def attempts(self) -> list[SummaryAttempt]:
        """All attempts, in order."""
        return [attempt for task in self.tasks for attempt in task.task.attempts]

    @property
    def label(self) -> str:
        """What the scope is, for a message."""
        several = f" of {len(self.requests)} requests" if len(self.requests) > 1 else ""
        return f"{_count(len(self.tasks), 'task')}{several}"


def scope_of(summary: Summary, metric: Metric, requests: Iterable[str] | None = None) -> Scope:
    """Return what *metric* is taken over; *requests* narrows the run to those of one suite.

    Raises ConfigError for a request or a category that the run does not have.
    """
    wanted = None if requests is None else set(requests)
    chosen = [item for item in summary.requests if wanted is None or item.name in wanted]
    if metric.request is not None:
        names = [item.name for item in chosen]
        if metric.request not in names:
            raise ConfigError(unknown_request(metric.request, names, _categories(chosen)))
        chosen = [item for item in chosen if item.name == metric.request]
    if metric.category is not None and metric.category not in _categories(chosen):
        raise ConfigError(f"there is no category {metric.category!r}; {nearest(metric.category, _categories(chosen))}")
    tasks = [
        scoped
        for request in chosen
        for task in request.tasks
        if (metric.category is None or task.category == metric.category) and (scoped := _scoped(request, task)).n
    ]
    return Scope(tuple(chosen), tuple(tasks), metric.category)


def unknown_request(name: str, known: Sequence[str], categories: Iterable[str] = ()) -> str:
    """Return the message about a request that does not exist."""
    hint = f"; there is a category of that name: write [category={name}]" if name in set(categories) else ""
    return f"there is no request {name!r}; {nearest(name, known)}{hint}"


def infra_errors(scope: Scope) -> list[tuple[ScopedTask, SummaryAttempt]]:
    """Return the attempts that ended in an infrastructure error."""
    return [(task, item) for task in scope.tasks for item in task.task.attempts if item.outcome == "error"]


def _categories(requests: Iterable[SummaryRequest]) -> list[str]:
    return sorted({task.category for request in requests for task in request.tasks if task.category})


def _scoped(request: SummaryRequest, task: SummaryTask) -> ScopedTask:
    passed = sum(item.outcome == "passed" for item in task.attempts)
    failed = sum(item.outcome == "failed" for item in task.attempts)
    free = sum(item.outcome == "skipped" and item.failure_mode in _NOT_COUNTED for item in task.attempts)
    unknown = len(task.attempts) - passed - failed - free
    return ScopedTask(request.name, task, request.early_stop, passed + failed + unknown, passed, failed, unknown)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
