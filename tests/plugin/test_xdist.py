"""Workers: each attempt once, tasks loaded once, one run directory."""

from __future__ import annotations

import pytest

from .helpers import TASKS, Suite, task

RUN = (*TASKS, "harness=nop")


def test_tasks_are_loaded_once(suite: Suite) -> None:
    """Whatever the number of workers, the dataset is loaded by one process and read by all others."""
    suite.tasks(*(task(f"t{n}") for n in range(6)))
    suite.write(
        "conftest.py",
        "def pytest_agentcompass_select_tasks(request, tasks):\n"
        "    with open('loaded', 'a') as file:\n        file.write('x')\n    del tasks[4:]\n",
    )
    result = suite.run(*RUN, "-n2")
    assert result.ret == 0, result.out
    assert (suite.path / "loaded").read_text() == "x"
    assert [event["payload"]["count"] for event in result.events("tasks_loaded")] == [4]
    assert len(result.records()) == 4
    assert len(result.run_dirs) == 1


@pytest.mark.parametrize("dist", ["load", "loadscope", "loadfile", "loadgroup", "worksteal"])
def test_every_attempt_runs_exactly_once(suite: Suite, dist: str) -> None:
    """B3: under each way to hand out items every attempt has one outcome and ran once."""
    suite.tasks(*(task(f"t{n}", verify=f"echo t{n} >> {suite.path}/ran") for n in range(5)))
    suite.requests({"name": "one"}, {"name": "two"}, defaults={"attempts": 2})
    result = suite.run("--agentcompass", "s.agentcompass.yaml", "-n2", f"--dist={dist}")
    assert result.ret == 0, result.out
    assert result.counts == {"passed": 20}
    assert len((suite.path / "ran").read_text().split()) == 20
    assert len(result.junit()) == 20


def test_a_folder_of_its_own_for_each_worker(suite: Suite) -> None:
    """Workers in another directory still find the run and the data."""
    suite.tasks(task("a"), task("b"))
    (suite.path / "elsewhere").mkdir()
    result = suite.run(*RUN, "-d", "--tx", "2*popen//chdir=elsewhere")
    assert result.ret == 0, result.out + result.err
    assert len(result.records()) == 2


def test_own_tests_and_requests_share_the_workers(suite: Suite) -> None:
    """Plain tests beside a request are run by the same workers, and counted apart."""
    suite.tasks(task("a"), task("b"))
    suite.write("test_mine.py", "import pytest\n@pytest.mark.parametrize('n', range(4))\ndef test_it(n): pass\n")
    result = suite.run(*RUN, "test_mine.py", "-n2")
    assert result.ret == 0, result.out
    assert result.counts == {"passed": 6}
    assert result.request_summary()["report"]["attempts"]["planned"] == 2


def test_exit_first_with_workers(suite: Suite) -> None:
    """-x with workers ends the run non-zero, with reports and nothing of ours left."""
    suite.tasks(task("bad", verify="false"), *(task(f"t{n}", verify="sleep 1") for n in range(8)))
    result = suite.run(*RUN, "-n2", "-x")
    assert result.ret in (1, 2), result.out
    report = result.request_summary()["report"]["attempts"]
    assert report["planned"] == 9
    assert report["failed"] == 1
    assert report["missing"] >= 1
    assert suite.sandboxes() == []
    result.check_clean()


def test_events_tell_the_same_whoever_drives(suite: Suite) -> None:
    """A machine that reads the events sees the same kinds, as often, in every mode."""
    suite.tasks(task("a"), task("b", verify="false"))
    seen = []
    for mode in ([], ["-n2"], ["concurrency=2"]):
        rows = suite.run(*RUN, *mode).events()
        seen.append(sorted((row["kind"], str(row.get("task")), str(row.get("phase"))) for row in rows))
    assert seen[0] == seen[1] == seen[2]


ODD = """
import os, pathlib, warnings
import pytest

RAW = b"it said \\xff\\xfe".decode("utf-8", "surrogateescape")

def test_message(): raise AssertionError(RAW)
def test_skip(): pytest.skip(RAW)
def test_good(): pass

def test_warning(): warnings.warn(f"{RAW} with a key: {os.environ['MY_API_KEY']}")

def test_section(request, record_property):
    record_property("where", pathlib.Path("/x"))
    request.node.add_report_section("call", RAW, RAW)
"""


@pytest.mark.parametrize("mode", [["-n0"], ["-n1"], ["-n4"], ["concurrency=2"]], ids=" ".join)
def test_bytes_that_are_no_text_lose_no_outcome(suite: Suite, mode: list[str]) -> None:
    """What agents, verifiers and tests print is made valid before it leaves a worker: the same outcomes everywhere."""
    bad = "printf 'v \\377\\376'; printf '\\355\\240\\200' >&2; exit 1"
    suite.tasks(task("a"), task("b", verify=bad), task("c"))
    suite.requests({"harness": {"id": "command", "params": {"command": "printf '\\377\\376'"}}, "name": "r"})
    suite.write("test_odd.py", ODD)
    words = ("--agentcompass", "s.agentcompass.yaml", "test_odd.py", "-W", "default::UserWarning")
    result = suite.run(*words, *mode, MY_API_KEY="key-4711-abcdefgh")
    result.check_clean()
    assert result.ret == 1
    assert {**result.counts, "warning": 0} == {"passed": 5, "failed": 2, "skipped": 1, "warning": 0}, result.out
    assert result.verdicts() == {"a::1": True, "b::1": False, "c::1": True}
    assert "UserWarning: it said \\udcff\\udcfe with a key" in result.out
    assert "key-4711-abcdefgh" not in result.out
