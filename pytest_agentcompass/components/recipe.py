"""Recipes and analyzers: small pure adjustments before a run, notes after it."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from ..contracts.outcome import RunResult
    from ..contracts.plan import ExecutionPlan
    from ..contracts.request import RunRequest
    from ..contracts.task import TaskSpec

__all__ = ["BaseAnalyzer", "BaseRecipe"]


class BaseRecipe(abc.ABC):
    """A pure rule that adapts a plan (an image name per provider, say): no I/O, no model call."""

    id: ClassVar[str] = ""

    @abc.abstractmethod
    def matches(self, req: RunRequest, task: TaskSpec, plan: ExecutionPlan) -> bool:
        """Whether the recipe has something to say about this attempt."""

    @abc.abstractmethod
    def apply(self, plan: ExecutionPlan, req: RunRequest, task: TaskSpec) -> ExecutionPlan:
        """Return the adapted plan; what the user set in the request stays as it is."""


class BaseAnalyzer(abc.ABC):
    """Looks at a finished attempt; never changes a score."""

    id: ClassVar[str] = ""

    def applies(self, task: TaskSpec, result: RunResult, req: RunRequest) -> bool:
        """Whether the analyzer has the data that it needs."""
        return True

    @abc.abstractmethod
    def analyze(self, task: TaskSpec, result: RunResult, req: RunRequest) -> dict[str, Any]:
        """Return findings as plain data; they are stored under the analyzer's id."""
