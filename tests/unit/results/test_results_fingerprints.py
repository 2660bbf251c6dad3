"""Fingerprints and what of an older run still counts."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from pytest_agentcompass.contracts.environment import BuildSpec, EnvironmentSpec, Resources
from pytest_agentcompass.contracts.network import NetworkPolicy
from pytest_agentcompass.contracts.outcome import INFRASTRUCTURE_MODES, SKIP_MODES, FailureMode, Status
from pytest_agentcompass.contracts.plan import BenchmarkPlan, ExecutionPlan, HarnessPlan
from pytest_agentcompass.contracts.record import AttemptRecord
from pytest_agentcompass.contracts.request import (
    AttemptsSpec,
    BenchmarkSpec,
    ExecutionSpec,
    HarnessSpec,
    ModelSpec,
    RunRequest,
)
from pytest_agentcompass.contracts.task import Artifact, TaskSpec
from pytest_agentcompass.errors import ResultsError
from pytest_agentcompass.results.fingerprints import differences, fingerprint_parts, run_fingerprint, task_fingerprint
from pytest_agentcompass.results.resume import find_run, list_runs, reusable
from pytest_agentcompass.results.rundir import RunDirectory


@dataclass(slots=True)
class GraderPlan(BenchmarkPlan):
    """A benchmark's own plan."""

    grader: str = "exact"


def task(**changes: Any) -> TaskSpec:
    """Return a task read from a folder."""
    values: dict[str, Any] = {
        "task_id": "t",
        "question": "q",
        "ground_truth": 1,
        "metadata": {"directory": "/data/set/t", "n": 1},
        "source": "/data/set/t/task.toml:3",
        "fingerprint": "abc",
    }
    return TaskSpec(**{**values, **changes})


def plan(**changes: Any) -> ExecutionPlan:
    """Return a plan."""
    environment = EnvironmentSpec(id="docker", image="debian", env_variables={"A": "1", "API_KEY": "k1"})
    values: dict[str, Any] = {"environment": environment, "benchmark_plan": GraderPlan(), "run_timeout_seconds": 60.0}
    return ExecutionPlan(**{**values, **changes})


def request(model: dict[str, Any] | None = None, **changes: Any) -> RunRequest:
    """Return a request."""
    spec = ModelSpec(**{"id": "m", "base_url": "https://api.example/v1", "params": {"max_tokens": 10}, **(model or {})})
    values: dict[str, Any] = {"benchmark": BenchmarkSpec(id="b"), "harness": HarnessSpec(id="h")}
    return RunRequest(model=spec, **{**values, **changes})


def environment(**changes: Any) -> dict[str, Any]:
    """Return the change of a plan that changes its environment."""
    return {"environment": plan().environment.model_copy(update=changes)}


@pytest.mark.parametrize(
    ("task_changes", "plan_changes"),
    [
        ({"question": "other"}, {}),
        ({"ground_truth": True}, {}),
        ({"ground_truth": "1"}, {}),
        ({"metadata": {"directory": "/data/set/t", "n": 2}}, {}),
        ({"fingerprint": "abd"}, {}),
        ({"category": "c"}, {}),
        ({}, environment(image="alpine")),
        ({}, environment(id="host_process")),
        ({}, environment(resources=Resources(cpus=1))),
        ({}, environment(env_variables={"A": "2", "API_KEY": "k1"})),
        ({}, {"run_network_policy": NetworkPolicy.model_validate("no-network")}),
        ({}, {"evaluation_environment_mode": "fresh"}),
        ({}, {"benchmark_plan": GraderPlan(grader="fuzzy")}),
        ({}, {"run_timeout_seconds": 61.0}),
        ({}, {"run_timeout_seconds": None}),
        ({}, {"artifacts": [Artifact("/app/out")]}),
        ({}, {"execution": ExecutionSpec(pass_threshold=0.5)}),
    ],
)
def test_what_changes_a_task_changes_both(task_changes: dict[str, Any], plan_changes: dict[str, Any]) -> None:
    """Content, grader, image, limits and policies count, and the table names what differs."""
    old, new = (task(), plan()), (task(**task_changes), plan(**plan_changes))
    assert task_fingerprint(*old) != task_fingerprint(*new)
    assert run_fingerprint(*old, request()) != run_fingerprint(*new, request())
    assert len(differences(fingerprint_parts(*old), fingerprint_parts(*new))) >= 1


