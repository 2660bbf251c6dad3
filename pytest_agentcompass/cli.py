"""Verbs that need no pytest run: `python -m pytest_agentcompass VERB ...`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import __version__
from .errors import AgentCompassError, ConfigError

if TYPE_CHECKING:
    from .components.registry import Registry
    from .results.rundir import RunDirectory

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
    report = verbs.add_parser("report", help="rebuild summary.json, summary.md, junit.xml and report.html")
    report.add_argument("directory", metavar="DIR", help="a run directory, a run id, or `last`")
    report.set_defaults(verb=_report)
    show = verbs.add_parser("show", help="print a run, or one attempt of it")
    show.add_argument("directory", metavar="DIR", help="a run directory, a run id, or `last`")
    show.add_argument("task", metavar="TASK", nargs="?", help="a task id, or TASK/N for attempt N")
    show.add_argument(
        "-f", "--follow", action="store_true", help="print what happens, and the task's logs, until it ends"
    )
    show.set_defaults(verb=_show)
    regrade = verbs.add_parser("regrade", help="evaluate again from stored answers and artifacts, into a new run")
    regrade.add_argument("directory", metavar="DIR", help="a run directory, a run id, or `last`")
    regrade.add_argument("--concurrency", type=int, default=1, metavar="N", help="evaluations at once")
    regrade.set_defaults(verb=_regrade)
    _add_compare(verbs)
    _add_merge(verbs)
    server = verbs.add_parser("model-server", help="serve scripted answers of a model on loopback, in three protocols")
    server.add_argument("script", metavar="SCRIPT.yaml", type=Path, help="what to answer (see docs/models.md)")
    server.add_argument("--port", type=int, default=0, metavar="N", help="port to listen on (default: a free one)")
    server.add_argument("--print-port", action="store_true", help="print the port alone")
    server.set_defaults(verb=_model_server)
    clean = verbs.add_parser("clean", help="remove sandboxes whose owners are dead")
    clean.set_defaults(verb=_clean)
    for verb in (report, regrade, show):
        verb.add_argument("--results", metavar="DIR", default="agentcompass-results", help="where runs are looked up")
    return parser


def _add_compare(verbs: Any) -> None:
    compare = verbs.add_parser("compare", help="compare runs with a baseline, paired by task")
    compare.add_argument(
        "runs", metavar="RUN", nargs="+", help="run directories, run ids or summary.json; first the baseline"
    )
    compare.add_argument(
        "--metric", default="pass@1", metavar="NAME", help="pass@K, pass^K, avg@K or mean (default pass@1)"
    )
    compare.add_argument("--confidence", type=float, default=0.95, metavar="C", help="one-sided (default 0.95)")
    compare.add_argument(
        "--drop-changed", action="store_true", help="leave tasks out that are not the same in both runs"
    )
    compare.add_argument("--markdown", action="store_true", help="print Markdown")
    compare.add_argument("--output", metavar="FILE", help="also write the Markdown to FILE")
    compare.add_argument("--results", metavar="DIR", default="agentcompass-results", help="where runs are looked up")
    compare.set_defaults(verb=_compare)


def _add_merge(verbs: Any) -> None:
    merge = verbs.add_parser("merge", help="join shards or parts of a run into one, and judge it by its gates once")
    merge.add_argument("directories", metavar="DIR", nargs="+", type=Path, help="run directories")
    merge.add_argument("--results", metavar="DIR", default="agentcompass-results", help="where the joined run goes")
    merge.add_argument("--run-id", metavar="ID", help="the joined run's id (default: time stamp and random)")
    merge.add_argument("--gate", metavar="EXPR", action="append", default=[], help="a gate, beside those of the parts")
    merge.add_argument("--baseline", metavar="RUN_DIR|FILE", type=Path, help="the run that gates compare with")
    merge.add_argument("--allow-gaps", action="store_true", help="merge although something is missing (gates: INVALID)")
    merge.add_argument(
        "--gate-unresolved",
        choices=("failure", "skipped", "passed"),
        help="how attempts that did not pass appear in JUnit where gates decide",
    )
    merge.set_defaults(verb=_merge)


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
    _say_damage(run)
    return 0


def _say_damage(run: RunDirectory) -> None:
    """Name the files of *run* that could not be read, in whole or in part."""
    from .results.events import bad_lines_note, read_events

    events = run.path / "events.jsonl"
    bad = read_events(events)[1]
    for text in [*map(str, run.damaged), *([bad_lines_note(events, bad)] if bad else [])]:
        print(f"agentcompass: {text}", file=sys.stderr)


def _show(arguments: argparse.Namespace) -> int:
    from .reports.show import show_attempts, show_run
    from .results.rundir import RunDirectory

    run = RunDirectory.open(_find(arguments))
    if arguments.follow:
        return _follow(run, arguments.task or "")
    for line in show_attempts(run, arguments.task) if arguments.task else show_run(run):
        print(line)
    _say_damage(run)
    return 0


def _follow(run: RunDirectory, task: str) -> int:
    from .reports.follow import follow

    try:
        for line in follow(run, task):
            print(line, flush=True)
    except KeyboardInterrupt:
        pass  # whoever looks has seen enough; the run goes on
    return 0


def _regrade(arguments: argparse.Namespace) -> int:
    from .regrading import regrade

    done = regrade(_find(arguments), Path(arguments.results), arguments.concurrency, _registry())
    print(f"{done.graded} attempts graded again, {done.changed} with another outcome, {len(done.kept)} kept")
    for reason in done.kept[:20]:
        print(f"  kept: {reason}")
    print(done.directory)
    return 0


def _compare(arguments: argparse.Namespace) -> int:
    from .reports.compare import Run, compare_markdown, compare_runs, compare_text
    from .results.baseline import read_baseline
    from .results.files import write_atomic
    from .results.resume import find_run

    if len(arguments.runs) < 2:
        raise ConfigError("compare needs two runs or more: first the baseline, then its candidates")
    if not 0.5 < arguments.confidence < 1:
        raise ConfigError(f"--confidence must lie between 0.5 and 1, not {arguments.confidence}")
    paths = [Path(name) if Path(name).exists() else find_run(Path(arguments.results), name) for name in arguments.runs]
    names = [path.parent.name if path.name == "summary.json" else path.name for path in paths]
    runs = [Run(name or str(path), read_baseline(path)) for name, path in zip(names, paths, strict=True)]
    found = compare_runs(
        runs, metric=arguments.metric, confidence=arguments.confidence, drop_changed=arguments.drop_changed
    )
    print(compare_markdown(found) if arguments.markdown else "\n".join(compare_text(found)))
    if arguments.output:
        write_atomic(Path(arguments.output), compare_markdown(found).encode("utf-8", "backslashreplace"))
    return 0


def _merge(arguments: argparse.Namespace) -> int:
    from .components.registry import Registry
    from .reports.merged import merge

    registry = Registry()
    registry.load_entry_points()
    lines, code = merge(
        arguments.directories,
        Path(arguments.results),
        run_id=arguments.run_id,
        gates=arguments.gate,
        baseline=arguments.baseline,
        allow_gaps=arguments.allow_gaps,
        unresolved=arguments.gate_unresolved,
        registry=registry,
    )
    print("\n".join(lines))
    return code


def _model_server(arguments: argparse.Namespace) -> int:
    from .models.scripted import ScriptedServer, load_script

    script = load_script(arguments.script)
    try:
        server = ScriptedServer(script, arguments.port)
    except (OSError, OverflowError) as error:
        raise ConfigError(f"port {arguments.port} cannot be used: {error}") from error
    print(server.port if arguments.print_port else f"base_url={server.base_url}", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        server.close()
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
