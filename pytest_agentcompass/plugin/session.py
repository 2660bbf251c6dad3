"""The active run in this process: what it was asked for, its directory, its loop."""

from __future__ import annotations

import contextlib
import json
import os
import re
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from .. import __version__
from ..components.calls import shutdown_threads
from ..components.registry import Registry
from ..config.options import least
from ..config.resolve import RunConfig, default_user_config, resolve_run
from ..config.words import split_words
from ..contracts.task import TaskProblem, TaskSpec
from ..errors import AgentCompassError, ConfigError, TaskLoadError, nearest
from ..execution.attempt import Attempt
from ..execution.portal import Portal
from ..execution.reuse import check_request
from ..execution.run import RunContext
from ..planning.recipes import load_recipes
from ..redaction import secrets_from_environment
from ..results.events import EventLog
from ..results.layout import escape_id
from ..results.lock import RunLock, acquire
from ..results.resume import find_run
from ..results.rundir import RunDirectory
from .options import SELECTED, option, setting_words, start_folder
from .state import RUN, as_ours, case_of

if TYPE_CHECKING:
    from ..contracts.record import AttemptRecord
    from ..contracts.request import RunRequest
    from .gates import GateKeeper

__all__ = ["AgentCompassRun", "activate", "resolve"]

_NO_LIMIT = 10_000
_NOT_WORD = re.compile(r"\W+")
RESOLVED: pytest.StashKey[tuple[RunConfig, Registry]] = pytest.StashKey()


def resolve(config: pytest.Config) -> tuple[RunConfig, Registry]:
    """Resolve words and files to requests, once per process; ConfigError becomes a usage error."""
    if RESOLVED not in config.stash:
        registry = Registry()
        try:
            registry.load_entry_points()
            _register(config, registry)
            files = [start_folder(config) / name for name in option(config, "config") or []]
            resolved = resolve_run(
                words=split_words(setting_words(config)),
                rootdir=config.rootpath,
                config_files=files,
                environ=os.environ,
                registry=registry,
                user_config=default_user_config(),
                cwd=start_folder(config),
            )
            load_recipes(resolved.recipe_dirs, registry)
            if resolved.request is None and not config.args and (setting_words(config) or config.stash[SELECTED]):
                known = ", ".join(registry.ids("benchmark"))
                raise ConfigError(f"which benchmark? give benchmark=ID (known: {known}) or the path of a suite")
            _check_pasted(config, resolved)
        except AgentCompassError as error:
            raise pytest.UsageError(error.message) from None
        config.stash[RESOLVED] = resolved, registry
    return config.stash[RESOLVED]


def _register(config: pytest.Config, registry: Registry) -> None:
    """Let conftest.py files and plugins add components; what they raise is told with its place, as a usage error."""
    try:
        config.hook.pytest_agentcompass_register(registry=registry)
    except AgentCompassError:
        raise
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{place.filename}:{place.lineno}"
        raise ConfigError(f"pytest_agentcompass_register: {where}: {type(error).__name__}: {error}") from error


def _check_pasted(config: pytest.Config, resolved: RunConfig) -> None:
    """Refuse node ids of ours that name another request than the command line's."""
    name = escape_id(resolved.request.request.name) if resolved.request else ""
    for nodeid in config.stash[SELECTED]:
        if (part := nodeid.split("::")[1]) != name:
            raise ConfigError(f"{nodeid}: no request is called {part!r}; {nearest(part, [name] if name else [])}")


