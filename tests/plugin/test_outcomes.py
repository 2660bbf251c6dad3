"""What an attempt's end looks like: outcome, text, exit status; and stopping early."""

from __future__ import annotations

import json

import pytest

from .helpers import TASKS, Suite, task

WORKERS = pytest.mark.parametrize("workers", [[], ["-n2"], ["concurrency=3"]], ids=["serial", "n2", "engine"])
STEPS = {
    "solved": [{"run": "touch done"}],
    "unsolved": [{"output": "I tried"}],
    "gone": [{"fail": "environment_error", "message": "the sandbox went away"}],
    "adapter": [{"fail": "exception", "message": "a fault of the adapter"}],
    "model": [{"fail": "model_unavailable", "message": "quota is used up"}],
    "context": [{"fail": "context_length", "message": "too long"}],
    "late-but-solved": [{"run": "touch done"}, {"fail": "agent_timeout", "message": "out of time"}],
}
SCRIPTED = (*TASKS, "harness=scripted", f"harness.tasks={json.dumps(STEPS)}")


@pytest.fixture
def ends(suite: Suite) -> Suite:
    """A suite with one task for each way to end; with the oracle one more has no solution."""
    suite.tasks(*(task(name, verify="test -f done") for name in STEPS))
    return suite


@WORKERS
def test_outcomes(ends: Suite, workers: list[str]) -> None:
    """The agent's failures are graded (passed or failed), the infrastructure's are errors, in every driver alike."""
    result = ends.run(*SCRIPTED, *workers, "-v")
    assert result.ret == 1
    assert result.counts == {"passed": 2, "failed": 2, "error": 3}, result.out
    assert result.verdicts() == {
        "solved::1": True,
        "unsolved::1": False,
        "gone::1": None,
        "adapter::1": None,
        "model::1": None,
        "context::1": False,
        "late-but-solved::1": True,
    }
    assert result.modes() == {
        "solved::1": "none",
        "unsolved::1": "none",
        "gone::1": "environment_error",
        "adapter::1": "harness_error",
        "model::1": "model_unavailable",
        "context::1": "context_length",
        "late-but-solved::1": "agent_timeout",
    }
    report = result.request_summary()["report"]["attempts"]
    assert (report["passed"], report["failed"], report["errors"], report["missing"]) == (2, 2, 3, 0)
    ours = {case.get("classname", "").rpartition(".")[2]: {child.tag for child in case} for case in result.junit()}
    assert {name for name, tags in ours.items() if "error" in tags} == {"gone", "adapter", "model"}
    assert {name for name, tags in ours.items() if "failure" in tags} == {"unsolved", "context"}


@WORKERS
def test_the_text_of_a_failure(ends: Suite, workers: list[str]) -> None:
    """What a person reads: the reason, the last output, where the record is; never a traceback of ours."""
    result = ends.run(*SCRIPTED, *workers, "--junitxml=own.xml")
    for text in ("the sandbox went away", "a fault of the adapter", "quota is used up", "too long", "I tried"):
        assert text in result.out
    for name in ("unsolved", "gone"):
        assert str(result.run_dir / f"attempts/tasks/{name}/1/record.json") in result.out
    assert "pytest_agentcompass/" not in result.out.replace(str(ends.path), "")
    result.check_clean()
    theirs = {case.get("name"): case for case in result.junit(ends.path / "own.xml")}
    assert len(theirs) == 1 or len(result.junit(ends.path / "own.xml")) == len(STEPS)


@pytest.mark.parametrize("engine", [[], ["concurrency=2"]], ids=["serial", "engine"])
def test_exit_first(suite: Suite, engine: list[str]) -> None:
    """-x and --maxfail stop: what runs is ended, nothing new starts, the rest is missing, reports exist, exit 1."""
    tasks = [task("t0", verify="false"), *(task(f"t{n}", verify="sleep 60") for n in range(1, 6))]
    suite.tasks(*(tasks if engine else [task("first"), *tasks]))
    for option in ("-x", "--maxfail=1"):
        result = suite.run(*TASKS, "harness=nop", *engine, option)
        assert result.ret == 1, result.out
        assert result.counts.get("failed") == 1
        report = result.request_summary()["report"]
        assert report["attempts"]["planned"] == (6 if engine else 7)
        assert report["attempts"]["failed"] == 1
        assert len(result.records()) <= (3 if engine else 2)  # the failed one's slot was free for a moment
        assert "stopping after 1 failures" in result.out
        assert "resume" in result.out
        result.check_clean()


