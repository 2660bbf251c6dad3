"""Recipe `swebench_docker`: SWE-bench in containers of the instance images."""

from __future__ import annotations

import copy
from typing import ClassVar

from ..components.recipe import BaseRecipe
from ..contracts.plan import ExecutionPlan
from ..contracts.request import RunRequest
from ..contracts.task import TaskSpec

__all__ = ["SwebenchDocker"]


class SwebenchDocker(BaseRecipe):
    """Take a local instance image first and pull it where there is none, as the official harness does."""

    id: ClassVar[str] = "swebench_docker"

    def matches(self, req: RunRequest, task: TaskSpec, plan: ExecutionPlan) -> bool:
        """Whether it is an instance of SWE-bench on Docker."""
        return req.benchmark.id == "swebench" and plan.environment.id == "docker"

    def apply(self, plan: ExecutionPlan, req: RunRequest, task: TaskSpec) -> ExecutionPlan:
        """Return the plan with `pull=missing`."""
        adapted = copy.copy(plan)
        params = {"pull": "missing", **plan.environment.params}
        adapted.environment = plan.environment.model_copy(update={"params": params})
        return adapted