@pytest.mark.parametrize(
    ("new_request", "version", "plan_changes"),
    [
        (request({"id": "m2"}), "1", {}),
        (request({"base_url": "https://other.example/v1"}), "1", {}),
        (request({"base_url": None}), "1", {}),
        (request({"params": {"max_tokens": 11}}), "1", {}),
        (request({"api_protocol": "anthropic"}), "1", {}),
        (request(benchmark=BenchmarkSpec(id="b2")), "1", {}),
        (request(benchmark=BenchmarkSpec(id="b", params={"x": 1})), "1", {}),
        (request(harness=HarnessSpec(id="h2")), "1", {}),
        (request(harness=HarnessSpec(id="h", params={"x": 1})), "1", {}),
        (request(), "2", {}),
        (request(), "1", {"applied_recipes": ["r"]}),
        (request(), "1", {"harness_plan": HarnessPlan(params={"x": 1})}),
    ],
)
def test_who_solves_it_changes_the_run_alone(
    new_request: RunRequest, version: str, plan_changes: dict[str, Any]
) -> None:
    """Model, endpoint, params, harness, recipes and benchmark count for reuse, not for comparing tasks."""
    assert task_fingerprint(task(), plan()) == task_fingerprint(task(), plan(**plan_changes))
    old = run_fingerprint(task(), plan(), request(), "1")
    assert old != run_fingerprint(task(), plan(**plan_changes), new_request, version)
    parts = fingerprint_parts(task(), plan(**plan_changes), new_request, version)
    assert differences(fingerprint_parts(task(), plan(), request(), "1"), parts)


@pytest.mark.parametrize(
    ("task_changes", "plan_changes", "new_request"),
    [
        ({}, {}, request({"api_key": "sk-other"})),
        ({}, {}, request({"base_url": "https://user:key@api.example/v1/"})),
        ({}, {}, request({"wrap_api_key": True})),
        ({}, {}, request(benchmark=BenchmarkSpec(id="b", limit=3, sample_ids=("t",)))),
        ({}, environment(env_variables={"A": "1", "API_KEY": "k2"}), request()),
        ({}, {"execution": ExecutionSpec(attempts=AttemptsSpec(k=5, strategy="pass"), max_retries=3)}, request()),
        ({}, {"execution": ExecutionSpec(task_concurrency=9, keep_environment=True, enable_analysis=False)}, request()),
        ({}, {"notes": ["n"]}, request()),
        ({"warnings": ("w",), "estimated_seconds": 5.0, "tags": ("x",), "difficulty": "hard"}, {}, request()),
        ({"metadata": {"directory": "/moved/t", "n": 1}, "source": "/moved/t/task.toml:9"}, {}, request()),
        ({"metadata": {"n": 1, "directory": "/data/set/t"}}, {}, request()),
    ],
)
def test_what_does_not_count(
    task_changes: dict[str, Any], plan_changes: dict[str, Any], new_request: RunRequest
) -> None:
    """Keys, k, concurrency, retries, notes and where a dataset lies change nothing."""
    old = run_fingerprint(task(), plan(), request(), "1")
    assert old == run_fingerprint(task(**task_changes), plan(**plan_changes), new_request, "1")


def test_paths_in_the_sandbox_count() -> None:
    """Only folders of the dataset are neutral; a moved build context of the task is the same task."""

    def where(root: str, workdir: str) -> str:
        spec = EnvironmentSpec(id="docker", workdir=workdir, build=BuildSpec(context=f"{root}/environment"))
        moved = task(metadata={"directory": root, "n": 1}, source=f"{root}/task.toml:1")
        return task_fingerprint(moved, plan(environment=spec))

    assert where("/data/set/t", "/app") == where("/moved/t", "/app") != where("/data/set/t", "/app2")


