"""Reports rebuilt from a run directory alone."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from typing import Any

import pytest

from pytest_agentcompass.contracts.metrics import MetricContract, MetricSpec
from pytest_agentcompass.contracts.record import AttemptRecord
from pytest_agentcompass.contracts.task import TaskSpec
from pytest_agentcompass.reports.summary import build_summary
from pytest_agentcompass.reports.write import collect_results, infer_contract, write_reports
from pytest_agentcompass.results.rundir import RunDirectory

MakeRun = Callable[..., RunDirectory]
MakeRecord = Callable[..., AttemptRecord]
INFO: list[dict[str, Any]] = [
    {
        "metadata": {"name": "first"},
        "benchmark": {"id": "not-installed"},
        "harness": {"id": "h"},
        "model": {"id": "m"},
        "environment": {"id": "docker"},
        "execution": {"attempts": {"k": 2, "strategy": "avg"}},
    },
    {"metadata": {"name": "second"}, "benchmark": {"id": "b"}},
]
TASKS = {"first": {"a": ["passed", "failed"], "b": ["error", "missing"]}, "second": {"a": ["passed"]}}


def refuse(token: str) -> None:
    """Refuse what strict JSON does not know."""
    raise AssertionError(token)


def summary_of(run: RunDirectory) -> dict[str, Any]:
    """Write the reports and read summary.json strictly."""
    write_reports(run)
    data: dict[str, Any] = json.loads((run.path / "summary.json").read_bytes(), parse_constant=refuse)
    return data


def test_four_files_are_written_and_nothing_else(make_run: MakeRun) -> None:
    """summary.json, summary.md, junit.xml and report.html, no temporary file left."""
    run = make_run(TASKS, INFO)
    before = {path.name for path in run.path.iterdir()}
    paths = write_reports(run)
    assert [path.name for path in paths] == ["summary.json", "summary.md", "junit.xml", "report.html"]
    assert {path.name for path in run.path.iterdir()} - before == {path.name for path in paths}


def test_rebuilding_gives_the_same_bytes(make_run: MakeRun) -> None:
    """Reports depend on the stored records alone: written again, or by another process, they are equal."""
    run = make_run(TASKS, INFO)
    first = [path.read_bytes() for path in write_reports(run)]
    second = [path.read_bytes() for path in write_reports(RunDirectory.open(run.path))]
    assert first == second


def test_summary_holds_what_a_later_comparison_needs(make_run: MakeRun) -> None:
    """Per task: id, category, fingerprint, n, c, and each attempt's outcome, score, mode, time and cost."""
    run = make_run(
        TASKS, INFO, category="math", fingerprint={"task": "f1"}, durations={"run": 1.5}, usage={"cost_usd": 0.25}
    )
    found = summary_of(run)
    assert (found["schema_version"], found["kind"]) == (1, "agentcompass-summary")
    request = found["requests"][0]
    assert [request[name] for name in ("name", "benchmark", "harness", "model", "environment")] == [
        *("first", "not-installed", "h", "m", "docker")
    ]
    same = {
        "failure_mode": "none",
        "seconds": 1.5,
        "cost_usd": 0.25,
        "usage": {"cost_usd": 0.25},
        "discarded_usage": {},
    }
    assert request["tasks"][0] == {
        "task_id": "a",
        "category": "math",
        "fingerprint": "f1",
        "n": 2,
        "c": 1,
        "valid": 2,
        "attempts": [
            {"attempt": 1, "outcome": "passed", "score": 1.0, "metrics": {"correct": True}, **same},
            {"attempt": 2, "outcome": "failed", "score": 0.0, "metrics": {"correct": False}, **same},
        ],
    }
    assert [item["outcome"] for item in request["tasks"][1]["attempts"]] == ["error", "missing"]
    assert (request["tasks"][1]["n"], request["tasks"][1]["valid"]) == (2, 0)


def test_summary_says_what_is_incomplete(make_run: MakeRun) -> None:
    """A missing record makes the run incomplete, with the request named."""
    found = summary_of(make_run(TASKS, INFO))
    assert found["complete"] is False
    assert found["partial_reasons"] == ["first: 1 planned attempt has no record"]
    assert found["totals"]["planned"] == 5
    assert found["totals"]["missing"] == 1
    assert summary_of(make_run({"r": {"a": ["passed"]}}))["complete"] is True


