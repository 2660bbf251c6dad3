"""Ctrl-C and TERM: everything ends, what finished is kept, the rest can be resumed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from .helpers import TASKS, Result, Running, Suite, task

INT, TERM, KILL = signal.SIGINT, signal.SIGTERM, signal.SIGKILL
MODES = {"serial": [], "n2": ["-n2"], "engine": ["concurrency=2"]}


class Held:
    """A run of three attempts, of which the first ends at once and the others wait for a file."""

    def __init__(self, suite: Suite, words: list[str]) -> None:
        self.suite = suite
        self.words = words
        self.go = suite.path / "go"
        self.log = suite.path / "log"
        self.mark = f"{os.getpid()}.{abs(hash(suite.path)) % 10**9}"  # names the processes of this test alone
        suite.tasks(task("quick"), task("slow1"), task("slow2"))
        agent = (
            f'echo "$AGENTCOMPASS_TASK_ID" >> {self.log}; '
            f'case "$AGENTCOMPASS_TASK_ID" in quick) exit 0;; esac; '
            f"test -f {self.go} && exit 0; "
            f"trap '' INT; (sleep 300{self.mark}) & sleep 300{self.mark}; true"
        )
        suite.write("agent.sh", agent)
        self.command = (*TASKS, "harness=command", f"harness.command=sh {suite.path}/agent.sh", *words)

    def start(self) -> Running:
        """Start the run and wait until every slot holds a slow attempt and the quick one is finished."""
        run = self.suite.start(*self.command)
        run.wait_for(lambda: self._running() >= (1 if not self.words else 2) and self._finished() == 1)
        return run

    def _running(self) -> int:
        return self.log.read_text().count("slow") if self.log.exists() else 0

    def _finished(self) -> int:
        return len(list(self.suite.path.glob("agentcompass-results/*/*/attempts/tasks/quick/1/record.json")))

    def left(self, run: Running) -> list[str]:
        """Return the processes that are left of the run: agents by their mark, pytest's by their group."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                try:
                    line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    group = os.getpgid(int(entry.name))
                except (OSError, ValueError):
                    continue
                if self.mark in line or (group == run.process.pid and line):
                    found.append(f"{entry.name} {line}")
        return found

    def check(self, run: Running, result: Result) -> None:
        """Check what holds after every interrupted run, and that a resume makes the rest and nothing else."""
        assert result.ret != 0
        assert self.left(run) == []
        assert self.suite.sandboxes() == []
        records = result.records()
        assert records["quick::1"]["passed"] is True
        assert {record["failure_mode"] for name, record in records.items() if name != "quick::1"} <= {
            "cancelled",
            "harness_error",
        }
        self.go.touch()
        resumed = self.suite.run(*self.command, "--agentcompass-resume=last")
        assert resumed.ret == 0, resumed.out + resumed.err
        assert resumed.counts == {"passed": 3}
        assert set(resumed.verdicts().values()) == {True}
        assert self.log.read_text().split().count("quick") == 1
        assert len(resumed.run_dirs) == 1


@pytest.mark.parametrize("mode", list(MODES))
@pytest.mark.parametrize("number", [INT, TERM], ids=["INT", "TERM"])
def test_one_signal_to_the_run(suite: Suite, mode: str, number: signal.Signals) -> None:
    """One INT or TERM to pytest's process: exit 2, everything closed, reports written, the rest resumable."""
    held = Held(suite, MODES[mode])
    run = held.start()
    run.signal(number)
    result = run.end()
    assert result.ret == 2, result.out + result.err
    assert result.request_summary()["report"]["attempts"]["passed"] == 1
    assert result.run_info()["status"] == "interrupted"
    assert "--agentcompass-resume=" in result.out
    assert "INTERNALERROR" not in result.out + result.err
    held.check(run, result)


@pytest.mark.parametrize(
    ("mode", "number"), [("serial", INT), ("n2", INT), ("n2", TERM), ("engine", INT)], ids=lambda value: str(value)
)
def test_a_signal_to_the_whole_group(suite: Suite, mode: str, number: signal.Signals) -> None:
    """Ctrl-C reaches workers and agents too: the end is the same."""
    held = Held(suite, MODES[mode])
    run = held.start()
    run.signal(number, group=True)
    result = run.end()
    assert result.ret == 2, result.out + result.err
    held.check(run, result)


@pytest.mark.parametrize("mode", list(MODES))
@pytest.mark.parametrize("number", [INT, TERM], ids=["INT", "TERM"])
def test_a_second_signal_while_closing(suite: Suite, mode: str, number: signal.Signals) -> None:
    """B9: a second signal while sandboxes close removes by force what is open; nothing is left."""
    held = Held(suite, MODES[mode])
    suite.write(
        "conftest.py",
        "import asyncio\nfrom pathlib import Path\n"
        "from pytest_agentcompass.environments.host_process import HostProcessSession as Session\n"
        "CLOSE = Session.close\n"
        "async def slow(self):\n"
        f"    Path({str(suite.path / 'closing')!r}).touch()\n"
        f"    if not Path({str(held.go)!r}).exists():\n        await asyncio.sleep(1.5)\n"
        "    await CLOSE(self)\n"
        "Session.close = slow\n",
    )
    run = held.start()
    (suite.path / "closing").unlink(missing_ok=True)
    run.signal(number)
    run.wait_for((suite.path / "closing").exists)
    run.signal(number)
    result = run.end()
    assert result.run_info()["status"] == "interrupted"
    assert result.request_summary()["report"]["attempts"]["passed"] == 1
    held.check(run, result)


@pytest.mark.parametrize("mode", ["serial", "n2", "engine"])
def test_a_killed_run_is_cleaned_up_by_the_next(suite: Suite, mode: str) -> None:
    """KILL to the whole group leaves no half record; the next run removes what was left and makes the rest."""
    held = Held(suite, MODES[mode])
    run = held.start()
    assert suite.sandboxes()
    run.signal(KILL, group=True)
    result = run.end()
    held.go.touch()
    resumed = suite.run(*held.command, "--agentcompass-resume=last")
    assert resumed.ret == 0, resumed.out + resumed.err
    assert resumed.counts == {"passed": 3}
    assert held.left(run) == []
    assert suite.sandboxes() == []
    assert held.log.read_text().split().count("quick") == 1
    assert len(result.run_dirs) == 1
