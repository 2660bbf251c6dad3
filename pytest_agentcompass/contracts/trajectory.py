"""Trajectories: what an agent did, step by step, in one form for all agents.

`trajectory.jsonl` of an attempt holds a header line `{"schema": "agentcompass-trajectory", "version": 1, ...}`
and then one line per step, written when the step is over. Readers ignore keys that they do not know.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

__all__ = ["TRAJECTORY_SCHEMA", "TRAJECTORY_VERSION", "Observation", "TrajectoryStep"]

TRAJECTORY_SCHEMA = "agentcompass-trajectory"
TRAJECTORY_VERSION = 1


@dataclass(slots=True)
class Observation:
    """What came back of one tool call. *exit_code* and *seconds* where a command was run."""

    content: str
    call_id: str = ""
    exit_code: int | None = None
    timed_out: bool = False
    truncated: bool = False
    is_error: bool = False
    seconds: float | None = None


@dataclass(slots=True)
class TrajectoryStep:
    """One step: one model call and what came of it.

    *input* holds the messages that are new since the step before (`role`, `content`), *tool_calls* what the
    model asked for (`id`, `name`, `arguments`, `problem`). *usage* counts tokens (`input_tokens`,
    `output_tokens`, `cached_tokens`), *latency_seconds* the model call, *tries* how often it was made.
    *error* says why the step has no output. *source* is `agent`, or `environment` for what happened without it.
    """

    step: int
    source: str = "agent"
    started_at: str = ""
    task_step: str = ""
    input: list[dict[str, Any]] = field(default_factory=list)
    output: str = ""
    reasoning: str = ""
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    observations: list[Observation] = field(default_factory=list)
    usage: dict[str, int] = field(default_factory=dict)
    cost_usd: float | None = None
    latency_seconds: float | None = None
    tries: int = 1
    stop_reason: str = ""
    error: str = ""

    def to_row(self) -> dict[str, Any]:
        """Return the step as one JSON object; empty fields are left out."""
        row: dict[str, Any] = {"step": self.step, "source": self.source}
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name != "observations" and value not in (None, "", [], {}):
                row[item.name] = value
        if self.observations:
            row["observations"] = [_observation(item) for item in self.observations]
        return row


def _observation(item: Observation) -> dict[str, Any]:
    row: dict[str, Any] = {"content": item.content}
    for name in ("call_id", "exit_code", "timed_out", "truncated", "is_error", "seconds"):
        value = getattr(item, name)
        if value not in (None, "", False) or (name == "exit_code" and value == 0):
            row[name] = value
    return row