@pytest.mark.parametrize("engine", [[], ["-n2"], ["concurrency=2"]], ids=["serial", "n2", "engine"])
def test_markers_that_skip(suite: Suite, engine: list[str]) -> None:
    """B6: skip, skipif and xfail put on attempts by a conftest.py do what they say, with no internal error."""
    suite.tasks(task("a"), task("b"), task("c", verify="false"), task("d"), task("e"))
    suite.write(
        "conftest.py",
        "import pytest\n"
        "MARKS = {'e': pytest.mark.xfail(run=False, reason='no e'),\n"
        "         'a': pytest.mark.skip(reason='no a'), 'b': pytest.mark.skipif('True', reason='no b'),\n"
        "         'c': pytest.mark.xfail(reason='known')}\n"
        "def pytest_collection_modifyitems(items):\n"
        "    for item in items:\n"
        "        if item.task.task_id in MARKS:\n"
        "            item.add_marker(MARKS[item.task.task_id])\n",
    )
    result = suite.run(*TASKS, "harness=nop", *engine, "-rA")
    assert result.ret == 0, result.out
    assert result.counts == {"passed": 1, "skipped": 2, "xfailed": 2}
    for text in ("no a", "no b", "known", "no e"):
        assert text in result.out
    assert result.modes()["e::1"] == "skip_requested"
    result.check_clean()


@pytest.mark.parametrize("engine", [[], ["-n2"], ["concurrency=2"]], ids=["serial", "n2", "engine"])
def test_hooks_before_an_attempt(suite: Suite, engine: list[str]) -> None:
    """What a conftest.py's pytest_runtest_setup skips or refuses is not made, however attempts are driven."""
    suite.tasks(task("a"), task("b"), task("c"))
    suite.write(
        "conftest.py",
        "import pytest\n"
        "def pytest_runtest_setup(item):\n"
        "    if item.task.task_id == 'a':\n"
        "        pytest.skip('not here')\n"
        "    if item.task.task_id == 'b':\n"
        "        raise ValueError('no machine for b')\n",
    )
    result = suite.run(*TASKS, "harness=nop", *engine, "-rA")
    assert result.ret == 1
    assert result.counts == {"passed": 1, "skipped": 1, "error": 1}
    assert result.modes() == {"a::1": "skip_requested", "b::1": "setup_error", "c::1": "none"}
    assert "no machine for b" in result.out
    result.check_clean()


@pytest.mark.parametrize("engine", [[], ["-n2"], ["concurrency=2"]], ids=["serial", "n2", "engine"])
def test_hooks_behind_an_attempt(suite: Suite, engine: list[str]) -> None:
    """A hook of the user's that fails once the record is stored is an error that says so; the record stands."""
    suite.tasks(task("a"), task("b"))
    suite.write(
        "conftest.py",
        "import pytest\n"
        "@pytest.hookimpl(wrapper=True)\n"
        "def pytest_runtest_call(item):\n"
        "    yield\n"
        "    if item.task.task_id == 'a':\n"
        "        raise ValueError('a is odd')\n",
    )
    for words in ([*TASKS, "harness=nop", "--agentcompass-run-id=r"], ["--agentcompass", "--agentcompass-resume=r"]):
        result = suite.run(*words, *engine)
        assert result.ret == 1
        assert result.counts == {"passed": 1, "error": 1}
        assert "ValueError: a is odd" in result.out
        assert "a hook failed in call; the attempt passed, its record stands: " in result.out
        assert result.modes() == {"a::1": "none", "b::1": "none"}
        result.check_clean()


def test_an_item_that_is_listed_twice(suite: Suite) -> None:
    """An item that a plugin lists twice is reported twice without an error of ours; the run is red and names it."""
    suite.tasks(task("a"), task("b"))
    suite.write("conftest.py", "def pytest_collection_modifyitems(items):\n    items.extend(items[:])\n")
    result = suite.run(*TASKS, "harness=nop")
    assert result.ret == 1
    assert "DUPLICATE: agentcompass::tasks::a::attempt1" in result.out
    assert result.counts == {"passed": 4}


