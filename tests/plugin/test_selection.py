"""Choosing what runs: -k, -m, --lf, --ff, --sw, --deselect, pasted node ids, sample_ids."""

from __future__ import annotations

import pytest

from .helpers import TASKS, Suite, cases, task

RUN = (*TASKS, "harness=nop")


@pytest.fixture
def chosen(suite: Suite) -> Suite:
    """A suite of four tasks: two categories, tags, one of them odd, one failing."""
    suite.tasks(
        task("task-1", category="files and more", tags=["slow"]),
        task("task-10", category="maths", difficulty="hard"),
        task("other", category="maths", tags=["needs net", "slow"], verify="false"),
        task("last one"),
    )
    return suite


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-k", "task-10"], ["task-10"]),
        (["-k", "task-1"], ["task-1", "task-10"]),
        (["-k", "maths and not hard"], ["other"]),
        (["-k", "slow"], ["task-1", "other"]),
        (["-k", "last+20one"], ["last+20one"]),
        (["-m", "maths"], ["task-10", "other"]),
        (["-m", "slow and not needs_net"], ["task-1"]),
        (["-m", "files_and_more", "--strict-markers"], ["task-1"]),
        (["--deselect", "agentcompass::tasks::task-1::"], ["task-10", "other", "last+20one"]),
        (["benchmark.sample_ids=[other,task-1]"], ["task-1", "other"]),
        (["limit=2"], ["task-1", "task-10"]),
        (["agentcompass::tasks::other"], ["other"]),
        (["../agentcompass::tasks::other::attempt1", "agentcompass::tasks::last+20one"], ["other", "last+20one"]),
        (["agentcompass::tasks"], ["task-1", "task-10", "other", "last+20one"]),
        (["-n2", "agentcompass::tasks::task-1"], ["task-1"]),
    ],
    ids=lambda value: " ".join(value) if value[0][0] in "-.abl" and len(value[0]) > 1 else None,
)
def test_selection(chosen: Suite, words: list[str], expected: list[str]) -> None:
    """Each way to choose gives exactly its tasks, in the order of the data; exact ids take no neighbours."""
    result = chosen.collect(*RUN, *words)
    assert result.ret == 0, result.out
    assert cases(result.nodeids) == [f"{name}::attempt1" for name in expected]


@pytest.mark.parametrize("place", ["before", "after"])
def test_pasted_ids_may_stand_anywhere(chosen: Suite, place: str) -> None:
    """A pasted node id selects before and behind the option, with and without workers."""
    pasted = ["agentcompass::tasks::other::attempt1", "-q"]
    for workers in ([], ["-n2"]):
        result = chosen.run(
            *(pasted if place == "before" else []), *RUN, *workers, *(pasted if place == "after" else [])
        )
        assert result.ret == 1
        assert list(result.records()) == ["other::1"]
        assert result.request_summary()["report"]["attempts"]["planned"] == 1


@pytest.mark.parametrize(
    ("pasted", "needle"),
    [
        ("agentcompass::tasks::task-2", "did you mean 'task-1'?"),
        ("agentcompass::tasks::other::attempt7", "attempt7"),
        ("agentcompass::task::other", "did you mean 'tasks'?"),
    ],
)
@pytest.mark.parametrize("workers", [[], ["-n2"]], ids=["serial", "n2"])
def test_a_pasted_id_that_names_nothing_is_an_error(
    chosen: Suite, pasted: str, needle: str, workers: list[str]
) -> None:
    """B12: a node id that matches nothing is named, with what exists; exit non-zero, what does match still runs."""
    result = chosen.run(*RUN, *workers, pasted, "agentcompass::tasks::task-1")
    assert result.ret in (1, 4), result.out + result.err
    assert pasted.split("::")[1] in result.out + result.err
    assert needle in result.out + result.err
    result.check_clean()


def test_last_failed_and_failed_first(chosen: Suite) -> None:
    """B10: --lf and --ff work, beside a failing test file, with and without workers; nothing failing is left out."""
    chosen.write("test_mine.py", "def test_bad(): assert 0\ndef test_good(): pass\n")
    first = chosen.run(*RUN, "test_mine.py")
    assert first.counts == {"passed": 4, "failed": 2}
    for workers in ([], ["-n2"]):
        again = chosen.run(*RUN, "test_mine.py", "--lf", *workers)
        assert again.counts["failed"] == 2, again.out
        assert list(again.records()) == ["other::1"]
    ordered = chosen.collect(*RUN, "--ff")
    assert cases(ordered.nodeids)[0] == "other::attempt1"


def test_stepwise(chosen: Suite) -> None:
    """--sw stops at the failure and goes on there."""
    chosen.run(*RUN, "--sw")
    again = chosen.run(*RUN, "--sw")
    assert list(again.records()) == ["other::1"]
    chosen.tasks(task("task-1"), task("task-10"), task("other"), task("last one"))
    assert list(chosen.run(*RUN, "--sw").records()) == ["last one::1", "other::1"]


@pytest.mark.parametrize("words", [["-k", "nothing"], ["-m", "nomark"], ["--deselect", "agentcompass::"]])
def test_choosing_nothing_is_no_run(chosen: Suite, words: list[str]) -> None:
    """When nothing is chosen pytest's own status 5 stands and no empty run is left to be resumed."""
    result = chosen.run(*RUN, *words, "-W", "ignore")
    assert result.ret == 5
    assert not list(chosen.path.glob("agentcompass-results/*/*"))


def test_an_unknown_sample_id_is_an_error(chosen: Suite) -> None:
    """sample_ids are checked against the data, with the nearest names."""
    result = chosen.run(*RUN, "benchmark.sample_ids=[othr]")
    assert result.ret == 1
    assert "did you mean 'other'?" in result.out
    result.check_clean()


def test_the_plan_is_what_was_selected(chosen: Suite) -> None:
    """The summary counts what was selected, not what exists."""
    for workers in ([], ["-n2"]):
        result = chosen.run(*RUN, "-k", "maths", *workers)
        report = result.request_summary()["report"]
        assert (report["attempts"]["planned"], report["attempts"]["finished"]) == (2, 2)
        assert report["tasks"]["planned"] == 4
