"""Whether a new attempt may start: budget, deadline and circuit breaker of the whole run.

All processes of the run decide alike, by small files in the run directory: `spend.jsonl`, `breaker.json`,
`decided.json` (the gates are decided, or the run was stopped) and `clock.json` (when the preflight ended:
the deadline and `budget.wall_seconds` count from there).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ..components.machine import SharedValue
from ..errors import AttemptSkipped
from .breaker import Breaker
from .budget import Ledger, Spent, over_budget

if TYPE_CHECKING:
    from ..config.options import RuntimeOptions
    from ..contracts.record import AttemptRecord
    from ..contracts.request import RunRequest

__all__ = ["Admission"]


class Admission:
    """The doorkeeper of a run, in one of its processes; *clock* gives monotonic seconds."""

    def __init__(self, directory: Path, options: RuntimeOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self.options = options
        self.ledger = Ledger(directory / "spend.jsonl")
        self.breaker = Breaker(directory / "breaker.json")
        self._start = SharedValue(directory / "clock.json")
        self._door = SharedValue(directory / "decided.json")
        self._clock = clock

    def reset(self) -> None:
        """Begin a session of the run (before any other process joins)."""
        self.breaker.reset()
        self._start.path.unlink(missing_ok=True)
        self._door.path.unlink(missing_ok=True)

    def start_clock(self) -> None:
        """Say that the preflight is over; the first process that says so counts."""
        now = self._clock()
        if not self._start.read():
            self._start.update(lambda old: old or {"start": now})

    def seconds(self) -> float:
        """Return the seconds since the preflight ended."""
        return max(0.0, self._clock() - float(self._start.read().get("start", self._clock())))

    def seconds_left(self) -> float | None:
        """Return the seconds until the run's deadline; None where it has none."""
        deadline = self.options.deadline_seconds
        return None if deadline is None else max(0.0, deadline - self.seconds())

    def close_door(self, reason: str) -> None:
        """Let nothing new start in any process: the gates are decided."""
        self._door.update(lambda old: {**old, "reason": reason})

    def stop(self, reason: str) -> None:
        """Let nothing new start in any process, no further try either: the run was stopped (`-x`, `--maxfail`)."""
        self._door.update(lambda old: {**old, "stopped": reason})

    @property
    def stopped(self) -> str:
        """Why the run was stopped; empty while it goes on."""
        return str(self._door.read().get("stopped", ""))

    def refusal(self) -> AttemptSkipped | None:
        """Return why nothing new may start (`budget_spent`, `deadline`, `gate_decided`), or None."""
        decided = self._door.read().get("reason")
        if decided:
            return AttemptSkipped(str(decided), "gate_decided")
        left = self.seconds_left()
        if left is not None and left <= 0:
            return self.deadline_over()
        budget = self.options.budget
        return over_budget(budget, self.ledger.spent(), self.seconds()) if budget else None

    def deadline_over(self) -> AttemptSkipped:
        """Return the reason of attempts that the deadline keeps from starting."""
        return AttemptSkipped(f"the run's deadline of {self.options.deadline_seconds:g} s is over", "deadline")

    def spent(self) -> Spent:
        """Return what the run has spent so far."""
        return self.ledger.spent()

    def spend(self, usage: Mapping[str, int | float]) -> None:
        """Count what was spent and not counted before."""
        self.ledger.add(usage)

    def finished(self, record: AttemptRecord, request: RunRequest, fatal: str = "") -> None:
        """Tell the circuit breaker of an attempt that has ended."""
        self.breaker.note(record, request, fatal)
