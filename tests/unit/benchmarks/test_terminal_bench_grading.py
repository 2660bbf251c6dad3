"""Rules of the verifier's ground: cleared processes, fresh folders, a clean environment, gates between steps."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from terminal_bench_fakes import FakeSandbox

from pytest_agentcompass.benchmarks.terminal_bench.grading import clear_leftovers, grade_tb1, grade_tb2
from pytest_agentcompass.benchmarks.terminal_bench.guard import Guard
from pytest_agentcompass.benchmarks.terminal_bench.params import TerminalBenchParams
from pytest_agentcompass.benchmarks.terminal_bench.rewards import Reward
from pytest_agentcompass.benchmarks.terminal_bench.steps import final_reward, gate_holds, remember, step_after
from pytest_agentcompass.benchmarks.terminal_bench.verifier import report_options
from pytest_agentcompass.components.context import AttemptContext, set_current_attempt
from pytest_agentcompass.contracts.outcome import ExecResult, FailureMode, RunResult
from pytest_agentcompass.contracts.task import PreparedTask, TaskInput, TaskSpec
from pytest_agentcompass.errors import EnvironmentGone, EvaluationError, SandboxError

PREPARED = PreparedTask("t", "", None, TaskInput("x"), metadata={"workdir": "/app", "image_user": "root"})
START = " test session starts ".center(80, "=")
GOOD = (
    f"{START}\n{' short test summary info '.center(80, '=')}\nPASSED a.py::t\n{' 1 passed in 0.01s '.center(80, '=')}\n"
)
REPORT = b'<testsuite><testcase classname="a" name="t" file="a.py"/></testsuite>'


@pytest.fixture(autouse=True)
def _attempt(tmp_path: Path) -> None:
    set_current_attempt(AttemptContext("run", "main", "t", 1, tmp_path / "attempt"))


def tb1_task(folder: Path, **metadata: Any) -> TaskSpec:
    """Return a TB1 task with a script."""
    (folder / "tests").mkdir(parents=True)
    (folder / "run-tests.sh").write_text("pytest\n")
    return TaskSpec(
        "t", metadata={"format": "tb1", "dir": str(folder), "parser": "pytest", "same_shell": False, **metadata}
    )


def tb2_task(folder: Path, steps: Sequence[dict[str, Any]] = (), **metadata: Any) -> TaskSpec:
    """Return a TB2 task."""
    base = {"format": "tb2", "dir": str(folder), "verifier_user": None, "agent_user": None, "verifier_env": {"V": "1"}}
    return TaskSpec("t", metadata={**base, "range": [0.0, 1.0], "steps": list(steps), "strategy": "mean", **metadata})


class Verifier(FakeSandbox):
    """Runs the script of a verifier by writing what it is told to."""

    def __init__(self, done: ExecResult | Exception, **files: bytes) -> None:
        super().__init__(self._answer)
        self.done = done
        self.written = files

    def _answer(self, command: Sequence[str] | str, options: dict[str, Any]) -> ExecResult | None:
        if isinstance(command, str):
            names = [name for name in self.written if name in ("reward.json", "reward.txt")]
            return ExecResult(0, "".join(f"file {name}\n" for name in names)) if "/logs/verifier" in command else None
        if isinstance(self.done, Exception):
            raise self.done
        for name, content in self.written.items():
            path = command[2].split("--junitxml=")[1].split(" ")[0] if name == "report" else f"/logs/verifier/{name}"
            self.files[path] = content
        return self.done


def run_tb1(task: TaskSpec, env: FakeSandbox, limit: float = 5.0) -> RunResult:
    """Grade a TB1 task."""
    result = RunResult()
    asyncio.run(grade_tb1(task, env, Guard("/app"), limit, result))
    return result


def run_tb2(task: TaskSpec, env: FakeSandbox) -> tuple[Reward | None, RunResult]:
    """Grade a TB2 task."""
    result = RunResult()
    return asyncio.run(grade_tb2(task, env, PREPARED, TerminalBenchParams(path="x"), 5.0, result)), result


def test_tb1_ground_and_environment(tmp_path: Path) -> None:
    """TB1 tests run as root, on fresh folders, with files that came only now, without user-site python."""
    env = Verifier(ExecResult(0, GOOD), report=REPORT)
    result = run_tb1(tb1_task(tmp_path / "task"), env)
    command, options = env.commands[-1]
    assert (options["user"], options["timeout"], options["env"]["PYTHONNOUSERSITE"]) == ("root", 5.0, "1")
    assert env.resets[0] == "/tests"
    assert env.uploads == [("tests/", "/tests"), ("run-tests.sh", "/tests/run-tests.sh")]
    assert command[:2] == ["bash", "-c"]
    assert (result.metrics, result.tests) == ({"correct": True, "reward": 1.0}, {"t": "passed"})
    assert (tmp_path / "attempt" / "logs" / "verifier.txt").read_text() == GOOD


def test_report_place_is_new_each_time(tmp_path: Path) -> None:
    """The report's folder cannot be known before the verifier runs."""
    places = set()
    for name in ("a", "b"):
        env = Verifier(ExecResult(0, GOOD), report=REPORT)
        run_tb1(tb1_task(tmp_path / name), env)
        places |= {path for path in env.resets if path.startswith("/.agentcompass")}
    assert len(places) == 2


