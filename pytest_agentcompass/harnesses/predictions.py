"""Harness `predictions`: no agent; the patches of a predictions file are graded as they are.

    pytest --agentcompass benchmark=swebench harness=predictions harness.path=preds.jsonl

An instance that the file does not name is skipped.
"""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from ..components.context import current_attempt
from ..components.harness import BaseHarness
from ..components.predictions import Prediction, read_predictions
from ..contracts.outcome import RunResult
from ..contracts.plan import HarnessPlan
from ..contracts.request import RunRequest
from ..contracts.task import PreparedTask, TaskSpec
from ..redaction import scrub_bytes

__all__ = ["PredictionsHarness", "PredictionsParams"]

_PATCH = "model.patch"


class PredictionsParams(BaseModel):
    """`harness.params` of predictions: *path* is a `.jsonl` or `.json` file in the official format."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str = Field(min_length=1)


class PredictionsHarness(BaseHarness):
    """Hands over a patch that somebody made before; needs no sandbox for it."""

    id: ClassVar[str] = "predictions"
    params_model: ClassVar[type[BaseModel] | None] = PredictionsParams
    needs_environment: ClassVar[bool] = False

    def unavailable(self, task: TaskSpec, req: RunRequest) -> str | None:
        """Return why there is nothing to grade for *task*."""
        path = self.params(req).path
        return None if task.task_id in read_predictions(path) else f"{path} has no prediction for {task.task_id!r}"

    async def run_task(self, session: Any, prepared: PreparedTask, req: RunRequest, plan: HarnessPlan) -> RunResult:
        """Store the instance's patch as the attempt's own."""
        prediction: Prediction = read_predictions(self.params(req).path)[prepared.task_id]
        path = current_attempt().directory / "artifacts" / _PATCH
        path.parent.mkdir(parents=True, exist_ok=True)
        clean = scrub_bytes(prediction.patch)
        path.write_bytes(clean)
        if clean != prediction.patch:
            prepared.metadata[_PATCH] = prediction.patch  # the file is masked; what is graded is the patch as it was
        return RunResult(
            prepared.task_id,
            category=prepared.category,
            artifacts={_PATCH: {"source": prediction.source, "status": "given", "bytes": len(prediction.patch)}},
            metadata={"model_name_or_path": prediction.model, "prediction": prediction.source},
        )