def test_fingerprints_leave_their_inputs_alone() -> None:
    """They are pure."""
    given = (task(), plan(), request())
    before = copy.deepcopy(given)
    run_fingerprint(*given)
    fingerprint_parts(*given)
    assert given == before


def test_fingerprints_are_the_same_in_every_process() -> None:
    """Hash seeds, set order and object addresses do not show."""
    code = (
        "from pytest_agentcompass.contracts.task import TaskSpec\n"
        "from pytest_agentcompass.contracts.plan import ExecutionPlan\n"
        "from pytest_agentcompass.contracts.environment import EnvironmentSpec\n"
        "from pytest_agentcompass.results.fingerprints import task_fingerprint\n"
        "spec = EnvironmentSpec(params={'s': {'a', 'b', 'c', 'd'}, 'o': object(), 'u': 'a\\udcff'})\n"
        "print(task_fingerprint(TaskSpec('t'), ExecutionPlan(environment=spec)))"
    )
    prints = [
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
        ).stdout
        for seed in (1, 2)
    ]
    assert prints[0] == prints[1]
    assert len(prints[0].strip()) == 64


def test_differences_are_readable_and_hold_no_key() -> None:
    """One row for each thing that changed, with both values; long ones by length and hash."""
    old = fingerprint_parts(task(question="q" * 500), plan(), request({"api_key": "sk-one"}), "1")
    changed = request({"id": "m2", "params": {"temperature": 1}, "api_key": "sk-two"})
    new = fingerprint_parts(task(question="r" * 500), plan(), changed, "1")
    rows = {key: (was, now) for key, was, now in differences(old, new)}
    assert rows["model.id"] == ('"m"', '"m2"')
    assert rows["model.params.max_tokens"] == ("10", "(not set)")
    assert rows["model.params.temperature"] == ("(not set)", "1")
    assert "502 characters, sha256" in rows["task.question"][0]
    assert len(rows) == 4
    assert "sk-" not in str(old) + str(new)
    assert '"(secret)"' in old.values()
    assert differences(old, old) == []


def record(**changes: Any) -> AttemptRecord:
    """Return a graded record with a fingerprint."""
    values: dict[str, Any] = {"request": "main", "task_id": "t", "attempt": 1, "status": Status.COMPLETED}
    return AttemptRecord(
        **{**values, "passed": True, "score": 1.0, "fingerprint": {"task": "T", "run": "R"}, **changes}
    )


@pytest.mark.parametrize(
    "changes",
    [{}, {"passed": False, "score": 0.0}, {"passed": False, "score": 0.0, "failure_mode": FailureMode.AGENT_TIMEOUT}],
)
def test_graded_attempts_are_kept(changes: dict[str, Any]) -> None:
    """A failure of the agent is a result: it is never made again until it passes."""
    assert reusable(record(**changes), "R") is None


@pytest.mark.parametrize("mode", sorted(INFRASTRUCTURE_MODES))
def test_infrastructure_errors_are_made_again(mode: FailureMode) -> None:
    """Missing data is no result, whatever else the record says; `anyway` does not change that."""
    broken = record(failure_mode=mode)
    assert "cancelled" in (reusable(broken, "R") or "") or mode.value in (reusable(broken, "R", anyway=True) or "")
    assert reusable(record(failure_mode=mode, passed=None, score=None, status=Status.RUN_ERROR), "R", anyway=True)


@pytest.mark.parametrize("mode", sorted(SKIP_MODES))
def test_skips_are_decided_anew(mode: FailureMode) -> None:
    """Whether an attempt is needed depends on the run that asks."""
    assert "decided anew" in (reusable(record(status=Status.SKIPPED, failure_mode=mode, passed=None), "R") or "")


