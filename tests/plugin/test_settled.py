"""What is reported of attempts that were finished before: the same, whoever listens."""

from __future__ import annotations

import shutil
import xml.etree.ElementTree as ElementTree

import pytest

from .helpers import TASKS, Suite, task

MIXED = [task("good"), task("bad", "false"), task("fine")]
LISTENER = """
phases = []

def pytest_runtest_logreport(report):
    phases.append((report.nodeid.split("::")[-2], report.when, report.outcome))

def pytest_sessionfinish(session):
    (session.config.rootpath / "phases.txt").write_text("\\n".join(" ".join(phase) for phase in phases))
"""
REQUEST_FIXTURE = """
import pytest

@pytest.fixture(scope="module", autouse=True)
def thing():
    print("opened")
    yield
    print("closed")
"""
STRICT = """
import pytest

def pytest_collection_modifyitems(items):
    for item in items:
        if "good" in item.nodeid:
            item.add_marker(pytest.mark.xfail(strict=True))
"""


@pytest.mark.parametrize("words", [(), ("concurrency=2",), ("-n2",)])
def test_a_resumed_run_counts_what_stands(suite: Suite, words: tuple[str, ...]) -> None:
    """Every attempt that stands has its outcome, none is lost, and the summary is that of the first run."""
    suite.tasks(*MIXED)
    first = suite.run(*TASKS, "harness=nop", "--agentcompass-run-id=r")
    again = suite.run(*TASKS, "harness=nop", "--agentcompass-resume=r", *words)
    assert again.counts == first.counts == {"passed": 2, "failed": 1}
    assert again.ret == first.ret == 1
    assert "LOST" not in again.out
    assert again.summary()["totals"]["passed"] == 2


@pytest.mark.parametrize("words", [(), ("concurrency=2",)])
def test_a_listener_sees_all_phases(suite: Suite, words: tuple[str, ...]) -> None:
    """A conftest.py that looks at reports gets set-up, call and teardown of each attempt, settled or not."""
    suite.tasks(*MIXED)
    suite.write("conftest.py", LISTENER)
    suite.run(*TASKS, "harness=nop", "--agentcompass-run-id=r")
    suite.run(*TASKS, "harness=nop", "--agentcompass-resume=r", *words)
    phases = (suite.path / "phases.txt").read_text().splitlines()
    good = [line.split()[1:] for line in phases if line.startswith("good ")]
    assert good == [["setup", "passed"], ["call", "passed"], ["teardown", "passed"]]


def test_junit_of_pytest_has_the_properties(suite: Suite) -> None:
    """pytest's own JUnit file, which is completed at the teardown, is whole."""
    suite.tasks(*MIXED)
    suite.run(*TASKS, "harness=nop", "--agentcompass-run-id=r")
    suite.run(*TASKS, "harness=nop", "--agentcompass-resume=r", "--junitxml=own.xml")
    root = ElementTree.parse(suite.path / "own.xml").getroot()
    cases = root.findall(".//testcase")
    assert len(cases) == 3
    assert all(case.find(".//property[@name='agentcompass_outcome']") is not None for case in cases)


def test_neighbours_that_run_are_torn_down(suite: Suite) -> None:
    """An attempt made again leaves its request's fixtures to a settled one, which ends them for what follows."""
    suite.tasks(task("good"), task("other"))
    suite.write("conftest.py", REQUEST_FIXTURE)
    suite.write("test_own.py", "def test_a(): pass\n")
    words = (*TASKS, "harness=nop", "attempts=2", "test_own.py", "-s")
    first = suite.run(*words, "--agentcompass-run-id=r")
    assert first.counts == {"passed": 5}
    shutil.rmtree(first.run_dir / "attempts/tasks/good/1")
    result = suite.run(*words, "--agentcompass-resume=r")
    assert result.counts == {"passed": 5}
    assert result.out.count("opened") == result.out.count("closed") == 2  # of the request, and of test_own.py


def test_a_broken_teardown_is_an_error_of_its_own(suite: Suite) -> None:
    """What a settled attempt has to end for its neighbour may fail: pytest says so, and goes on."""
    suite.tasks(task("good"), task("other"))
    suite.write("conftest.py", REQUEST_FIXTURE + "    raise OSError('broken end')\n")
    suite.write("test_own.py", "def test_a(): pass\n")
    first = suite.run(*TASKS, "harness=nop", "attempts=2", "--agentcompass-run-id=r")
    shutil.rmtree(first.run_dir / "attempts/tasks/good/1")
    result = suite.run(*TASKS, "harness=nop", "attempts=2", "test_own.py", "--agentcompass-resume=r")
    assert result.counts == {"passed": 5, "error": 2}
    assert "broken end" in result.out
    assert "INTERNALERROR" not in result.out


def test_strict_marks_keep_their_say(suite: Suite) -> None:
    """A settled attempt that passed although it was expected to fail is still a failure under a strict xfail."""
    suite.tasks(*MIXED)
    suite.write(
        "conftest.py",
        STRICT,
    )
    first = suite.run(*TASKS, "harness=nop", "--agentcompass-run-id=r")
    again = suite.run(*TASKS, "harness=nop", "--agentcompass-resume=r")
    assert first.counts == again.counts == {"passed": 1, "failed": 2}
