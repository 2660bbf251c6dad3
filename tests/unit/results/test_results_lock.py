"""The run's lock, claims of attempts, and owners."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_agentcompass.components.owner import boot_id, host_name, owner_alive, process_start_time
from pytest_agentcompass.errors import ResultsError
from pytest_agentcompass.results.lock import acquire, claim, is_claimed, lock_owner

HOLD = """
import sys
from pathlib import Path
from pytest_agentcompass.results.lock import acquire, claim
held = {"run": acquire, "join": lambda path: acquire(path, join=True), "claim": claim}[sys.argv[1]](Path(sys.argv[2]))
print("held", flush=True)
sys.stdin.read()
"""
Holder = subprocess.Popen[str]


@pytest.fixture
def hold(tmp_path: Path) -> Iterator[object]:
    """Start processes that hold a lock until their standard input closes."""
    started: list[Holder] = []

    def start(what: str, path: Path = tmp_path) -> Holder:
        command = [sys.executable, "-c", HOLD, what, str(path)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def end(process: Holder, how: int = signal.SIGKILL) -> None:
    """End a holder and wait for it."""
    process.send_signal(how)
    process.communicate(timeout=30)


def test_the_second_is_refused_and_told_who_holds_it(tmp_path: Path, hold: object) -> None:
    """Pid, host and time of the holder stand in the message and on the error."""
    process = hold("run")  # type: ignore[operator]
    with pytest.raises(ResultsError) as caught:
        acquire(tmp_path)
    owner = lock_owner(tmp_path)
    assert f"in use by process {process.pid} on host {host_name()}, since {owner['since']}" in caught.value.message
    assert caught.value.owner["pid"] == process.pid  # type: ignore[attr-defined]


def test_the_lock_of_a_killed_process_is_taken_over(tmp_path: Path, hold: object) -> None:
    """A stale lock stops nobody, and whose it was is known."""
    process = hold("run")  # type: ignore[operator]
    end(process)
    with acquire(tmp_path) as lock:
        assert lock.owned
        assert f"process {process.pid} on host" in lock.taken_over
        assert lock_owner(tmp_path)["pid"] == os.getpid()


def test_a_released_lock_leaves_no_trace(tmp_path: Path, hold: object) -> None:
    """A normal end is no take-over; releasing twice is harmless."""
    process = hold("run")  # type: ignore[operator]
    process.communicate("", timeout=30)
    lock = acquire(tmp_path)
    assert lock.taken_over == ""
    lock.release()
    lock.release()
    assert lock_owner(tmp_path) == {}


def test_one_process_does_not_take_it_twice(tmp_path: Path) -> None:
    """Two runs of one process are two runs."""
    with acquire(tmp_path), pytest.raises(ResultsError, match=f"process {os.getpid()} "):
        acquire(tmp_path)


def test_joining_shares_a_held_directory(tmp_path: Path, hold: object) -> None:
    """A process that joins on purpose is not refused and owns nothing."""
    hold("run")  # type: ignore[operator]
    with acquire(tmp_path, join=True) as one, acquire(tmp_path, join=True) as two:
        assert (one.owned, two.owned) == (False, False)


def test_a_directory_with_guests_is_not_free(tmp_path: Path, hold: object) -> None:
    """When the owner has ended but a process that joined still works, a new owner is refused."""
    owner, guest = hold("run"), hold("join")  # type: ignore[operator]
    end(owner)
    with pytest.raises(ResultsError, match="joined the run"):
        acquire(tmp_path)
    end(guest)
    acquire(tmp_path).release()


def test_another_hosts_lock_is_not_taken_over(tmp_path: Path) -> None:
    """Nobody here can see whether a process of another host lives; the way out is named."""
    owner = {"pid": 1, "host": "elsewhere", "boot": "b", "start": "1", "since": "2026"}
    (tmp_path / "run.lock").write_text(json.dumps(owner))
    with pytest.raises(ResultsError, match=r"process 1 on host elsewhere.*delete .*run\.lock"):
        acquire(tmp_path)
    acquire(tmp_path, join=True).release()


@pytest.mark.parametrize("content", [b"\0" * 40, b"[]", b'{"pid": "x"', b"\xff", b"[" * 5000])
def test_a_damaged_lock_file_is_no_obstacle(tmp_path: Path, content: bytes) -> None:
    """Only the operating system's lock counts, not what the file holds."""
    (tmp_path / "run.lock").write_bytes(content)
    with acquire(tmp_path) as lock:
        assert lock.owned