def test_the_three_averages_are_apart_and_labelled(make_run: MakeRun) -> None:
    """Suites of 10, 2 and 2 tasks: 0.467 over suites, 0.714 over tasks, 0.765 over attempts."""
    run = make_run(
        {
            "A": {f"a{n}": ["passed" if n < 9 else "failed"] for n in range(10)},
            "B": {"b0": ["failed"], "b1": ["failed"]},
            "C": {"c1": ["passed"] * 4, "c2": ["failed"]},
        }
    )
    found = summary_of(run)["averages"]
    assert found["over_tasks"]["value"] == pytest.approx(0.7142857, abs=1e-7)
    assert found["over_attempts"]["value"] == pytest.approx(0.7647059, abs=1e-7)
    assert found["over_requests"]["value"] == pytest.approx(0.4666667, abs=1e-7)
    assert "14 tasks" in found["over_tasks"]["over"]
    assert "17 attempts" in found["over_attempts"]["over"]
    assert "3 requests" in found["over_requests"]["over"]


def test_attempts_without_a_solution_or_after_a_success_are_no_samples(make_run: MakeRun) -> None:
    """Attempts that could not be made leave the average over attempts; early stop leaves it undefined."""
    assert (
        summary_of(make_run({"r": {"a": ["passed"], "b": ["no_solution"]}}))["averages"]["over_attempts"]["value"] == 1
    )
    stopped = summary_of(make_run({"r": {"a": ["failed", "passed", "satisfied"]}}))["averages"]
    assert stopped["over_attempts"]["value"] is None
    assert "first success" in stopped["over_attempts"]["over"]
    assert stopped["over_tasks"]["value"] == 1


def test_requests_come_in_declared_order(make_run: MakeRun) -> None:
    """The order of run.json holds, whatever was planned or finished first; undeclared ones follow."""
    run = make_run({"zero": {"a": ["passed"]}, "second": {"a": ["passed"]}, "first": {"a": ["passed"]}}, INFO)
    assert [item.name for item in collect_results(run)] == ["first", "second", "zero"]


def test_k_and_strategy_come_from_the_request(make_run: MakeRun) -> None:
    """Stored k and strategy decide the figures, not the number of attempts that happened to run."""
    info = [{"metadata": {"name": "r"}, "execution": {"attempts": {"k": 3, "strategy": "pass"}}}]
    run = make_run({"r": {"a": ["passed"]}}, info)
    assert list(collect_results(run)[0].report["figures"]) == ["pass@3"]


def test_stored_tasks_add_categories_and_the_size_of_the_suite(make_run: MakeRun) -> None:
    """A task without a record keeps its category, and a selection is seen against the whole suite."""
    run = make_run({"r": {"a": ["missing"]}})
    run.write_tasks("r", [TaskSpec("a", category="logic")], extra={"defined_tasks": 7})
    report = collect_results(run)[0].report
    assert [row["category"] for row in report["categories"]] == ["logic"]
    assert report["partial_reasons"][0] == "1 of 7 tasks were selected"


def test_a_damaged_record_is_missing_and_named(make_run: MakeRun) -> None:
    """A torn record does not stop the report; the attempt counts as missing and the file is named."""
    run = make_run({"r": {"a": ["passed"], "b": ["passed"]}})
    (run.attempt_dir("r", "b", 1) / "record.json").write_bytes(b'{"schema_version":1,"req')
    found = summary_of(RunDirectory.open(run.path))
    assert found["totals"]["missing"] == 1
    assert len(found["problems"]) == 1
    assert found["problems"][0].startswith("attempts/r/b/1/record.json: ")
    assert "attempts/r/b/1/record.json" in (run.path / "summary.md").read_text()


def test_a_benchmark_may_replace_figures_and_lose_none(make_run: MakeRun) -> None:
    """What `aggregate` returns replaces entries; what it leaves out stays; NaN cannot reach the file."""
    run = make_run(TASKS, INFO)
    seen: list[str] = []

    def aggregate(name: str, report: dict[str, Any]) -> dict[str, Any]:
        seen.append(name)
        return {"custom": float("nan"), "headline": {**report["headline"], "value": 0.125}}

    write_reports(run, aggregate=aggregate)
    data = json.loads((run.path / "summary.json").read_bytes(), parse_constant=refuse)
    assert seen == ["first", "second"]
    assert data["requests"][0]["report"]["headline"]["value"] == 0.125
    assert data["requests"][0]["report"]["custom"] == "nan"
    assert data["requests"][0]["report"]["attempts"]["planned"] == 4


