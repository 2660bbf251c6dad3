"""Reports rebuilt from a run directory: at session end and by the `report` verb alike."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from ..components.registry import Registry
from ..contracts.metrics import MetricContract, MetricSpec
from ..contracts.record import AttemptRecord
from ..errors import AgentCompassError, ConfigError
from ..metrics.aggregation import parse_hierarchy
from ..metrics.report import build_report
from ..metrics.tallies import Planned
from ..redaction import plain
from ..results.files import json_row, write_atomic
from ..results.layout import attempt_path
from .html_report import html_opening, html_report
from .junit import build_junit
from .markdown import render_markdown
from .summary import RequestResult, build_summary

__all__ = ["RunReader", "collect_results", "infer_contract", "write_files", "write_reports"]

Aggregate = Callable[[str, dict[str, Any]], dict[str, Any]]


class RunReader(Protocol):
    """What reports need of a run directory (`results.rundir.RunDirectory`)."""

    @property
    def path(self) -> Path:
        """The run directory."""

    def records(self, request: str | None = None) -> Iterable[AttemptRecord]:
        """Return the records of one request or of all."""

    def planned(self) -> Iterable[Planned]:
        """Return the planned attempts (request, task id, attempt)."""

    def read_run_info(self) -> Mapping[str, Any]:
        """Return what run.json holds."""

    @property
    def damaged(self) -> Sequence[object]:
        """What could not be read so far; each item says path and reason as text."""

    def attempt_dir(self, request: str, task_id: str, attempt: int, /) -> Path:
        """Return the directory of an attempt."""


def write_reports(
    rundir: RunReader, *, contracts: Mapping[str, MetricContract] | None = None, aggregate: Aggregate | None = None
) -> list[Path]:
    """Rebuild summary.json, summary.md, junit.xml and report.html of *rundir* from its records; return their paths.

    See `collect_results` for *contracts* and *aggregate*. Raises ResultsError when a file cannot be written.
    """
    return write_files(rundir, collect_results(rundir, contracts=contracts, aggregate=aggregate))


def collect_results(
    rundir: RunReader, *, contracts: Mapping[str, MetricContract] | None = None, aggregate: Aggregate | None = None
) -> list[RequestResult]:
    """Return the requests of a run with their metric reports, in declared order.

    *contracts* gives metric contracts by request; else that of the benchmark is taken, or, where it is not
    known here, one inferred from the records. *aggregate* (request name, report) may replace figures of a
    report (`Benchmark.aggregate_metrics`); what it leaves out stays.
    """
    infos = _infos(rundir.read_run_info())
    records: dict[str, list[AttemptRecord]] = {}
    plans: dict[str, list[Planned]] = {}
    for record in rundir.records():
        records.setdefault(record.request, []).append(record)
    for planned in rundir.planned():
        plans.setdefault(planned[0], []).append(planned)
    names = dict.fromkeys([*infos, *plans, *records])
    found = []
    for name in names:
        result = _result(rundir, name, infos.get(name, {}), records.get(name, []), plans.get(name, []), contracts or {})
        report = (
            result.report if aggregate is None else {**result.report, **plain(aggregate(name, dict(result.report)))}
        )
        found.append(RequestResult(name, report, result.records, result.planned, result.info, result.categories))
    return found


def write_files(rundir: RunReader, results: Sequence[RequestResult]) -> list[Path]:
    """Write the report files of *results*, each whole or not at all, and return their paths."""
    info = rundir.read_run_info()
    problems = [str(item).removeprefix(f"{rundir.path}/") for item in rundir.damaged]
    summary = build_summary(info, results, problems)

    def record_path(request: str, task_id: str, attempt: int) -> str:
        return f"{attempt_path(request, task_id, attempt)}/record.json"

    def present(folder: str) -> list[str]:
        try:
            return os.listdir(f"{rundir.path}/{folder}")
        except OSError:
            return []  # removed meanwhile, or not to be read: the page only lacks links

    paths = [rundir.path / name for name in ("summary.json", "summary.md", "junit.xml", "report.html")]
    markdown = render_markdown(summary).encode("utf-8", "backslashreplace")
    opening = html_opening(summary, results)
    write_atomic(paths[0], json_row(summary).encode("ascii") + b"\n")
    del summary  # with thousands of attempts each of these takes megabytes
    write_atomic(paths[1], markdown)
    write_atomic(paths[2], build_junit(info, results, record_path))
    write_atomic(paths[3], html_report(opening, results, record_path, present))
    return paths


def infer_contract(records: Iterable[AttemptRecord]) -> MetricContract:
    """Return a contract that fits *records* whose benchmark is not known here.

    Primary is `correct`, else the first metric by name that equals the score wherever there is one.
    """
    metrics: dict[str, MetricSpec] = {}
    differs: set[str] = set()
    for record in records:
        for name, value in record.metrics.items():
            binary = isinstance(value, bool) and metrics.get(name, MetricSpec("binary")).kind == "binary"
            metrics[name] = MetricSpec("binary" if binary else "scalar")
            if record.score is not None and float(value) != record.score:
                differs.add(name)
    candidates = sorted(set(metrics) - differs) or sorted(metrics)
    primary = "correct" if "correct" in metrics or not candidates else candidates[0]
    kind = metrics.get(primary, MetricSpec("binary")).kind
    return MetricContract({**metrics, primary: MetricSpec(kind, primary=True)}, open_scalars=True)


def _result(
    rundir: RunReader,
    name: str,
    info: Mapping[str, Any],
    records: Sequence[AttemptRecord],
    planned: Sequence[Planned],
    contracts: Mapping[str, MetricContract],
) -> RequestResult:
    attempts = _section(_section(info, "execution"), "attempts")
    benchmark = _section(info, "benchmark")
    recorded = {record.task_id for record in records}
    categories = _categories(rundir, name) if any(task_id not in recorded for _, task_id, _ in planned) else {}
    hierarchy, notes = _hierarchy(benchmark.get("category_hierarchy"))
    report = build_report(
        records,
        planned,
        contracts.get(name) or _contract(benchmark.get("id"), records),
        k=max([attempts.get("k", 1), *(number for _, _, number in planned), *(record.attempt for record in records)]),
        strategy=attempts.get("strategy", "avg"),
        aggregation_mode=benchmark.get("aggregation_mode", "micro_weighted"),
        category_hierarchy=hierarchy,
        categories=categories,
        defined_tasks=_defined_tasks(rundir, name),
        request=name,
    )
    report["notes"] += notes
    return RequestResult(name, report, records, planned, info, categories)


def _hierarchy(data: Any) -> tuple[Mapping[str, Any] | None, list[str]]:
    """Return a stored hierarchy, or none and a note: a run that is over must not lose its reports to it."""
    if not data:
        return None, []
    try:
        parse_hierarchy(data)
    except ConfigError as error:
        return None, [f"the score ignores the category hierarchy: {error.message}"]
    return data, []


def _contract(benchmark: object, records: Sequence[AttemptRecord]) -> MetricContract:
    registry = Registry()
    try:
        registry.load_entry_points()
        found = registry.get("benchmark", str(benchmark)).metric_contract
    except (AttributeError, ConfigError, SyntaxError):
        return infer_contract(records)  # a missing or broken extension must not cost the report
    return found if isinstance(found, MetricContract) else infer_contract(records)


def _categories(rundir: RunReader, name: str) -> dict[str, str]:
    """Return the categories of the selected tasks, where they are stored: those without a record have none else."""
    read = getattr(rundir, "read_tasks", None)
    try:
        loaded = read(name) if read is not None else None
    except (AgentCompassError, FileNotFoundError):
        loaded = None  # reports are made from records alone; the tasks only add what those cannot know
    return {} if loaded is None else {task.task_id: task.category for task in loaded.tasks}


def _defined_tasks(rundir: RunReader, name: str) -> int | None:
    """Return how many tasks the suite defines, where that is stored."""
    read = getattr(rundir, "read_task_head", None)
    defined = read(name).get("defined_tasks") if read is not None else None
    return defined if isinstance(defined, int) else None


def _infos(run_info: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the redacted requests of run.json by name, whether stored as a list or as a mapping."""
    stored = run_info.get("requests") or {}
    if isinstance(stored, Mapping):
        return {str(name): info for name, info in stored.items() if isinstance(info, Mapping)}
    named = [
        (info.get("name") or _section(info, "metadata").get("name"), info)
        for info in stored
        if isinstance(info, Mapping)
    ]
    return {str(name): info for name, info in named if name}


def _section(info: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = info.get(name)
    return value if isinstance(value, Mapping) else {}
