"""The `show` verb: a run or one attempt, as text."""

from __future__ import annotations

from collections.abc import Iterator

from ..contracts.record import AttemptRecord
from ..errors import ResultsError, nearest
from ..results.rundir import RunDirectory
from .attempt_text import failure_text, reason
from .escape import one_line
from .text import problems, request_table, results_lines
from .words import seconds_text
from .write import collect_results

__all__ = ["show_attempts", "show_run"]


def show_run(run: RunDirectory, width: int = 100) -> Iterator[str]:
    """Yield the run's tables, its attempts and its problems."""
    info = run.read_run_info()
    counts = run.status_counts()
    name, status = info.get("run_id", run.path.name), info.get("status", "unknown")
    yield f"run {name}: {status}, started {info.get('started_at', '?')}"
    yield ", ".join(f"{count} {name}" for name, count in counts.items())
    results = collect_results(run)
    yield ""
    yield from request_table([result.report for result in results], width)
    for result in results:
        yield ""
        for record in result.records:
            yield _line(record)
        yield from problems(result.records, result.planned)
    yield ""
    yield from results_lines(str(run.path))


def _line(record: AttemptRecord) -> str:
    name = one_line(f"{record.request}/{record.task_id}/{record.attempt}", 60)
    why = "" if record.outcome == "passed" else f"  {reason(record, 100)}"
    return f"{record.outcome:<8}{name:<50} {seconds_text(record.seconds):>8}{why}"


def show_attempts(run: RunDirectory, task: str) -> Iterator[str]:
    """Yield everything about the attempts of *task* (a task id, or `id/N` for one attempt)."""
    records = list(run.records())
    chosen = [record for record in records if task in (record.task_id, f"{record.task_id}/{record.attempt}")]
    if not chosen:
        known = dict.fromkeys(record.task_id for record in records)
        raise ResultsError(f"{run.path}: no record of task {task!r}; {nearest(task, known)}")
    for record in chosen:
        folder = run.attempt_dir(record.request, record.task_id, record.attempt)
        yield f"{record.request}/{one_line(record.task_id)} attempt {record.attempt}: {record.outcome}"
        yield f"  failure mode {record.failure_mode.value}, score {record.score}, metrics {record.metrics}"
        phases = ", ".join(f"{name} {seconds_text(value)}" for name, value in record.durations.items())
        yield f"  {record.started_at} to {record.finished_at}: {phases}"
        yield f"  harness {record.harness.get('id')}, model {record.model or 'none'}, usage {record.usage or 'unknown'}"
        for name, status in record.tests.items():
            yield f"  test {one_line(name)}: {status}"
        if record.outcome in ("failed", "error"):
            yield failure_text(record, str(folder / "record.json"), lines=40)
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.name != ".claim":
                yield f"  file {path}"