def test_no_solution_is_a_skip(suite: Suite) -> None:
    """The oracle skips a task without a solution and says so; a run of skips alone is not green by a score."""
    suite.tasks(task("a", solution="true"), task("b"))
    for workers in ([], ["concurrency=2"], ["-n2"]):
        result = suite.run(*TASKS, "harness=oracle", *workers, "-rs")
        assert result.ret == 0
        assert result.counts == {"passed": 1, "skipped": 1}
        assert result.modes() == {"a::1": "none", "b::1": "no_solution"}
        assert "solution" in result.out


def test_strategy_pass_stops_a_task_at_its_first_success(suite: Suite) -> None:
    """Under strategy pass the attempts after a success are skipped, with the reason."""
    suite.tasks(task("a"), task("b", verify="false"))
    for engine in ([], ["concurrency=4"]):
        result = suite.run(*TASKS, "harness=nop", "attempts=3", "strategy=pass", *engine, "-rs")
        assert result.counts == {"passed": 1, "skipped": 2, "failed": 3}
        assert result.modes()["a::2"] == "strategy_satisfied"
        assert "an earlier attempt of the task passed" in result.out


WILD = "ctl \\000\\001\\010\\013\\033[31m del \\177 c1 \\302\\205 ffff \\357\\277\\277 amp <&>]]> \\377\\376\\n"


@pytest.mark.parametrize("workers", [["-n0"], ["-n1"], ["-n2"], ["concurrency=2"]], ids=lambda words: words[0])
def test_binary_output_loses_no_outcome(suite: Suite, workers: list[str]) -> None:
    """B4: agent and verifier may print any bytes: the counts and the status are those of every mode; all XML parses."""
    suite.tasks(
        task("bad", verify=f"printf '{WILD}'; exit 1"), *(task(f"t{n}", verify=f"printf '{WILD}'") for n in range(3))
    )
    result = suite.run(*TASKS, "harness=command", f"harness.command=printf '{WILD}'", *workers, "--junitxml=own.xml")
    assert result.ret == 1, result.out
    assert result.counts == {"passed": 3, "failed": 1}
    assert len(result.junit()) == len(result.junit(suite.path / "own.xml")) == 4
    text = "".join(result.junit()[0].itertext())
    assert "amp <&>]]>" in text
    result.check_clean()


def test_unusual_properties_lose_no_outcome(suite: Suite) -> None:
    """B4: whatever a user's code puts on our reports reaches the controller as plain data."""
    suite.tasks(*(task(f"t{n}", solution="true") for n in range(6)), task("skipped"))
    suite.write(
        "conftest.py",
        "import datetime, enum, pathlib, pytest\n"
        "class Name(str): pass\n"
        "class Kind(str, enum.Enum):\n    A = 'a'\n"
        "@pytest.fixture(autouse=True)\ndef odd(record_property):\n"
        "    for n, value in enumerate([pathlib.Path('x'), datetime.datetime.now(), Name('x'), Kind.A,\n"
        "                               'lone \\udcff', {1: {2}}, float('nan'), b'\\xff', object()]):\n"
        "        record_property(f'odd{n}', value)\n"
        "@pytest.hookimpl(tryfirst=True)\ndef pytest_runtest_logreport(report):\n"
        "    report.user_properties.append(('late', pathlib.Path('x')))\n",
    )
    for workers in ("-n1", "-n2"):
        result = suite.run(*TASKS, "harness=oracle", workers, "-rs")
        assert result.ret == 0, result.out
        assert result.counts == {"passed": 6, "skipped": 1}
        result.check_clean()


def test_a_prompt_end_of_file(suite: Suite) -> None:
    """Nothing waits for the keyboard: agent and verifier see an empty standard input."""
    suite.tasks(task("a", verify='read x; test $? = 1 && test -z "$(cat)"'))
    result = suite.run(*TASKS, "harness=command", "harness.command=cat; read x; test $? = 1")
    assert result.ret == 0, result.out
    assert result.modes() == {"a::1": "none"}


