"""Limits, budget, deadline and circuit breaker in whole runs: serial, concurrent and with workers alike."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from .helpers import TASKS, Suite, task

MODES = pytest.mark.parametrize("mode", [[], ["concurrency=2"], ["-n2"]], ids=["serial", "engine", "n2"])
PROVIDER = """
from pathlib import Path
from pytest_agentcompass.environments.host_process import HostProcessEnvironment
from pytest_agentcompass.errors import ModelUnavailable, SandboxError
from pytest_agentcompass.harnesses.scripted import ScriptedHarness

GONE = Path(__file__).parent / "gone"

class Engine(HostProcessEnvironment):
    id = "engine"
    async def preflight(self, req):
        return "the engine does not answer" if GONE.exists() else None
    async def open(self, req, plan):
        if GONE.exists():
            raise SandboxError("cannot connect to the engine")
        return await super().open(req, plan)

class Refused(ScriptedHarness):
    id = "refused"
    async def run_task(self, session, prepared, req, plan):
        raise ModelUnavailable("401: wrong key", kind="authentication")

def pytest_agentcompass_register(registry):
    registry.add("environment", Engine)
    registry.add("harness", Refused)
"""


def counted(log: Path) -> int:
    """Return how many + stood against - at once in a log of both."""
    level = most = 0
    for sign in log.read_text().split():
        level += 1 if sign == "+" else -1
        most = max(most, level)
    return most


# -- limits -------------------------------------------------------------------------------------


def logged(log: Path, seconds: float = 0.15) -> str:
    """Return scripted steps that note when they begin and end."""
    return json.dumps([{"run": f"echo + >> {log}; sleep {seconds}; echo - >> {log}"}])


def test_provider_limit_holds_over_two_runs_with_workers(suite: Suite, tmp_path: Path) -> None:
    """Two separate runs of the same user, each with workers, keep a provider's limit together."""
    suite.tasks(*(task(f"t{number}") for number in range(6)))
    shared = tmp_path / "shared"
    shared.mkdir()
    log = suite.path / "log"
    words = ("harness=scripted", f"harness.steps={logged(log)}", "runtime.provider_limits={host_process: 2}", "-n2")
    runs = [suite.start(*TASKS, *words, XDG_RUNTIME_DIR=str(shared)) for _ in range(2)]
    results = [run.end() for run in runs]
    assert [result.counts for result in results] == [{"passed": 6}] * 2, results[0].out
    assert counted(log) == 2


def test_permits_of_a_killed_run_come_free(suite: Suite, tmp_path: Path) -> None:
    """SIGKILL to the whole process group of a run leaves no permit behind: the next run starts at once."""
    suite.tasks(task("a"))
    shared = tmp_path / "shared"
    shared.mkdir()
    began = suite.path / "began"
    steps = json.dumps([{"run": f"touch {began}; sleep 300"}])
    words = ("harness=scripted", "runtime.provider_limits={host_process: 1}")
    run = suite.start(*TASKS, *words, f"harness.steps={steps}", "-n1", XDG_RUNTIME_DIR=str(shared))
    run.wait_for(began.exists)
    run.signal(signal.SIGKILL, group=True)
    run.end()
    result = suite.run(*TASKS, *words, "harness.steps=[]", XDG_RUNTIME_DIR=str(shared))
    assert result.counts == {"passed": 1}, result.out


def test_limit_waits_are_events_and_not_the_attempt_s_time(suite: Suite, tmp_path: Path) -> None:
    """Waiting for a permit shows in the events with its limit, and is kept apart from the attempt's own phases."""
    suite.tasks(*(task(f"t{number}") for number in range(3)))
    log = suite.path / "log"
    words = ("harness=scripted", f"harness.steps={logged(log, 0.3)}", "concurrency=3")
    result = suite.run(*TASKS, *words, "runtime.provider_limits={host_process: 1}", XDG_RUNTIME_DIR=str(tmp_path))
    assert result.counts == {"passed": 3}, result.out
    assert counted(log) == 1
    waits = [event for event in result.events("phase_changed") if event.get("phase") == "limit_wait"]
    assert {event["payload"]["limit"] for event in waits} == {"provider host_process"}
    assert len(waits) == 2
    records = result.records().values()
    assert sum("limit_wait_seconds" in record["telemetry"] for record in records) == 2
    assert all("limit_wait" not in record["durations"] for record in records)


