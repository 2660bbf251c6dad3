"""What a benchmark's loader may give: any iterable of tasks, in one order; nothing is dropped in silence."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from pytest_agentcompass.components.benchmark import BaseBenchmark
from pytest_agentcompass.components.registry import Registry
from pytest_agentcompass.contracts.environment import EnvironmentSpec
from pytest_agentcompass.contracts.request import BenchmarkSpec, HarnessSpec, RunRequest
from pytest_agentcompass.contracts.task import TaskProblem, TaskSpec
from pytest_agentcompass.errors import TaskLoadError
from pytest_agentcompass.execution.loading import load_tasks

NAMES = ("t10", "t2", "t1")


class Bench(BaseBenchmark):
    """Gives what the test put here."""

    id = "bench"
    gives: Callable[[], Any]

    def load_tasks(self, req: Any) -> Any:
        return type(self).gives()

    async def prepare_task(self, *args: Any) -> Any:
        raise NotImplementedError

    async def evaluate(self, *args: Any) -> Any:
        raise NotImplementedError


def loaded(gives: Callable[[], Any], **fields: Any) -> tuple[list[str], list[str]]:
    """Load from a benchmark that gives that; return the ids of tasks and of problems."""
    registry = Registry()
    registry.add("benchmark", type("Bench", (Bench,), {"gives": staticmethod(gives)}))
    request = RunRequest(
        benchmark=BenchmarkSpec(id="bench", **fields),
        harness=HarnessSpec(id="nop"),
        environment=EnvironmentSpec(id="host_process"),
    )
    tasks, problems, _ = asyncio.run(load_tasks(request, registry))
    return [task.task_id for task in tasks], [problem.task_id for problem in problems]


def tasks() -> Iterator[TaskSpec]:
    """Give the tasks one by one."""
    for name in NAMES:
        yield TaskSpec(name)


async def later() -> AsyncIterator[TaskSpec]:
    """Give the tasks one by one, asynchronously."""
    for name in NAMES:
        yield TaskSpec(name)


@pytest.mark.parametrize(
    "gives", [tasks, later, lambda: list(tasks()), lambda: tuple(tasks())], ids=["generator", "async", "list", "tuple"]
)
def test_what_has_an_order_keeps_it(gives: Callable[[], Any]) -> None:
    """The order of a list or a generator is the suite's, and `limit` counts in it."""
    assert loaded(gives) == (list(NAMES), [])
    assert loaded(gives, limit=2) == (["t10", "t2"], [])


@pytest.mark.parametrize(
    "gives",
    [
        lambda: set(tasks()),
        lambda: frozenset(tasks()),
        lambda: dict.fromkeys(tasks()).keys(),
        lambda: {task.task_id: task for task in tasks()},
    ],
    ids=["set", "frozenset", "keys", "mapping"],
)
def test_what_has_no_order_is_sorted(gives: Callable[[], Any]) -> None:
    """Hash seeds and threads say nothing: the ids do, numbers in them counting as numbers."""
    assert loaded(gives) == (["t1", "t2", "t10"], [])


def test_problems_of_a_generator_are_kept() -> None:
    """Broken tasks and good ones are told apart in one reading."""
    assert loaded(lambda: iter([TaskProblem("bad", "no"), TaskSpec("good")])) == (["good"], ["bad"])


@pytest.mark.parametrize(
    ("gives", "said"),
    [
        (lambda: None, "Bench.load_tasks gave None; it must give a list of TaskSpec"),
        (lambda: "t1", "Bench.load_tasks gave 't1'; it must give"),
        (lambda: [TaskSpec("a"), {"task_id": "b"}], "Bench.load_tasks gave {'task_id': 'b'} among its tasks"),
        (lambda: {"a": 1}, "Bench.load_tasks gave 1 among its tasks"),
    ],
    ids=["none", "text", "row", "values"],
)
def test_what_is_no_task_is_refused(gives: Callable[[], Any], said: str) -> None:
    """Whatever is no task is named; it is never left out in silence."""
    with pytest.raises(TaskLoadError, match=said.replace("{", r"\{")):
        loaded(gives)


def test_equal_tasks_are_one_in_a_set() -> None:
    """Tasks can stand in sets: equal ones are the same."""
    assert len({TaskSpec("a"), TaskSpec("a"), TaskSpec("a", question="other")}) == 2
