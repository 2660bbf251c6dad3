"""Terminal lines: right figures, fitting the width, each naming what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pytest_agentcompass.contracts.metrics import MetricContract
from pytest_agentcompass.contracts.record import AttemptRecord
from pytest_agentcompass.metrics.report import build_report
from pytest_agentcompass.reports.text import problems, request_table, rerun_hint, results_lines
from pytest_agentcompass.reports.words import count, interval_text, money, percent, seconds_text

MakeRecord = Callable[..., AttemptRecord]


def report(records: list[AttemptRecord], planned: list[Any] | None = None, **options: Any) -> dict[str, Any]:
    """Build the report of *records*."""
    planned = planned or [(item.request, item.task_id, item.attempt) for item in records]
    return build_report(records, planned, MetricContract(), **{"k": 1, **options})


def eight(make_record: MakeRecord) -> list[AttemptRecord]:
    """Two passed, four failed, two errors."""
    kinds = ["passed"] * 2 + ["failed"] * 4 + ["error"] * 2
    return [make_record(kind, task=f"t{place}", durations={"run": 90.0}) for place, kind in enumerate(kinds)]


def test_the_table_shows_counts_headline_and_bounds(make_record: MakeRecord) -> None:
    """25 % of 8 tasks with its interval; below it, what errors do to the figure."""
    lines = request_table([report(eight(make_record))], 120)
    assert lines[0].split() == [
        *(
            "request",
            "planned",
            "passed",
            "failed",
            "errors",
            "skipped",
            "missing",
            "solved",
            "95%",
            "interval",
            "time/attempt",
        )
    ]
    assert lines[1].split() == [
        "r",
        "8",
        "2",
        "4",
        "2",
        "0",
        "0",
        "25.0%",
        "of",
        "8",
        "tasks",
        "7.1-59.1%",
        "1m",
        "30s",
    ]
    assert lines[2] == "2 errors count as not solved; over the 6 scored tasks 33.3%, best case 50.0%"


def test_a_clean_run_needs_no_explanation(make_record: MakeRecord) -> None:
    """Where every attempt is scored the table is a head and a row."""
    assert len(request_table([report([make_record("passed")])], 120)) == 2


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_a_narrow_terminal_gets_blocks_that_fit(make_record: MakeRecord, width: int) -> None:
    """No line of the figures is wider than the terminal, and no count is lost."""
    records = [item.model_copy(update={"usage": {"cost_usd": 1.25}}) for item in eight(make_record)]
    lines = request_table([report(records)], width)
    figures = [line for line in lines if "count as not solved" not in line]
    assert max(map(len, figures)) <= width
    text = " ".join(" ".join(figures).split())
    if width < 100:
        assert "2 passed, 4 failed, 2 errors, 0 skipped, 0 missing" in text
        assert "25.0% of 8 tasks solved, 95% interval 7.1-59.1%, cost $10.00, 1m 30s per attempt" in text


def test_judges_have_a_column_of_their_own(make_record: MakeRecord) -> None:
    """What judges cost is no cost of the agent's."""
    record = make_record("passed", usage={"cost_usd": 1.25, "judge_cost_usd": 0.5})
    assert request_table([report([record])], 200)[0].split()[-3:] == ["cost", "judges", "time/attempt"]
    assert "cost $1.25, judges $0.50" in " ".join(request_table([report([record])], 60))


def test_pass_at_k_stands_beside_the_headline_when_k_is_over_one(make_record: MakeRecord) -> None:
    """With k = 2 the column is named pass@2."""
    records = [make_record("passed"), make_record("failed", attempt=2)]
    lines = request_table([report(records, k=2)], 200)
    assert "pass@2" in lines[0]
    assert "100.0%" in lines[1]


def test_an_incomplete_cost_is_marked(make_record: MakeRecord) -> None:
    """Where some attempts did not tell their cost the sum is a lower bound, shown with a plus."""
    records = [make_record("passed", usage={"cost_usd": 1.5}), make_record("passed", task="b")]
    assert "$1.50+" in request_table([report(records)], 200)[1]


