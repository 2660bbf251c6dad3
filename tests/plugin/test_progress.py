"""Progress on the screen: what the lines say, and that pytest's own output stays whole."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest

from pytest_agentcompass.execution.progress import EventTail, Progress, duration_text, finished_line, status_line

from .helpers import TASKS, Suite, task

MODES = pytest.mark.parametrize("mode", [[], ["concurrency=2"], ["-n2"]], ids=["serial", "engine", "n2"])


# -- what is known from events ------------------------------------------------------------------


def event(kind: str, second: float, task_id: str = "a", attempt: int = 1, **more: Any) -> dict[str, Any]:
    """Return an event of an attempt."""
    time = f"2026-01-01T00:{int(second) // 60:02d}:{second % 60:06.3f}+00:00"
    return {"time": time, "kind": kind, "request": "r", "task": task_id, "attempt": attempt, **more}


def fed(*events: dict[str, Any], total: int = 4) -> Progress:
    """Return the progress after *events*."""
    progress = Progress(total=total)
    for item in events:
        progress.feed(item)
    return progress


BEGIN = 1767225600.0  # 2026-01-01T00:00:00Z


def test_status_line_shows_what_goes_on() -> None:
    """Done and total, outcomes, score, cost, time to go, and the oldest attempts with phase and age."""
    progress = fed(
        event("phase_changed", 0, "a", phase="plan"),
        event("phase_changed", 1, "b", phase="run"),
        event("phase_changed", 2, "a", phase="run"),
        event("attempt_finished", 10, "a", status="passed", payload={"cost_usd": 0.5}),
        event("phase_changed", 10, "c", phase="limit_wait", payload={"limit": "provider docker"}),
    )
    line = status_line(progress, BEGIN + 20, 200)
    assert line == (
        "agentcompass: [1/4] 1 passed score 100% $0.50 ETA 1 min 0 s 1 active, 1 waiting  "
        "b#1 run 19 s  c#1 waits for provider docker 10 s"
    )


def test_status_line_fits_the_terminal() -> None:
    """The line is never wider than the terminal, and shows no control characters of task ids."""
    progress = fed(*(event("phase_changed", 0, f"\x1b[31m\n{name}" * 9, phase="run") for name in "abc"))
    for width in (0, 1, 20, 80):
        assert len(status_line(progress, BEGIN, width)) <= max(width, 1)
    assert status_line(progress, BEGIN, 300).isprintable()


def test_a_narrow_line_keeps_the_figures_and_cuts_names() -> None:
    """Where there is little room names are cut first, then the prefix goes, then what is behind the figures."""
    progress = fed(
        event("phase_changed", 0, "a", phase="plan"),
        event("attempt_finished", 10, "a", status="passed", payload={"cost_usd": 0.5}),
        event("phase_changed", 10, "a-task-with-a-long-name", phase="run"),
    )
    full = "agentcompass: [1/4] 1 passed score 100% $0.50 ETA 1 min 0 s 1 active"
    assert status_line(progress, BEGIN + 20, 90) == f"{full}  a-ta~name#1 run 10 s"
    assert status_line(progress, BEGIN + 20, 80).endswith("1 active  a-task~g-name#1 run 10 s")
    assert status_line(progress, BEGIN + 20, 80).startswith("[1/4] 1 passed")
    assert status_line(progress, BEGIN + 20, 40) == "[1/4] 1 passed score 100% $0.50 ETA 1 m~"


def test_wide_characters_take_two_columns() -> None:
    """Names of wide characters do not push the line over the edge."""
    progress = fed(event("phase_changed", 0, "\u8a66\u9a13" * 20, phase="run"))
    for width in range(30, 90):
        line = status_line(progress, BEGIN, width)
        assert len(line) + sum(c > "\u3000" for c in line) <= width


def test_score_counts_graded_attempts_alone() -> None:
    """Errors and skipped attempts are in no score; reused ones are done but tell no pace."""
    progress = fed(
        event("reuse_loaded", 0, "x"),
        event("attempt_finished", 1, "a", status="passed"),
        event("attempt_finished", 1, "b", status="failed"),
        event("attempt_finished", 1, "c", status="error"),
        event("attempt_finished", 1, "d", status="skipped"),
        total=9,
    )
    assert "score 50%" in status_line(progress, BEGIN, 200)
    assert progress.finished == 5
    assert progress.eta_seconds(BEGIN) is None  # nothing says when it began


def test_closing_after_the_end_is_not_active() -> None:
    """The release of an attempt that has its record does not bring it back."""
    progress = fed(event("attempt_finished", 1, status="passed"), event("phase_changed", 2, phase="close"))
    assert progress.active == {}


@pytest.mark.parametrize(
    "odd", [{}, {"kind": "attempt_finished"}, {"attempt": "1", "task": "a"}, {"attempt": 1}, {"task": None}]
)
def test_odd_events_are_passed_over(odd: dict[str, Any]) -> None:
    """What is no event of an attempt changes nothing."""
    assert fed(odd).finished == 0


def test_tail_reads_each_event_once_and_only_whole_lines(tmp_path: Path) -> None:
    """Half a line is left for later; torn and foreign lines are passed over."""
    path = tmp_path / "events.jsonl"
    tail = EventTail(path)
    assert tail.fresh() == []
    path.write_bytes(b'{"kind":"a"}\n\0\0\n[1]\n{"kind":"b"}\n{"kin')
    assert [row["kind"] for row in tail.fresh()] == ["a", "b"]
    with path.open("ab") as file:
        file.write(b'd":"c"}\n')
    assert [row.get("kind") for row in tail.fresh()] == ["c"]
    assert tail.fresh() == []


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.04, "0.0 s"), (9.94, "9.9 s"), (31, "31 s"), (245, "4 min 5 s"), (7800, "2 h 10 min")]
)
def test_durations(seconds: float, text: str) -> None:
    """Times are written as people read them."""
    assert duration_text(seconds) == text


def test_finished_line() -> None:
    """The line of a finished attempt names number, attempt, outcome, reason and time."""
    line = finished_line(12, 60, "tasks::x::attempt1", "failed", "agent_timeout", 31)
    assert line == "agentcompass: [12/60] tasks::x::attempt1: failed (agent_timeout) in 31 s"
    assert finished_line(1, 2, "x", "passed", "none", None) == "agentcompass: [1/2] x: passed"


# -- without a terminal -------------------------------------------------------------------------


@pytest.fixture
def mixed(suite: Suite) -> Suite:
    """A suite whose attempts end in four ways."""
    suite.tasks(task("good"), task("bad", verify="false"), task("broken"), task("late"))
    return suite


STEPS = {
    "broken": [{"fail": "environment_error"}],
    "late": [{"fail": "agent_timeout"}],
}
SCRIPTED = (*TASKS, "harness=scripted", f"harness.tasks={json.dumps(STEPS)}")


def lines(out: str) -> list[str]:
    """Return the progress lines."""
    return [line for line in out.splitlines() if re.match(r"agentcompass: \[\d", line)]


@pytest.mark.parametrize("mode", [["concurrency=2"], ["-n2"]], ids=["engine", "n2"])
@pytest.mark.parametrize("verbose", [[], ["-v"]], ids=["plain", "v"])
def test_a_line_per_finished_attempt(mixed: Suite, mode: list[str], verbose: list[str]) -> None:
    """In logs each finished attempt has one line, numbered, and pytest's counts stay right."""
    result = mixed.run(*SCRIPTED, *mode, *verbose)
    found = lines(result.out)
    assert [line.partition("]")[0] for line in found] == [f"agentcompass: [{number}/4" for number in range(1, 5)]
    assert sorted(re.sub(r" in [\d.]+ s$", "", line.partition("] ")[2]) for line in found) == [
        "tasks::bad::attempt1: failed",
        "tasks::broken::attempt1: error (environment_error)",
        "tasks::good::attempt1: passed",
        "tasks::late::attempt1: passed (agent_timeout)",
    ]
    assert result.counts == {"passed": 2, "failed": 1, "error": 1}, result.out
    if verbose:
        assert result.out.count("::attempt1 ") >= 4


