"""What gates say: verdicts, their precedence, the exit code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ..intervals import Interval
from .settings import Gate

__all__ = ["EXIT_CODES", "Comparison", "GateResult", "Verdict", "exit_code", "overall"]


class Verdict(str, Enum):
    """What a gate says. WARN is an inconclusive verdict under `policy: warn`."""

    PASS = "PASS"
    WARN = "WARN"
    INCONCLUSIVE = "INCONCLUSIVE"
    FAIL = "FAIL"
    INVALID = "INVALID"


#: exit codes; the order of `Verdict` is the precedence, the last wins
EXIT_CODES = {Verdict.PASS: 0, Verdict.WARN: 0, Verdict.FAIL: 1, Verdict.INCONCLUSIVE: 11, Verdict.INVALID: 12}
_ORDER = list(Verdict)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A candidate against its baseline, paired by task.

    *difference* is candidate minus baseline, or their ratio; *worse* and *better* name tasks (request,
    task id) whose value fell or rose; *mde* is the smallest true drop that the pairs could have shown at
    *flip_rate* (mean squared difference per task) with 80 % power.
    """

    pairs: int
    baseline: float
    candidate: float
    difference: float
    interval: Interval | None = None
    p_worse: float | None = None
    p_better: float | None = None
    method: str = ""
    mde: float | None = None
    flip_rate: float | None = None
    worse: tuple[tuple[str, str], ...] = ()
    better: tuple[tuple[str, str], ...] = ()
    only_candidate: tuple[tuple[str, str], ...] = ()
    only_baseline: tuple[tuple[str, str], ...] = ()
    dropped: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class GateResult:
    """One gate's verdict with what a person needs to believe it or to act on it.

    *figure* is the value as text, *why* the reasons in full sentences, the decisive one first.
    """

    gate: Gate
    verdict: Verdict
    figure: str = ""
    why: tuple[str, ...] = ()
    value: float | None = None
    low: float | None = None
    high: float | None = None
    interval: Interval | None = None
    tasks: int = 0
    infra_errors: int = 0
    comparison: Comparison | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain data."""
        found = self.comparison
        return {
            "gate": self.gate.text,
            "source": self.gate.source,
            "verdict": self.verdict.value,
            "figure": self.figure,
            "why": list(self.why),
            "value": self.value,
            "interval": None if self.interval is None else self.interval.to_dict(),
            "tasks": self.tasks,
            "infra_errors": self.infra_errors,
            "comparison": None if found is None else _comparison(found),
        }


def overall(results: Sequence[GateResult]) -> Verdict:
    """Return the verdict of several gates: INVALID before FAIL before INCONCLUSIVE before PASS."""
    return max((item.verdict for item in results), key=_ORDER.index, default=Verdict.PASS)


def exit_code(results: Sequence[GateResult]) -> int:
    """Return the exit code of several gates: 0, 1, 11 or 12."""
    return EXIT_CODES[overall(results)]


def _comparison(found: Comparison) -> dict[str, Any]:
    return {
        "pairs": found.pairs,
        "baseline": found.baseline,
        "candidate": found.candidate,
        "difference": found.difference,
        "interval": None if found.interval is None else found.interval.to_dict(),
        "p_worse": found.p_worse,
        "p_better": found.p_better,
        "method": found.method,
        "minimum_detectable_effect": found.mde,
        "flip_rate": found.flip_rate,
        "worse": [list(item) for item in found.worse],
        "better": [list(item) for item in found.better],
        "only_candidate": [list(item) for item in found.only_candidate],
        "only_baseline": [list(item) for item in found.only_baseline],
        "dropped": [list(item) for item in found.dropped],
    }
