"""Longest first: what is known of a task's length, and the order that comes of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_agentcompass.execution.order import longest_first, recorded_seconds


def write_run(results: Path, name: str, run_id: str, started: str, summary: Any = None) -> Path:
    """Write what a run left, as far as it counts here."""
    folder = results / name / run_id
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"run_id": run_id, "started_at": started}))
    if summary is not None:
        (folder / "summary.json").write_text(summary if isinstance(summary, str) else json.dumps(summary))
    return folder


def summary(**tasks: list[tuple[str, float]]) -> dict[str, Any]:
    """Return a summary of one request with the outcome and seconds of each task's attempts."""
    rows = [
        {"task_id": name, "attempts": [{"outcome": outcome, "seconds": seconds} for outcome, seconds in attempts]}
        for name, attempts in tasks.items()
    ]
    return {"requests": [{"name": "r", "tasks": rows}]}


def test_the_newest_other_run_of_the_name_counts(tmp_path: Path) -> None:
    """Not the run itself, not one of another name, not one that tells nothing."""
    write_run(tmp_path, "run", "old", "2026-01-01", summary(a=[("passed", 1)]))
    write_run(tmp_path, "run", "newer", "2026-01-02", summary(a=[("passed", 2), ("failed", 4)]))
    write_run(tmp_path, "run", "newest", "2026-01-03", summary(a=[("error", 9)]))
    write_run(tmp_path, "run", "empty", "2026-01-04")
    write_run(tmp_path, "other", "x", "2026-01-05", summary(a=[("passed", 100)]))
    me = write_run(tmp_path, "run", "me", "2026-01-06", summary(a=[("passed", 50)]))
    assert recorded_seconds(tmp_path, me) == {"r": {"a": 3.0}}


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"requests": 1}', '{"requests": [{"name": "r"}]}', "null"])
def test_damaged_summaries_are_passed_over(tmp_path: Path, content: str) -> None:
    """Earlier figures are a help: what cannot be read never stops a run."""
    write_run(tmp_path, "run", "bad", "2026-01-02", content)
    me = write_run(tmp_path, "run", "me", "2026-01-06")
    assert recorded_seconds(tmp_path, me) == {}
    write_run(tmp_path, "run", "good", "2026-01-01", summary(a=[("passed", 1)]))
    assert recorded_seconds(tmp_path, me) == {"r": {"a": 1.0}}


def test_order_by_falling_estimate() -> None:
    """The longest comes first; what is not known counts as average, behind those that are."""
    known = {"a": 1.0, "b": 9.0, "c": 5.0, "e": 5.0}
    assert longest_first(["a", "b", "c", "d", "e"], known.get) == ["b", "c", "e", "d", "a"]


def test_nothing_known_changes_nothing() -> None:
    """Without any estimate the declared order stands."""
    assert longest_first(["b", "a", "c"], lambda _: None) == ["b", "a", "c"]
    assert longest_first([], lambda _: None) == []