@pytest.mark.parametrize(
    ("script", "wanted"),
    [
        ("pytest -rA\n", (True, True)),
        ("PYTEST_ADDOPTS=-q pytest\n", (False, False)),
        ("pytest -p no:junitxml\n", (False, False)),
        ("pytest --junitxml=x.xml\n", (True, False)),
        ("sudo -u dev pytest\n", (True, False)),
        ("env -i pytest\n", (True, False)),
    ],
)
def test_when_a_report_can_be_asked_for(script: str, wanted: tuple[bool, bool], tmp_path: Path) -> None:
    """A script that sets its own options is left alone; one that drops the environment need not leave a report."""
    path = tmp_path / "run-tests.sh"
    path.write_text(script)
    assert report_options([], [path]) == wanted


def test_limit_of_the_tests(tmp_path: Path) -> None:
    """Tests over their limit are failed, with the mode test_timeout."""
    result = run_tb1(tb1_task(tmp_path / "task"), Verifier(ExecResult(-1, "begun", timed_out=True)))
    assert (result.metrics["correct"], result.failure_mode) == (False, FailureMode.TEST_TIMEOUT)


def test_a_verifier_that_cannot_start(tmp_path: Path) -> None:
    """What the sandbox cannot start is verifier_not_started; a sandbox that is gone stays that."""
    with pytest.raises(EvaluationError) as caught:
        run_tb1(tb1_task(tmp_path / "a"), Verifier(SandboxError("no bash")))
    assert caught.value.failure_mode == "verifier_not_started"
    with pytest.raises(EnvironmentGone):
        run_tb1(tb1_task(tmp_path / "b"), Verifier(EnvironmentGone("gone")))


def test_tb2_reward(tmp_path: Path) -> None:
    """The reward file decides, not the status; printed tests are told."""
    env = Verifier(ExecResult(3, GOOD), **{"reward.json": b'{"reward": 0.5}'})
    reward, result = run_tb2(tb2_task(tmp_path), env)
    assert reward is not None
    assert (reward.reward, result.tests) == (0.5, {"t": "passed"})
    assert "/logs/verifier" in env.resets
    assert next(options for command, options in env.commands if not isinstance(command, str))["env"]["V"] == "1"


def test_tb2_without_reward(tmp_path: Path) -> None:
    """No reward is an error that names the files looked for and shows the end of the output."""
    with pytest.raises(EvaluationError, match=r"(?s)reward\.json.*reward\.txt.*grader: command not found") as caught:
        run_tb2(tb2_task(tmp_path), Verifier(ExecResult(127, "grader: command not found")))
    assert caught.value.failure_mode == "no_reward"


