"""No outcome is lost without a word: dead processes, lost reports, doubled items."""

from __future__ import annotations

import os
import signal

import pytest

from .helpers import TASKS, Suite, task

RUN = (*TASKS, "harness=nop")
DIE = (
    "from pytest_agentcompass import BaseHarness, RunResult\n"
    "import asyncio, os, signal\n"
    "class Dying(BaseHarness):\n"
    "    id = 'dying'\n"
    "    async def run_task(self, session, prepared, req, plan):\n"
    "        if prepared.task_id == 'bad':\n"
    "            await session.exec('sleep 300 & touch started', shell=True)\n"
    "            {how}\n"
    "        return RunResult(prepared.task_id)\n"
    "def pytest_agentcompass_register(registry):\n"
    "    registry.add('harness', Dying)\n"
)
EXIT, KILLED, BLOCK = "os._exit(0)", "os.kill(os.getpid(), signal.SIGKILL)", "await asyncio.sleep(300)"
DYING = (*TASKS, "harness=dying")


@pytest.fixture
def dying(suite: Suite) -> Suite:
    """Three tasks; the agent of the second ends its own process."""
    suite.tasks(task("a"), task("bad"), task("c"))
    return suite


@pytest.mark.parametrize(
    ("how", "words", "finished"),
    [
        (EXIT, [], ["a::1", "bad::1"]),
        (EXIT, ["concurrency=1"], ["a::1", "bad::1"]),
        (EXIT, ["-n2"], ["a::1", "bad::1", "c::1"]),
        (EXIT, ["-n1", "--max-worker-restart=0"], ["a::1", "bad::1"]),
        (KILLED, ["-n2"], ["a::1", "bad::1", "c::1"]),
        (KILLED, ["-n1", "--max-worker-restart=0"], ["a::1", "bad::1"]),
        (BLOCK, ["--timeout=1", "--timeout-method=thread"], ["a::1", "bad::1"]),
        (BLOCK, ["-n2", "--timeout=1", "--timeout-method=thread"], ["a::1", "bad::1", "c::1"]),
    ],
    ids=["exit", "exit-one-slot", "exit-n2", "exit-n1-0", "kill-n2", "kill-n1-0", "timeout", "timeout-n2"],
)
def test_a_process_that_dies(dying: Suite, how: str, words: list[str], finished: list[str]) -> None:
    """The attempt has a record (an error), what never ran is counted missing, nothing is left, exit non-zero."""
    dying.write("conftest.py", DIE.format(how=how))
    result = dying.run(*DYING, *words)
    assert result.ret not in (0, 5), result.out + result.err
    assert list(result.records()) == finished
    bad = result.records()["bad::1"]
    assert (bad["passed"], bad["failure_mode"]) == (None, "harness_error")
    report = result.request_summary()["report"]["attempts"]
    assert report["planned"] == 3
    assert report["errors"] == 1
    assert report["missing"] == 3 - len(finished)
    if len(finished) < 3 and "-n1" in words:
        assert "LOST: agentcompass::tasks::c::attempt1" in result.out
    assert dying.sandboxes() == []
    dying.write("conftest.py", DIE.format(how="pass"))
    again = dying.run(*DYING, "--agentcompass-resume=last")
    assert again.ret == 0, again.out
    assert again.verdicts() == {"a::1": True, "bad::1": True, "c::1": True}


def test_an_exit_among_attempts_at_once(dying: Suite) -> None:
    """With several attempts in one process the one that ended it has the record; the terminal says what happened."""
    dying.write("conftest.py", DIE.format(how=EXIT))
    result = dying.run(*DYING, "concurrency=3")
    assert result.ret == 1
    assert result.records()["bad::1"]["failure_mode"] == "harness_error"
    assert "something called os._exit(0) in the middle of tasks::bad" in result.out
    assert f"--agentcompass-resume={result.run_dir.name}" in result.out
    report = result.request_summary()["report"]["attempts"]
    assert (report["planned"], report["errors"]) == (3, 1)
    assert dying.sandboxes() == []


def test_the_signal_method_of_a_timeout_fails_one_attempt(dying: Suite) -> None:
    """pytest-timeout's signal ends its attempt alone: an error with a record; the sandbox goes, the others run."""
    dying.write("conftest.py", DIE.format(how=BLOCK))
    for words in ([], ["-n2"], ["concurrency=2"]):
        result = dying.run(*DYING, "--timeout=2", *words)
        assert result.ret == 1, result.out
        assert result.counts == {"passed": 2, "error": 1}
        assert result.verdicts() == {"a::1": True, "bad::1": None, "c::1": True}
        assert result.modes()["bad::1"] == "cancelled"
        assert "imeout" in result.out.partition("= ERRORS =")[2]  # older releases do not give their name
        assert dying.sandboxes() == []
        assert "INTERNALERROR" not in result.out


def test_a_report_that_never_arrives_fails_the_run(suite: Suite) -> None:
    """B4: a planned item whose outcome does not reach the controller is named, and the run is not green."""
    suite.tasks(task("a"), task("b"), task("lost"))
    suite.write(
        "conftest.py",
        "import pytest\n@pytest.hookimpl(tryfirst=True)\ndef pytest_runtestloop(session):\n    session.items.pop()\n",
    )
    result = suite.run(*RUN)
    assert result.ret == 1, result.out
    assert "LOST: agentcompass::tasks::lost::attempt1" in result.out
    assert result.verdicts()["a::1"] is True


