"""Analyzers of trajectories: figures, truncation, empty and repeated output, failing tool calls. They judge nothing.

Each reads `RunResult.trajectory` (rows as in `contracts.trajectory`) and returns a few plain figures, which stand
on the record under `telemetry.analysis.<id>`.
"""

from __future__ import annotations

import json
from collections import Counter
from itertools import groupby
from typing import Any, ClassVar

from ..components.recipe import BaseAnalyzer
from ..contracts.outcome import RunResult
from ..contracts.request import RunRequest
from ..contracts.task import TaskSpec

__all__ = ["OutputQualityAnalyzer", "StatisticsAnalyzer", "ToolCallAnalyzer", "TruncationAnalyzer"]

_REPEATED = 3  # the same output or call so many times in a row is a loop
_STATUS_FAILED = (126, 127)
_CUT = "characters cut ...]"  # as `components.trajectory.shorten` writes it


class _TrajectoryAnalyzer(BaseAnalyzer):
    """Base: applies where there is a trajectory."""

    def applies(self, task: TaskSpec, result: RunResult, req: RunRequest) -> bool:
        """Whether the agent left a trajectory."""
        return bool(result.trajectory)


class StatisticsAnalyzer(_TrajectoryAnalyzer):
    """Steps, tool calls, tokens, cost and latency of an attempt."""

    id: ClassVar[str] = "statistics"

    def analyze(self, task: TaskSpec, result: RunResult, req: RunRequest) -> dict[str, Any]:
        """Return the figures; what nobody told is left out."""
        rows = result.trajectory or []
        latencies = sorted(row["latency_seconds"] for row in rows if "latency_seconds" in row)
        found: dict[str, Any] = {
            "steps": len(rows),
            "tool_calls": sum(len(row.get("tool_calls", ())) for row in rows),
            "model_tries": sum(int(row.get("tries", 1)) for row in rows),
            **result.usage.of_agent(),
        }
        if latencies:
            found["latency_seconds_total"] = round(sum(latencies), 4)
            found["latency_seconds_median"] = latencies[len(latencies) // 2]
            found["latency_seconds_max"] = latencies[-1]
        inputs = [row["usage"]["input_tokens"] for row in rows if "input_tokens" in row.get("usage", {})]
        if inputs:
            found["input_tokens_largest"] = max(inputs)
        return found


class TruncationAnalyzer(_TrajectoryAnalyzer):
    """What was cut: answers of the model at its limit, outputs of commands at ours, an old conversation dropped."""

    id: ClassVar[str] = "truncation"

    def analyze(self, task: TaskSpec, result: RunResult, req: RunRequest) -> dict[str, Any]:
        """Return how often each happened."""
        rows = result.trajectory or []
        seen = [item for row in rows for item in row.get("observations", ())]
        return {
            "answers_cut": sum(row.get("stop_reason") == "length" for row in rows),
            "outputs_cut": sum(
                bool(item.get("truncated")) or "characters cut ...]" in item["content"] for item in seen
            ),
            "context_cut": sum(issue.code == "context_cut" for issue in result.issues),
            "last_answer_cut": bool(rows) and rows[-1].get("stop_reason") == "length",
        }


class OutputQualityAnalyzer(_TrajectoryAnalyzer):
    """Empty answers, and answers or calls that repeat: the signs of a loop."""

    id: ClassVar[str] = "output_quality"

    def analyze(self, task: TaskSpec, result: RunResult, req: RunRequest) -> dict[str, Any]:
        """Return counts, the longest run of one and the same step, and whether that is a loop."""
        rows = result.trajectory or []
        empty = sum(not row.get("output", "").strip() and not row.get("tool_calls") for row in rows)
        prints = [_print_of(row) for row in rows if row.get("output") or row.get("tool_calls")]
        longest = max((len(list(group)) for _, group in groupby(prints)), default=0)
        return {
            "empty_outputs": empty,
            "distinct_steps": len(set(prints)),
            "longest_repetition": longest,
            "loop": longest >= _REPEATED or _alternates(prints),
        }


def _print_of(row: dict[str, Any]) -> str:
    calls = [(call.get("name"), call.get("arguments")) for call in row.get("tool_calls", ())]
    return json.dumps([row.get("output", "") if not calls else "", calls], sort_keys=True, default=str)


def _alternates(prints: list[str]) -> bool:
    """Whether the last six steps are two that take turns."""
    last = prints[-2 * _REPEATED :]
    return len(last) == 2 * _REPEATED and len(set(last)) == 2 and last[:2] * _REPEATED == last


class ToolCallAnalyzer(_TrajectoryAnalyzer):
    """Tool calls that failed: unreadable, unknown, timed out, not found, or with another status than 0."""

    id: ClassVar[str] = "tool_calls"

    def analyze(self, task: TaskSpec, result: RunResult, req: RunRequest) -> dict[str, Any]:
        """Return counts by tool and by kind of failure."""
        rows = result.trajectory or []
        calls = [call for row in rows for call in row.get("tool_calls", ())]
        seen = [item for row in rows for item in row.get("observations", ())]
        codes = [item["exit_code"] for item in seen if item.get("exit_code") is not None]
        return {
            "by_tool": dict(sorted(Counter(str(call.get("name")) for call in calls).items())),
            "unreadable": sum(bool(call.get("problem")) for call in calls),
            "errors": sum(bool(item.get("is_error")) for item in seen),
            "timed_out": sum(bool(item.get("timed_out")) for item in seen),
            "not_found": sum(code in _STATUS_FAILED for code in codes),
            "failed": sum(code != 0 for code in codes),
        }