def test_missing_attempts_are_said_as_partial(make_record: MakeRecord) -> None:
    """One of two planned attempts without a record: PARTIAL, in words."""
    lines = request_table([report([make_record("passed")], [("r", "t1", 1), ("r", "t2", 1)])], 200)
    assert "1 missing counts as not solved; over the 1 scored task 100.0%, best case 100.0%" in lines
    assert "PARTIAL: 1 planned attempt has no record" in lines


def test_several_requests_say_which_one_a_line_is_about(make_record: MakeRecord) -> None:
    """Explanations carry the request's name when there is more than one."""
    lines = request_table([report(eight(make_record)), report([make_record("passed", "q")])], 200)
    assert any(line.startswith("r: 2 errors") for line in lines)


def test_no_request_is_said() -> None:
    """An empty run has a line of its own."""
    assert request_table([], 80) == ["no request was run"]


def test_problems_are_grouped_by_cause(make_record: MakeRecord) -> None:
    """Four attempts with one cause are one line with a count and examples; missing ones are named too."""
    records = [make_record("error", task=f"t{n}") for n in range(5)]
    records.append(make_record("error", task="k", failure_mode="no_reward", issues=()))
    planned = [(item.request, item.task_id, 1) for item in records] + [("r", "gone", 2)]
    assert problems(records, planned) == [
        "5 errors: environment_error: the environment failed: image foo:1 is not there "
        "(r::t0::attempt1, r::t1::attempt1, r::t2::attempt1 and 2 more)",
        "1 error: no_reward: the verifier left no usable reward (r::k::attempt1)",
        "1 missing: planned, but there is no record (r::gone::attempt2)",
    ]


def test_scored_attempts_are_no_problems(make_record: MakeRecord) -> None:
    """A failed attempt is a result."""
    assert problems([make_record("failed"), make_record("satisfied", task="b")]) == []


def test_rerun_hint_is_a_command_only_when_something_is_left(make_record: MakeRecord) -> None:
    """The command names the run, quoted for a shell; a finished run has none."""
    errored = report(eight(make_record))
    assert rerun_hint([errored], "run-1") == (
        "to run the 2 errored again: pytest --agentcompass --agentcompass-resume=run-1"
    )
    assert "--agentcompass-resume='my run'" in (rerun_hint([errored], "my run") or "")
    assert rerun_hint([report([make_record("failed")])], "run-1") is None


def test_results_lines_say_where() -> None:
    """The directory and the files that were written."""
    assert results_lines("/x/run", ["summary.md", "junit.xml"]) == ["results: /x/run (summary.md, junit.xml)"]


def test_hostile_names_stay_on_their_line(make_record: MakeRecord) -> None:
    """A request and a task named with newlines and escapes cannot forge lines."""
    record = make_record("error", "r\n\x1b[2Jx", "t\nPASSED")
    lines = request_table([report([record])], 200) + problems([record])
    assert all("\n" not in line and "\x1b" not in line for line in lines)


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0, "0.0%"), (1, "100.0%"), (0.9999, ">99.9%"), (0.0001, "<0.1%"), (0.4249, "42.5%")],
)
def test_percent_never_rounds_to_certainty(value: float | None, text: str) -> None:
    """99.99 % is not shown as 100 %, nor 0.01 % as 0."""
    assert percent(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (float("nan"), "-"),
        (0.26, "0.3s"),
        (9.96, "10.0s"),
        (59.6, "1m 00s"),
        (218, "3m 38s"),
        (7325, "2h 02m"),
    ],
)
def test_seconds_text(value: float | None, text: str) -> None:
    """Durations in their two largest units; rounding carries over."""
    assert seconds_text(value) == text


@pytest.mark.parametrize(("value", "text"), [(None, "-"), (0, "$0.00"), (0.0123, "$0.0123"), (1234.5, "$1,234.50")])
def test_money(value: float | None, text: str) -> None:
    """Small sums keep the digits that matter."""
    assert money(value) == text


def test_count_and_interval() -> None:
    """Nouns agree with their number; no interval is a dash."""
    assert (count(1, "task"), count(2, "task"), count(2, "try", "tries")) == ("1 task", "2 tasks", "2 tries")
    assert interval_text({"interval": None}) == "-"
