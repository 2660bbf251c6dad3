"""The `merge` verb: join run directories, write the reports of the whole, judge it once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..components.registry import Registry
from ..metrics.gates import exit_code, parse_gate
from ..results.baseline import read_baseline
from ..results.merge import merge_runs
from .extra import write_extra_reports
from .gates import gate_headline, gate_lines
from .judge import GateSet, judge, stored_gates
from .text import problems, request_table, results_lines
from .write import collect_results, write_files

__all__ = ["merge"]


def merge(
    directories: Sequence[Path],
    results_dir: Path,
    *,
    run_id: str | None = None,
    gates: Sequence[str] = (),
    baseline: Path | None = None,
    allow_gaps: bool = False,
    unresolved: str | None = None,
    registry: Registry | None = None,
    width: int = 100,
) -> tuple[list[str], int]:
    """Join *directories* into a new run under *results_dir*; return what to print and the exit code.

    The gates are those that the parts stored, and *gates*; *registry* knows benchmarks with reports of their
    own. Without any gate the code is 1 when something
    is missing or errored or did not pass, as after one run. Raises AgentCompassError for parts that do
    not belong together and for a gate or a baseline that cannot be used; nothing is made then.
    """
    given = tuple(parse_gate(text) for text in gates)
    other = read_baseline(baseline) if baseline else None
    run = merge_runs(directories, results_dir, run_id=run_id, allow_gaps=allow_gaps)
    results = collect_results(run)
    info = run.read_run_info()
    sets = stored_gates(info, other)
    if given:
        sets.insert(0, GateSet(given, None, other, str(baseline) if baseline else None, unresolved))
    verdicts = judge(run, results, sets, [str(text) for text in info.get("broken") or ()])
    files = [path.name for path in write_files(run, results)]
    if registry is not None:
        files += [path.name for path in write_extra_reports(run, results, registry)]
    lines = request_table([result.report for result in results], width)
    for result in results:
        lines += problems(result.records, result.planned)
    lines += results_lines(str(run.path), files)
    if not verdicts:
        failed = any(result.report["attempts"][key] for result in results for key in ("failed", "errors", "missing"))
        return lines, int(failed)
    data = [item.to_dict() for item in verdicts]
    code = exit_code(verdicts)
    return [*lines, "", *gate_lines(data, width), f"{gate_headline(data)} -> exit code {code}"], code
