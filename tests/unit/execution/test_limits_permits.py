"""Permits over processes: never too many, in turn, free when their holder dies."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_agentcompass.components.machine import try_lock
from pytest_agentcompass.errors import SandboxError
from pytest_agentcompass.execution.permits import PermitPool

HOLDER = """
import asyncio, sys, time
from pathlib import Path
from pytest_agentcompass.execution.permits import PermitPool

async def main(folder, limit, journal, times, seconds):
    pool = PermitPool(Path(folder), limit)
    for _ in range(times):
        permit = await pool.take()
        with open(journal, "a") as file:
            file.write("+")
        await asyncio.sleep(seconds)
        with open(journal, "a") as file:
            file.write("-")
        permit.release()

folder, limit, journal, times, seconds = sys.argv[1:]
asyncio.run(main(folder, int(limit), journal, int(times), float(seconds)))
"""


def start(folder: Path, limit: int, journal: Path, times: int, seconds: float) -> subprocess.Popen[bytes]:
    """Start a process that takes and gives back permits, writing + and - to *journal*."""
    words = [str(folder), str(limit), str(journal), str(times), str(seconds)]
    return subprocess.Popen([sys.executable, "-c", HOLDER, *words])


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """The file in which the processes note what they hold."""
    path = tmp_path / "journal"
    path.touch()
    return path


@pytest.fixture
def children() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that are ended with the test."""
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for child in started:
        child.kill()
        child.wait()


def highest(journal: str) -> int:
    """Return how many held a permit at once."""
    level = most = 0
    for sign in journal:
        level += 1 if sign == "+" else -1
        most = max(most, level)
    return most


def until(condition: object, seconds: float = 20.0) -> None:
    """Wait until *condition()* holds."""
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.01)


def test_processes_never_hold_more_than_the_limit(
    tmp_path: Path, journal: Path, children: list[subprocess.Popen[bytes]]
) -> None:
    """Four processes that want ten permits each hold at most two at once, and all get theirs."""
    children.extend(start(tmp_path / "pool", 2, journal, 10, 0.01) for _ in range(4))
    assert [child.wait(60) for child in children] == [0, 0, 0, 0]
    text = journal.read_text()
    assert (text.count("+"), text.count("-")) == (40, 40)
    assert highest(text) == 2


def test_smallest_limit_of_those_who_hold_or_wait_counts(
    tmp_path: Path, journal: Path, children: list[subprocess.Popen[bytes]]
) -> None:
    """A process that says 1 is never beside another, whatever the others say."""
    children.extend(start(tmp_path / "pool", limit, journal, 5, 0.02) for limit in (1, 5, 5))
    assert [child.wait(60) for child in children] == [0, 0, 0]
    assert journal.read_text().count("+") == 15

    async def alone() -> None:
        wide, narrow = PermitPool(tmp_path / "x", 3), PermitPool(tmp_path / "x", 1)
        first, second = await wide.take(), await wide.take()
        waiting = asyncio.create_task(narrow.take())
        first.release()
        await asyncio.sleep(0.3)
        assert not waiting.done()  # one is still held
        blocked = asyncio.create_task(wide.take())
        second.release()
        permit = await asyncio.wait_for(waiting, 10)
        await asyncio.sleep(0.3)
        assert not blocked.done()  # nobody passes the one who said 1
        permit.release()
        (await asyncio.wait_for(blocked, 10)).release()

    asyncio.run(alone())


def test_permit_of_a_killed_holder_is_free(
    tmp_path: Path, journal: Path, children: list[subprocess.Popen[bytes]]
) -> None:
    """Without anything to reclaim, SIGKILL frees the permit at once: the kernel drops the lock."""
    children.append(start(tmp_path / "pool", 1, journal, 1, 60))
    until(lambda: journal.read_text() == "+")

    async def take() -> None:
        pool = PermitPool(tmp_path / "pool", 1)
        waiting = asyncio.create_task(pool.take())
        await asyncio.sleep(0.3)
        assert not waiting.done()
        children[0].send_signal(signal.SIGKILL)
        (await asyncio.wait_for(waiting, 10)).release()
        assert pool.held() == 0

    asyncio.run(take())


def test_permit_of_a_killed_holder_waits_for_the_sweep(
    tmp_path: Path, journal: Path, children: list[subprocess.Popen[bytes]]
) -> None:
    """Where sandboxes may be left, the permit is free only after they were swept, and they are swept once."""
    children.append(start(tmp_path / "pool", 1, journal, 1, 60))
    until(lambda: journal.read_text() == "+")
    children[0].kill()
    children[0].wait()
    swept: list[int] = []
    held: list[int] = []

    async def take() -> None:
        async def sweep() -> None:
            held.append(pool.held())
            await asyncio.sleep(0.05)
            swept.append(1)

        pool = PermitPool(tmp_path / "pool", 1, sweep)
        permit = await asyncio.wait_for(pool.take(), 10)
        assert swept == [1]
        permit.release()

    asyncio.run(take())
    assert held == [1]