@pytest.mark.parametrize(
    "words",
    [[], ["concurrency=2", "-q"], ["concurrency=2", "runtime.progress=off"], ["-n2", "-q"]],
    ids=["serial", "quiet", "off", "n2-quiet"],
)
def test_dots_where_no_lines_are_wanted(mixed: Suite, words: list[str]) -> None:
    """One at a time, with `-q`, or switched off, pytest's dots stand alone."""
    result = mixed.run(*SCRIPTED, *words)
    assert lines(result.out) == []
    dots = next(line for line in result.out.splitlines() if "[100%]" in line)
    assert sorted(c for c in dots if c in ".FE") == [".", ".", "E", "F"], result.out


def test_on_shows_lines_one_at_a_time_too(mixed: Suite) -> None:
    """`progress=on` wants the lines in a serial and quiet run as well."""
    assert len(lines(mixed.run(*SCRIPTED, "runtime.progress=on", "-q").out)) == 4


def test_retries_have_one_line(suite: Suite) -> None:
    """A try that was discarded is no finished attempt."""
    suite.tasks(task("a"), task("b"))
    steps = {"a": [{"fail": "environment_error", "fail_times": 1}]}
    words = ("retries=1", "execution.retry_min_delay_seconds=0", "execution.retry_max_delay_seconds=0")
    result = suite.run(*TASKS, "harness=scripted", f"harness.tasks={json.dumps(steps)}", *words, "-n2")
    assert len(lines(result.out)) == 2, result.out


