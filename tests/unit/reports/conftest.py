"""Records and a small run directory as the runner would leave them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_agentcompass.contracts.record import AttemptRecord
from pytest_agentcompass.results.rundir import RunDirectory

KINDS: dict[str, dict[str, Any]] = {
    "passed": {"status": "completed", "passed": True, "score": 1.0, "metrics": {"correct": True}},
    "failed": {"status": "completed", "passed": False, "score": 0.0, "metrics": {"correct": False}},
    "error": {
        "status": "run_error",
        "failure_mode": "environment_error",
        "issues": (
            {"phase": "open", "severity": "error", "code": "environment_error", "message": "image foo:1 is not there"},
        ),
    },
    "satisfied": {"status": "skipped", "failure_mode": "strategy_satisfied"},
    "no_solution": {"status": "skipped", "failure_mode": "no_solution"},
}

MakeRecord = Callable[..., AttemptRecord]


@pytest.fixture(scope="session")
def make_record() -> MakeRecord:
    """Return a factory: kind of outcome, request, task id, attempt, and any field of the record."""

    def make(kind: str, request: str = "r", task: str = "t1", attempt: int = 1, **fields: Any) -> AttemptRecord:
        return AttemptRecord(**{"request": request, "task_id": task, "attempt": attempt, **KINDS[kind], **fields})

    return make


@pytest.fixture
def make_run(tmp_path: Path, make_record: MakeRecord) -> Callable[..., RunDirectory]:
    """Return a factory of run directories from {request: {task: [kinds]}}; `missing` leaves no record."""

    def make(
        requests: dict[str, dict[str, list[str]]], info: list[dict[str, Any]] | None = None, **fields: Any
    ) -> RunDirectory:
        run = RunDirectory.create(tmp_path / "results", run_id=f"run-{len(list(tmp_path.glob('results/run/*')))}")
        run.update_run_info(requests=info or [])
        cells = [
            (request, task, place + 1, kind)
            for request, tasks in requests.items()
            for task, kinds in tasks.items()
            for place, kind in enumerate(kinds)
        ]
        run.write_planned([cell[:3] for cell in cells])
        for request, task, attempt, kind in cells:
            if kind != "missing":
                run.write_record(make_record(kind, request, task, attempt, **fields))
        return run

    return make
