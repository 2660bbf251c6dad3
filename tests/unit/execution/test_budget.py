"""Budget and deadline: what is counted, when nothing new starts, and what it says."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pytest_agentcompass.config.options import Budget, RuntimeOptions
from pytest_agentcompass.execution.admission import Admission
from pytest_agentcompass.execution.budget import Ledger, Spent, over_budget, unpaid
from pytest_agentcompass.execution.deadline import DeadlineCut


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


def admission(tmp_path: Path, clock: Clock, **options: Any) -> Admission:
    """Return the doorkeeper of one process of a run in *tmp_path*."""
    return Admission(tmp_path, RuntimeOptions(results_dir=tmp_path, **options), clock)


def test_spending_is_shared_by_all_processes(tmp_path: Path) -> None:
    """What one process adds, the others see; input and output tokens both count."""
    one, other = Ledger(tmp_path / "spend.jsonl"), Ledger(tmp_path / "spend.jsonl")
    one.add({"cost_usd": 0.5, "input_tokens": 100, "output_tokens": 20, "cached_tokens": 80})
    assert other.spent() == Spent(0.5, 120)
    other.add({"input_tokens": 1})
    other.add({"cost_usd": 0.25})
    assert one.spent() == other.spent() == Spent(0.75, 121)


def test_judges_spend_too(tmp_path: Path) -> None:
    """What a model that judged cost counts as the agent's does."""
    ledger = Ledger(tmp_path / "spend.jsonl")
    ledger.add(
        {"cost_usd": 0.5, "judge_cost_usd": 0.25, "output_tokens": 3, "judge_input_tokens": 40, "judge_calls": 9}
    )
    assert ledger.spent() == Spent(0.75, 43)


@pytest.mark.parametrize(
    ("usage", "paid", "rest"),
    [
        ({}, {"cost_usd": 1.0}, {}),
        ({"cost_usd": 1.5, "input_tokens": 7}, {}, {"cost_usd": 1.5, "input_tokens": 7}),
        ({"cost_usd": 1.5, "input_tokens": 7}, {"cost_usd": 1.0, "input_tokens": 7}, {"cost_usd": 0.5}),
        ({"cost_usd": 0.3}, {"cost_usd": 0.1}, {"cost_usd": 0.2}),
        ({"cost_usd": float("nan"), "input_tokens": float("inf")}, {}, {}),
    ],
)
def test_each_part_is_paid_once(
    usage: dict[str, int | float], paid: dict[str, int | float], rest: dict[str, int | float]
) -> None:
    """What was paid before is taken off; what is no number costs nothing."""
    assert unpaid(usage, paid) == rest


def test_nothing_is_written_for_nothing(tmp_path: Path) -> None:
    """An attempt that used nothing, or does not know, leaves no line."""
    ledger = Ledger(tmp_path / "spend.jsonl")
    ledger.add({})
    ledger.add({"cost_usd": 0.0, "model_calls": 3})
    assert list(tmp_path.iterdir()) == []
    assert ledger.spent() == Spent()


@pytest.mark.parametrize("torn", ['{"usd": 1, "tok', "\0\0\0\n", "[]\n", '{"usd": null, "tokens": 1}\n', "\n"])
def test_torn_lines_cost_nothing_else(tmp_path: Path, torn: str) -> None:
    """A line that a crash tore is passed over; what stands whole before and after it counts."""
    path = tmp_path / "spend.jsonl"
    path.write_text('{"usd": 1.0, "tokens": 5}\n' + torn)
    assert Ledger(path).spent() == Spent(1.0, 5)
    with path.open("a") as file:
        file.write('\n{"usd": 2.0, "tokens": 1}\n')
    assert Ledger(path).spent() == Spent(3.0, 6)


def test_a_line_in_the_making_is_read_when_it_is_whole(tmp_path: Path) -> None:
    """A reader that meets half a line reads it again later, and no line twice."""
    path = tmp_path / "spend.jsonl"
    path.write_text('{"usd": 1.0, "tokens": 5}\n{"usd": 2.0')
    ledger = Ledger(path)
    assert ledger.spent() == Spent(1.0, 5)
    with path.open("a") as file:
        file.write(', "tokens": 1}\n')
    assert ledger.spent() == ledger.spent() == Spent(3.0, 6)


