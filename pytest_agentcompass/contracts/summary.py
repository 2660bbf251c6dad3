"""summary.json as later readers take it: baselines, comparisons, gates.

Readers ignore keys that they do not know, so a schema version may grow; it changes only when the
meaning of something that stands here changes.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "SUMMARY_KIND",
    "SUMMARY_SCHEMA_VERSION",
    "Summary",
    "SummaryAttempt",
    "SummaryRequest",
    "SummaryTask",
]

SUMMARY_SCHEMA_VERSION = 1
SUMMARY_KIND = "agentcompass-summary"


class _Read(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class SummaryAttempt(_Read):
    """One planned attempt. *cost_usd* and *usage* are its own; *discarded_usage* its discarded tries'."""

    attempt: int
    outcome: Literal["passed", "failed", "error", "skipped", "missing"]
    score: float | None = None
    failure_mode: str = "none"
    seconds: float = 0.0
    cost_usd: float | None = None
    metrics: dict[str, bool | float] = Field(default_factory=dict)
    usage: dict[str, float] = Field(default_factory=dict)
    discarded_usage: dict[str, float] = Field(default_factory=dict)


class SummaryTask(_Read):
    """One task with its attempts; *fingerprint* covers content, grader, image, limits and policies."""

    task_id: str
    category: str = ""
    fingerprint: str = ""
    attempts: tuple[SummaryAttempt, ...] = ()


class SummaryRequest(_Read):
    """One request: who was tested on what, its metric report, its tasks in order."""

    name: str
    benchmark: str = ""
    harness: str = ""
    model: str = ""
    environment: str = ""
    report: dict[str, Any] = Field(default_factory=dict)
    tasks: tuple[SummaryTask, ...] = ()

    @property
    def k(self) -> int:
        """How many attempts each task was to have."""
        return int(self.report.get("k", 1))

    @property
    def early_stop(self) -> bool:
        """Whether outcomes decided how many attempts were made."""
        return bool(self.report.get("early_stop", False))


class Summary(_Read):
    """A whole run. *complete* is false, and *partial_reasons* say why, when part of it was not run."""

    schema_version: Literal[1]
    kind: Literal["agentcompass-summary"]
    run: dict[str, Any] = Field(default_factory=dict)
    complete: bool
    partial_reasons: tuple[str, ...] = ()
    requests: tuple[SummaryRequest, ...] = ()

    @property
    def run_id(self) -> str:
        """The id of the run, or an empty text."""
        return str(self.run.get("run_id") or "")
