"""What can be said against a request before anything opens: pure checks, no engine needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..components.registry import Registry
from ..contracts.environment import EnvironmentSpec
from ..contracts.request import RunRequest
from ..contracts.task import TaskSpec
from ..errors import PlanningError, nearest
from .planner import Planner

__all__ = ["Preflight", "check_tasks", "static_problems"]


@dataclass(frozen=True, slots=True)
class Preflight:
    """*request* holds what no task of the request can do without; *tasks* what single tasks lack, by task id."""

    request: tuple[str, ...] = ()
    tasks: dict[str, tuple[str, ...]] = field(default_factory=dict)


def static_problems(req: RunRequest, tasks: Sequence[TaskSpec], registry: Registry) -> list[str]:
    """Return why *req* cannot run at all: what every one of its tasks lacks, one sentence each."""
    return list(check_tasks(req, tasks, registry).request)


def check_tasks(req: RunRequest, tasks: Sequence[TaskSpec], registry: Registry) -> Preflight:
    """Return what the chosen components cannot do: of the whole request, and of single tasks.

    A task that cannot be planned for a reason of its own (broken hints) is a problem of that task.
    """
    unknown = _unknown_recipes(req, registry)
    if unknown:
        return Preflight(request=tuple(unknown))
    checker = _Checker(req, registry)
    found = {task.task_id: checker.problems(task) for task in tasks}
    if not found:
        return Preflight()
    first = next(iter(found.values()))
    common = [problem for problem in first if all(problem in problems for problems in found.values())]
    rest = {id: tuple(problem for problem in problems if problem not in common) for id, problems in found.items()}
    return Preflight(tuple(common), {id: problems for id, problems in rest.items() if problems})


def _unknown_recipes(req: RunRequest, registry: Registry) -> list[str]:
    known = registry.ids("recipe")
    return [
        f"execution.enabled_recipes: recipe {id!r} is not known; {nearest(id, known)}"
        for id in req.execution.enabled_recipes
        if id not in known
    ]


class _Checker:
    """Asks provider and harness once per distinct set of hints."""

    def __init__(self, req: RunRequest, registry: Registry) -> None:
        self._req = req
        self._registry = registry
        self._planner = Planner(registry)
        self._known: dict[str, list[str]] = {}

    def problems(self, task: TaskSpec) -> list[str]:
        key = repr(task.environment)
        if key not in self._known:
            try:
                self._known[key] = self._ask(self._planner.environment(self._req, task))
            except PlanningError as error:
                # It names the task, so it cannot be shared with others that have the same hints.
                return [error.message]
        return self._known[key]

    def _ask(self, environment: EnvironmentSpec) -> list[str]:
        provider = self._registry.make("environment", environment.id)
        problems = list(provider.check(environment))
        policies = {environment.baseline_network_policy, environment.run_network_policy}
        policies.add(environment.evaluation_network_policy)
        if len(policies) > 1 and not provider.supports_network_switch:
            problems.append(
                f"environment {environment.id!r} cannot switch its network policy between phases, and they differ"
            )
        if self._req.harness.id != "none":
            harness = self._registry.make("harness", self._req.harness.id)
            if not harness.supports(environment, self._req.model):
                problems.append(
                    f"harness {self._req.harness.id!r} cannot work in environment {environment.id!r} "
                    f"with model {self._req.model.id!r}"
                )
        return problems