_RAISES = """
import asyncio
from pytest_agentcompass import BaseHarness, RunResult
KINDS = {
    "exit": SystemExit(0), "interrupt": KeyboardInterrupt(), "cancel": asyncio.CancelledError(),
    "base": BaseException("odd"), "value": ValueError("x"),
}
class Raising(BaseHarness):
    id = "raising"
    async def run_task(self, session, prepared, req, plan):
        phase, _, kind = prepared.task_id.partition("-")
        if phase == "close":
            old = session.close
            async def close():
                await old()
                raise KINDS[kind]
            session.close = close
        if phase == "run":
            raise KINDS[kind]
        return RunResult(prepared.task_id, category=prepared.category)
def pytest_agentcompass_register(registry):
    registry.add("harness", Raising)
"""


@WORKERS
def test_whatever_a_component_raises_costs_its_own_attempt_only(suite: Suite, workers: list[str]) -> None:
    """Not even SystemExit in the event loop, or a strange end of a close, reaches another attempt."""
    kinds = ("exit", "interrupt", "cancel", "base", "value")
    suite.tasks(*(task(f"{phase}-{kind}") for kind in kinds for phase in ("run", "close", "fine")))
    suite.write("conftest.py", _RAISES)
    result = suite.run(*TASKS, "harness=raising", *workers)
    assert result.ret == 1
    assert result.counts == {"passed": 10, "error": 5}, result.out
    assert {name for name, verdict in result.verdicts().items() if verdict is None} == {f"run-{k}::1" for k in kinds}
    assert "INTERNALERROR" not in result.out + result.err
    result.check_clean()


_STUCK = """
import asyncio
from pytest_agentcompass import BaseHarness, RunResult
class Stuck(BaseHarness):
    id = "stuck"
    async def run_task(self, session, prepared, req, plan):
        return RunResult()
    async def close_session(self, session):
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                pass
def pytest_agentcompass_register(registry):
    registry.add("harness", Stuck)
"""


def test_a_close_that_never_ends_is_left_with_a_warning(suite: Suite) -> None:
    """Closing has a limit too, and its failure does not hide the attempt's own result."""
    suite.tasks(task("a"))
    suite.write("conftest.py", _STUCK)
    result = suite.run(*TASKS, "harness=stuck", "runtime.cleanup_grace_seconds=1")
    assert result.ret == 0, result.out
    assert result.verdicts() == {"a::1": True}


_SKIPS = """
import pytest
from pytest_agentcompass import AgentFailure, BaseAnalyzer, BaseHarness, RunResult, current_attempt
from pytest_agentcompass.benchmarks.tasks import TasksBenchmark
from pytest_agentcompass.environments.host_process import HostProcessEnvironment
def leave(task_id, name):
    if task_id.startswith(name):
        pytest.skip(f"not today: {name}") if task_id.endswith("skip") else pytest.fail(f"broken: {name}")
class Harness(BaseHarness):
    id = "moody"
    def unavailable(self, task, req):
        leave(task.task_id, "plan")
    def start_session(self, env, req, plan):
        leave(current_attempt().task_id, "start")
        return env
    async def run_task(self, session, prepared, req, plan):
        leave(prepared.task_id, "run")
        if prepared.task_id.startswith("late"):
            raise AgentFailure("gave up")
        return RunResult(prepared.task_id)
    async def close_session(self, session):
        leave(current_attempt().task_id, "close")
class Benchmark(TasksBenchmark):
    id = "moody"
    async def prepare_task(self, task, env, req, plan):
        leave(task.task_id, "prepare")
        return await super().prepare_task(task, env, req, plan)
    async def evaluate(self, task, *args):
        leave(task.task_id, "grade")
        leave(task.task_id, "late")
        return await super().evaluate(task, *args)
class Environment(HostProcessEnvironment):
    id = "moody"
    async def open(self, req, plan):
        session = await super().open(req, plan)
        if current_attempt().task_id.startswith("open"):
            await session.close()
        leave(current_attempt().task_id, "open")
        return session
class Analyzer(BaseAnalyzer):
    id = "moody"
    def analyze(self, task, result, req):
        leave(task.task_id, "analyze")
        return {}
def pytest_agentcompass_register(registry):
    for kind, component in (("harness", Harness), ("benchmark", Benchmark), ("environment", Environment)):
        registry.add(kind, component)
    registry.add("analyzer", Analyzer)
"""
_SKIPPING = ("plan", "open", "prepare", "start", "run", "grade")


