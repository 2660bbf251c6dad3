"""Requests that are over before the run is: their report is made as soon as it may be.

A request is finalized when none of its attempts is left and no attempt of an earlier request waits to start.
The last ones are left to the end of the session, which is there by then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ..contracts.record import AttemptRecord
from ..reports.write import collect_results
from ..results.layout import escape_id
from .selection import adopt_requests
from .settled import is_last_report

if TYPE_CHECKING:
    from ..results.rundir import RunDirectory
    from .reporting import Reporting
    from .session import AgentCompassRun

__all__ = ["Finalizing", "Queues"]

Planned = tuple[str, str, int]


class Queues:
    """Which attempts of each request, in declared order, have not started and have not ended."""

    def __init__(self, planned: Iterable[Planned], collected: Iterable[str]) -> None:
        """Take the plan; a request of which not every attempt was collected as an item of ours is left out."""
        items = {_tail(nodeid) for nodeid in collected}
        keys: dict[str, list[str]] = {}
        for request, task_id, number in planned:
            keys.setdefault(request, []).append(f"{escape_id(request)}::{escape_id(task_id)}::attempt{number}")
        whole = {request: found for request, found in keys.items() if items.issuperset(found)}
        self._request = {key: request for request, found in whole.items() for key in found}
        self._waiting = {request: set(found) for request, found in whole.items()}
        self._open = {request: set(found) for request, found in whole.items()}

    def started(self, nodeid: str) -> None:
        """Take note that an attempt began."""
        self._take(self._waiting, _tail(nodeid))

    def ended(self, nodeid: str) -> list[str]:
        """Take note that an attempt ended; return the requests that are over now, none when all are."""
        key = _tail(nodeid)
        self._take(self._waiting, key)
        if not self._take(self._open, key) or not any(self._open.values()):
            return []
        over = []
        for request, left in list(self._open.items()):
            if not left:
                over.append(request)
                del self._open[request]
            if self._waiting[request]:
                break
        return over

    def _take(self, queues: Mapping[str, set[str]], key: str) -> bool:
        queue = queues.get(self._request.get(key, ""), set())
        found = key in queue
        queue.discard(key)
        return found


def _tail(nodeid: str) -> str:
    """Return request, task and attempt of a node id."""
    return "::".join(nodeid.split("::")[-3:])


class _OneRequest:
    """A run directory in which only one request is seen, described by *info*."""

    def __init__(self, run: RunDirectory, name: str, info: dict[str, Any]) -> None:
        self._run, self._name, self._info = run, name, info
        self.path: Path = run.path
        self.damaged: Sequence[object] = ()

    def records(self, request: str | None = None) -> Iterable[AttemptRecord]:
        return self._run.records(self._name)

    def planned(self) -> list[Planned]:
        return [item for item in self._run.planned() if item[0] == self._name]

    def read_run_info(self) -> Mapping[str, Any]:
        return {"requests": [self._info]}

    def attempt_dir(self, request: str, task_id: str, attempt: int, /) -> Path:
        return self._run.attempt_dir(request, task_id, attempt)


class Finalizing:
    """Watches in the controller which requests are over, and says so by event and hook."""

    def __init__(self, run: AgentCompassRun, reporting: Reporting) -> None:
        self.run = run
        self._reporting = reporting
        self._queues: Queues | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self) -> None:
        """Take the plan in; with workers only they know it yet."""
        if self.run.context is not None and not self.run.config.pluginmanager.hasplugin("dsession"):
            self._begin()
            self.run.context.on_started.append(self._started)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Take note that an item begins (with the engine: that it is reported)."""
        if self._queues is None and self.run.context is not None:
            self._begin()
        if self._queues is not None:
            self._queues.started(nodeid)

    def _begin(self) -> None:
        assert self.run.context is not None
        self._queues = Queues(self.run.context.directory.planned(), self._reporting.planned)

    def _started(self, request: str, task_id: str, number: int) -> None:
        assert self._queues is not None
        self._queues.started(f"{escape_id(request)}::{escape_id(task_id)}::attempt{number}")

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Finalize what is over after this attempt."""
        crashed = report.failed and report.when not in ("setup", "call", "teardown")
        if self._queues is not None and (crashed or is_last_report(report)):
            for name in self._queues.ended(report.nodeid):
                self._finalize(name)

    def _finalize(self, name: str) -> None:
        assert self.run.context is not None
        adopt_requests(self.run)
        request = self.run.requests.get(name)
        if request is None:
            return
        seen = _OneRequest(self.run.context.directory, name, {**request.model_dump(mode="json"), "name": name})
        reporting = self._reporting
        try:
            reporting.finalize(collect_results(seen, contracts=reporting.contracts(), aggregate=reporting.aggregate))
        except Exception:  # it is tried again at the end of the session, which shows what is wrong and fails the run
            return