def test_a_sweep_that_fails_does_not_block_for_ever(
    tmp_path: Path, journal: Path, children: list[subprocess.Popen[bytes]]
) -> None:
    """A provider that cannot be asked opens nothing either; its permits come free."""
    children.append(start(tmp_path / "pool", 1, journal, 1, 60))
    until(lambda: journal.read_text() == "+")
    children[0].kill()
    children[0].wait()

    async def take() -> None:
        async def sweep() -> None:
            raise SandboxError("no engine")

        (await asyncio.wait_for(PermitPool(tmp_path / "pool", 1, sweep).take(), 10)).release()

    asyncio.run(take())


def test_killed_waiter_is_passed(tmp_path: Path, journal: Path, children: list[subprocess.Popen[bytes]]) -> None:
    """A process that dies in the queue does not hold up those behind it."""
    folder = tmp_path / "pool"

    async def take() -> None:
        pool = PermitPool(folder, 1)
        first = await pool.take()
        children.append(start(folder, 1, journal, 1, 60))
        until(lambda: any(".w." in name for name in os.listdir(folder)))
        other = PermitPool(folder, 1)
        waiting = asyncio.create_task(other.take())
        await asyncio.sleep(0.1)
        children[0].kill()
        children[0].wait()
        first.release()
        (await asyncio.wait_for(waiting, 10)).release()

    asyncio.run(take())
    assert journal.read_text() == ""


def test_permits_are_given_in_turn(tmp_path: Path) -> None:
    """Who queued up first goes first, over pools (processes) as well."""

    async def run() -> list[int]:
        order: list[int] = []
        pools = [PermitPool(tmp_path / "pool", 1) for _ in range(6)]
        first = await PermitPool(tmp_path / "pool", 1).take()

        async def one(number: int) -> None:
            permit = await pools[number].take()
            order.append(number)
            permit.release()

        tasks = []
        for number in range(6):
            tasks.append(asyncio.create_task(one(number)))
            await asyncio.sleep(0.05)
        first.release()
        await asyncio.wait_for(asyncio.gather(*tasks), 20)
        return order

    assert asyncio.run(run()) == list(range(6))


def test_many_waiters_of_one_process_look_at_the_disk_one_at_a_time(tmp_path: Path) -> None:
    """Two hundred waiters make one entry in the folder, and all get their turn."""

    async def run() -> int:
        pool = PermitPool(tmp_path / "pool", 5)
        done = 0

        async def one() -> None:
            nonlocal done
            permit = await pool.take()
            assert sum(".w." in name for name in os.listdir(pool.folder)) <= 1
            await asyncio.sleep(0)
            permit.release()
            done += 1

        await asyncio.wait_for(asyncio.gather(*(one() for _ in range(200))), 60)
        return done

    assert asyncio.run(run()) == 200
    assert [name for name in os.listdir(tmp_path / "pool") if name != "lock"] == []


def test_cancelled_waiter_leaves_nothing(tmp_path: Path) -> None:
    """Cancellation while waiting takes the entry out of the queue."""

    async def run() -> None:
        pool = PermitPool(tmp_path / "pool", 1)
        first = await pool.take()
        waiting = asyncio.create_task(pool.take())
        await asyncio.sleep(0.1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert len(os.listdir(pool.folder)) == 2  # the lock and the holder
        first.release()
        first.release()
        (await asyncio.wait_for(pool.take(), 10)).release()

    asyncio.run(run())


def test_waiting_is_told_once(tmp_path: Path) -> None:
    """`on_wait` is called when there is no permit at first, and not when there is one."""

    async def run() -> list[str]:
        told: list[str] = []
        pool = PermitPool(tmp_path / "pool", 1)
        first = await pool.take(lambda: told.append("first"))
        waiting = asyncio.create_task(pool.take(lambda: told.append("second")))
        await asyncio.sleep(0.3)
        first.release()
        (await asyncio.wait_for(waiting, 10)).release()
        return told

    assert asyncio.run(run()) == ["second"]


def test_a_forked_child_does_not_keep_a_permit(tmp_path: Path) -> None:
    """A permit that was given back is free although a forked child still has the file open."""

    async def run() -> None:
        pool = PermitPool(tmp_path / "pool", 1)
        permit = await pool.take()
        child = os.fork()
        if child == 0:
            time.sleep(20)
            os._exit(0)
        try:
            permit.release()
            (await asyncio.wait_for(PermitPool(tmp_path / "pool", 1).take(), 10)).release()
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)

    asyncio.run(run())


def test_try_lock_says_whether_it_is_held(tmp_path: Path) -> None:
    """A lock that another has is not waited for."""
    with try_lock(tmp_path / "lock") as first, try_lock(tmp_path / "lock") as second:
        assert (first, second) == (True, False)
    with try_lock(tmp_path / "lock") as again:
        assert again
