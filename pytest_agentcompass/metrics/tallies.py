"""What became of each task: planned attempts joined with their records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..contracts.outcome import FailureMode
from ..contracts.record import AttemptRecord

__all__ = ["UNKNOWN_CATEGORY", "Planned", "TaskTally", "attempt_state", "tally"]

Planned = tuple[str, str, int]
#: of a task that no record and no caller gives a category
UNKNOWN_CATEGORY = "(unknown)"
_NOT_COUNTED = {FailureMode.STRATEGY_SATISFIED: "satisfied", FailureMode.NO_SOLUTION: "no_solution"}


@dataclass(frozen=True, slots=True)
class TaskTally:
    """One task's attempts by what became of them.

    *cut*: skipped for want of budget or time, or by a person; *satisfied*: skipped because the
    strategy needed no more; *missing*: planned without a record. *attempts* pairs every planned
    number with its record.
    """

    task_id: str
    category: str
    attempts: tuple[tuple[int, AttemptRecord | None], ...]
    passed: int = 0
    failed: int = 0
    errors: int = 0
    missing: int = 0
    cut: int = 0
    no_solution: int = 0
    satisfied: int = 0

    @property
    def valid(self) -> int:
        """Attempts with a verdict."""
        return self.passed + self.failed

    @property
    def unknown(self) -> int:
        """Attempts that should have a verdict and have none."""
        return self.errors + self.missing + self.cut

    @property
    def n(self) -> int:
        """Attempts that count: with a verdict, or without one that they should have."""
        return self.valid + self.unknown

    @property
    def skipped(self) -> int:
        """Attempts whose record says skipped."""
        return self.cut + self.no_solution + self.satisfied

    @property
    def records(self) -> tuple[AttemptRecord, ...]:
        """The records that exist, in order of attempts."""
        return tuple(record for _, record in self.attempts if record is not None)


def attempt_state(record: AttemptRecord | None) -> str:
    """Name the `TaskTally` field that counts *record* (None: planned without a record)."""
    if record is None:
        return "missing"
    outcome = record.outcome
    if outcome == "error":
        return "errors"
    if outcome == "skipped":
        return _NOT_COUNTED.get(record.failure_mode, "cut")
    return outcome


def tally(
    records: Sequence[AttemptRecord], planned: Iterable[Planned], categories: Mapping[str, str] | None = None
) -> tuple[list[TaskTally], list[AttemptRecord]]:
    """Return the tasks of the plan in its order, and the records that no plan asks for.

    An empty plan means what there are records of. Of several records of one attempt the last counts:
    tries that were retried are inside a record and are no samples.
    """
    plan: dict[str, dict[int, None]] = {}
    for _, task_id, attempt in planned:
        plan.setdefault(task_id, {})[attempt] = None
    found = {(record.task_id, record.attempt): record for record in records}
    if not plan:
        for task_id, attempt in sorted(found, key=lambda key: key[1]):
            plan.setdefault(task_id, {})[attempt] = None
    known = {record.task_id: record.category for record in records} | dict(categories or {})
    tallies = [_one(task_id, sorted(numbers), found, known) for task_id, numbers in plan.items()]
    return tallies, [record for (task, attempt), record in found.items() if attempt not in plan.get(task, {})]


def _one(
    task_id: str, numbers: list[int], found: Mapping[tuple[str, int], AttemptRecord], known: Mapping[str, str]
) -> TaskTally:
    attempts = tuple((number, found.get((task_id, number))) for number in numbers)
    states = Counter(attempt_state(record) for _, record in attempts)
    return TaskTally(task_id, known.get(task_id, UNKNOWN_CATEGORY), attempts, **states)
