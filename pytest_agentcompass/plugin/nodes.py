"""The node tree: request (a module without object) -> task (a class) -> attempt (a function).

Real pytest node types give fixtures their scopes: attempt = function, task = class, request =
module, run = session.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ..errors import AgentCompassError, nearest
from ..results.layout import escape_id, task_dirname
from .handle import AttemptHandle
from .state import ATTEMPT

if TYPE_CHECKING:
    from ..contracts.request import RunRequest
    from ..contracts.task import TaskProblem, TaskSpec
    from .session import AgentCompassRun

__all__ = ["AttemptItem", "Folder", "ProblemNode", "RequestNode", "SuiteFile", "TaskNode"]


class ProblemNode(pytest.Collector):
    """Something of ours that cannot be collected: a collection error of its own."""

    message = ""

    def collect(self) -> Iterable[pytest.Item]:
        """Raise the problem as a collection error (no traceback)."""
        raise self.CollectError(self.message)


def problem(parent: pytest.Collector, name: str, message: str) -> ProblemNode:
    """Return a node that reports *message* when it is collected."""
    node: ProblemNode = ProblemNode.from_parent(parent, name=escape_id(name) or "problem")
    node.message = message
    return node


class Folder(pytest.Directory):
    """A folder between rootdir and the invocation directory: brings its conftest.py to our items."""

    make_child: Any = None

    def collect(self) -> Iterable[pytest.Collector]:
        """Yield the next folder, or the request."""
        yield self.make_child(self)


class SuiteFile(pytest.File):
    """A `*.agentcompass.yaml` suite."""

    run: AgentCompassRun

    def collect(self) -> Iterator[pytest.Collector]:
        """Yield one node per request of the suite; a request that cannot be prepared is a problem of its own."""
        try:
            entries = self.run.load_suite(self.path)
        except AgentCompassError as error:
            raise self.CollectError(error.message) from None
        for entry in entries:
            if hasattr(entry, "request"):
                yield self._request(entry.request)
            else:
                yield problem(self, entry.name, entry.message)

    def _request(self, request: RunRequest) -> RequestNode:
        name = escape_id(request.name)
        return RequestNode.from_parent(
            self, name=name, nodeid=f"{self.nodeid}::{name}", path=self.path, request=request, run=self.run
        )


class RequestNode(pytest.Module):
    """One request; collecting it loads and selects its tasks."""

    obj = None
    fixtureinfo: Any = None

    def __init__(self, *, request: RunRequest, run: AgentCompassRun, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.request = request
        self.run = run

    def collect(self) -> Iterator[pytest.Item | pytest.Collector]:
        """Yield a node per task, and a problem per task that cannot be used."""
        try:
            tasks, problems = self.run.tasks_of(self.request)
        except AgentCompassError as error:
            raise self.CollectError(error.message) from None
        problems = [*problems, *_clashes(tasks)]
        refused = {item.task_id for item in problems}
        for item in problems:
            yield problem(self, item.task_id, item.message)
        if not tasks and not problems:
            raise self.CollectError(f"request {self.request.name!r} selects no task")
        wanted = self.run.selection_below(self.nodeid)
        names = {name.partition("::")[0] for name in wanted} if wanted is not None else None
        for task in tasks:
            name = escape_id(task.task_id)
            if task.task_id not in refused and (names is None or name in names):
                yield TaskNode.from_parent(self, name=name, task=task)
        for name in sorted((names or set()) - {escape_id(task.task_id) for task in tasks}):
            known = [escape_id(task.task_id) for task in tasks]
            yield problem(
                self,
                name,
                f"no task of request {self.request.name!r} has the id {name!r}; {nearest(name, known[:200])}",
            )


def _clashes(tasks: list[TaskSpec]) -> list[TaskProblem]:
    """Return the tasks that share an id, or a folder name on disk, as problems that name both."""
    from ..contracts.task import TaskProblem

    seen: dict[str, TaskSpec] = {}
    found = []
    for task in tasks:
        key = task_dirname(task.task_id).casefold()
        other = seen.setdefault(key, task)
        if other is not task:
            where = f"{other.source or 'one task'} and {task.source or 'another'}"
            found.append(
                TaskProblem(
                    task.task_id, f"two tasks have the id {task.task_id!r}: {where}; ids must be unique", task.source
                )
            )
    return found


class TaskNode(pytest.Class):
    """One task; its attempts are its children."""

    obj = None

    def __init__(self, *, task: TaskSpec, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.task = task
        run: AgentCompassRun = self.parent.run  # type: ignore[union-attr]
        for word in {task.category, task.difficulty, *task.tags}:
            if word:
                run.mark(self, word)
        self.extra_keyword_matches.update(filter(None, {task.task_id, task.category, task.difficulty, *task.tags}))

    def collect(self) -> Iterator[AttemptItem | ProblemNode]:
        """Yield the attempts; their names stay when k changes."""
        request: RequestNode = self.parent  # type: ignore[assignment]
        wanted = request.run.selection_below(self.nodeid)
        for number in range(1, request.request.execution.attempts.k + 1):
            if wanted is None or f"attempt{number}" in wanted:
                yield AttemptItem.make(self, request, number)
        k = request.request.execution.attempts.k
        for name in sorted((wanted or set()) - {f"attempt{number}" for number in range(1, k + 1)}):
            known = "attempt1" if k == 1 else f"attempt1 to attempt{k}"
            yield problem(self, name, f"task {self.task.task_id!r} has no {name!r}; it has {known}")


def _body(agentcompass_attempt: Any) -> None:
    """Name the fixture that the body needs; the item runs itself (`AttemptItem.runtest`)."""


class AttemptItem(pytest.Function):
    """One attempt at one task."""

    number = 1
    request_node: RequestNode
    task: TaskSpec

    @classmethod
    def make(cls, parent: TaskNode, request: RequestNode, number: int) -> AttemptItem:
        """Return the item of attempt *number*; all items of a request share one fixture closure.

        Computing the closure is most of what a function item costs, and it is the same for all.
        """
        item: AttemptItem = cls.from_parent(
            parent, name=f"attempt{number}", callobj=_body, fixtureinfo=request.fixtureinfo
        )
        request.fixtureinfo = item._fixtureinfo
        item.number, item.request_node, item.task = number, request, parent.task
        return item

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return where the item stands: the request's file, and its node id.

        The blank keeps pytest from taking the id apart at its dots when it prints it.
        """
        return self.path, 0, f"{self.nodeid} "

    def runtest(self) -> None:
        """Run and grade the attempt; not through `pytest_pyfunc_call`, which `-p no:python` takes away."""
        if "agentcompass_attempt" in self.funcargs:
            handle: Any = self.funcargs["agentcompass_attempt"]
            handle.run_and_evaluate()
        else:  # settled: there is a record already, or what the agent left is there to be graded
            handle = AttemptHandle(self.stash[ATTEMPT], self.request_node.run.portal)
            if handle.attempt.record is None:
                handle.evaluate()
        handle.require_passed()
