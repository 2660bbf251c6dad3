"""Analyzers run after evaluation; they never change a score."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from ..components.calls import call, is_cancellation

if TYPE_CHECKING:
    from ..components.registry import Registry
    from ..contracts.outcome import RunResult
    from ..contracts.request import RunRequest
    from ..contracts.task import TaskSpec

__all__ = ["analyze"]


async def analyze(registry: Registry, task: TaskSpec, result: RunResult, request: RunRequest) -> None:
    """Let every analyzer that applies look at a copy of *result*; a failing one is recorded apart."""
    if not request.execution.enable_analysis:
        return
    for id, analyzer in registry.all("analyzer"):
        view = copy.deepcopy(result)  # an analyzer never changes a score
        try:
            if analyzer.applies(task, view, request):
                result.telemetry.setdefault("analysis", {})[id] = await call(analyzer.analyze, task, view, request)
        except BaseException as error:  # whatever an extension raises must not cost a finished attempt
            if is_cancellation(error):
                raise
            result.note("analyze", "analyzer_failed", f"analyzer {id!r}: {type(error).__name__}: {error}", "info")
