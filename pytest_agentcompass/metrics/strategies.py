"""Strategies: which attempts of a task are made, and what may be reported afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ..contracts.record import AttemptRecord

__all__ = ["AvgStrategy", "PassStrategy"]


class AvgStrategy:
    """Make all k attempts; those of one task may run side by side."""

    id: ClassVar[str] = "avg"
    sequential: ClassVar[bool] = False
    #: whether outcomes decide how many attempts are made (only pass@k at the cap may be reported then)
    early_stop: ClassVar[bool] = False

    def satisfied(self, records: Sequence[AttemptRecord]) -> bool:
        """Tell whether a task needs no further attempt: never."""
        return False


class PassStrategy:
    """Stop a task at its first success; its attempts run one after another."""

    id: ClassVar[str] = "pass"
    sequential: ClassVar[bool] = True
    early_stop: ClassVar[bool] = True

    def satisfied(self, records: Sequence[AttemptRecord]) -> bool:
        """Tell whether one of the task's *records* so far is a success."""
        return any(record.outcome == "passed" for record in records)
