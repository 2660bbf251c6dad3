"""The report of one request: denominators, bounds, labels, and figures that agree with each other."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_agentcompass.contracts.metrics import MetricContract, MetricSpec
from pytest_agentcompass.contracts.record import AttemptRecord
from pytest_agentcompass.errors import ConfigError
from pytest_agentcompass.metrics.report import build_report
from pytest_agentcompass.metrics.strategies import AvgStrategy, PassStrategy

Rows = Callable[[dict[str, list[str]]], tuple[list[AttemptRecord], list[Any]]]
MakeRecord = Callable[..., AttemptRecord]
CONTRACT = MetricContract()


def report(rows: Rows, tasks: dict[str, list[str]], **options: Any) -> dict[str, Any]:
    """Build the report of outcomes by task."""
    records, plan = rows(tasks)
    k = max((len(kinds) for kinds in tasks.values()), default=1)
    return build_report(records, plan, CONTRACT, **{"k": k, **options})


def test_errors_stay_in_the_denominator(rows: Rows) -> None:
    """2 of 8 with two errors is 25 %, with 33 % over scored and 50 % at best beside it, each labelled."""
    kinds = ["passed"] * 2 + ["failed"] * 4 + ["error"] * 2
    found = report(rows, {f"t{place}": [kind] for place, kind in enumerate(kinds)})
    head = found["headline"]
    assert (head["value"], head["tasks"]) == (0.25, 8)
    assert (head["over_scored"], head["over_scored_tasks"]) == (pytest.approx(1 / 3), 6)
    assert head["best_case"] == 0.5
    assert "not solved" in head["over"]
    assert found["attempts"]["errors"] == 2
    assert found["tasks"]["errored"] == 2
    assert found["status"] == "partial_failure"


def test_bounds_of_the_worked_case(rows: Rows) -> None:
    """72 of 90 valid plus 10 errors: 0.80 over scored, bounds 0.72 and 0.82."""
    kinds = ["passed"] * 72 + ["failed"] * 18 + ["error"] * 10
    head = report(rows, {f"t{place}": [kind] for place, kind in enumerate(kinds)})["headline"]
    assert (head["value"], head["over_scored"], head["best_case"]) == (0.72, 0.80, 0.82)


def test_a_retry_is_not_a_sample(make_record: MakeRecord) -> None:
    """Six tries of three attempts are three samples; what discarded tries cost is shown beside."""
    tries = ({"usage": {"cost_usd": 0.5}},)
    records = [
        make_record("passed", "t1", retries=tries, usage={"cost_usd": 1.0}),
        make_record("failed", "t2", usage={"cost_usd": 1.0}),
        make_record("error", "t3", retries=tries * 2),
    ]
    found = build_report(records, [("r", task, 1) for task in ("t1", "t2", "t3")], CONTRACT, k=1)
    assert found["headline"]["value"] == pytest.approx(1 / 3)
    assert found["attempts"]["finished"] == 3
    assert found["attempts"]["discarded_tries"] == 3
    assert found["usage"]["cost_usd"] == {"total": 2.0, "attempts": 2, "discarded_tries": 1.5}


def test_missing_attempts_are_named_and_not_solved(rows: Rows) -> None:
    """48 of 50 that passed, two without a record: 96 %, not 100 %, and it says which two."""
    tasks = {f"t{place}": ["passed"] for place in range(48)} | {"gone1": ["missing"], "gone2": ["missing"]}
    found = report(rows, tasks)
    assert found["headline"]["value"] == 0.96
    assert found["missing"] == [["gone1", 1], ["gone2", 1]]
    assert found["attempts"]["missing"] == 2
    assert found["failure_modes"] == {"missing": 2}
    assert found["partial"]
    assert found["partial_reasons"] == ["2 planned attempts have no record"]


def test_tasks_without_solution_leave_the_denominator_and_are_said(rows: Rows) -> None:
    """An oracle run over three tasks, one without a solution: 2 of 2."""
    found = report(rows, {"a": ["passed"], "b": ["passed"], "c": ["no_solution"]})
    assert (found["headline"]["value"], found["headline"]["tasks"]) == (1.0, 2)
    assert found["no_solution_tasks"] == ["c"]
    assert found["tasks"]["skipped"] == 1
    assert any("no solution" in note for note in found["notes"])
    assert not found["partial"]


@pytest.mark.parametrize(("kind", "status"), [("budget", "partial_failure"), ("deadline", "timed_out")])
def test_cut_attempts_count_as_not_solved_and_make_the_run_partial(rows: Rows, kind: str, status: str) -> None:
    """A budget or a deadline cannot raise the score by leaving tasks out."""
    found = report(rows, {"a": ["passed"], "b": [kind]})
    assert (found["headline"]["value"], found["headline"]["best_case"]) == (0.5, 1.0)
    assert found["partial_reasons"] == ["1 attempt was cut by a budget, a deadline or a skip"]
    assert found["status"] == status
    assert found["attempts"]["skipped"] == 1


def test_several_attempts_have_the_worked_values(rows: Rows) -> None:
    """4, 2, 1 and 0 passes of 4: mean 0.4375, pass@2 0.583333, pass^2 0.291667."""
    tasks = {str(c): ["passed"] * c + ["failed"] * (4 - c) for c in (4, 2, 1, 0)}
    found = report(rows, tasks)
    assert found["headline"]["value"] == 0.4375
    assert found["figures"]["avg@4"]["value"] == 0.4375
    assert found["figures"]["pass@1"]["value"] == found["figures"]["pass^1"]["value"] == 0.4375
    assert found["figures"]["pass@2"]["value"] == pytest.approx(0.583333, abs=5e-7)
    assert found["figures"]["pass^2"]["value"] == pytest.approx(0.291667, abs=5e-7)
    assert set(found["figures"]) == {"avg@4", *(f"pass{sign}{j}" for sign in "@^" for j in range(1, 5))}


def test_the_interval_clusters_by_task(rows: Rows) -> None:
    """[1,1,1] [1,1,0] [0,0,0] [1,0,0]: t over four task means (standard error 0.21517), cut to 0..1."""
    tasks = {str(c): ["passed"] * c + ["failed"] * (3 - c) for c in (3, 2, 0, 1)}
    bounds = report(rows, tasks)["headline"]["interval"]
    assert (bounds["low"], bounds["high"]) == (0.0, 1.0)
    assert bounds["method"] == "t over 4 task means"


def test_single_attempts_take_wilson(rows: Rows) -> None:
    """45 of 50 tasks: 0.786 to 0.957."""
    kinds = ["passed"] * 45 + ["failed"] * 5
    bounds = report(rows, {f"t{place}": [kind] for place, kind in enumerate(kinds)})["headline"]["interval"]
    assert bounds["low"] == pytest.approx(0.786398, abs=5e-7)
    assert bounds["high"] == pytest.approx(0.956524, abs=5e-7)


def test_early_stop_reports_only_pass_at_the_cap(rows: Rows) -> None:
    """Stopping at the first success must not be averaged as c/n; only pass@k at the cap is reported."""
    tasks = {
        "first": ["passed", "satisfied", "satisfied"],
        "second": ["failed", "passed", "satisfied"],
        "never": ["failed", "failed", "failed"],
    }
    found = report(rows, tasks, strategy="pass")
    assert list(found["figures"]) == ["pass@3"]
    assert found["figures"]["pass@3"]["value"] == found["headline"]["value"] == pytest.approx(2 / 3)
    assert found["attempts"]["skipped"] == 3
    assert found["status"] == "completed"
    assert any("only pass@3" in note for note in found["notes"])


def test_early_stop_with_errors_keeps_both_bounds(rows: Rows) -> None:
    """A task without a success and with an errored attempt is undecided: not solved at worst, solved at best."""
    tasks = {"a": ["error", "passed"], "b": ["error", "failed"], "c": ["failed", "failed"]}
    found = report(rows, tasks, strategy="pass")
    assert (found["tasks"]["scored"], found["tasks"]["errored"]) == (2, 1)
    head = found["headline"]
    assert (head["value"], head["best_case"]) == (pytest.approx(1 / 3), pytest.approx(2 / 3))
    assert (head["over_scored"], head["over_scored_tasks"]) == (0.5, 2)


def test_early_stop_is_seen_from_the_records(rows: Rows) -> None:
    """A strategy of one's own that skips as satisfied is treated alike."""
    found = report(rows, {"a": ["passed", "satisfied"]}, strategy="mine")
    assert found["early_stop"]
    assert list(found["figures"]) == ["pass@2"]


