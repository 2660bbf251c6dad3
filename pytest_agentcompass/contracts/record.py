"""The record of one attempt: the single source of truth of a run."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from .outcome import FailureMode, Fault, Status

__all__ = ["SCHEMA_VERSION", "AttemptRecord", "OrchestrationResult", "RequestOutcome"]

SCHEMA_VERSION = 1


class AttemptRecord(BaseModel):
    """One attempt, as stored in `attempts/<request>/<task dir>/<n>/record.json`.

    *durations* are monotonic seconds per phase. *score* is the primary metric as a number
    (`None`: no score, which is not 0); *passed* whether it reaches the request's threshold.
    *fingerprint* holds the `task` and `run` fingerprints.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: int = SCHEMA_VERSION
    run_id: str = ""
    request: str
    task_id: str
    attempt: int
    category: str = ""
    tags: tuple[str, ...] = ()
    difficulty: str = ""
    status: Status
    failure_mode: FailureMode = FailureMode.NONE
    passed: bool | None = None
    score: float | None = None
    metrics: dict[str, bool | int | float] = Field(default_factory=dict)
    issues: tuple[dict[str, str], ...] = ()
    started_at: str = ""
    finished_at: str = ""
    durations: dict[str, float] = Field(default_factory=dict)
    usage: dict[str, int | float] = Field(default_factory=dict)
    tests: dict[str, str] = Field(default_factory=dict)
    final_answer: Any = None
    agent_output: str = ""
    verifier_output: str = ""
    artifacts: dict[str, Any] = Field(default_factory=dict)
    retries: tuple[dict[str, Any], ...] = ()
    plan: dict[str, Any] = Field(default_factory=dict)
    environment: dict[str, Any] = Field(default_factory=dict)
    harness: dict[str, Any] = Field(default_factory=dict)
    model: str = ""
    telemetry: dict[str, Any] = Field(default_factory=dict)
    details: dict[str, Any] = Field(default_factory=dict)
    fingerprint: dict[str, str] = Field(default_factory=dict)

    @property
    def outcome(self) -> str:
        """`passed`, `failed`, `error` or `skipped`: what pytest and every report show."""
        if self.status is Status.SKIPPED:
            return "skipped"
        if self.passed is None or self.failure_mode.fault is Fault.INFRASTRUCTURE:
            return "error"
        return "passed" if self.passed else "failed"

    @property
    def seconds(self) -> float:
        """Wall time of the attempt, all phases."""
        return sum(self.durations.values())


class RequestOutcome(BaseModel):
    """What became of one request: its state, its records and its metric report."""

    model_config = ConfigDict(extra="forbid")

    name: str
    status: str
    records: list[AttemptRecord] = Field(default_factory=list)
    report: dict[str, Any] = Field(default_factory=dict)
    problems: list[str] = Field(default_factory=list)


class OrchestrationResult(BaseModel):
    """What became of a run: the outcomes of its requests, in declared order."""

    model_config = ConfigDict(extra="forbid")

    run_id: str
    directory: str
    requests: list[RequestOutcome] = Field(default_factory=list)
