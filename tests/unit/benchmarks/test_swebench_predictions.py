"""Rules of predictions files and of the official report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_agentcompass import build_run_request
from pytest_agentcompass.benchmarks.swebench.report import official_report, write_predictions, write_reports
from pytest_agentcompass.components.predictions import prediction_line, read_predictions
from pytest_agentcompass.contracts.outcome import FailureMode, Status
from pytest_agentcompass.contracts.record import AttemptRecord
from pytest_agentcompass.contracts.request import BenchmarkSpec, HarnessSpec, RunMetadata, RunRequest
from pytest_agentcompass.errors import ConfigError


def write(path: Path, content: str) -> Path:
    """Write a file."""
    path.write_text(content, encoding="utf-8")
    return path


def record(name: str, mode: str = "none", resolved: bool | None = None, **changes: Any) -> AttemptRecord:
    """Return a record as the benchmark makes them."""
    values = {
        "request": "main",
        "task_id": name,
        "attempt": 1,
        "run_id": "r1",
        "status": Status.COMPLETED if resolved is not None else Status.EVAL_ERROR,
        "failure_mode": FailureMode(mode),
        "passed": resolved,
        "score": None if resolved is None else float(resolved),
        "metrics": {} if resolved is None else {"resolved": resolved, "partial": float(resolved)},
        "model": "acme/model",
        "harness": {"id": "x"},
    }
    return AttemptRecord(**{**values, **changes})


def test_both_formats(tmp_path: Path) -> None:
    """JSON lines with blank lines, a list, and a mapping by id give the same predictions."""
    row = {"instance_id": "a-1", "model_name_or_path": "m", "model_patch": "p\u2028\n"}
    other = {"instance_id": "b-2", "model_patch": None}
    files = [
        write(tmp_path / "p.jsonl", json.dumps(row, ensure_ascii=False) + "\n\n" + json.dumps(other)),
        write(tmp_path / "p.json", json.dumps([row, other])),
        write(
            tmp_path / "q.json",
            json.dumps({"a-1": {"model_name_or_path": "m", "model_patch": "p\u2028\n"}, "b-2": other}),
        ),
    ]
    for file in files:
        found = read_predictions(file)
        assert list(found) == ["a-1", "b-2"]
        assert (found["a-1"].patch, found["a-1"].model) == ("p\u2028\n".encode(), "m")
        assert (found["b-2"].patch, found["b-2"].model) == (b"", "")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("p.jsonl", '{"instance_id": "a"\n', r"p\.jsonl:1: not JSON"),
        ("p.jsonl", "[]\n", r"p\.jsonl:1: a prediction must be an object"),
        ("p.jsonl", '\n{"model_patch": ""}\n', r"p\.jsonl:2: instance_id is None"),
        ("p.jsonl", '{"instance_id": "a", "patch": "x"}\n', r"has no model_patch \(its keys: instance_id, patch\)"),
        ("p.jsonl", '{"instance_id": "a", "model_patch": 5}\n', "must be a text or null, not int"),
        ("p.jsonl", '{"instance_id": "a", "model_patch": ""}\n' * 2, r"p\.jsonl:2: instance 'a' .* in .*p\.jsonl:1"),
        ("p.json", "7", "must hold a list of predictions"),
        ("p.json", '["x"]', "entry 1: a prediction must be an object"),
        ("p.txt", "", "must be a .jsonl or a .json file"),
    ],
)
def test_broken_files(tmp_path: Path, name: str, content: str, message: str) -> None:
    """What is wrong is told with file and line."""
    with pytest.raises(ConfigError, match=message):
        read_predictions(write(tmp_path / name, content))


def test_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`harness.path` is relative to where it is written: on the command line, the working directory."""
    monkeypatch.chdir(tmp_path)
    words = ["benchmark=swebench", "benchmark.path=rows.jsonl", "harness=predictions", "harness.path=p.jsonl"]
    request = build_run_request(*words)
    assert request.harness.params["path"] == str(tmp_path / "p.jsonl")
    assert request.benchmark.params["path"] == str(tmp_path / "rows.jsonl")
    assert request.environment.id == "docker"


def test_a_missing_file(tmp_path: Path) -> None:
    """A file that is not there is named."""
    with pytest.raises(ConfigError, match=r"none\.jsonl cannot be read"):
        read_predictions(tmp_path / "none.jsonl")