def test_a_task_with_fewer_attempts_has_no_pass_at_k(rows: Rows) -> None:
    """pass@3 of a task with two planned attempts is undefined, left out, and said."""
    found = report(rows, {"a": ["passed", "failed", "failed"], "b": ["failed", "failed"]})
    assert found["figures"]["pass@3"] | {"interval": None} == {
        **found["figures"]["pass@3"],
        "interval": None,
        "value": 1.0,
        "tasks": 1,
        "undefined_tasks": 1,
    }
    assert any(note.startswith("pass@3 is undefined for 1 task") for note in found["notes"])


def test_averages_are_each_labelled_and_categories_add_up(rows: Rows) -> None:
    """Tasks 0.714 and categories 0.467 are different figures; the table's columns add up to the total."""
    tasks = {f"A:{place}": ["passed"] for place in range(9)} | {"A:9": ["failed"], "B:0": ["failed"], "B:1": ["failed"]}
    tasks |= {"C:1": ["passed"] * 4, "C:2": ["failed"]}
    found = report(rows, tasks, aggregation_mode="category_mean")
    assert found["headline"]["value"] == pytest.approx(10 / 14)
    assert found["score"]["value"] == pytest.approx((0.9 + 0 + 0.5) / 3)
    assert "categories" in found["score"]["over"]
    assert found["score"]["interval"] is not None
    table = {row["category"]: row for row in found["categories"]}
    assert [table[name]["value"] for name in "ABC"] == [0.9, 0.0, 0.5]
    assert sum(row["solved"] for row in table.values()) == found["tasks"]["solved"] == 10
    assert sum(row["headline_tasks"] for row in table.values()) == found["headline"]["tasks"]