# -- on a terminal ------------------------------------------------------------------------------


def on_terminal(suite: Suite, *args: str, columns: int = 100, **env: str) -> str:
    """Run pytest on a terminal and return all that it wrote there."""
    handle, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    env = {**suite.env, "TERM": "xterm", **env}
    del env["COLUMNS"]
    command = [sys.executable, "-m", "pytest", "--color=no", *args]
    run = subprocess.Popen(command, cwd=suite.path, env=env, stdin=terminal, stdout=terminal, stderr=terminal)
    os.close(terminal)
    written = b""
    try:
        while chunk := os.read(handle, 65536):
            written += chunk
    except OSError:
        pass  # the other end is closed: the run is over
    finally:
        os.close(handle)
        assert run.wait(30) >= 0
    return written.decode("utf-8", "replace")


def screen(written: str, columns: int = 1000) -> list[str]:
    """Return the rows that stand on an endless screen after *written*."""
    rows: list[list[str]] = [[]]
    row = column = place = 0
    while place < len(written):
        hit = re.compile(r"\x1b\[(\d*)([A-Za-z])").match(written, place)
        if hit:
            number, code = int(hit[1] or 1), hit[2]
            if code == "A":
                row = max(0, row - number)
            elif code == "B":
                row += number
            elif code == "C":
                column += number
            elif code == "J":
                del rows[row + 1 :], rows[row][column:]
            elif code == "K":
                rows[row] = [] if hit[1] == "2" else rows[row][:column]
            place = hit.end()
            continue
        char = written[place]
        place += 1
        if char == "\n":
            row += 1
            rows.extend([] for _ in range(row - len(rows) + 1))
        elif char == "\r":
            column = 0
        else:
            if column == columns:
                row, column = row + 1, 0
                rows.extend([] for _ in range(row - len(rows) + 1))
            rows[row].extend(" " * (column - len(rows[row]) + 1))
            rows[row][column] = char
            column += 1
    return ["".join(chars).rstrip() for chars in rows]


@MODES
@pytest.mark.parametrize("verbose", [[], ["-v"]], ids=["plain", "v"])
def test_the_live_line_comes_and_goes(suite: Suite, mode: list[str], verbose: list[str]) -> None:
    """The line shows the active attempts while they work, and at the end the screen holds pytest's lines alone."""
    suite.tasks(*(task(f"t{number}") for number in range(4)))
    steps = json.dumps([{"sleep": 0.8}])
    written = on_terminal(suite, *TASKS, "harness=scripted", f"harness.steps={steps}", *mode, *verbose)
    assert re.search(r"agentcompass: \[\d/4\].*\d active  t\d#1 [a-z_]+ \d", written), written
    rows = screen(written)
    assert lines("\n".join(rows)) == []
    outcomes = "\n".join(rows)
    if verbose:
        assert outcomes.count("PASSED") == 4
    else:
        assert any(re.search(r"\.\.\.\. +\[100%\]", row) for row in rows), outcomes
    assert re.search(r"=+ 4 passed in .* =+", rows[-2] if not rows[-1] else rows[-1]), outcomes