def test_a_sandbox_of_the_user_s_own_takes_permits_too(suite: Suite, tmp_path: Path) -> None:
    """Where a conftest.py overrides the sandbox fixture, limits hold all the same."""
    suite.tasks(*(task(f"t{number}") for number in range(4)))
    log = suite.path / "log"
    suite.write(
        "conftest.py",
        f"""
import time
import pytest

@pytest.fixture
def environment_session(execution_plan):
    with open({str(log)!r}, "a") as file:
        file.write("+\\n")
    time.sleep(0.1)
    yield None
    with open({str(log)!r}, "a") as file:
        file.write("-\\n")
""",
    )
    words = ("harness=nop", "runtime.provider_limits={host_process: 1}", "-n3")
    suite.run(*TASKS, *words, XDG_RUNTIME_DIR=str(tmp_path))
    assert log.read_text().count("+") == 4
    assert counted(log) == 1


def test_a_retry_waits_without_its_slot(suite: Suite) -> None:
    """With one slot, another attempt is made while the first one waits for its retry."""
    suite.tasks(task("flaky"), task("steady"))
    steps = {"flaky": [{"fail": "environment_error", "fail_times": 1}]}
    suite.requests(
        {
            "name": "r",
            "harness": {"id": "scripted", "params": {"tasks": steps}},
            "execution": {
                "max_retries": 1,
                "retry_min_delay_seconds": 30,
                "retry_max_delay_seconds": 30,
                "retry_pattern_list": ["."],
            },
        }
    )
    suite.write("conftest.py", "import random\nrandom.uniform = lambda low, high: 1.5 if high == 30 else low\n")
    result = suite.run("--agentcompass", "s.agentcompass.yaml", "concurrency=2")
    assert result.counts == {"passed": 2}, result.out
    finished = [event["task"] for event in result.events("attempt_finished")]
    assert finished == ["steady", "flaky"]


# -- budget and deadline ------------------------------------------------------------------------

SPENDS = json.dumps([{"sleep": 0.1, "usage": {"cost_usd": 0.4, "input_tokens": 30, "output_tokens": 10}}])


@MODES
@pytest.mark.parametrize("budget", ["budget.usd=1", "budget.tokens=100"])
def test_a_spent_budget_skips_the_rest(suite: Suite, mode: list[str], budget: str) -> None:
    """When money or tokens are spent nothing new starts: the rest is skipped, not failed, and the report says so."""
    suite.tasks(*(task(f"t{number}") for number in range(10)))
    result = suite.run(*TASKS, "harness=scripted", f"harness.steps={SPENDS}", budget, *mode)
    counts = result.counts
    assert result.ret == 0, result.out
    assert counts["passed"] in (3, 4)  # one more may be under way
    assert counts["passed"] + counts["skipped"] == 10
    assert list(result.modes().values()).count("budget_spent") == counts["skipped"]
    assert f"{counts['skipped']} attempts were skipped, not failed (budget_spent)" in result.out
    assert budget.partition("=")[0] in result.out
    assert "a resumed run goes on counting from there: give it a larger budget" in result.out


def test_a_resume_goes_on_when_the_budget_allows(suite: Suite) -> None:
    """What was skipped is made by a resume with a larger budget; earlier spending counts in it."""
    suite.tasks(*(task(f"t{number}") for number in range(5)))
    words = (*TASKS, "harness=scripted", f"harness.steps={SPENDS}")
    assert suite.run(*words, "budget.usd=1").counts == {"passed": 3, "skipped": 2}
    assert suite.run(*words, "budget.usd=1.5", "--agentcompass-resume=last").counts == {"passed": 4, "skipped": 1}
    assert suite.run(*words, "--agentcompass-resume=last").counts == {"passed": 5}


def test_discarded_tries_cost_too(suite: Suite) -> None:
    """A try that is thrown away for a retry was paid for all the same."""
    suite.tasks(task("a"), task("b"), task("c"))
    steps = [{"usage": {"cost_usd": 1}}, {"fail": "environment_error", "fail_times": 1}]
    words = ("harness=scripted", f"harness.tasks={json.dumps({'a': steps})}", "retries=1")
    delays = ("execution.retry_min_delay_seconds=0", "execution.retry_max_delay_seconds=0", "budget.usd=2")
    result = suite.run(*TASKS, *words, *delays)
    assert result.counts == {"passed": 1, "skipped": 2, "rerun": 1}, result.out
    assert len(result.records()["a::1"]["retries"]) == 1