def activate(config: pytest.Config) -> None:
    """Register the parts of the plugin that an active run needs."""
    from . import (
        collection,
        control,
        finalizing,
        fixtures,
        gates,
        loop,
        notes,
        ordering,
        progress,
        protocol,
        reporting,
        scheduling,
        selection,
        signals,
        usage,
        warned,
        workers,
    )

    secrets_from_environment()
    config.option.continue_on_collection_errors = True
    resolved, registry = resolve(config)
    run = AgentCompassRun(config, resolved, registry)
    config.stash[RUN] = run
    manager = config.pluginmanager
    for module in (fixtures, collection, protocol, warned):
        manager.register(module, f"agentcompass-{module.__name__.rpartition('.')[2]}")
    manager.register(signals.Signals(run), "agentcompass-signals")
    manager.register(selection.Selection(run), "agentcompass-selection")
    manager.register(ordering.Ordering(run), "agentcompass-ordering")
    manager.register(control.RunControl(run), "agentcompass-control")
    manager.register(notes.Notes(run), "agentcompass-notes")
    if not run.is_worker:
        report = reporting.Reporting(run)
        manager.register(report, "agentcompass-reporting")
        manager.register(progress.ProgressStart(run), "agentcompass-progress-start")
        manager.register(loop.EngineLoop(run), "agentcompass-loop")
        manager.register(finalizing.Finalizing(run, report), "agentcompass-finalizing")
        run.gates = gates.GateKeeper(run)
        manager.register(run.gates, "agentcompass-gates")
    if manager.hasplugin("xdist"):
        manager.register(workers.WorkerHooks(run), "agentcompass-workers")
        manager.register(scheduling.Scheduling(run), "agentcompass-scheduling")
    manager.register(usage.UsageErrors(run), "agentcompass-usage")  # last, so that it comes before the others