def test_a_link_in_place_of_the_lock_is_refused(tmp_path: Path) -> None:
    """A planted link is not followed."""
    (tmp_path / "run.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ResultsError, match=r"run\.lock: cannot be opened"):
        acquire(tmp_path)
    assert not (tmp_path / "elsewhere").exists()


def test_a_claim_excludes_others_until_it_ends(tmp_path: Path, hold: object) -> None:
    """One attempt, one maker; a killed maker's claim is free at once."""
    attempt = tmp_path / "attempts" / "main" / "t" / "1"
    assert not is_claimed(attempt)
    process = hold("claim", attempt)  # type: ignore[operator]
    assert claim(attempt) is None
    assert is_claimed(attempt)
    end(process)
    assert not is_claimed(attempt)
    with claim(attempt) as mine:  # type: ignore[union-attr]
        assert mine is not None
        assert claim(attempt) is None
    again = claim(attempt)
    assert again is not None
    again.release()
    again.release()


def test_a_claim_clears_what_a_killed_writer_left(tmp_path: Path) -> None:
    """Half-written temporary files go, everything else stays."""
    (tmp_path / ".record.json.0123456789ab.tmp").write_text("{")
    (tmp_path / "checkpoint.json").write_text("{}")
    claim(tmp_path).release()  # type: ignore[union-attr]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["checkpoint.json", "claim"]


def test_looking_does_not_take_a_claim_away(tmp_path: Path) -> None:
    """Whoever counts running attempts all the time never makes a claim fail."""
    code = (
        "import sys\nfrom pathlib import Path\nfrom pytest_agentcompass.results.lock import is_claimed\n"
        "print('looking', flush=True)\nwhile True: is_claimed(Path(sys.argv[1]))"
    )
    claim(tmp_path).release()  # type: ignore[union-attr]
    looker = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE)
    try:
        assert looker.stdout is not None
        looker.stdout.readline()
        for _ in range(200):
            mine = claim(tmp_path)
            assert mine is not None
            mine.release()
    finally:
        looker.kill()
        looker.communicate()


def test_this_process_is_alive() -> None:
    """The own values describe a living owner."""
    assert owner_alive(os.getpid(), process_start_time(), boot_id(), host_name())
    assert owner_alive(os.getpid())


def test_a_pid_used_again_is_not_the_owner() -> None:
    """The start time tells a process from a later one with its pid."""
    assert not owner_alive(os.getpid(), "1", boot_id(), host_name())


def test_an_owner_of_an_earlier_boot_is_dead() -> None:
    """Pids start over at a boot."""
    assert not owner_alive(os.getpid(), process_start_time(), "another-boot", host_name())


@pytest.mark.parametrize("where", [{"host": "elsewhere"}, {"boot": boot_id().partition(".")[0] + ".1"}])
def test_what_cannot_be_seen_counts_as_alive(where: dict[str, str]) -> None:
    """A process of another host or pid namespace is never called dead."""
    assert owner_alive(2**22 - 1, "1", **where)


@pytest.mark.parametrize("pid", [0, -1, 2**22 + 1, 2**70])
def test_impossible_pids_are_dead(pid: int) -> None:
    """A damaged label names nobody."""
    assert not owner_alive(pid)


def test_a_zombie_is_dead() -> None:
    """A process that has ended but was not waited for owns nothing."""
    process = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.read()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert process_start_time(process.pid) == ""
    assert not owner_alive(process.pid)
    process.communicate()
