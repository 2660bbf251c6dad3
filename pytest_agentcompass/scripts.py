"""The engine without pytest: for scripts and notebooks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .components.calls import use_threads
from .components.registry import Registry
from .config.options import RuntimeOptions
from .config.resolve import resolve_run
from .config.words import split_words
from .contracts.record import AttemptRecord, OrchestrationResult, RequestOutcome
from .execution.engine import Engine, Job
from .execution.loading import load_tasks
from .execution.run import RunContext
from .redaction import secrets_from_environment
from .reports.extra import write_extra_reports
from .reports.write import collect_results, write_files
from .results.events import EventLog
from .results.rundir import RunDirectory

if TYPE_CHECKING:
    from .contracts.request import RunRequest
    from .contracts.task import TaskSpec
    from .execution.attempt import Attempt

__all__ = ["build_run_request", "run_evaluation"]


def build_run_request(*words: str, registry: Registry | None = None, **settings: Any) -> RunRequest:
    """Return a validated request from KEY=VALUE *words* and keyword *settings* (`benchmark="tasks"`).

    A keyword value may be a mapping: `model={"id": "m", "params": {"temperature": 0}}`. Raises
    ConfigError for whatever the command line would refuse.
    """
    import json

    given = [
        *words,
        *(f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in settings.items()),
    ]
    resolved = resolve_run(
        words=split_words(given),
        rootdir=Path.cwd(),
        config_files=[],
        environ=os.environ,
        registry=registry or _registry(),
    )
    assert resolved.request is not None
    return resolved.request.request


def _registry() -> Registry:
    registry = Registry()
    registry.load_entry_points()
    return registry


async def run_evaluation(
    *requests: RunRequest,
    results_dir: str | Path = "agentcompass-results",
    run_name: str = "script",
    run_id: str | None = None,
    registry: Registry | None = None,
) -> OrchestrationResult:
    """Run *requests* in declared order and return their outcomes; records and reports are on disk as well.

    Order is priority: work is taken from the first request that has any, up to its `task_concurrency`
    (of the first request that sets one; default 1) attempts in flight.
    """
    secrets_from_environment()
    registry = registry or _registry()
    directory = RunDirectory.create(Path(results_dir), run_name, run_id)
    events = EventLog(directory.path / "events.jsonl")
    run = RunContext(
        run_id=directory.path.name,
        directory=directory,
        events=events,
        registry=registry,
        options=RuntimeOptions(results_dir=Path(results_dir)),
    )
    work: list[tuple[RunRequest, TaskSpec, int]] = []
    problems: dict[str, list[str]] = {}
    for request in requests:
        tasks, refused, defined = await load_tasks(request, registry)
        directory.write_tasks(request.name, tasks, refused, {"defined_tasks": defined})
        problems[request.name] = [item.message for item in refused]
        work.extend((request, task, n) for task in tasks for n in range(1, request.execution.attempts.k + 1))
    directory.write_planned([(request.name, task.task_id, n) for request, task, n in work])
    records = await _run_all(run, work, _concurrency(requests))
    directory.update_run_info(
        requests=[{**request.model_dump(mode="json"), "name": request.name} for request in requests]
    )
    directory.finish("finished")
    results = collect_results(directory)
    write_files(directory, results)
    write_extra_reports(directory, results, registry, {request.name: request for request in requests})
    reports = {result.name: dict(result.report) for result in results}
    events.close()
    return OrchestrationResult(
        run_id=run.run_id,
        directory=str(directory.path),
        requests=[
            RequestOutcome(
                name=request.name,
                status=str(reports.get(request.name, {}).get("status", "completed")),
                records=[record for record in records if record.request == request.name],
                report=reports.get(request.name, {}),
                problems=problems[request.name],
            )
            for request in requests
        ],
    )


def _concurrency(requests: Sequence[RunRequest]) -> int:
    return (
        next((request.execution.task_concurrency for request in requests if request.execution.task_concurrency), 1) or 1
    )


async def _run_all(run: RunContext, work: list[tuple[RunRequest, TaskSpec, int]], slots: int) -> list[AttemptRecord]:
    """Run *work* with at most *slots* attempts in flight; records come in order of *work*."""
    records: dict[int, AttemptRecord] = {}

    def done(job: Job, attempt: Attempt) -> None:
        if attempt.record is not None:
            records[job.payload] = attempt.record

    use_threads(2 * slots)
    jobs = [Job(run.request(request), task, number, index) for index, (request, task, number) in enumerate(work)]
    await Engine(run, slots, done).run_jobs(jobs)
    return [records[index] for index in sorted(records)]
