"""`concurrency=N`: several attempts at once in one process, with the outcomes of a serial run."""

from __future__ import annotations

import json
from datetime import datetime

import pytest

from .helpers import TASKS, Result, Suite, task

STEPS = {
    "ok": [{"run": "touch done"}],
    "no": [{"output": "x"}],
    "gone": [{"fail": "environment_error"}],
    "late": [{"run": "touch done"}, {"fail": "agent_timeout"}],
}
SCRIPTED = (*TASKS, "harness=scripted", f"harness.tasks={json.dumps(STEPS)}", "attempts=2")


def _shape(result: Result) -> tuple[int, dict[str, int], dict[str, object], dict[str, str]]:
    return result.ret, result.counts, dict(result.verdicts()), result.modes()


def test_the_same_outcomes_as_a_serial_run(suite: Suite) -> None:
    """Outcomes, records, failure modes, JUnit and exit status do not depend on the number of slots."""
    suite.tasks(*(task(name, verify="test -f done") for name in STEPS))
    suite.write("test_mine.py", "def test_good(): pass\ndef test_bad(): assert 0\n")
    serial, engine, many = (suite.run(*SCRIPTED, "test_mine.py", f"concurrency={n}", "-v") for n in (1, 3, 0))
    assert _shape(serial) == _shape(engine) == _shape(many)
    assert serial.ret == 1
    for result in (engine, many):
        assert len(result.junit()) == 8
        result.check_clean()


def _overlap(result: Result) -> int:
    """Return how many attempts were under way at once, at most."""
    times = []
    for record in result.records().values():
        start, end = (datetime.fromisoformat(record[name]).timestamp() for name in ("started_at", "finished_at"))
        times += [(start, 1), (end, -1)]
    running = highest = 0
    for _, step in sorted(times):
        running += step
        highest = max(highest, running)
    return highest


@pytest.mark.parametrize(("slots", "expected"), [(1, 1), (3, 3)])
def test_no_more_attempts_than_slots(suite: Suite, slots: int, expected: int) -> None:
    """Exactly N attempts are under way when there is enough to do, and never more."""
    suite.tasks(*(task(f"t{n}", verify="sleep 0.4") for n in range(6)))
    result = suite.run(*TASKS, "harness=nop", f"concurrency={slots}")
    assert result.ret == 0
    assert _overlap(result) == expected
    assert ("at once in this process" in result.out) == (slots > 1)


def test_each_attempt_is_reported_when_it_ends(suite: Suite) -> None:
    """A long attempt does not hold up the report of short ones behind it."""
    suite.tasks(task("long", verify="sleep 2"), *(task(f"t{n}") for n in range(3)))
    result = suite.run(*TASKS, "harness=nop", "concurrency=2", "-v")
    assert [event["task"] for event in result.events("attempt_finished")][-1] == "long"
    lines = [line.split()[0] for line in result.out.splitlines() if "PASSED" in line]
    assert lines[-1].endswith("long::attempt1")


def test_strategy_pass_makes_no_attempt_too_many(suite: Suite) -> None:
    """Under strategy pass attempts of one task never run side by side, whatever the number of slots."""
    suite.tasks(task("a", verify=f"echo x >> {suite.path}/ran; sleep 0.3"))
    result = suite.run(*TASKS, "harness=nop", "attempts=4", "strategy=pass", "concurrency=4")
    assert result.counts == {"passed": 1, "skipped": 3}
    assert (suite.path / "ran").read_text().split() == ["x"]


def test_output_and_logs_of_attempts_stay_with_them(suite: Suite) -> None:
    """B11: what runs in the background prints nothing raw between the dots; warnings raise nothing in attempts."""
    suite.tasks(task("a"), task("b", verify="false"))
    suite.write(
        "conftest.py",
        "import sys, warnings, logging\n"
        "from pytest_agentcompass import BaseHarness, RunResult\n"
        "class Loud(BaseHarness):\n    id = 'loud'\n"
        "    def run_task(self, session, prepared, req, plan):\n"
        "        print('raw print of', prepared.task_id)\n"
        "        print('raw error of', prepared.task_id, file=sys.stderr)\n"
        "        logging.getLogger('x').warning('log of %s', prepared.task_id)\n"
        "        return RunResult(prepared.task_id)\n"
        "def pytest_agentcompass_register(registry):\n    registry.add('harness', Loud)\n",
    )
    result = suite.run(*TASKS, "harness=loud", "concurrency=2")
    assert result.counts == {"passed": 1, "failed": 1}, result.out
    before = result.out.partition("FAILURES")[0]
    assert "raw print" not in before + result.err
    assert "raw error" not in before + result.err
    assert "log of a" not in result.out


def test_class_nodes_are_torn_down_in_order(suite: Suite) -> None:
    """B5: whatever order attempts end in, no set-up state is left behind, for several requests too."""
    suite.tasks(*(task(f"t{n}", verify=f"sleep 0.{9 - n}") for n in range(5)))
    suite.requests({"name": "one"}, {"name": "two"}, {"name": "three"}, defaults={"attempts": 2})
    suite.write(
        "conftest.py",
        "import pytest\n@pytest.fixture(scope='session', autouse=True)\ndef whole():\n"
        "    print('up')\n    yield\n    print('down')\n",
    )
    suite.write("pytest.ini", "[pytest]\nagentcompass_harmless_fixtures = whole\n")
    result = suite.run("--agentcompass", "s.agentcompass.yaml", "concurrency=8", "-s")
    assert result.ret == 0, result.out
    assert result.counts == {"passed": 30}
    assert (result.out.count("up\n"), result.out.count("down\n")) == (1, 1)
    result.check_clean()


def test_hooks_are_called_for_every_attempt(suite: Suite) -> None:
    """The hooks of attempts and requests are called alike by both drivers."""
    suite.tasks(task("a"), task("b"))
    suite.write(
        "conftest.py",
        "def note(*words):\n    with open('log', 'a') as file:\n        print(*words, file=file)\n"
        "def pytest_agentcompass_attempt_started(request, task_id, attempt):\n    note('start', task_id)\n"
        "def pytest_agentcompass_attempt_finished(record):\n    note('end', record.task_id, record.passed)\n"
        "def pytest_agentcompass_request_finalized(request, report):\n    note('request', request, report['status'])\n"
        "def pytest_agentcompass_summary(reports):\n    return [f'mine: {len(reports)}']\n",
    )
    seen = []
    for words in ([], ["concurrency=2"], ["-n2"]):
        (suite.path / "log").unlink(missing_ok=True)
        result = suite.run(*TASKS, "harness=nop", *words)
        assert "mine: 1" in result.out
        seen.append(sorted((suite.path / "log").read_text().splitlines()))
    assert seen[0] == seen[1] == seen[2]
    assert len(seen[0]) == 5
