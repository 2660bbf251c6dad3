"""Summaries of runs that never ran, for tests of gates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pytest_agentcompass.contracts.summary import Summary

OUTCOMES = {
    "P": ("passed", "none"),
    "F": ("failed", "none"),
    "T": ("failed", "agent_timeout"),
    "E": ("error", "no_reward"),
    "M": ("missing", "none"),
    "B": ("skipped", "budget_spent"),
    "S": ("skipped", "strategy_satisfied"),
    "N": ("skipped", "no_solution"),
}


def attempt(number: int, letter: str, **fields: Any) -> dict[str, Any]:
    """Return one attempt; *letter* names its outcome."""
    outcome, mode = OUTCOMES[letter]
    return {"attempt": number, "outcome": outcome, "failure_mode": mode, "seconds": 1.0, **fields}


def tasks(outcomes: Sequence[str] | str, *, mark: str = "f", category: str = "", **fields: Any) -> list[dict[str, Any]]:
    """Return tasks t0, t1, ...; each text holds a task's attempts, a single text one attempt per task."""
    return [
        {
            "task_id": f"t{place}",
            "category": category,
            "fingerprint": f"{mark}{place}",
            "attempts": [attempt(number, letter, **fields) for number, letter in enumerate(text, 1)],
        }
        for place, text in enumerate(outcomes)
    ]


def request(rows: list[dict[str, Any]], name: str = "r", **report: Any) -> dict[str, Any]:
    """Return a request of *rows*."""
    k = max((len(row["attempts"]) for row in rows), default=1)
    return {"name": name, "harness": "h", "report": {"k": k, "early_stop": False, **report}, "tasks": rows}


def run(*requests: Mapping[str, Any], **fields: Any) -> Summary:
    """Return the summary of a run of *requests*."""
    base = {"schema_version": 1, "kind": "agentcompass-summary", "complete": True, "run": {"run_id": "x"}}
    return Summary.model_validate({**base, "requests": list(requests), **fields})


def one(outcomes: Sequence[str] | str, **fields: Any) -> Summary:
    """Return a run of one request."""
    return run(request(tasks(outcomes, **fields)))