@pytest.mark.parametrize(
    ("rule", "mode", "kept"),
    [
        ("services", FailureMode.NONE, [True]),
        ("kill", FailureMode.NONE, [False]),
        ("keep", FailureMode.NONE, []),
        ("services", FailureMode.AGENT_TIMEOUT, [False]),
        ("keep", FailureMode.AGENT_TIMEOUT, [False]),
    ],
)
def test_leftovers(rule: str, mode: FailureMode, kept: list[bool]) -> None:
    """After a timeout everything of the agent dies; otherwise the rule says what stays, and that is noted."""
    env = FakeSandbox()
    env.left = ["python3 (pid 7)"]
    result = RunResult(failure_mode=mode)
    asyncio.run(clear_leftovers(env, result, rule, same_shell=False))
    assert env.kept == kept
    assert len(result.issues) == len(kept)


def run_guard(root: Path, guard: Guard) -> list[str]:
    """Run the guard's script against a folder tree and return what it set aside."""
    aside = root / "aside"
    aside.mkdir()
    script = guard.script(str(aside), opened=[str(root)], shared=None)
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    return [Path(name).name for name in guard.planted(done.stdout)]


def test_guard_sets_new_modules_aside(tmp_path: Path) -> None:
    """Modules that would stand in for pytest are moved when they are new, and left when the image has them."""
    work = tmp_path / "work dir"
    work.mkdir()
    (work / "pytest.py").write_text("")
    guard = Guard(str(work))
    seen = subprocess.run(["sh", "-c", guard.survey()], capture_output=True, text=True, check=True).stdout
    guard = guard.saw(seen)
    (work / "sitecustomize.py").write_text("")
    (work / "app.py").write_text("")
    assert run_guard(tmp_path, guard) == ["sitecustomize.py"]
    assert sorted(path.name for path in work.iterdir()) == ["app.py", "pytest.py"]


def test_guard_in_the_root_folder() -> None:
    """Where the agent works in the root folder, settings there are its own."""
    assert "/pytest.ini" in Guard("/app").watched()
    assert "/pytest.ini" not in Guard("/").watched()
    assert "/pytest.py" in Guard("/").watched()


def steps(*least: Any, **metadata: Any) -> TaskSpec:
    """Return a task whose steps have the given min_reward."""
    return tb2_task(
        Path("/x"), [{"name": str(index), "min_reward": value} for index, value in enumerate(least)], **metadata
    )


def done(*rewards: float) -> list[dict[str, Any]]:
    """Return the entries of finished steps."""
    result = RunResult()
    for index, value in enumerate(rewards):
        remember(result, str(index), Reward(value, value >= 1, {"reward": value}, "reward.txt"))
    entries: list[dict[str, Any]] = result.metadata["steps"]
    return entries


@pytest.mark.parametrize(
    ("rewards", "strategy", "wanted"),
    [
        ((1, 1), "mean", (1.0, True)),
        ((1, 0.5), "mean", (0.75, False)),
        ((1,), "mean", (0.5, False)),
        ((0, 1), "final", (1, True)),
        ((1,), "final", (0.0, False)),
    ],
)
def test_reward_of_steps(rewards: tuple[float, ...], strategy: str, wanted: tuple[float, bool]) -> None:
    """The mean counts steps that were not reached as 0; `final` is the last step's alone."""
    assert final_reward(steps(None, None, strategy=strategy), done(*rewards)) == wanted


@pytest.mark.parametrize(
    ("least", "holds"), [(None, True), (0.5, True), (0.6, False), ({"reward": 0.5}, True), ({"x": 0}, False)]
)
def test_gates(least: Any, holds: bool) -> None:
    """A step's min_reward is a number, or one per key; a missing key does not reach it."""
    assert gate_holds(steps(least), done(0.5)[0]) is holds


def test_order_of_steps() -> None:
    """Steps follow in the order of task.toml."""
    task = steps(None, None)
    assert (step_after(task, "0"), step_after(task, "1")) == ("1", None)


def test_a_step_over_its_limit_counts_as_zero() -> None:
    """A step whose tests were stopped earns nothing."""
    assert remember(RunResult(), "a", None)["reward"] == 0.0
