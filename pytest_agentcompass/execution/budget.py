"""What the whole run may spend: money, tokens, time. When it is spent nothing new starts.

Spending is counted when an agent has ended and when its try has (retries that were discarded count too, and so
do models that judge), so the attempts in flight at that moment can still exceed the budget. Each end appends one
line to `spend.jsonl` in the run directory, from whichever process; a resumed run goes on counting there. Time
counts anew.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import AttemptSkipped

if TYPE_CHECKING:
    from ..config.options import Budget

__all__ = ["Ledger", "Spent", "over_budget", "unpaid"]

_MONEY = ("cost_usd", "judge_cost_usd")
_TOKENS = ("input_tokens", "output_tokens", "judge_input_tokens", "judge_output_tokens")


@dataclass(slots=True)
class Spent:
    """What was spent so far, in US dollars and tokens (input and output)."""

    usd: float = 0.0
    tokens: int = 0


class Ledger:
    """The run's spending, in a file that all its processes append to and read on from where they were."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._place = 0
        self._spent = Spent()

    def add(self, usage: Mapping[str, int | float]) -> None:
        """Add what one try used (`AttemptRecord.usage`), a judge included; nothing is written for nothing."""
        usd = math.fsum(usage.get(name) or 0.0 for name in _MONEY)
        tokens = int(sum(usage.get(name) or 0 for name in _TOKENS))
        if usd or tokens:
            handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o644)
            try:
                os.write(handle, json.dumps({"usd": usd, "tokens": tokens}).encode() + b"\n")
            finally:
                os.close(handle)

    def spent(self) -> Spent:
        """Return the totals; reads only what was added since the last look."""
        try:
            if os.stat(self._path).st_size <= self._place:
                return self._spent
            with open(self._path, "rb") as file:
                file.seek(self._place)
                fresh = file.read()
        except FileNotFoundError:
            return self._spent
        whole = fresh[: fresh.rfind(b"\n") + 1]
        self._place += len(whole)
        for line in whole.splitlines():
            self._count(line)
        return self._spent

    def _count(self, line: bytes) -> None:
        try:
            entry = json.loads(line)
            self._spent.usd += float(entry["usd"])
            self._spent.tokens += int(entry["tokens"])
        except (ValueError, TypeError, KeyError):
            pass  # torn by a crash in the middle of the write: the attempt is made again and counted then


def unpaid(usage: Mapping[str, int | float], paid: Mapping[str, int | float]) -> dict[str, int | float]:
    """Return what *usage* has beyond what was *paid* before; kinds without anything are left out."""
    rest = {name: value - paid.get(name, 0) for name, value in usage.items()}
    return {name: round(value, 8) for name, value in rest.items() if 0 < value < math.inf}


def over_budget(budget: Budget, spent: Spent, seconds: float) -> AttemptSkipped | None:
    """Return why nothing new may start after *spent* and *seconds* of the run, or None."""
    reason = ""
    if budget.usd is not None and spent.usd >= budget.usd:
        reason = f"${spent.usd:.2f} of budget.usd ${budget.usd:.2f} are spent"
    elif budget.tokens is not None and spent.tokens >= budget.tokens:
        reason = f"{spent.tokens} of budget.tokens {budget.tokens} are spent"
    elif budget.wall_seconds is not None and seconds >= budget.wall_seconds:
        reason = f"the {budget.wall_seconds:g} s of budget.wall_seconds are over"
    return AttemptSkipped(reason, "budget_spent") if reason else None
