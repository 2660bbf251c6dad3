"""The event log."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_agentcompass.results.events import EventLog, bad_lines_note, read_events

CASES = Path(__file__).parents[4] / "shared" / "cases"


def test_an_event_tells_when_where_and_what(tmp_path: Path) -> None:
    """Time in UTC with milliseconds, the place, and the payload apart."""
    clock = lambda: datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)  # noqa: E731
    with EventLog(tmp_path / "events.jsonl", clock) as log:
        log.emit("phase_changed", request="main", task="t", attempt=1, phase="run", status="x", image=Path("/a"))
        log.emit("run_started")
    place = {"request": "main", "task": "t", "attempt": 1, "phase": "run", "status": "x"}
    time = "2026-01-02T03:04:05.678+00:00"
    first = {"time": time, "kind": "phase_changed", **place, "payload": {"image": "/a"}}
    assert read_events(tmp_path / "events.jsonl") == ([first, {"time": time, "kind": "run_started"}], 0)


def test_no_file_is_no_event(tmp_path: Path) -> None:
    """A run that has not begun has no events and no bad lines."""
    assert read_events(tmp_path / "events.jsonl") == ([], 0)


@pytest.mark.parametrize("torn", [b'{"time":"x","ki', b'{"time":"x","kind":"whole"}', b"\0\0\0"])
def test_a_torn_log_goes_on_on_a_new_line(tmp_path: Path, torn: bytes) -> None:
    """What a crash left never swallows the next event."""
    path = tmp_path / "events.jsonl"
    path.write_bytes(torn)
    with EventLog(path) as log:
        log.emit("a")
        log.emit("b")
    events, bad = read_events(path)
    assert [event["kind"] for event in events][-2:] == ["a", "b"]
    assert path.read_bytes().startswith(torn + b"\n")
    assert bad == (b"whole" not in torn)


def test_texts_of_agents_cannot_break_a_line(tmp_path: Path) -> None:
    """Newlines, separators, NUL and surrogates in a payload stay inside their line."""
    path = tmp_path / "events.jsonl"
    odd = 'a\nb\u2028c\x85d\0e\udcff"}\r\n{"time":"x","kind":"forged"}'
    with EventLog(path) as log:
        log.emit("x", task=odd, text=odd, number=float("nan"))
    events, bad = read_events(path)
    assert (len(events), bad) == (1, 0)
    assert path.read_bytes().count(b"\n") == 1
    assert events[0]["payload"]["number"] == "nan"


def test_a_huge_payload_is_left_out(tmp_path: Path) -> None:
    """The event stays small and says what is missing."""
    nested: list[object] = []
    for _ in range(5_000):
        nested = [nested]
    with EventLog(tmp_path / "events.jsonl") as log:
        log.emit("x", text="a" * 100_000)
        log.emit("x", deep=nested)
    events, bad = read_events(tmp_path / "events.jsonl")
    assert bad == 0
    assert ["left out" in event["payload"] for event in events] == [True, True]


def test_an_event_the_disk_refuses_is_counted() -> None:
    """A full disk does not stop the run, and the loss is known."""
    if not os.path.exists("/dev/full"):
        pytest.skip("needs /dev/full")
    with EventLog(Path("/dev/full")) as log:
        log.emit("x")
        assert log.lost == 1


def test_threads_do_not_mix_lines(tmp_path: Path) -> None:
    """Every event of every thread is a line of its own."""
    path = tmp_path / "events.jsonl"
    with EventLog(path) as log:

        def write() -> None:
            for number in range(100):
                log.emit("x", n=number)

        threads = [threading.Thread(target=write) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    events, bad = read_events(path)
    assert (len(events), bad) == (800, 0)


def test_processes_do_not_mix_lines(tmp_path: Path) -> None:
    """Several processes append to one file."""
    path = tmp_path / "events.jsonl"
    code = (
        "import sys; from pathlib import Path; from pytest_agentcompass.results.events import EventLog\n"
        "log = EventLog(Path(sys.argv[1]))\n"
        "for n in range(300): log.emit('x', text='y' * (n * 7 % 900))"
    )
    runs = [subprocess.Popen([sys.executable, "-c", code, str(path)]) for _ in range(3)]
    assert [run.wait(60) for run in runs] == [0, 0, 0]
    events, bad = read_events(path)
    assert (len(events), bad) == (900, 0)


@given(st.binary(max_size=200))
@example(b"[" * 199)
@example(b'{"a":' * 39)
@example(b'{"a": 1e999}')
@example(b'{"time":"' * 20)
def test_any_bytes_are_read_without_an_error(raw: bytes) -> None:
    """Foreign content costs bad lines, never an exception, and no more of them than there are lines."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.jsonl"
        path.write_bytes(raw + b'\n{"kind":"good"}\n')
        events, bad = read_events(path)
    assert events[-1] == {"kind": "good"}
    assert bad <= raw.count(b"\n") + 1


def test_a_hostile_depth_is_a_bad_line(tmp_path: Path) -> None:
    """Nesting beyond the reader's stack is one bad line."""
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"a":' + b"[" * 200_000 + b'\n{"kind":"good"}\n')
    assert read_events(path) == ([{"kind": "good"}], 1)


def test_an_event_behind_a_torn_one_is_recovered(tmp_path: Path) -> None:
    """A line that lost its end to a crash gives back the event that was written behind it."""
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"time":"1","kind":"torn","payload":{"a{"time":"2","kind":"whole"}\n')
    assert read_events(path) == ([{"time": "2", "kind": "whole"}], 1)


@pytest.mark.skipif(not CASES.exists(), reason="the handed cases are not there")
def test_case_50(tmp_path: Path) -> None:
    """Good records are kept, glued ones taken apart, bad ones counted once; nothing else changes the file."""
    raw = (CASES / "50-torn-records" / "records.jsonl").read_bytes()
    path = tmp_path / "events.jsonl"
    path.write_bytes(raw)
    events, bad = read_events(path)
    assert [(event["task"], event["status"]) for event in events] == [
        ("a", "passed"),
        ("b", "failed"),
        ("c", "error"),
        ("c", "passed"),
        ("d", "passed"),
        ("e", "failed"),
    ]
    assert bad == 5  # f (bad byte), the zeroed run, the list, g (NaN), h (torn)
    assert bad_lines_note(path, bad).startswith(f"{path}: 5 lines could not be read")
    with EventLog(path) as log:
        log.emit("next")
    assert path.read_bytes().startswith(raw + b'\n{"time":')
    assert json.loads(path.read_bytes().split(b"\n")[-2])["kind"] == "next"
    assert read_events(path)[1] == 5
