"""Recipe `swebench_host_process`: SWE-bench without images, on a clone of the repository."""

from __future__ import annotations

import copy
from typing import ClassVar

from ..components.recipe import BaseRecipe
from ..contracts.plan import ExecutionPlan
from ..contracts.request import RunRequest
from ..contracts.task import TaskSpec
from ..errors import PlanningError

__all__ = ["SwebenchHostProcess"]


class SwebenchHostProcess(BaseRecipe):
    """Demand the clones, and say on the record that such verdicts are not the official ones."""

    id: ClassVar[str] = "swebench_host_process"

    def matches(self, req: RunRequest, task: TaskSpec, plan: ExecutionPlan) -> bool:
        """Whether it is an instance of SWE-bench on this machine."""
        return req.benchmark.id == "swebench" and plan.environment.id == "host_process"

    def apply(self, plan: ExecutionPlan, req: RunRequest, task: TaskSpec) -> ExecutionPlan:
        """Return the plan with the note; PlanningError when no clones are named."""
        if not req.benchmark.params.get("repositories_dir"):
            raise PlanningError(
                "benchmark 'swebench' has no images in environment 'host_process': name a folder of clones "
                "(benchmark.repositories_dir=DIR with owner__repo below it), or use environment=docker"
            )
        adapted = copy.copy(plan)
        adapted.notes = [*plan.notes, "the tests ran on this machine, not in the official image: a local check only"]
        return adapted