class AgentCompassRun:
    """State and services of the active run in this process (controller, worker, or the only one)."""

    def __init__(self, config: pytest.Config, resolved: RunConfig, registry: Registry) -> None:
        self.config = config
        self.resolved = resolved
        self.registry = registry
        self.is_worker = hasattr(config, "workerinput")
        self.collect_only = bool(config.option.collectonly or config.getoption("setupplan", False))
        self.portal = Portal(resolved.options.cleanup_grace_seconds)
        self.context: RunContext | None = None
        self.suites: dict[Path, list[Any]] = {}
        self.requests: dict[str, RunRequest] = {}
        self.gates: GateKeeper | None = None
        self.notes: list[str] = []
        self.in_flight: dict[int, Attempt] = {}  # what the engine makes right now
        self.status_before = ""  # of the run that is resumed
        self._tasks: dict[str, tuple[list[TaskSpec], list[TaskProblem]]] = {}
        self._marks: dict[str, str] = {}
        self._foreign_marks: set[str] | None = None
        self._lock: RunLock | None = None

    # -- the run directory --------------------------------------------------------------------

    def open_directory(self) -> None:
        """Make the run directory (controller), or join it (worker)."""
        if self.collect_only or self.context is not None:
            return
        resumed = bool(option(self.config, "resume"))
        if self.is_worker:
            directory = RunDirectory.open(Path(self.config.workerinput["agentcompass_rundir"]))  # type: ignore[attr-defined]
        else:
            directory = self._own_directory(resumed)
        events = EventLog(directory.path / "events.jsonl")
        self.context = RunContext(
            run_id=str(directory.read_run_info().get("run_id") or directory.path.name),
            directory=directory,
            events=events,
            registry=self.registry,
            options=self.resolved.options,
            resumed=resumed,
            resume_anyway=bool(option(self.config, "resume_anyway")),
            translate=as_ours,
        )
        self.context.on_started.append(
            lambda request, task_id, attempt: self.config.hook.pytest_agentcompass_attempt_started(
                request=request, task_id=task_id, attempt=attempt
            )
        )
        self.context.on_finished.append(
            lambda record: self.config.hook.pytest_agentcompass_attempt_finished(record=record)
        )
        if not self.is_worker:
            self.context.admission.reset()
            events.emit("run_resumed" if resumed else "run_started", run=directory.path.name, version=__version__)

    def _own_directory(self, resumed: bool) -> RunDirectory:
        """Make the run's directory, or find that of the run to go on with, and lock it for this process."""
        try:
            if resumed:
                directory = RunDirectory.open(find_run(self.results_dir, str(option(self.config, "resume"))))
            else:
                directory = self._create_directory()
            self._lock = acquire(directory.path)
        except AgentCompassError as error:
            raise pytest.UsageError(error.message) from None
        if resumed:
            self.status_before = str(directory.read_run_info().get("status", ""))
            self._note_version(directory.read_run_info())
            for path in (directory.path / "requests").glob("*/tasks.jsonl"):
                path.unlink()  # the dataset is read again: whoever resumes must see what it holds now
        words = [word for word in self.config.option.agentcompass if "api_key" not in word.partition("=")[0]]
        command = {"settings": words, "paths": list(self.config.args)}
        directory.update_run_info(status="running", **({} if resumed else {"command": command}))
        return directory

    def _note_version(self, info: dict[str, Any]) -> None:
        """Say that the run to go on with was begun by another version."""
        began = (info.get("versions") or {}).get("pytest-agentcompass", "an unknown version")
        if began != __version__:
            self.notes.append(
                f"the run was begun by pytest-agentcompass {began} ({info.get('started_at', 'at an unknown time')}); "
                f"what it finished is kept as it is, the rest is made by {__version__}"
            )

    def _create_directory(self) -> RunDirectory:
        results = self.results_dir
        request = self.resolved.request
        run_name = (request.request.output.run_name if request else None) or "run"
        run_id = option(self.config, "run_id") or (request.request.output.run_id if request else None)
        return RunDirectory.create(results, run_name, run_id)

    @property
    def results_dir(self) -> Path:
        """Where run directories go."""
        given = option(self.config, "results")
        return start_folder(self.config) / given if given else self.resolved.options.results_dir

    # -- requests and tasks -------------------------------------------------------------------

    @property
    def slots(self) -> int:
        """How many attempts this process may have in flight; one where nothing says more."""
        wanted = self.concurrency
        return 1 if wanted is None else wanted or _NO_LIMIT

    @property
    def concurrency(self) -> int | None:
        """The attempts in flight that the whole run may have: 0 is no limit, None where nothing says it.

        Of several suites in one run the one that limits most counts.
        """
        default = self.resolved.options.task_concurrency
        asked = [request.execution.task_concurrency for request in self.requests.values()]
        return least([default if value is None else value for value in asked] or [default])

    def load_suite(self, path: Path) -> list[Any]:
        """Return the requests (and problems) of a suite file, read once."""
        if path not in self.suites:
            self.suites[path] = self.resolved.load_suite(path)
        return self.suites[path]

    def tasks_of(self, request: RunRequest) -> tuple[list[TaskSpec], list[TaskProblem]]:
        """Return the selected tasks and the problems of *request*, loaded once per run for all workers."""
        if self.context is not None and request.name not in self._tasks:
            check_request(self.context, request)
        key = self.register_request(request)
        if key not in self._tasks:
            load: Callable[[], Any] = lambda: self._load(request)  # noqa: E731
            if self.context is None:
                self._tasks[key] = load()[:2]
            else:
                loaded = self.context.directory.load_tasks_once(key, load)
                self._tasks[key] = loaded.tasks, loaded.problems
            self.notes.extend(f"{task.task_id}: {note}" for task in self._tasks[key][0] for note in task.warnings)
        return self._tasks[key]

    def selection_below(self, nodeid: str) -> set[str] | None:
        """Return the parts below *nodeid* of the node ids that were pasted; None where all of it is wanted."""
        selected = self.config.stash.get(SELECTED, [])
        if not selected or not nodeid.startswith("agentcompass::"):
            return None
        if any(nodeid == item or nodeid.startswith(item + "::") for item in selected):
            return None
        return {item.removeprefix(nodeid + "::") for item in selected if item.startswith(nodeid + "::")}

    def register_request(self, request: RunRequest) -> str:
        """Remember *request* under its name; two requests of one run need two names."""
        known = self.requests.setdefault(request.name, request)
        if known is not request and known != request:
            raise ConfigError(
                f"two requests are called {request.name!r}: one from {known.metadata.source}, "
                f"one from {request.metadata.source}; give one another name"
            )
        return request.name

    def _load(self, request: RunRequest) -> tuple[list[TaskSpec], list[TaskProblem], dict[str, Any]]:
        """Load the tasks, and remove what dead owners left with the request's provider (once per run)."""
        from ..execution.loading import load_tasks

        tasks, problems, defined = self.portal.call(load_tasks, request, self.registry)
        self.config.hook.pytest_agentcompass_select_tasks(request=request, tasks=tasks)
        if self.context is not None:
            environment = self.registry.make("environment", request.environment.id)
            if tasks and (reason := self.portal.call(environment.preflight, request)):
                raise TaskLoadError(reason)
            self.notes.extend(environment.sweep())
            self.context.events.emit("tasks_loaded", request=request.name, count=len(tasks))
        # limit and sample_ids in a file define the suite; on the command line they take part of it
        cut = any(self.resolved.words.has(f"benchmark.{key}") for key in ("limit", "sample_ids"))
        return tasks, problems, {"defined_tasks": defined if cut else len(tasks)}

    @property
    def run_id(self) -> str:
        """The run's id; empty before the run directory is made."""
        return self.context.run_id if self.context else ""

    def environment_ids(self) -> list[str]:
        """Return the providers of all requests of the run, whichever process collected them."""
        found = {request.environment.id for request in self.requests.values()}
        if self.context is not None:
            for path in self.context.directory.path.glob("requests/*/request.json"):
                with contextlib.suppress(OSError, ValueError, KeyError):  # damaged: its own request says so
                    found.add(json.loads(json.loads(path.read_bytes())["environment.id"]))
        return sorted(found)

    def request_named(self, name: str) -> RunRequest | None:
        """Return a request that only the workers collected."""
        request = self.resolved.request
        if request is not None and request.request.name == name:
            return request.request
        return next(
            (
                entry.request
                for entries in self.suites.values()
                for entry in entries
                if getattr(entry, "name", "") == name and hasattr(entry, "request")
            ),
            None,
        )

    def write_run_info(self, status: str) -> None:
        """Store what the run was asked for (no secrets) and how it stands."""
        assert self.context is not None
        infos = [{**request.model_dump(mode="json"), "name": name} for name, request in self.requests.items()]
        directory = self.context.directory
        directory.update_run_info(
            requests=infos or directory.read_run_info().get("requests", []), pytest=pytest.__version__
        )
        directory.finish(status)

    def finish_after_crash(self) -> None:
        """Write the reports in the last moments of a process that something ended."""
        from ..reports.write import write_reports

        if self.context is not None and not self.is_worker:
            self.write_run_info("interrupted")
            write_reports(self.context.directory)

    def close(self) -> None:
        """Let the loop and the threads go."""
        self.portal.close()
        shutdown_threads()
        if self.context is not None:
            self.context.events.close()
        if self._lock is not None:
            self._lock.release()

    def make_attempt(self, item: pytest.Item) -> Attempt:
        """Return a new attempt for *item*."""
        case = case_of(item)
        assert case is not None and self.context is not None
        request_name, task_id, number = case
        request = self.requests[request_name]
        task = getattr(item, "task", None) or item.callspec.params["agentcompass_task"]  # type: ignore[attr-defined]
        for listener in self.context.on_started:
            listener(request_name, task_id, number)
        return Attempt(self.context, self.context.request(request), task, number)

    def earlier_records(self, item: Any) -> list[AttemptRecord]:
        """Return the records of the task's attempts before *item*'s."""
        assert self.context is not None
        name, task_id = item.request_node.request.name, item.task.task_id
        found = (self.context.directory.read_record(name, task_id, n) for n in range(1, item.number))
        return [record for record in found if record is not None]

    def mark(self, node: pytest.Collector, word: str) -> None:
        """Put a category or a tag on *node* as a marker that `--strict-markers` knows.

        A word that is a marker of pytest or of a plugin already (`skip`, `timeout`) must not act as one:
        it becomes `tag_<word>`.
        """
        name = _NOT_WORD.sub("_", word)
        if name not in self._marks:
            if self._foreign_marks is None:
                lines = self.config.getini("markers")
                self._foreign_marks = {line.partition(":")[0].partition("(")[0].strip() for line in lines}
            if name in self._foreign_marks or not name.isidentifier() or name.startswith("_"):
                name = f"tag_{name}"
            self._marks[name] = name
            self._marks[_NOT_WORD.sub("_", word)] = name
            self.config.addinivalue_line("markers", f"{name}: a category, difficulty or tag of collected tasks")
        node.add_marker(self._marks[name])