def test_an_unusable_hierarchy_costs_no_report(make_run: MakeRun) -> None:
    """A run that is over is reported without it, and says why."""
    info = [{"metadata": {"name": "r"}, "benchmark": {"id": "b", "category_hierarchy": {"groups": 3}}}]
    report = collect_results(make_run({"r": {"a": ["passed"]}}, info))[0].report
    assert report["score"]["value"] == 1.0
    assert any("ignores the category hierarchy" in note for note in report["notes"])


def test_given_contracts_are_used(make_run: MakeRun) -> None:
    """The running session knows the contract; it is not guessed."""
    contract = MetricContract({"reward": MetricSpec("scalar", primary=True, unit="points")})
    report = collect_results(make_run({"r": {"a": ["passed"]}}), contracts={"r": contract})[0].report
    assert report["metric"]["id"] == "reward"
    assert report["metric"]["unit"] == "points"


def test_a_contract_is_inferred_from_records(make_record: MakeRecord) -> None:
    """For a benchmark that is not installed: `correct`, else the metric that equals the score."""
    assert infer_contract([]).primary == "correct"
    records = [make_record("failed", score=0.5, metrics={"steps": 3, "reward": 0.5, "done": False})]
    found = infer_contract(records)
    assert found.primary == "reward"
    assert (found.metrics["done"].kind, found.metrics["steps"].kind) == ("binary", "scalar")
    assert infer_contract([make_record("passed", metrics={"aaa": 1, "correct": True})]).primary == "correct"


def test_an_empty_run_has_reports(make_run: MakeRun) -> None:
    """A run that planned nothing says so in files that parse."""
    found = summary_of(make_run({}))
    assert found["requests"] == []
    assert found["averages"]["over_tasks"]["value"] is None


HOSTILE = "t|`*<b>\n\x1b[2J\u202e\ufffe ../x"


def test_hostile_ids_break_no_report(make_run: MakeRun) -> None:
    """Pipes, markup, control characters and odd code points in ids and outputs: every file still parses."""
    run = make_run(
        {"r|q": {HOSTILE: ["failed", "error"]}}, category="c|d", agent_output=HOSTILE, verifier_output=HOSTILE
    )
    found = summary_of(run)
    assert found["requests"][0]["tasks"][0]["task_id"] == HOSTILE
    root = ElementTree.parse(run.path / "junit.xml").getroot()
    assert root.get("tests") == "2"
    text = (run.path / "summary.md").read_bytes().decode()
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e\ufffe]", text)
    assert "<b>" not in text
    tables = [line for line in text.splitlines() if line.startswith("|")]
    widths = [len(re.findall(r"(?<!\\)\|", line)) for line in tables]
    assert all(width == widths[0] for width in widths[:3])


def test_markdown_tables_add_up(make_run: MakeRun) -> None:
    """The category table ends with the total that the headline shows."""
    run = make_run({"r": {"a": ["passed"], "b": ["failed"]}}, category="x")
    run.write_record(run.read_record("r", "b", 1).model_copy(update={"category": "y"}))  # type: ignore[union-attr]
    write_reports(run)
    text = (run.path / "summary.md").read_text()
    assert "**50.0%** of 2 tasks" in text
    assert "| **all** | 2 | 1 | 50.0% | 2 | 1 | 1 | 0 | 0 | 0 |" in text


def test_markdown_lists_attempts_without_result(make_run: MakeRun) -> None:
    """Errors and missing attempts stand under their request, at most twenty of them."""
    run = make_run({"r": {f"t{n}": ["error"] for n in range(25)}})
    write_reports(run)
    text = (run.path / "summary.md").read_text()
    assert "- t0 attempt 1: environment\\_error" in text
    assert "- and 5 more" in text
    assert "t24 attempt" not in text


def test_run_section_leaves_requests_to_their_own(make_run: MakeRun) -> None:
    """The run's own facts are there once; nothing of the redacted requests is doubled."""
    found = summary_of(make_run(TASKS, INFO))
    assert "requests" not in found["run"]
    assert found["run"]["run_id"].startswith("run-")
    assert build_summary({}, [])["complete"] is True