@pytest.mark.parametrize(("fingerprint", "reason"), [({"run": "X"}, "differs"), ({}, "no run fingerprint")])
def test_another_fingerprint_is_refused_unless_anyway(fingerprint: dict[str, str], reason: str) -> None:
    """A result of another model or task stands for nothing here, unless a person says so."""
    assert reason in (reusable(record(fingerprint=fingerprint), "R") or "")
    assert reusable(record(fingerprint=fingerprint), "R", anyway=True) is None


def test_an_attempt_without_a_score_is_made_again() -> None:
    """A missing score is not 0."""
    assert reusable(record(passed=None, score=None, status=Status.RUN_ERROR), "R") == "it has no score"


@pytest.fixture
def runs(tmp_path: Path) -> Callable[[str, str, str], Path]:
    """Make runs that started at given times."""

    def make(name: str, run_id: str, started: str) -> Path:
        run = RunDirectory.create(tmp_path, name, run_id)
        run.update_run_info(started_at=started)
        return run.path

    return make


def test_runs_are_found_by_last_id_and_directory(
    tmp_path: Path, runs: Callable[[str, str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`last` is the run that started last, not the one whose name sorts last."""
    old, new = runs("main", "zz", "2026-01-01T00:00:00"), runs("other", "Aa", "2026-02-01T00:00:00")
    assert find_run(tmp_path, "last") == new
    assert find_run(tmp_path, "last", "main") == old
    assert find_run(tmp_path, "zz") == find_run(tmp_path, "main/zz") == find_run(tmp_path, str(old)) == old
    assert find_run(tmp_path, "Aa") == new
    assert list_runs(tmp_path) == [new, old]
    monkeypatch.chdir(old.parent)
    assert find_run(tmp_path / "elsewhere", "zz") == old


def test_an_unknown_run_names_those_that_exist(tmp_path: Path, runs: Callable[[str, str, str], Path]) -> None:
    """The nearest id comes first, and a long list is cut."""
    for number in range(15):
        runs("main", f"run-{number:02}", f"2026-01-01T00:00:{number:02}")
    with pytest.raises(ResultsError, match=r"no run 'run-1' under .*did you mean 'run-1\d'.*and 5 older"):
        find_run(tmp_path, "run-1")


def test_no_run_at_all(tmp_path: Path) -> None:
    """An empty or missing results directory is said to be so."""
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(ResultsError, match="holds no run yet"):
            find_run(folder, "last")


def test_an_ambiguous_id_names_the_places(tmp_path: Path, runs: Callable[[str, str, str], Path]) -> None:
    """Two runs of one id under two names are told apart by their directory."""
    one, two = runs("a", "r", "1"), runs("b", "r", "2")
    with pytest.raises(ResultsError, match="exists 2 times") as caught:
        find_run(tmp_path, "r")
    assert str(one) in caught.value.message
    assert str(two) in caught.value.message
    assert find_run(tmp_path, "r", "a") == one


def test_a_folder_that_is_no_run(tmp_path: Path, runs: Callable[[str, str, str], Path]) -> None:
    """A directory without run.json is named as what it is."""
    runs("main", "r", "1")
    with pytest.raises(ResultsError, match=r"is not a run directory: it holds no run\.json"):
        find_run(tmp_path, str(tmp_path / "main"))


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"started_at": 5}'])
def test_a_damaged_run_json_hides_no_run(tmp_path: Path, runs: Callable[[str, str, str], Path], content: bytes) -> None:
    """A run whose description is torn is still found by its id."""
    path = runs("main", "r", "1")
    (path / "run.json").write_bytes(content)
    assert find_run(tmp_path, "r") == path


def test_equal_plans_of_equal_tasks_are_equal() -> None:
    """Two objects with the same content have one fingerprint, different ids have two."""
    assert task_fingerprint(task(), plan()) == task_fingerprint(task(), plan())
    assert task_fingerprint(replace(task(), task_id="u"), plan()) != task_fingerprint(task(), plan())
