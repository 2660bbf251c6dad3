"""What of an older run still counts, and which run is meant."""

from __future__ import annotations

from pathlib import Path

from ..contracts.outcome import FailureMode, Fault, Status
from ..contracts.record import AttemptRecord
from ..errors import ResultsError, nearest
from .files import parse_json, read_bytes
from .layout import request_dirname

__all__ = ["find_run", "list_runs", "reusable"]

_NAMED = 10  # runs that a message lists


def reusable(record: AttemptRecord, fingerprint: str, *, anyway: bool = False) -> str | None:
    """Return None when *record* may stand as the attempt's result, else why it is made again.

    *fingerprint* is the run fingerprint of the attempt as it would be made now. Graded attempts are
    kept, failed ones too; errors of the infrastructure and cancelled ones are made again, skipped ones
    decided anew. *anyway* keeps graded attempts whose fingerprint differs.
    """
    mode = record.failure_mode
    if record.status is Status.SKIPPED or mode.fault is Fault.NOBODY:
        return f"it was skipped ({mode.value}); whether it is needed is decided anew"
    if mode is FailureMode.CANCELLED:
        return "it was cancelled"
    if mode.fault is Fault.INFRASTRUCTURE:
        return f"it ended in an infrastructure error ({mode.value}), which says nothing about the agent"
    if record.passed is None:
        return "it has no score"
    if anyway:
        return None
    stored = record.fingerprint.get("run")
    if not stored:
        return "it has no run fingerprint, so nobody can tell that it was made in the same way"
    return None if stored == fingerprint else "its run fingerprint differs: task, harness, model or environment changed"


def list_runs(results_dir: Path) -> list[Path]:
    """Return the run directories under *results_dir*, the newest first."""
    found = [info.parent for info in results_dir.glob("*/*/run.json")]
    return sorted(found, key=lambda run: (_started(run), run.name), reverse=True)


def find_run(results_dir: Path, which: str, run_name: str | None = None) -> Path:
    """Return the directory of the run that *which* names: `last`, a run id, or a run directory.

    *run_name* narrows `last` and run ids to the runs of that name. ResultsError lists the runs that exist.
    """
    if which != "last" and (Path(which) / "run.json").is_file():
        return Path(which).resolve()
    runs = [run for run in list_runs(results_dir) if run_name is None or run.parent.name == request_dirname(run_name)]
    if not runs:
        raise ResultsError(f"no run to be found as {which!r}: {results_dir} holds no run yet")
    if which == "last":
        return runs[0]
    hits = [run for run in runs if which in (run.name, f"{run.parent.name}/{run.name}", _run_id(run))]
    if len(hits) == 1:
        return hits[0]
    if hits:
        places = ", ".join(str(run) for run in hits)
        raise ResultsError(f"run {which!r} exists {len(hits)} times, name one by its directory: {places}")
    if Path(which).is_dir():
        raise ResultsError(f"{which} is not a run directory: it holds no run.json")
    raise ResultsError(f"no run {which!r} under {results_dir}; {_known(which, runs)}; or `last`, or a run's directory")


def _known(which: str, runs: list[Path]) -> str:
    more = f" and {len(runs) - _NAMED} older" if len(runs) > _NAMED else ""
    return nearest(which, [run.name for run in runs[:_NAMED]]) + more


def _info(run: Path) -> dict[str, object]:
    try:
        info = parse_json(read_bytes(run / "run.json"))
    except (OSError, ValueError):
        return {}
    return info if isinstance(info, dict) else {}


def _started(run: Path) -> str:
    return str(_info(run).get("started_at") or "")


def _run_id(run: Path) -> str:
    return str(_info(run).get("run_id") or "")
