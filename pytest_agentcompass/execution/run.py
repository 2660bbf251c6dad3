"""What all attempts of a run share, and what all attempts of a request share."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..components.owner import boot_id, process_start_time
from ..planning.planner import Planner
from ..results.fingerprints import request_digest
from ..results.resume import find_run, list_runs
from ..results.rundir import RunDirectory
from .admission import Admission
from .limits import Limits

if TYPE_CHECKING:
    from ..components.benchmark import BaseBenchmark
    from ..components.environment import BaseEnvironment
    from ..components.harness import BaseHarness
    from ..components.registry import Registry
    from ..config.resolve import RuntimeOptions
    from ..contracts.record import AttemptRecord
    from ..contracts.request import RunRequest
    from ..results.events import EventLog

__all__ = ["RequestContext", "RunContext"]


@functools.lru_cache(maxsize=2)
def _owner_labels(pid: int) -> dict[str, str]:
    return {
        "agentcompass.owner_pid": str(pid),
        "agentcompass.owner_start": str(process_start_time(pid) or ""),
        "agentcompass.boot_id": boot_id(),
    }


def _unchanged(error: BaseException) -> BaseException:
    return error


@dataclass(slots=True)
class RunContext:
    """One run: its directory, its components, its options, and who listens to its attempts."""

    run_id: str
    directory: RunDirectory
    events: EventLog
    registry: Registry
    options: RuntimeOptions
    resumed: bool = False
    resume_anyway: bool = False
    planner: Planner = None  # type: ignore[assignment]
    limits: Limits = None  # type: ignore[assignment]
    admission: Admission = None  # type: ignore[assignment]
    on_started: list[Callable[[str, str, int], None]] = field(default_factory=list)
    on_finished: list[Callable[[AttemptRecord], None]] = field(default_factory=list)
    translate: Callable[[BaseException], BaseException] = _unchanged  # exceptions of the host that mean one of ours
    _requests: dict[str, RequestContext] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.planner = Planner(self.registry)
        self.use_options(self.options)

    def use_options(self, options: RuntimeOptions, concurrency: int | None = None) -> None:
        """Take *options* for the run, once all suites are read and before the first attempt.

        *concurrency* is the limit of attempts in flight that this process shares with others of the run.
        """
        self.options = options
        self.limits = Limits(options, str(self.directory.path), concurrency)
        self.admission = Admission(self.directory.path, options)

    def labels(self) -> dict[str, str]:
        """Return the marks that everything opened by this process carries."""
        return {"agentcompass.run": self.run_id, **_owner_labels(os.getpid())}

    def request(self, request: RunRequest) -> RequestContext:
        """Return the shared context of *request*."""
        if request.name not in self._requests:
            context = RequestContext.make(request, self.registry)
            context.source = self._run_to_reuse(request)
            if self._built_in(context):
                version = context.harness.version if context.harness else ""
                context.digest = request_digest(request, version)
            self._requests[request.name] = context
        return self._requests[request.name]

    def _built_in(self, context: RequestContext) -> bool:
        """Whether only components of this package plan: theirs is the same for the same version of it."""
        recipes = [self.registry.get("recipe", id) for id in self.registry.ids("recipe")]
        planners = [type(context.benchmark), type(context.harness), type(context.environment), *recipes]
        return all(kind is type(None) or kind.__module__.startswith("pytest_agentcompass.") for kind in planners)

    def _run_to_reuse(self, request: RunRequest) -> RunDirectory | None:
        """Return the older run whose records may stand (`runtime.reuse`): the one named, else the newest other one."""
        if not request.runtime.reuse:
            return None
        results = self.directory.path.parent.parent
        if request.runtime.reuse_run_id is not None:
            return RunDirectory.open(find_run(results, request.runtime.reuse_run_id))
        others = (path for path in list_runs(results) if path.resolve() != self.directory.path)
        found = next(others, None)
        return RunDirectory.open(found) if found is not None else None


@dataclass(slots=True)
class RequestContext:
    """A request with the components that it names."""

    request: RunRequest
    benchmark: BaseBenchmark
    harness: BaseHarness | None
    environment: BaseEnvironment
    strategy: Any
    source: RunDirectory | None = None
    digest: str = ""  # of all that plans depend on; empty where components of a user's own plan

    @classmethod
    def make(cls, request: RunRequest, registry: Registry) -> RequestContext:
        """Look the components up; ConfigError for an unknown id."""
        return cls(
            request=request,
            benchmark=registry.make("benchmark", request.benchmark.id),
            harness=None if request.harness.id == "none" else registry.make("harness", request.harness.id),
            environment=registry.make("environment", request.environment.id),
            strategy=registry.make("strategy", request.execution.attempts.strategy),
        )