def test_a_hierarchy_becomes_the_score(rows: Rows) -> None:
    """With a hierarchy the score follows it; the headline stays over tasks, and strays are said."""
    tasks = {"A:1": ["passed"], "A:2": ["passed"], "B:1": ["failed"], "C:1": ["failed"]}
    found = report(rows, tasks, category_hierarchy={"groups": ["A", "B"]})
    assert found["headline"]["value"] == 0.5
    assert found["score"]["value"] == pytest.approx(1 / 3)
    assert any("'C'" in note for note in found["notes"])


def test_an_unknown_aggregation_mode_is_refused(rows: Rows) -> None:
    """The error names the nearest mode."""
    with pytest.raises(ConfigError, match="did you mean 'category_mean'"):
        report(rows, {"a": ["passed"]}, aggregation_mode="category_means")


def test_categories_of_missing_tasks_come_from_the_caller(rows: Rows) -> None:
    """A task without a record keeps its category where the tasks are known, else it is `(unknown)`."""
    records, plan = rows({"A:1": ["passed"], "A:2": ["missing"]})
    known = build_report(records, plan, CONTRACT, k=1, categories={"A:2": "A"})
    assert [row["category"] for row in known["categories"]] == ["A"]
    unknown = build_report(records, plan, CONTRACT, k=1)
    assert [row["category"] for row in unknown["categories"]] == ["A", "(unknown)"]


