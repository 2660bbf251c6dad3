"""Judging a run by its gates: at session end, and after shards were merged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..contracts.summary import Summary
from ..errors import AgentCompassError
from ..metrics.gates import Gate, GateResult, RunState, evaluate_gates, parse_gates
from ..results.baseline import parse_summary, read_baseline
from ..results.rundir import RunDirectory
from .summary import RequestResult, build_summary

__all__ = ["GateSet", "judge", "stored_gates"]


_CUT = ("budget_spent", "deadline", "skip_requested")


@dataclass(frozen=True, slots=True)
class GateSet:
    """Gates that belong together: those of the command line (*requests* None: the whole run) or of one suite.

    *unresolved* says how attempts that did not pass appear in JUnit (None: as failures).
    """

    gates: tuple[Gate, ...]
    requests: tuple[str, ...] | None = None
    baseline: Summary | None = None
    baseline_path: str | None = None
    unresolved: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return what `stored_gates` needs to make the set again."""
        return {
            "gates": [gate.to_entry() for gate in self.gates],
            "source": self.gates[0].source if self.gates else "",
            "requests": None if self.requests is None else list(self.requests),
            "baseline": self.baseline_path,
            "unresolved": self.unresolved,
        }


def judge(
    directory: RunDirectory,
    results: Sequence[RequestResult],
    sets: Sequence[GateSet],
    broken: Sequence[str] = (),
    decided: bool = False,
) -> list[GateResult]:
    """Evaluate *sets* on *results*, store the verdicts in run.json, and return them.

    Must come before the reports are written: they show what is stored. *broken* is what makes every
    verdict INVALID; *decided*: the run was stopped because its gates were.
    """
    info = directory.update_run_info(gate_rules=[item.to_dict() for item in sets], broken=list(broken))
    if not sets:
        directory.update_run_info(gates=[], unresolved={})
        return []
    summary = parse_summary(build_summary(info, results), "this run")
    state = RunState(partial=_partial(info, summary, results, decided), broken=tuple(broken))
    found: list[GateResult] = []
    unresolved: dict[str, str] = {}
    for item in sets:
        found += evaluate_gates(item.gates, summary, item.baseline, state, item.requests)
        if item.unresolved:
            names = [result.name for result in results] if item.requests is None else item.requests
            unresolved.update(dict.fromkeys(names, item.unresolved))
    directory.update_run_info(gates=[item.to_dict() for item in found], unresolved=unresolved)
    return found


def _partial(
    info: Mapping[str, Any], summary: Summary, results: Sequence[RequestResult], decided: bool
) -> tuple[str, ...]:
    """Return why the run is partial; that it stopped because its gates were decided is no such reason."""
    if not decided:
        return summary.partial_reasons
    found = list(build_summary(info, [])["partial_reasons"])
    for result in results:
        counts, tasks = result.report["attempts"], result.report["tasks"]
        cut = sum(record.failure_mode.value in _CUT for record in result.records)
        if cut or counts["missing"] or tasks["selected"] < tasks["planned"]:
            found += [f"{result.name}: {text}" for text in result.report["partial_reasons"]]
    return tuple(found)


def stored_gates(info: Mapping[str, Any], baseline: Summary | None = None) -> list[GateSet]:
    """Return the gates that a run stored in its run.json; *baseline* replaces theirs.

    A baseline that is not there any more leaves the gates without one, which makes them INVALID.
    """
    found = []
    for item in info.get("gate_rules") or ():
        gates = parse_gates(item["gates"], item.get("source") or "run.json").gates
        requests = item.get("requests")
        own = baseline or _baseline(item.get("baseline"))
        names = None if requests is None else tuple(requests)
        found.append(GateSet(gates, names, own, item.get("baseline"), item.get("unresolved")))
    return found


def _baseline(path: str | None) -> Summary | None:
    if not path:
        return None
    try:
        return read_baseline(Path(path))
    except AgentCompassError:
        return None
