"""`show --follow`: a run as lines while it goes on."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

from pytest_agentcompass.errors import ResultsError
from pytest_agentcompass.reports.follow import follow
from pytest_agentcompass.results.rundir import RunDirectory

from .helpers import TASKS, Suite, heed_interrupts, task

AGENT = (*TASKS, "harness=command", "harness.command=printf 'at work \\033[31m\\a\\n  indented'")


def started(suite: Suite, *words: str) -> subprocess.Popen[str]:
    """Start `show last --follow` in the folder."""
    return subprocess.Popen(
        [sys.executable, "-m", "pytest_agentcompass", "show", "last", *words, "--follow"],
        cwd=suite.path, env=suite.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, preexec_fn=heed_interrupts,
    )  # fmt: skip


def read_until(viewer: subprocess.Popen[str], text: str) -> None:
    """Read lines of *viewer* until one holds *text*."""
    assert viewer.stdout is not None
    for line in viewer.stdout:
        if text in line:
            return
    raise AssertionError(f"it ended before it said {text!r}: {viewer.communicate()}")


@pytest.mark.parametrize("words", [[], ["-n2"], ["concurrency=2"]], ids=["serial", "n2", "engine"])
def test_a_run_is_followed_to_its_end(suite: Suite, words: list[str]) -> None:
    """Events come as they happen, one task's with its logs, plain text alone; the viewer ends with the run."""
    go = suite.path / "go"
    wait = f"echo checked; until test -e {go}; do sleep 0.05; done"
    suite.tasks(task("a", verify=wait), task("b", verify=f"{wait}; false"))
    run = suite.start(*AGENT, *words)
    run.wait_for(lambda: bool(list(suite.path.glob("agentcompass-results/run/*/attempts/tasks/a"))))
    whole, one = started(suite), started(suite, "b")
    read_until(whole, "tasks/a/1: evaluate")
    go.touch()
    result = run.end()
    everything, error = whole.communicate(timeout=30)
    assert (whole.returncode, error) == (0, "")
    assert "tasks/b/1: attempt finished, failed" in everything
    assert everything.endswith(f"run finished, {result.ret}\nrun {result.run_dir.name}: finished\n")
    assert "checked" not in everything
    about_b, error = one.communicate(timeout=30)
    assert (one.returncode, error) == (0, "")
    assert "tasks/a/1" not in about_b
    for text in (
        "==> tasks/b/1 logs/agent.txt <==\nat work #x07\n",
        "\n  indented\n",
        "logs/verifier.txt <==\nchecked\n",
    ):
        assert text in about_b
    assert "\x1b" not in about_b


def test_an_interrupt_ends_the_viewer_alone(suite: Suite) -> None:
    """Ctrl-C in the viewer is no error and nothing to the run; a run that was killed is said to be gone."""
    suite.tasks(task("a", verify=f"until test -e {suite.path}/go; do sleep 0.05; done"))
    run = suite.start(*TASKS, "harness=nop")
    run.wait_for(lambda: bool(list(suite.path.glob("agentcompass-results/run/*/attempts/tasks/a"))))
    viewer = started(suite)
    read_until(viewer, "tasks/a/1: evaluate")
    viewer.send_signal(signal.SIGINT)
    assert viewer.communicate(timeout=30) == ("", "")
    assert viewer.returncode == 0
    other = started(suite, "a/1")
    read_until(other, "tasks/a/1: evaluate")
    run.signal(signal.SIGKILL)
    run.process.communicate()
    assert other.communicate(timeout=30) == (f"run {run_id(suite)}: its process is gone; resume it\n", "")
    (suite.path / "go").touch()
    assert suite.run(*TASKS, "harness=nop", "--agentcompass-resume=last").ret == 0


def run_id(suite: Suite) -> str:
    """Return the id of the one run."""
    return next(suite.path.glob("agentcompass-results/run/*/run.json")).parent.name


def test_a_run_that_is_over(suite: Suite) -> None:
    """Its last session is shown; a task that is not planned is refused with the nearest; trajectories are readable."""
    suite.tasks(task("apple"), task("bee", verify="false"))
    suite.run(*AGENT, "attempts=2", "-k", "apple")
    result = suite.run(*AGENT, "attempts=2", "--agentcompass-resume=last")
    run = RunDirectory.open(result.run_dir)
    lines = list(follow(run))
    assert "run resumed" in lines[0]
    assert [line for line in lines if "tasks/apple/1: reuse loaded" in line]
    folder = run.attempt_dir("tasks", "bee", 2)
    rows: list[dict[str, object]] = [{"schema": "agentcompass-trajectory"}]
    rows.append({"step": 1, "output": "I look\nat it", "tool_calls": [{"name": "bash", "arguments": {"c": "ls"}}]})
    rows[1]["observations"] = [{"content": "x" * 999, "exit_code": 2}]
    (folder / "trajectory.jsonl").write_text("\n".join([*map(json.dumps, rows), "torn"]))
    (folder / "logs/long.txt").write_text("".join(f"line {n}\n" for n in range(100)))
    shown = list(follow(run, "bee/2"))
    assert [line for line in shown if "bee/2" in line and "attempt finished, failed" in line]
    assert not [line for line in shown if "bee/1" in line]
    assert "step 1: I look at it" in shown
    assert "  bash {'c': 'ls'}" in shown
    assert [line for line in shown if line.startswith("  -> [2] xxx") and len(line) < 500]
    assert (shown.count("line 99"), shown.count("line 80"), shown.count("line 79")) == (1, 1, 0)
    with pytest.raises(ResultsError, match="no task 'be' is planned; did you mean 'bee'"):
        list(follow(run, "be"))


def test_what_cannot_be_read_is_said_once(suite: Suite) -> None:
    """`show` and `report` name each damaged file once, with the number of bad lines of the events."""
    suite.tasks(task("a"), task("b"))
    result = suite.run(*AGENT)
    (result.run_dir / "attempts/tasks/b/1/record.json").write_bytes(b'{"half')
    with (result.run_dir / "events.jsonl").open("ab") as file:
        file.write(b'{"time": NaN}\n\xff\xfe\n{"torn')
    for verb in ("show", "report"):
        done = subprocess.run(
            [sys.executable, "-m", "pytest_agentcompass", verb, "last"], cwd=suite.path, env=suite.env,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0
        assert done.stderr.count("b/1/record.json: ") == 1
        assert done.stderr.count("events.jsonl: 3 lines could not be read") == 1


def test_files_that_grow_and_are_written_anew(suite: Suite) -> None:
    """A line is shown once, when it is whole; a file that was written anew is shown from its beginning."""
    suite.tasks(task("a"))
    result = suite.run(*AGENT)
    run = RunDirectory.open(result.run_dir)
    (run.path / "run.lock").write_text(json.dumps({"pid": "unknown"}))
    events = run.path / "events.jsonl"
    kept = [line for line in events.read_text().splitlines(keepends=True) if '"attempt_finished"' not in line]
    events.write_text("".join(line for line in kept if "run_finished" not in line))
    log = run.attempt_dir("tasks", "a", 1) / "logs/agent.txt"
    steps = iter(["one\ntw", "one\ntwo\nthree\n", "new\n", "new\nend", "new\nend"])

    def pause(_: float) -> None:
        text = next(steps, None)
        if text is None:
            events.write_text(events.read_text() + "".join(kept[-1:]))
        else:
            log.write_text(text)

    log.unlink()
    shown = [line for line in follow(run, "a", pause) if not line[:2].isdigit() and "verifier" not in line]
    assert shown[1:-1] == ["one", "two", "three", "new", "end"]