@pytest.mark.parametrize("columns", [40, 70, 180])
def test_the_live_line_takes_the_terminal_s_own_width(suite: Suite, columns: int) -> None:
    """Whatever the width, no row is written over, and pytest's own lines are all there at the end."""
    names = [f"a-task-with-a-name-that-is-long-{number}" for number in range(4)]
    suite.tasks(*(task(name, verify="false" if name.endswith("2") else "true") for name in names))
    steps = json.dumps([{"sleep": 1.2}])
    words = (*TASKS, "harness=scripted", f"harness.steps={steps}", "concurrency=2", "-v")
    written = on_terminal(suite, *words, columns=columns)
    drawn = re.findall(r"\x1b\[2K(.*?)\x1b", written)
    assert drawn
    assert max(map(len, drawn)) < columns
    if columns == 180:
        assert max(map(len, drawn)) > 80
    shown = "".join(screen(written, columns))
    for name in names:
        outcome = "FAILED" if name.endswith("2") else "PASSED"
        assert re.search(f"{name}::attempt1 +{outcome}", shown), shown
    assert " active" not in shown


def test_lines_in_continuous_integration(suite: Suite) -> None:
    """Where `CI` is set the terminal is a log: it gets a line per attempt, and nothing that is drawn."""
    suite.tasks(task("a"), task("b"))
    steps = json.dumps([{"sleep": 1.2}])
    written = on_terminal(suite, *TASKS, "harness=scripted", f"harness.steps={steps}", "concurrency=2", CI="true")
    assert "\x1b[2K" not in written
    assert len(lines(written)) == 2


def test_captured_output_is_not_disturbed(suite: Suite) -> None:
    """The line goes to the terminal and not into what pytest captures of a test."""
    suite.tasks(task("t"))
    suite.write(
        "test_slow.py",
        "import time\ndef test_slow(capfd):\n    time.sleep(2.5)\n    assert capfd.readouterr() == ('', '')\n",
    )
    written = on_terminal(suite, *TASKS, "harness=nop", "test_slow.py")
    assert "2 passed" in written, written
    assert "agentcompass: [" in written


@pytest.mark.parametrize("words", [["-q"], ["-s"], ["--capture=tee-sys"], ["runtime.progress=off"]])
def test_no_live_line_where_it_is_not_wanted(suite: Suite, words: list[str]) -> None:
    """With `-q`, with `-s` or `tee-sys` (anybody may write to the terminal then) or switched off, there is none."""
    suite.tasks(task("t"))
    steps = json.dumps([{"sleep": 1.5}])
    written = on_terminal(suite, *TASKS, "harness=scripted", f"harness.steps={steps}", *words)
    assert "1 passed" in written
    assert "\x1b[A" not in written


@pytest.mark.parametrize("mode", [["concurrency=2"], ["-n2"]], ids=["engine", "n2"])
def test_the_summary_keeps_its_words(suite: Suite, mode: list[str]) -> None:
    """Lines in place of dots leave pytest's short summary whole: each line begins with its outcome."""
    suite.tasks(task("bad", verify="false"), task("broken", verify="exit 127"), {"id": "odd", "instruction": "x"})
    result = suite.run(*TASKS, "harness=nop", *mode)
    summary = result.out.partition("short test summary info")[2].splitlines()[1:-1]
    assert sorted(line.partition(" - ")[0] for line in summary) == [
        "ERROR agentcompass::tasks::broken::attempt1",
        "ERROR agentcompass::tasks::odd",
        "FAILED agentcompass::tasks::bad::attempt1",
    ]