@pytest.mark.parametrize("words", [["-n2", "--dist=loadfile"], ["-n2", "--dist=loadscope"], ["-n2"], []])
def test_items_collected_twice_are_an_error(suite: Suite, words: list[str]) -> None:
    """B3: one node id twice (which xdist may run once only) is named, and the run is not green."""
    suite.tasks(task("a"), task("b"))
    suite.write(
        "conftest.py",
        "def pytest_collection_modifyitems(items):\n    items.append(items[0])\n",
    )
    result = suite.run(*RUN, *words)
    assert result.ret == 1, result.out + result.err
    assert "DUPLICATE: agentcompass::tasks::a::attempt1" in result.out


def test_a_worker_that_is_killed_from_outside(suite: Suite) -> None:
    """KILL to a worker costs its attempt alone, which is an error with a record; a resume makes it."""
    suite.tasks(task("a"), task("slow", verify=f"test -f {suite.path}/go || sleep 300"), task("c"))
    who = suite.path / "who"
    suite.write(
        "conftest.py",
        "import os\nfrom pathlib import Path\n"
        "def pytest_agentcompass_attempt_started(task_id):\n"
        f"    if task_id == 'slow':\n        Path({str(who)!r}).write_text(str(os.getpid()))\n",
    )
    run = suite.start(*RUN, "-n2")
    run.wait_for(lambda: who.exists() and who.read_text() != "" and suite.sandboxes() != [])
    os.kill(int(who.read_text()), signal.SIGKILL)
    result = run.end()
    assert result.ret == 1, result.out
    assert result.verdicts() == {"a::1": True, "slow::1": None, "c::1": True}
    assert "worker process died" in str(result.records()["slow::1"]["issues"])
    assert suite.sandboxes() == []
    (suite.path / "go").touch()
    assert suite.run(*RUN, "--agentcompass-resume=last").ret == 0


def test_a_fault_in_the_reports_is_no_traceback(suite: Suite) -> None:
    """B14: when reports cannot be written the run says so, keeps pytest's own summary and is not green."""
    suite.tasks(task("a"))
    suite.write(
        "conftest.py",
        "import pytest_agentcompass.plugin.reporting as reporting\n"
        "def full(*args, **kwargs):\n    raise OSError(28, 'No space left on device')\n"
        "def pytest_configure(config):\n    reporting.write_files = full\n",
    )
    result = suite.run(*RUN)
    assert result.ret == 1, result.out
    assert "No space left on device" in result.out
    assert "report" in result.out
    assert result.counts == {"passed": 1}
    assert result.verdicts() == {"a::1": True}
    result.check_clean()


DRIVERS = pytest.mark.parametrize("words", [["-n0"], ["-n2"], ["concurrency=2"]], ids=["serial", "n2", "engine"])


@DRIVERS
@pytest.mark.parametrize("what", ["", "/run/*", "/run/*/attempts", "/run/*/planned.jsonl"])
def test_results_that_are_removed_during_the_run(suite: Suite, words: list[str], what: str) -> None:
    """An agent (or another process) that removes results makes the run red; what is gone is said, not traced."""
    results = f"{suite.path}/agentcompass-results"
    wait = f"until test -e {results}/run/*/attempts/tasks/a/1/record.json; do sleep 0.05; done"
    suite.tasks(task("a"), task("b", verify=f"{wait}; rm -rf {results}{what}"), task("c"))
    result = suite.run(*RUN, *words)
    assert result.ret == 1, result.out + result.err
    expected = (
        "LOST: tasks::a::attempt1 was reported, but its record is not there"
        if what.endswith("attempts")
        else "was removed during the run"
    )
    assert expected in result.out
    result.check_clean()
    assert suite.sandboxes() == []


@DRIVERS
def test_a_record_that_cannot_be_stored_ends_the_run(suite: Suite, words: list[str]) -> None:
    """Where a record cannot be written (a full disk) the attempt is no result, nothing new starts, and it is said."""
    place = f"{suite.path}/agentcompass-results/run/*/attempts/tasks/full/1"
    wait = f"until test -e {suite.path}/agentcompass-results/run/*/attempts/tasks/a/1/record.json; do sleep 0.05; done"
    spoil = f"{wait}; set -- {place}; rm -rf $1; touch $1"
    suite.tasks(task("a"), task("full", verify=spoil), *(task(f"later{n}", verify="sleep 1") for n in range(6)))
    result = suite.run(*RUN, *words)
    assert result.ret in (1, 2), result.out + result.err
    assert "its record could not be stored: " in result.out
    assert "STOPPED: results cannot be stored: " in result.out
    result.check_clean()
    records = result.records()
    assert records["a::1"]["passed"] is True
    assert "full::1" not in records
    assert len(records) < 5
    assert suite.sandboxes() == []
    spoilt = next(result.run_dir.glob("attempts/tasks/full/1"))
    spoilt.unlink()
    suite.tasks(task("a"), task("full"), *(task(f"later{n}") for n in range(6)))
    again = suite.run(*RUN, *words, "--agentcompass-resume=last")
    assert again.ret == 0, again.out
    assert again.counts == {"passed": 8}
