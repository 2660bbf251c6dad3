"""The `regrade` verb: every evaluation again, from what a finished run stored, into a new run directory."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .components.calls import call
from .components.registry import Registry
from .config.options import RuntimeOptions
from .contracts.record import AttemptRecord
from .contracts.request import RunRequest
from .contracts.task import TaskSpec
from .errors import AgentCompassError, ResultsError
from .execution.attempt import Attempt, AttemptStopped
from .execution.checkpoint import restore
from .execution.loading import load_tasks
from .execution.run import RequestContext, RunContext
from .reports.write import write_reports
from .results.events import EventLog
from .results.rundir import RunDirectory
from .results.taskfile import LoadedTasks

__all__ = ["Regraded", "regrade"]


@dataclass(slots=True)
class Regraded:
    """What a regrade did; *kept* holds one line for each record that could only be copied."""

    directory: Path
    graded: int = 0
    changed: int = 0
    kept: list[str] = field(default_factory=list)


def regrade(run: Path, results_dir: Path, concurrency: int = 1, registry: Registry | None = None) -> Regraded:
    """Evaluate the attempts of *run* again and return the new run directory and what changed.

    Records whose evaluation needs the agent's own sandbox (mode `reuse`), or which hold no finished agent run,
    are copied as they are. *registry* must know the run's components (default: built-ins and entry points).
    """
    if registry is None:
        registry = Registry()
        registry.load_entry_points()
    return asyncio.run(_Regrade(RunDirectory.open(run), results_dir, registry, max(1, concurrency)).all())


class _Regrade:
    def __init__(self, old: RunDirectory, results_dir: Path, registry: Registry, concurrency: int) -> None:
        self.old = old
        self.requests = _stored_requests(old)
        for request in self.requests.values():
            RequestContext.make(request, registry)  # an unknown component is told before anything is written
        self.new = RunDirectory.create(results_dir, "regrade")
        self.done = Regraded(self.new.path)
        self.slots = asyncio.Semaphore(concurrency)
        info = self.new.read_run_info()
        self.run = RunContext(
            run_id=str(info.get("run_id")),
            directory=self.new,
            events=EventLog(self.new.path / "events.jsonl"),
            registry=registry,
            options=RuntimeOptions(results_dir=results_dir),
        )

    async def all(self) -> Regraded:
        """Regrade every planned attempt and write the reports."""
        tasks: dict[tuple[str, str], TaskSpec] = {}
        for name, request in self.requests.items():
            loaded = await self._tasks(name, request)
            self.new.write_tasks(name, loaded.tasks, loaded.problems, loaded.extra)
            tasks.update({(name, task.task_id): task for task in loaded.tasks})
        planned = self.old.planned()
        self.new.write_planned(planned)
        old_info = self.old.read_run_info()
        self.new.update_run_info(requests=old_info.get("requests"), regraded_from=str(self.old.path))
        await asyncio.gather(*(self._one(*key, tasks.get((key[0], key[1]))) for key in planned))
        self.new.finish("finished")
        self.run.events.close()
        write_reports(self.new)
        return self.done

    async def _tasks(self, name: str, request: RunRequest) -> LoadedTasks:
        """Return the tasks as the dataset has them now (an answer may have been corrected), else as stored."""
        try:
            found, problems, defined = await load_tasks(request, self.run.registry)
            return LoadedTasks(found, problems, {"defined_tasks": defined})
        except (AgentCompassError, OSError) as error:
            self.done.kept.append(f"{name}: the dataset cannot be read now ({error}); its stored tasks are graded")
            return self.old.read_tasks(name)

    async def _one(self, name: str, task_id: str, number: int, task: TaskSpec | None) -> None:
        record = self.old.read_record(name, task_id, number)
        request = self.requests.get(name)
        if record is None:
            return
        async with self.slots:
            reason = "its task or request is not stored"
            if task is not None and request is not None:
                reason = await self._grade(record, request, task)
        if reason:
            self.new.write_record(record)
            self.done.kept.append(f"{name}/{task_id}/{number}: {reason}")

    async def _grade(self, record: AttemptRecord, request: RunRequest, task: TaskSpec) -> str:
        """Grade one attempt again; return why that cannot be done, or an empty text."""
        attempt = Attempt(self.run, self.run.request(request), task, record.attempt)
        attempt.plan = await call(self.run.planner.plan, request, task)
        if attempt.plan.evaluation_environment_mode == "reuse":
            return "its evaluation needs the agent's own sandbox (mode reuse)"
        if "run" not in record.durations or record.outcome == "skipped":
            return "its agent never finished"
        source = self.old.attempt_dir(record.request, record.task_id, record.attempt) / "artifacts"
        if source.is_dir():
            shutil.copytree(source, attempt.attempt_context.directory / "artifacts", symlinks=True)
        if not restore(attempt, record):
            return f"benchmark {request.benchmark.id!r} cannot evaluate from stored artifacts"
        try:
            await attempt.make_plan()
            await attempt.evaluate()
        except AttemptStopped:
            pass
        finally:
            again = attempt.finish()
            await attempt.release()
        self.done.graded += 1
        self.done.changed += again.outcome != record.outcome
        return ""


def _stored_requests(run: RunDirectory) -> dict[str, RunRequest]:
    stored: Any = run.read_run_info().get("requests") or []
    found = {}
    for item in stored if isinstance(stored, list) else []:
        request = RunRequest.model_validate({key: value for key, value in item.items() if key != "name"})
        found[request.name] = request
    if not found:
        raise ResultsError(f"{run.path}: run.json names no request; the run cannot be graded again", path=str(run.path))
    return found
