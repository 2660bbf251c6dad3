"""When a request is over: nothing of it left, and nothing of an earlier one still to be started."""

from __future__ import annotations

from pytest_agentcompass.plugin.finalizing import Queues

PLAN = [(request, task, 1) for request in ("one", "two", "three") for task in ("a", "b")]


def node(request: str, task: str) -> str:
    """Return the node id of an attempt in a suite."""
    return f"s.agentcompass.yaml::{request}::{task}::attempt1"


def queues(*extra: str) -> Queues:
    """Return the queues of a run in which all of the plan, and *extra*, was collected."""
    return Queues(PLAN, [*(node(request, task) for request, task, _ in PLAN), *extra])


def test_a_request_is_over_with_its_last_attempt() -> None:
    """Requests end one by one in a serial run; the last is left to the end of the session."""
    run = queues()
    over = [run.ended(node(request, task)) for request, task, _ in PLAN]
    assert over == [[], ["one"], [], ["two"], [], []]


def test_an_attempt_under_way_holds_up_no_later_request() -> None:
    """A later request that is done is over while an earlier one's last attempt still works."""
    run = queues()
    for request, task in (("one", "a"), ("one", "b"), ("two", "a"), ("two", "b")):
        run.started(node(request, task))
    assert run.ended(node("one", "a")) == []
    assert run.ended(node("two", "a")) == []
    assert run.ended(node("two", "b")) == ["two"]
    assert run.ended(node("one", "b")) == ["one"]


def test_an_attempt_that_waits_holds_up_later_requests() -> None:
    """A request is not over while an earlier one has attempts that nobody began; then both are, in order."""
    run = queues()
    assert run.ended(node("one", "a")) == []
    assert run.ended(node("two", "a")) == []
    assert run.ended(node("two", "b")) == []
    assert run.ended(node("one", "b")) == ["one", "two"]


def test_an_end_counts_once_and_foreign_items_never() -> None:
    """A second end of an attempt, and tests of the user's own, change nothing."""
    run = queues("test_mine.py::test_a")
    assert run.ended("test_mine.py::test_a") == []
    assert run.ended(node("one", "a")) == []
    assert run.ended(node("one", "a")) == []
    assert run.ended(node("one", "b")) == ["one"]
    assert run.ended(node("one", "b")) == []


def test_requests_of_which_a_part_was_collected_are_left_out() -> None:
    """What a resumed run planned once and now leaves out keeps its request for the end of the session."""
    run = Queues(PLAN, [node(request, task) for request, task, _ in PLAN if (request, task) != ("one", "b")])
    assert run.ended(node("one", "a")) == []
    assert run.ended(node("two", "a")) == []
    assert run.ended(node("two", "b")) == ["two"]