def test_records_outside_the_plan_count_nowhere_and_are_said(make_record: MakeRecord) -> None:
    """A leftover record of a task that was not selected changes no figure."""
    records = [make_record("failed", "t1"), make_record("passed", "other"), make_record("passed", "t1", 2)]
    found = build_report(records, [("r", "t1", 1)], CONTRACT, k=1)
    assert found["headline"]["value"] == 0.0
    assert found["attempts"]["unplanned"] == 2
    assert any("2 record(s)" in note for note in found["notes"])


def test_other_requests_are_left_out(make_record: MakeRecord) -> None:
    """The same task id in two requests is two tasks; a report is about one request."""
    records = [make_record("passed", "a"), make_record("failed", "a", request="q")]
    plan = [("r", "a", 1), ("q", "a", 1)]
    assert build_report(records, plan, CONTRACT, k=1, request="r")["headline"]["value"] == 1.0
    assert build_report(records, plan, CONTRACT, k=1, request="q")["headline"]["value"] == 0.0
    assert build_report(records, plan, CONTRACT, k=1)["attempts"]["planned"] == 1


def test_without_a_plan_the_records_are_the_plan(make_record: MakeRecord) -> None:
    """A directory without a plan still gives figures over what is there."""
    found = build_report([make_record("passed", "a"), make_record("error", "b")], [], CONTRACT, k=1)
    assert found["headline"]["value"] == 0.5
    assert found["attempts"]["planned"] == 2


def test_selection_makes_a_run_partial(rows: Rows) -> None:
    """Ten of fifty tasks is said, so that nobody ships on it by mistake."""
    found = report(rows, {"a": ["passed"]}, defined_tasks=50)
    assert found["partial_reasons"] == ["1 of 50 tasks were selected"]
    assert (found["tasks"]["planned"], found["tasks"]["selected"]) == (50, 1)


def test_nothing_has_no_figures(rows: Rows) -> None:
    """No tasks: every figure is None, never 0 or 100 %."""
    found = report(rows, {})
    assert found["headline"]["value"] is None
    assert found["headline"]["interval"] is None
    assert found["durations"]["mean"] is None


def test_metrics_average_over_tasks_with_scored_attempts(make_record: MakeRecord) -> None:
    """Other metrics: mean per task, then over tasks; an errored attempt's observation does not count."""
    contract = MetricContract(
        {"correct": MetricSpec("binary", primary=True), "steps": MetricSpec("scalar", direction="lower", unit="steps")},
        open_scalars=True,
    )
    records = [
        make_record("passed", "a", 1, metrics={"correct": True, "steps": 10}),
        make_record("failed", "a", 2, metrics={"correct": False, "steps": 20}),
        make_record("passed", "b", 1, metrics={"correct": True, "steps": 45, "extra": 0.5}),
        make_record("error", "b", 2, metrics={"steps": 999}),
    ]
    found = build_report(records, [("r", t, n) for t in "ab" for n in (1, 2)], contract, k=2)["metrics"]
    assert found["steps"]["value"] == 30
    assert (found["steps"]["tasks"], found["steps"]["attempts"]) == (2, 3)
    assert (found["steps"]["unit"], found["steps"]["direction"]) == ("steps", "lower")
    assert found["extra"]["value"] == 0.5
    assert found["correct"]["value"] == 0.75


def test_durations_leave_skipped_attempts_out(make_record: MakeRecord) -> None:
    """Mean, median and 95th percentile of attempts that ran; odd numbers on disk do not spoil them."""
    records = [make_record("passed", f"t{n}", durations={"run": float(n), "evaluate": 1.0}) for n in range(1, 5)]
    records += [make_record("satisfied", "s"), make_record("passed", "x", durations={"run": math.inf})]
    found = build_report(records, [], CONTRACT, k=1)["durations"]
    assert (found["attempts"], found["mean"], found["p50"], found["total"]) == (4, 3.5, 3.5, 14.0)
    assert found["phases_mean"] == {"evaluate": 1.0, "run": 2.5}


