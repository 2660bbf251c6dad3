"""Harness `nop`: does nothing. Every task must fail with it; one that passes is already solved."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from ..components.harness import BaseHarness
from ..contracts.outcome import RunResult
from ..contracts.plan import HarnessPlan
from ..contracts.request import RunRequest
from ..contracts.task import PreparedTask

__all__ = ["NopHarness", "NopParams"]


class NopParams(BaseModel):
    """nop takes no params."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class NopHarness(BaseHarness):
    """An agent that does nothing and says nothing."""

    id: ClassVar[str] = "nop"
    params_model: ClassVar[type[BaseModel] | None] = NopParams

    async def run_task(self, session: Any, prepared: PreparedTask, req: RunRequest, plan: HarnessPlan) -> RunResult:
        """Return at once."""
        return RunResult(prepared.task_id, category=prepared.category)
