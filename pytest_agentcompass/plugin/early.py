"""Ending a run whose gates are decided: what is left is skipped, and the verdict stands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pytest

from ..contracts.record import AttemptRecord
from ..contracts.summary import Summary, SummaryAttempt, SummaryRequest, SummaryTask
from ..metrics.gates import PlannedRequest, all_decided
from ..results.layout import escape_id
from .settled import is_last_report

if TYPE_CHECKING:
    from ..reports.judge import GateSet
    from .session import AgentCompassRun

__all__ = ["EarlyStop", "Progress"]

_CHECKS = 100  # looks at the gates over a whole run: each costs time that grows with the run


class Progress:
    """A run in the making, as a summary whose attempts are missing until their records come."""

    def __init__(self, planned: Sequence[tuple[str, str, int]], requests: Sequence[PlannedRequest]) -> None:
        self._requests = {item.name: item for item in requests}
        self._attempts: dict[tuple[str, str], dict[int, SummaryAttempt]] = {}
        self._facts: dict[tuple[str, str], tuple[str, str]] = {}
        for request, task_id, number in planned:
            missing = SummaryAttempt(attempt=number, outcome="missing")
            self._attempts.setdefault((request, task_id), {})[number] = missing

    def add(self, record: AttemptRecord) -> None:
        """Take a finished attempt in."""
        key = (record.request, record.task_id)
        cost = record.usage.get("cost_usd")
        self._attempts.setdefault(key, {})[record.attempt] = SummaryAttempt(
            attempt=record.attempt,
            outcome=record.outcome,
            failure_mode=record.failure_mode.value,
            seconds=record.seconds,
            cost_usd=cost,
            usage=dict(record.usage),
        )
        self._facts[key] = record.category, record.fingerprint.get("task", "")

    def summary(self) -> Summary:
        """Return the run as it stands."""
        tasks: dict[str, list[SummaryTask]] = {}
        for (request, task_id), attempts in self._attempts.items():
            category, fingerprint = self._facts.get((request, task_id), ("", ""))
            row = SummaryTask(
                task_id=task_id, category=category, fingerprint=fingerprint, attempts=tuple(attempts.values())
            )
            tasks.setdefault(request, []).append(row)
        requests = tuple(
            SummaryRequest(name=name, report=self._report(name), tasks=tuple(rows)) for name, rows in tasks.items()
        )
        return Summary(schema_version=1, kind="agentcompass-summary", complete=False, requests=requests)

    def _report(self, name: str) -> dict[str, object]:
        known = self._requests.get(name, PlannedRequest(name))
        return {"k": known.k, "early_stop": known.early_stop}


class EarlyStop:
    """Watches finished attempts in the controller and closes the run's door once every gate is decided."""

    def __init__(
        self, run: AgentCompassRun, sets: Callable[[], Sequence[GateSet]], requests: Sequence[PlannedRequest]
    ) -> None:
        self.run = run
        self.after: int | None = None
        self._sets = sets
        self._requests = requests
        self._progress: Progress | None = None
        self.planned: dict[str, tuple[str, str, int]] = {}
        self._done = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take a finished attempt in, and look at the gates every now and then."""
        if not is_last_report(report) or self.after is not None or self.run.context is None:
            return
        self._start()
        key = self.planned.get("::".join(report.nodeid.split("::")[-3:]))
        record = self.run.context.directory.read_record(*key) if key else None
        if record is None or self._progress is None:
            return
        self._progress.add(record)
        self._done += 1
        step = max(1, len(self.planned) // _CHECKS)
        if self._done % step == 0 and self._done < len(self.planned) and self._decided():
            self._stop()

    def _start(self) -> None:
        """Read the plan when the first attempt has ended: under xdist only workers know it before."""
        if self._progress is None:
            assert self.run.context is not None
            planned = self.run.context.directory.planned()
            self.planned = {f"{escape_id(r)}::{escape_id(t)}::attempt{n}": (r, t, n) for r, t, n in planned}
            self._progress = Progress(planned, self._requests)

    def _decided(self) -> bool:
        assert self._progress is not None
        sets = [(item.gates, item.baseline, item.requests) for item in self._sets()]
        return all_decided(sets, self._progress.summary())

    def _stop(self) -> None:
        assert self.run.context is not None
        self.after = self._done
        reason = f"the gates were decided after {self._done} of {len(self.planned)} attempts"
        self.run.context.admission.close_door(reason)
        self.run.context.events.emit("gates_decided", after=self._done, planned=len(self.planned))