def test_failure_modes_count_agents_and_infrastructure(make_record: MakeRecord) -> None:
    """A timeout on a solved attempt stays visible; the most frequent mode comes first."""
    records = [
        make_record("passed", "a", failure_mode="agent_timeout"),
        make_record("error", "b"),
        make_record("error", "c"),
        make_record("failed", "d"),
    ]
    found = build_report(records, [], CONTRACT, k=1)
    assert list(found["failure_modes"].items()) == [("environment_error", 2), ("agent_timeout", 1)]
    assert found["headline"]["value"] == 0.25


@pytest.mark.parametrize(
    ("tasks", "status"),
    [
        ({"a": ["passed"], "b": ["failed"]}, "completed"),
        ({"a": ["passed"], "b": ["error"]}, "partial_failure"),
        ({"a": ["error"], "b": ["missing"]}, "failed"),
        ({"a": ["passed"], "b": ["cancelled"]}, "cancelled"),
    ],
)
def test_request_status(rows: Rows, tasks: dict[str, list[str]], status: str) -> None:
    """A request is complete only when every attempt has a verdict or needs none."""
    assert report(rows, tasks)["status"] == status


KINDS = ("passed", "failed", "error", "satisfied", "no_solution", "budget", "deadline", "cancelled", "missing")
TASKS = st.dictionaries(
    st.sampled_from([f"{category}:{number}" for category in "AB" for number in range(4)]),
    st.lists(st.sampled_from(KINDS), min_size=1, max_size=4),
    max_size=6,
)


@settings(deadline=None)
@given(tasks=TASKS, strategy=st.sampled_from(["avg", "pass"]))
def test_every_report_adds_up(rows: Rows, tasks: dict[str, list[str]], strategy: str) -> None:
    """Counts add up to the plan, bounds enclose the figures, and the whole is strict JSON."""
    found = report(rows, tasks, strategy=strategy)
    json.dumps(found, allow_nan=False)
    counts, states = found["attempts"], found["tasks"]
    parts = ("passed", "failed", "errors", "skipped", "missing")
    assert sum(counts[name] for name in parts) == counts["planned"] == sum(map(len, tasks.values()))
    assert counts["finished"] == counts["planned"] - counts["missing"]
    assert (
        sum(states[name] for name in ("scored", "errored", "unfinished", "skipped")) == states["selected"] == len(tasks)
    )
    for name in ("planned", *parts):
        assert sum(row[name] for row in found["categories"]) == counts[name]
    for figure in (found["headline"], *found["figures"].values(), *found["aggregations"].values()):
        assert figure["over"]
        if figure["value"] is not None:
            assert 0 <= figure["value"] <= figure["best_case"] <= 1
            bounds = figure["interval"]
            assert bounds is None or bounds["low"] - 1e-9 <= figure["value"] <= bounds["high"] + 1e-9


def test_avg_never_stops_a_task(make_record: MakeRecord) -> None:
    """Under `avg` all k attempts are made, side by side."""
    assert not AvgStrategy().satisfied([make_record("passed")])
    assert not AvgStrategy.sequential
    assert not AvgStrategy.early_stop


@pytest.mark.parametrize(
    ("kinds", "satisfied"),
    [([], False), (["failed"], False), (["error", "budget"], False), (["failed", "passed"], True)],
)
def test_pass_stops_at_the_first_success(make_record: MakeRecord, kinds: list[str], satisfied: bool) -> None:
    """Under `pass` only a success ends a task, and attempts are made one after another."""
    records = [make_record(kind, attempt=place + 1) for place, kind in enumerate(kinds)]
    assert PassStrategy().satisfied(records) is satisfied
    assert PassStrategy.sequential
    assert PassStrategy.early_stop