@pytest.mark.parametrize("patch", [b"", b"plain\n", b"\xff\xfe\x00 latin \xe9\n", "unicode \u00e9\u2028\r\n".encode()])
def test_patches_survive_as_bytes(tmp_path: Path, patch: bytes) -> None:
    """What is written into a predictions file is read back byte by byte."""
    file = write(tmp_path / "p.jsonl", prediction_line("a-1", "m", patch))
    assert read_predictions(file)["a-1"].patch == patch


def test_the_official_report() -> None:
    """Every planned instance is in its place, and the counts are those of the lists."""
    records = [
        record("resolved", resolved=True),
        record("unresolved", resolved=False),
        record("empty", "empty_patch", False),
        record("refused", "patch_not_applied", False),
        record("slow", "test_timeout", False),
        record(
            "no-tests",
            "no_tests",
            details={"swebench": {"failure_reason": "missing_module", "failure_of_environment": False}},
        ),
        record("contradiction", "contradiction"),
        record("no-image", "environment_error", status=Status.RUN_ERROR),
        record("skipped", "no_solution", status=Status.SKIPPED),
    ]
    report = official_report(records, [*(item.task_id for item in records), "never"])
    assert report["schema_version"] == 2
    assert report["resolved_ids"] == ["resolved"]
    assert report["unresolved_ids"] == ["contradiction", "no-tests", "unresolved"]
    assert report["completed_ids"] == ["contradiction", "no-tests", "resolved", "unresolved"]
    assert report["empty_patch_ids"] == ["empty"]
    assert report["error_ids"] == ["no-image", "refused", "slow"]
    assert report["incomplete_ids"] == ["never", "skipped"]
    assert report["ambiguous_failure_ids"] == ["no-tests", "slow"]
    assert report["failure_reasons"] == {"no-tests": "missing_module", "slow": "tests_timed_out"}
    assert report["total_instances"] == 10
    for name in (
        "submitted",
        "completed",
        "resolved",
        "unresolved",
        "infra_failure",
        "ambiguous_failure",
        "empty_patch",
        "error",
    ):
        assert report[f"{name}_instances"] == len(report[f"{name}_ids"])


def test_predictions_of_a_run(tmp_path: Path) -> None:
    """A run's patches become a predictions file that can be graded again; errors without a patch are left out."""
    attempts = []
    for item in (record("a-1", resolved=True), record("b-2", "empty_patch", False), record("c-3", "setup_error")):
        folder = tmp_path / item.task_id
        if item.task_id == "a-1":
            (folder / "artifacts").mkdir(parents=True)
            (folder / "artifacts" / "model.patch").write_bytes(b"\xffp\n")
            item = item.model_copy(update={"artifacts": {"model.patch": {}}})
        attempts.append((item, folder))
    assert write_predictions(tmp_path / "p.jsonl", attempts) == 2
    found = read_predictions(tmp_path / "p.jsonl")
    assert {name: (item.patch, item.model) for name, item in found.items()} == {
        "a-1": (b"\xffp\n", "acme/model"),
        "b-2": (b"", "acme/model"),
    }


@pytest.mark.parametrize(("source", "tail"), [("command line", ""), ("x.agentcompass.yaml", ".my_suite")])
def test_files_of_a_run(tmp_path: Path, source: str, tail: str) -> None:
    """The report is called MODEL.RUN.json, with request and attempt where there are several."""
    metadata = RunMetadata(name="my suite", source=source)
    request = RunRequest(benchmark=BenchmarkSpec(id="swebench"), harness=HarnessSpec(id="x"), metadata=metadata)
    attempts = [(record("a-1", resolved=True, attempt=n), tmp_path / str(n)) for n in (1, 2)]
    paths = write_reports(tmp_path, attempts, [("a-1", 1), ("a-1", 2), ("b-2", 2)], request)
    assert [path.name for path in paths] == [
        f"acme__model.r1{tail}.json",
        f"predictions{tail}.jsonl",
        f"acme__model.r1{tail}.attempt2.json",
        f"predictions{tail}.attempt2.jsonl",
    ]
    assert json.loads(paths[2].read_text())["incomplete_ids"] == ["b-2"]
