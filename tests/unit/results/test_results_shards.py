"""Shards, and the merge of run directories."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_agentcompass.contracts.record import AttemptRecord
from pytest_agentcompass.errors import ConfigError, ResultsError
from pytest_agentcompass.results.baseline import read_baseline
from pytest_agentcompass.results.merge import merge_runs
from pytest_agentcompass.results.rundir import RunDirectory
from pytest_agentcompass.results.shards import (
    Shard,
    ShardPlan,
    deal,
    parse_shard,
    read_shard_plan,
    read_timings,
    write_shard_plan,
)

Attempt = tuple[str, str, int]
PLAN: tuple[Attempt, ...] = tuple(("r", f"t{task}", number) for task in range(4) for number in (1, 2))


# -- dealing ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "shard"), [("2/5", Shard(2, 5)), (" 1 / 1 ", Shard(1, 1))])
def test_a_shard_is_i_of_n(text: str, shard: Shard) -> None:
    """Shards count from 1."""
    assert parse_shard(text) == shard


@pytest.mark.parametrize("text", ["0/5", "6/5", "5", "a/b", "1/0", "-1/2", ""])
def test_other_shards_are_refused(text: str) -> None:
    """What is no shard says what one is."""
    with pytest.raises(ConfigError, match="shard"):
        parse_shard(text)


@given(st.sets(st.text(max_size=5), max_size=40), st.integers(1, 7), st.randoms(use_true_random=False))
def test_dealing_does_not_depend_on_order(names: set[str], count: int, rng: random.Random) -> None:
    """Every machine finds the same split, each task once, sizes differing by one at most."""
    tasks = [("r", name) for name in sorted(names)]
    shuffled = rng.sample(tasks, len(tasks))
    assert deal(tasks, count) == deal(shuffled, count)
    sizes = Counter(deal(tasks, count).values())
    assert sum(sizes.values()) == len(tasks)
    assert max(sizes.values(), default=0) - min((sizes[n] for n in range(1, count + 1)), default=0) <= 1


def test_timings_balance_the_work() -> None:
    """The longest first onto the least loaded shard; unknown tasks count as the median."""
    timings = {("r", f"t{n}"): seconds for n, seconds in enumerate([100.0, 40, 30, 30, 10, 10])}
    shards = deal([*timings, ("r", "new")], 2, timings)
    loads = [sum(timings.get(task, 30.0) for task, shard in shards.items() if shard == n) for n in (1, 2)]
    assert abs(loads[0] - loads[1]) <= 20


def test_timings_come_from_a_summary(tmp_path: Path) -> None:
    """The seconds of a task are those of all its attempts; tasks that did not run tell nothing."""
    attempts = [
        {"attempt": 1, "outcome": "passed", "seconds": 2.5},
        {"attempt": 2, "outcome": "failed", "seconds": 1.5},
    ]
    tasks = [
        {"task_id": "a", "attempts": attempts},
        {"task_id": "b", "attempts": [{"attempt": 1, "outcome": "missing"}]},
    ]
    summary = _summary(requests=[{"name": "r", "tasks": tasks}])
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    assert read_timings(tmp_path) == {("r", "a"): 4.0}


def _summary(**fields: Any) -> dict[str, Any]:
    return {"schema_version": 1, "kind": "agentcompass-summary", "complete": True, **fields}


# -- baselines ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "not a summary"),
        ("{", "not a summary.json"),
        ('{"kind": "x"}', "kind is 'x'"),
        (json.dumps(_summary(schema_version=2)), "update pytest-agentcompass"),
        (json.dumps(_summary(schema_version="1")), "rebuild it"),
        (
            json.dumps(_summary(requests=[{"name": "r", "tasks": [{"task_id": 3}]}])),
            "damaged at requests.0.tasks.0.task_id",
        ),
        ('{"kind": NaN}', "NaN is not JSON"),
    ],
)
def test_what_is_no_summary_says_so(tmp_path: Path, content: str, message: str) -> None:
    """A foreign, damaged or newer file is an error of ours that names file, place and remedy."""
    path = tmp_path / "summary.json"
    path.write_text(content)
    for given_path in (path, tmp_path):
        with pytest.raises(ResultsError) as caught:
            read_baseline(given_path)
        assert message in caught.value.message
        assert "summary.json" in caught.value.message


def test_a_run_without_summary_names_the_verb(tmp_path: Path) -> None:
    """A run directory without its summary can get one."""
    run = RunDirectory.create(tmp_path)
    with pytest.raises(ResultsError, match="pytest-agentcompass report"):
        read_baseline(run.path)
    with pytest.raises(ResultsError, match="no such file"):
        read_baseline(tmp_path / "nothing")


def test_unknown_keys_of_a_summary_are_ignored(tmp_path: Path) -> None:
    """A schema version may grow."""
    (tmp_path / "summary.json").write_text(json.dumps(_summary(news=1, requests=[{"name": "r", "colour": "red"}])))
    assert read_baseline(tmp_path).requests[0].name == "r"


# -- merging ------------------------------------------------------------------------------------


def record(attempt: Attempt, passed: bool = True, task: str = "f", run: str = "g") -> AttemptRecord:
    """Return the record of a graded attempt."""
    return AttemptRecord(
        request=attempt[0],
        task_id=attempt[1],
        attempt=attempt[2],
        status="completed",
        passed=passed,
        score=float(passed),
        metrics={"correct": passed},
        fingerprint={"task": task, "run": run},
    )


def make(
    tmp_path: Path, name: str, records: Sequence[AttemptRecord], shard: str = "", plan: Sequence[Attempt] = PLAN
) -> Path:
    """Return a run directory that holds *records*, as a shard or as a run of its own."""
    run = RunDirectory.create(tmp_path / "parts", "run", name)
    keys = [(item.request, item.task_id, item.attempt) for item in records]
    run.write_planned(keys)
    run.update_run_info(requests=[{"name": "r"}], status="finished")
    for item in records:
        run.write_record(item)
    if shard:
        write_shard_plan(run.path, ShardPlan(parse_shard(shard), tuple(plan)))
    return run.path


def halves(tmp_path: Path) -> list[Path]:
    """Return two shards that make a whole."""
    first = make(tmp_path, "one", [record(item) for item in PLAN if item[1] in ("t0", "t3")], "1/2")
    second = make(tmp_path, "two", [record(item) for item in PLAN if item[1] in ("t1", "t2")], "2/2")
    return [first, second]


def test_a_shard_plan_survives_storage(tmp_path: Path) -> None:
    """What a shard writes of the whole is what the merge reads."""
    plan = ShardPlan(Shard(2, 3), (("r", "odd \n\u2028 id", 1),))
    write_shard_plan(tmp_path, plan)
    assert read_shard_plan(tmp_path) == plan
    assert read_shard_plan(tmp_path / "elsewhere") is None
    (tmp_path / "shard.json").write_text("{")
    with pytest.raises(ResultsError, match="run this shard again"):
        read_shard_plan(tmp_path)


def test_shards_become_one_run(tmp_path: Path) -> None:
    """Records, artifacts and the plan in its whole order; where each part came from is kept."""
    parts = halves(tmp_path)
    artifact = RunDirectory.open(parts[1]).attempt_dir("r", "t1", 1) / "artifacts" / "x.txt"
    artifact.parent.mkdir()
    artifact.write_text("kept")
    merged = merge_runs(reversed(parts), tmp_path / "out")  # type: ignore[arg-type]
    assert merged.planned() == list(PLAN)
    assert [(item.task_id, item.attempt) for item in merged.records()] == [item[1:] for item in PLAN]
    assert (merged.attempt_dir("r", "t1", 1) / "artifacts" / "x.txt").read_text() == "kept"
    info = merged.read_run_info()
    assert [item["shard"] for item in info["merged_from"]] == ["2/2", "1/2"]
    assert (info["status"], info["partial_reasons"]) == ("finished", [])
    assert "shard" not in info


def test_gaps_are_refused_or_named(tmp_path: Path) -> None:
    """A missing shard and a missing record are said; nothing is made, unless gaps are allowed."""
    first, second = halves(tmp_path)
    with pytest.raises(ResultsError, match=r"shard 2/2 is missing; 4 planned attempts have no record: r::t1::attempt1"):
        merge_runs([first], tmp_path / "out")
    assert not (tmp_path / "out").exists()
    (RunDirectory.open(second).attempt_dir("r", "t1", 1) / "record.json").unlink()
    with pytest.raises(ResultsError, match=r"^1 planned attempt has no record: r::t1::attempt1"):
        merge_runs([first, second], tmp_path / "out")
    merged = merge_runs([first, second], tmp_path / "out", allow_gaps=True)
    assert merged.read_run_info()["partial_reasons"] == ["1 planned attempt has no record: r::t1::attempt1"]


def test_an_empty_shard_is_no_gap(tmp_path: Path) -> None:
    """More shards than tasks: one of them has nothing to do and leaves no directory."""
    only = make(tmp_path, "one", [record(item) for item in PLAN], "1/2")
    assert len(list(merge_runs([only], tmp_path / "out").records())) == len(PLAN)


def test_overlaps_that_agree_are_one(tmp_path: Path) -> None:
    """The same attempt with the same outcome in two parts counts once."""
    first = make(tmp_path, "one", [record(item) for item in PLAN], "1/2")
    second = make(tmp_path, "two", [record(item) for item in PLAN[:3]], "2/2")
    assert len(list(merge_runs([first, second], tmp_path / "out").records())) == len(PLAN)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"passed": False}, "made twice and the outcomes disagree"),
        ({"task": "other"}, "the task .* differs"),
        ({"run": "other"}, "the agent, the model or its settings differs"),
    ],
)
def test_overlaps_that_disagree_are_refused(tmp_path: Path, second: dict[str, Any], message: str) -> None:
    """Two outcomes of one attempt, or attempts of another agent or task, are no run."""
    first = make(tmp_path, "one", [record(item) for item in PLAN], "1/2")
    other = make(tmp_path, "two", [record(PLAN[0], **second)], "2/2")
    with pytest.raises(ResultsError, match=message) as caught:
        merge_runs([first, other], tmp_path / "out")
    assert str(first) in caught.value.message
    assert str(other) in caught.value.message


def test_attempts_of_one_task_by_two_agents_are_refused(tmp_path: Path) -> None:
    """Attempt 1 by one agent and attempt 2 by another are no two attempts."""
    first = make(tmp_path, "one", [record(("r", "a", 1))])
    second = make(tmp_path, "two", [record(("r", "a", 2), run="other")])
    with pytest.raises(ResultsError, match="not attempts of one run"):
        merge_runs([first, second], tmp_path / "out")


@pytest.mark.parametrize(
    ("shard", "plan", "message"),
    [
        ("2/3", PLAN, "different splits"),
        ("2/2", (*PLAN, ("r", "new", 1)), "planned from different tasks or attempts: r::new::attempt1"),
        ("2/2", PLAN[::-1], "their order differs"),
        ("", PLAN, "is no shard"),
    ],
)
def test_foreign_shards_are_refused(tmp_path: Path, shard: str, plan: Sequence[Attempt], message: str) -> None:
    """Parts of another split or another plan do not join."""
    first = make(tmp_path, "one", [record(item) for item in PLAN[:4]], "1/2")
    second = make(tmp_path, "two", [record(item) for item in PLAN[4:]], shard, plan)
    with pytest.raises(ResultsError, match=message):
        merge_runs([first, second], tmp_path / "out")


def test_a_directory_twice_or_none_is_refused(tmp_path: Path) -> None:
    """Giving a part twice is a slip; a folder that is no run is named."""
    first, _ = halves(tmp_path)
    with pytest.raises(ResultsError, match="given twice"):
        merge_runs([first, first], tmp_path / "out")
    with pytest.raises(ResultsError, match="not a run directory"):
        merge_runs([first, tmp_path], tmp_path / "out")


def test_runs_of_other_requests_join(tmp_path: Path) -> None:
    """Without shards the whole is what the parts planned, in the order given."""
    first = make(tmp_path, "one", [record(("a", "t", 1))])
    second = make(tmp_path, "two", [record(("b", "t", 1))])
    assert merge_runs([first, second], tmp_path / "out").planned() == [("a", "t", 1), ("b", "t", 1)]


def test_what_made_a_part_partial_or_broken_stays(tmp_path: Path) -> None:
    """A part of which something was deselected, or that could not collect all, does not get whole by merging."""
    first, second = halves(tmp_path)
    RunDirectory.open(first).update_run_info(partial_reasons=["-k left out 2"], broken=["1 collection error: x"])
    info = merge_runs([first, second], tmp_path / "out").read_run_info()
    assert (info["partial_reasons"], info["broken"]) == (["-k left out 2"], ["1 collection error: x"])