@pytest.mark.parametrize(
    ("budget", "spent", "seconds", "part"),
    [
        (Budget(usd=1), Spent(1.0, 0), 0, "$1.00 of budget.usd $1.00"),
        (Budget(usd=1), Spent(0.99, 10**9), 10**9, None),
        (Budget(tokens=10), Spent(99.0, 10), 0, "10 of budget.tokens 10"),
        (Budget(tokens=10), Spent(99.0, 9), 0, None),
        (Budget(wall_seconds=5), Spent(), 5, "5 s of budget.wall_seconds"),
        (Budget(wall_seconds=5), Spent(), 4.9, None),
        (Budget(), Spent(9e9, 10**12), 9e9, None),
    ],
)
def test_over_budget(budget: Budget, spent: Spent, seconds: float, part: str | None) -> None:
    """Each budget stops the run when it is reached, with the figure and the key; the others do not matter."""
    reason = over_budget(budget, spent, seconds)
    assert (reason is None) == (part is None)
    if reason is not None and part is not None:
        assert part in reason.message
        assert reason.failure_mode == "budget_spent"


def test_the_clock_starts_once_for_all(tmp_path: Path) -> None:
    """The first process that is through with the preflight starts the clock; a new session starts it anew."""
    clock = Clock()
    one, other = (admission(tmp_path, clock, deadline_seconds=10.0) for _ in range(2))
    assert one.seconds_left() == 10.0  # nothing counts before it has started
    one.start_clock()
    clock.now += 4
    other.start_clock()
    assert (one.seconds_left(), other.seconds_left()) == (6.0, 6.0)
    assert other.refusal() is None
    clock.now += 6
    refusal = other.refusal()
    assert refusal is not None
    assert (refusal.failure_mode, refusal.message) == ("deadline", "the run's deadline of 10 s is over")
    one.reset()
    other.start_clock()
    assert one.seconds_left() == 10.0


def test_a_resumed_run_goes_on_spending_the_same_money(tmp_path: Path) -> None:
    """Money and tokens of earlier sessions count, their time does not."""
    clock = Clock()
    first = admission(tmp_path, clock)
    first.start_clock()
    first.ledger.add({"cost_usd": 2.0})
    clock.now += 1000
    second = admission(tmp_path, clock, budget=Budget(usd=2, wall_seconds=10))
    second.reset()
    second.start_clock()
    refusal = second.refusal()
    assert refusal is not None
    assert "budget.usd" in refusal.message


def test_no_limits_no_files(tmp_path: Path) -> None:
    """Without budget and deadline the question costs no look at the disk."""
    given = admission(tmp_path, Clock())
    assert given.refusal() is None
    assert given.seconds_left() is None
    assert list(tmp_path.iterdir()) == []


def test_deadline_cut_cancels_and_is_told_apart() -> None:
    """The cut cancels the working task once; whoever takes it leaves the task uncancelled."""

    async def run() -> None:
        cut = DeadlineCut()
        assert cut.arm(0.01)
        assert not cut.arm(0.01)  # a phase within a phase
        with pytest.raises(asyncio.CancelledError):
            await asyncio.sleep(30)
        assert cut.taken()
        cut.disarm()
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        await asyncio.sleep(0.02)

    asyncio.run(run())


def test_deadline_cut_disarmed_or_without_deadline_does_nothing() -> None:
    """A phase that ends in time, or a run without a deadline, is not cancelled."""

    async def run() -> None:
        cut = DeadlineCut()
        assert not cut.arm(None)
        cut.arm(0.01)
        cut.disarm()
        await asyncio.sleep(0.05)
        assert not cut.taken()

    asyncio.run(run())


def test_other_cancellations_are_not_taken_for_the_deadline() -> None:
    """Ctrl-C cancels too; that is not the deadline's doing and stays a cancellation."""

    async def work(cut: DeadlineCut) -> bool:
        cut.arm(30)
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            return cut.taken()
        finally:
            cut.disarm()
        return True

    async def run() -> bool:
        cut = DeadlineCut()
        task = asyncio.create_task(work(cut))
        await asyncio.sleep(0.01)
        task.cancel()
        return await task

    assert asyncio.run(run()) is False