@WORKERS
def test_a_skip_in_a_component_skips_the_attempt(suite: Suite, workers: list[str]) -> None:
    """pytest.skip() in any phase skips the attempt with its reason and no score, whoever drives it.

    It hides neither the agent's failure nor a score that was given before; pytest.fail() is an error there.
    """
    names = (*_SKIPPING, "late", "close", "analyze")
    suite.tasks(*(task(f"{name}-{how}") for name in names for how in ("skip", "fail")), task("fine"))
    suite.write("conftest.py", _SKIPS)
    words = ("benchmark=moody", "benchmark.path=tasks.yaml", "harness=moody", "environment=moody")
    result = suite.run("--agentcompass", *words, *workers, "-rs")
    records = result.records()
    skipped = {f"{name}-skip::1" for name in _SKIPPING}
    errors = {f"{name}-fail::1" for name in _SKIPPING} | {"late-skip::1", "late-fail::1"}
    fine = {f"{name}-{how}::1" for name in ("close", "analyze") for how in ("skip", "fail")} | {"fine::1"}
    assert {name for name, record in records.items() if record["status"] == "skipped"} == skipped
    assert {name for name, verdict in result.verdicts().items() if verdict} == fine
    assert result.counts == {"passed": len(fine), "skipped": len(skipped), "error": len(errors)}, result.out
    for name in _SKIPPING:
        record = records[f"{name}-skip::1"]
        assert (record["failure_mode"], record["score"]) == ("skip_requested", None)
        assert record["issues"][-1]["message"] == f"not today: {name}"
        assert f"not today: {name}" in result.out
        assert f"broken: {name}" in str(records[f"{name}-fail::1"]["issues"])
    assert {records[f"late-{how}::1"]["failure_mode"] for how in ("skip", "fail")} == {"agent_error"}
    report = result.request_summary()["report"]["attempts"]
    assert (report["skipped"], report["errors"], report["passed"]) == (len(skipped), len(errors), len(fine))
    assert suite.sandboxes() == []
    result.check_clean()


_GONE = """
from pytest_agentcompass import EnvironmentGone
from pytest_agentcompass.environments.host_process import HostProcessEnvironment
class Mortal(HostProcessEnvironment):
    id = "mortal"
    async def open(self, req, plan):
        session = await super().open(req, plan)
        old, download, is_dir = session.exec, session.download, session.is_dir
        async def run(command, **options):
            done = await old(command, **options)
            if "work" in str(command):
                session.exec = lost
            return await session.exec(command, **options) if session.exec is lost else done
        async def lost(command, **options):
            raise EnvironmentGone("the sandbox stopped")
        async def dead(*args):
            raise EnvironmentGone("the sandbox was removed")
        session.exec = run
        if "removed" in session.info["workdir"]:
            session.download = session.is_dir = dead
        return session
def pytest_agentcompass_register(registry):
    registry.add("environment", Mortal)
"""


@WORKERS
def test_what_a_stopped_sandbox_holds_is_kept(suite: Suite, workers: list[str]) -> None:
    """When the sandbox is gone the attempt is an error with the cause; artifacts are kept where they can be read."""
    suite.tasks(*(task(name, artifacts=["out.txt", "none.txt"]) for name in ("stopped", "removed")))
    suite.write("conftest.py", _GONE)
    words = ("harness=command", "harness.command=echo work > out.txt", "environment=mortal")
    result = suite.run(*TASKS, *words, *workers)
    assert result.ret == 1
    assert result.counts == {"error": 2}, result.out
    assert set(result.modes().values()) == {"environment_error"}
    kept = {
        name.partition(":")[0]: record["artifacts"]["out.txt"]["status"] for name, record in result.records().items()
    }
    assert kept == {"stopped": "collected", "removed": "failed"}
    assert (result.run_dir / "attempts/tasks/stopped/1/artifacts/out.txt").read_text() == "work\n"
    for name, record in result.records().items():
        assert record["issues"][0]["message"] == "the sandbox stopped", name
    assert suite.sandboxes() == []
    result.check_clean()