@MODES
def test_the_deadline_cancels_what_runs_and_skips_the_rest(suite: Suite, mode: list[str]) -> None:
    """At the deadline running attempts are cancelled with that reason, the rest is skipped, and the run ends."""
    suite.tasks(*(task(f"t{number}") for number in range(5)))
    steps = json.dumps([{"sleep": 120}])
    result = suite.run(*TASKS, "harness=scripted", f"harness.steps={steps}", "deadline=2", *mode)
    modes = list(result.modes().values())
    assert result.ret == 1, result.out
    assert set(modes) == {"cancelled", "deadline"}
    assert modes.count("cancelled") == (2 if mode else 1)
    cut = next(record for record in result.records().values() if record["failure_mode"] == "cancelled")
    assert "the run's deadline of 2 s is over" in cut["issues"][-1]["message"]
    result.check_clean()


def test_wall_budget_lets_running_attempts_end(suite: Suite) -> None:
    """`budget.wall_seconds` keeps new attempts from starting; what runs goes on to its end."""
    suite.tasks(task("a"), task("b"))
    steps = json.dumps([{"sleep": 1.5}])
    result = suite.run(*TASKS, "harness=scripted", f"harness.steps={steps}", "budget.wall_seconds=1")
    assert result.modes() == {"a::1": "none", "b::1": "budget_spent"}


def test_a_suite_s_own_budget_counts(suite: Suite) -> None:
    """A budget in the `runtime` section of a suite file holds for the run; a request cannot have one."""
    suite.tasks(*(task(f"t{number}") for number in range(4)))
    harness = {"id": "scripted", "params": {"steps": json.loads(SPENDS)}}
    suite.requests({"name": "r", "harness": harness}, runtime={"budget": {"usd": 0.5}})
    assert suite.run("--agentcompass", "s.agentcompass.yaml").counts == {"passed": 2, "skipped": 2}
    suite.requests({"name": "r", "budget.usd": 1})
    assert "set 'runtime.budget.usd' at the top of the suite" in suite.run("--agentcompass", "s.agentcompass.yaml").out


# -- circuit breaker ----------------------------------------------------------------------------


@MODES
def test_an_engine_that_goes_away_stops_the_run(suite: Suite, mode: list[str]) -> None:
    """At most two attempts (and what was under way) are errors; the rest is pending, and a resume makes it."""
    suite.tasks(*(task(f"t{number}") for number in range(20)))
    suite.write("conftest.py", PROVIDER)
    gone = suite.path / "gone"
    steps = {"t3": [{"run": f"touch {gone}"}]}
    words = (*TASKS, "environment=engine", "harness=scripted", f"harness.tasks={json.dumps(steps)}")
    result = suite.run(*words, *mode)
    assert result.ret == 2, result.out
    assert "environment 'engine' seems to be gone" in result.out
    assert "STOPPED" in result.out
    errors = list(result.modes().values()).count("environment_error")
    assert 2 <= errors <= (2 + 2 if mode else 2)  # one before the last success, one under way when the second ends
    assert len(result.records()) <= 5 + errors
    gone.unlink()
    (suite.path / "conftest.py").write_text(PROVIDER)
    again = suite.run(*words, *mode, "harness.tasks={}", "--agentcompass-resume=last", "--agentcompass-resume-anyway")
    assert (again.ret, again.counts) == (0, {"passed": 20}), again.out


@MODES
def test_a_refused_key_stops_the_run_at_once(suite: Suite, mode: list[str]) -> None:
    """The first attempt that meets a refused key is the last that starts, retries or not."""
    suite.tasks(*(task(f"t{number}") for number in range(10)))
    suite.write("conftest.py", PROVIDER)
    result = suite.run(*TASKS, "environment=engine", "harness=refused", "retries=5", *mode)
    assert result.ret == 2, result.out
    assert "refuses: authentication" in result.out
    assert len(result.records()) <= (2 if mode else 1)
    assert all(record["retries"] == [] for record in result.records().values())
