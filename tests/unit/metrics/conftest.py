"""Records as the runner would store them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pytest_agentcompass.contracts.record import AttemptRecord

KINDS: dict[str, dict[str, Any]] = {
    "passed": {"status": "completed", "passed": True, "score": 1.0, "metrics": {"correct": True}},
    "failed": {"status": "completed", "passed": False, "score": 0.0, "metrics": {"correct": False}},
    "error": {"status": "run_error", "failure_mode": "environment_error"},
    "satisfied": {"status": "skipped", "failure_mode": "strategy_satisfied"},
    "no_solution": {"status": "skipped", "failure_mode": "no_solution"},
    "budget": {"status": "skipped", "failure_mode": "budget_spent"},
    "deadline": {"status": "skipped", "failure_mode": "deadline"},
    "cancelled": {"status": "run_error", "failure_mode": "cancelled"},
}

MakeRecord = Callable[..., AttemptRecord]


@pytest.fixture(scope="session")
def make_record() -> MakeRecord:
    """Return a factory: kind of outcome, task id, attempt, and any field of the record."""

    def make(kind: str, task: str = "t1", attempt: int = 1, **fields: Any) -> AttemptRecord:
        return AttemptRecord(**{"request": "r", "task_id": task, "attempt": attempt, **KINDS[kind], **fields})

    return make


@pytest.fixture(scope="session")
def rows(make_record: MakeRecord) -> Callable[[dict[str, list[str]]], tuple[list[AttemptRecord], list[Any]]]:
    """Return a factory of (records, plan) from outcomes by task; `missing` is planned without a record."""

    def make(tasks: dict[str, list[str]]) -> tuple[list[AttemptRecord], list[Any]]:
        cells = [(task, place + 1, kind) for task, kinds in tasks.items() for place, kind in enumerate(kinds)]
        records = [
            make_record(kind, task, number, category=task.partition(":")[0])
            for task, number, kind in cells
            if kind != "missing"
        ]
        return records, [("r", task, number) for task, number, _ in cells]

    return make
