"""Rules of the report files that benchmarks write themselves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_agentcompass.components.benchmark import BaseBenchmark
from pytest_agentcompass.components.registry import Registry
from pytest_agentcompass.contracts.outcome import RunResult, Status
from pytest_agentcompass.contracts.record import AttemptRecord
from pytest_agentcompass.contracts.request import BenchmarkSpec, RunMetadata, RunRequest
from pytest_agentcompass.contracts.task import PreparedTask, TaskInput
from pytest_agentcompass.errors import ResultsError
from pytest_agentcompass.reports.extra import write_extra_reports
from pytest_agentcompass.reports.summary import RequestResult
from pytest_agentcompass.results.rundir import RunDirectory


class Plain(BaseBenchmark):
    """A benchmark without report files of its own."""

    id = "plain"

    def load_tasks(self, req: RunRequest) -> list[Any]:
        """Return no task."""
        return []

    async def prepare_task(self, task: Any, env: Any, req: Any, plan: Any) -> PreparedTask:
        """Return an empty task."""
        return PreparedTask(task.task_id, "", None, TaskInput(""))

    async def evaluate(
        self, task: Any, prepared: Any, result: RunResult, req: Any, plan: Any, env: Any = None
    ) -> RunResult:
        """Return the result as it is."""
        return result


class Listing(Plain):
    """Writes the attempts that it was given."""

    id = "listing"

    def write_extra_reports(
        self,
        directory: Path,
        attempts: Sequence[tuple[AttemptRecord, Path]],
        planned: Sequence[tuple[str, int]],
        req: RunRequest,
    ) -> list[Path]:
        """Write one file."""
        path = directory / f"{req.name}.txt"
        rows = [f"{record.task_id} {folder.relative_to(directory)}" for record, folder in attempts]
        path.write_text("\n".join([*rows, f"planned {list(planned)}"]))
        return [path]


class Broken(Plain):
    """Fails to write."""

    id = "broken"

    def write_extra_reports(self, directory: Path, attempts: Any, planned: Any, req: Any) -> list[Path]:
        """Fail as an extension may."""
        raise KeyError("gone")


@pytest.fixture
def registry() -> Registry:
    """A registry that knows the three."""
    made = Registry()
    for benchmark in (Plain, Listing, Broken):
        made.add("benchmark", benchmark)
    return made


def outcome(name: str, benchmark: str) -> RequestResult:
    """Return a request's result of one attempt at one of two tasks."""
    record = AttemptRecord(request=name, task_id="t", attempt=1, status=Status.COMPLETED)
    request = RunRequest(benchmark=BenchmarkSpec(id=benchmark), metadata=RunMetadata(name=name))
    info = {**request.model_dump(mode="json"), "name": name}
    return RequestResult(name, {}, [record], [(name, "t", 1), (name, "u", 1)], info, {})


def test_each_benchmark_writes_its_own(tmp_path: Path, registry: Registry) -> None:
    """A benchmark gets its request, its records with their folders and the plan; the default writes nothing."""
    run = RunDirectory.create(tmp_path)
    paths = write_extra_reports(run, [outcome("a", "plain"), outcome("b", "listing")], registry)
    assert [path.name for path in paths] == ["b.txt"]
    folder = run.attempt_dir("b", "t", 1).relative_to(run.path)
    assert paths[0].read_text() == f"t {folder}\nplanned [('t', 1), ('u', 1)]"


def test_a_failing_one_does_not_cost_the_others(tmp_path: Path, registry: Registry) -> None:
    """All others write their files before the failure is told, with the request's name."""
    run = RunDirectory.create(tmp_path)
    with pytest.raises(ResultsError, match=r"request 'a': KeyError: 'gone'"):
        write_extra_reports(run, [outcome("a", "broken"), outcome("b", "listing")], registry)
    assert (run.path / "b.txt").is_file()


def test_an_unknown_benchmark_is_left_out(tmp_path: Path, registry: Registry) -> None:
    """Reports of a run can be rebuilt where its benchmark (of a conftest.py, say) is not known."""
    paths = write_extra_reports(
        RunDirectory.create(tmp_path), [outcome("a", "lost"), outcome("b", "listing")], registry
    )
    assert [path.name for path in paths] == ["b.txt"]


def test_a_request_of_another_version_is_left_out(tmp_path: Path, registry: Registry) -> None:
    """What cannot be rebuilt from the run's own words writes nothing and breaks nothing."""
    result = outcome("b", "listing")
    old = RequestResult(result.name, {}, result.records, result.planned, {"benchmark": {"id": "listing", "x": 1}}, {})
    assert write_extra_reports(RunDirectory.create(tmp_path), [old], registry) == []
