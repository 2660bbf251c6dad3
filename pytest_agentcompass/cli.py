"""Verbs that need no pytest run: `python -m pytest_agentcompass VERB ...`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from . import __version__
from .errors import AgentCompassError

if TYPE_CHECKING:
    from .components.registry import Registry

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run a verb; returns 0, or 4 for a usage error (as pytest does)."""
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.verb(arguments))
    except AgentCompassError as error:
        print(f"agentcompass: error: {error.message}", file=sys.stderr)
        return 4
    except BrokenPipeError:
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="pytest-agentcompass", description="Look at and rebuild results of runs.")
    parser.add_argument("--version", action="version", version=__version__)
    verbs = parser.add_subparsers(title="verbs", required=True, metavar="VERB")
    report = verbs.add_parser("report", help="rebuild summary.json, summary.md and junit.xml from a run's records")
    report.add_argument("directory", metavar="DIR", help="a run directory, a run id, or `last`")
    report.set_defaults(verb=_report)
    show = verbs.add_parser("show", help="print a run, or one attempt of it")
    show.add_argument("directory", metavar="DIR", help="a run directory, a run id, or `last`")
    show.add_argument("task", metavar="TASK", nargs="?", help="a task id, or TASK/N for attempt N")
    show.set_defaults(verb=_show)
    regrade = verbs.add_parser("regrade", help="evaluate again from stored answers and artifacts, into a new run")
    regrade.add_argument("directory", metavar="DIR", help="a run directory, a run id, or `last`")
    regrade.add_argument("--concurrency", type=int, default=1, metavar="N", help="evaluations at once")
    regrade.set_defaults(verb=_regrade)
    clean = verbs.add_parser("clean", help="remove sandboxes whose owners are dead")
    clean.set_defaults(verb=_clean)
    for verb in (report, regrade, show):
        verb.add_argument("--results", metavar="DIR", default="agentcompass-results", help="where runs are looked up")
    return parser


def _find(arguments: argparse.Namespace) -> Path:
    from .results.resume import find_run

    return find_run(Path(arguments.results), arguments.directory)


def _report(arguments: argparse.Namespace) -> int:
    from .components.registry import Registry
    from .reports.extra import write_extra_reports
    from .reports.write import collect_results, write_files
    from .results.rundir import RunDirectory

    run, registry = RunDirectory.open(_find(arguments)), Registry()
    registry.load_entry_points()
    results = collect_results(run)
    for path in [*write_files(run, results), *write_extra_reports(run, results, registry)]:
        print(path)
    for damage in run.damaged:
        print(f"agentcompass: {damage}", file=sys.stderr)
    return 0


def _show(arguments: argparse.Namespace) -> int:
    from .reports.show import show_attempts, show_run
    from .results.rundir import RunDirectory

    run = RunDirectory.open(_find(arguments))
    for line in show_attempts(run, arguments.task) if arguments.task else show_run(run):
        print(line)
    return 0


def _regrade(arguments: argparse.Namespace) -> int:
    from .regrading import regrade

    done = regrade(_find(arguments), Path(arguments.results), arguments.concurrency, _registry())
    print(f"{done.graded} attempts graded again, {done.changed} with another outcome, {len(done.kept)} kept")
    for reason in done.kept[:20]:
        print(f"  kept: {reason}")
    print(done.directory)
    return 0


def _clean(arguments: argparse.Namespace) -> int:
    from .execution.cleanup import sweep

    lines = sweep(_registry(), everywhere=True)
    print("\n".join(lines) if lines else "nothing was left")
    return 0


def _registry() -> Registry:
    """Return the components that a pytest run in this folder would know: installed ones and the conftest.py's."""
    from .components.registry import Registry

    registry = Registry()
    registry.load_entry_points()
    if Path("conftest.py").is_file():
        registry.load_conftest(Path("conftest.py"))
    return registry
