"""Rules of the oracle: it plays the reference solution, and its script's status decides nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from terminal_bench_fakes import FakeSandbox

from pytest_agentcompass.components.context import AttemptContext, set_current_attempt
from pytest_agentcompass.contracts.outcome import ExecResult, RunResult
from pytest_agentcompass.contracts.plan import HarnessPlan
from pytest_agentcompass.contracts.request import BenchmarkSpec, RunRequest
from pytest_agentcompass.contracts.task import Keystroke, PreparedTask, ReferenceSolution, TaskInput, TaskSpec
from pytest_agentcompass.errors import AgentFailure, HarnessError
from pytest_agentcompass.harnesses.oracle import OracleHarness

REQUEST = RunRequest(benchmark=BenchmarkSpec(id="x"))


@pytest.fixture(autouse=True)
def _attempt(tmp_path: Path) -> None:
    set_current_attempt(AttemptContext("run", "main", "t", 1, tmp_path))


def play(solution: ReferenceSolution | None, env: FakeSandbox | None, limit: float | None = None) -> RunResult:
    """Let the oracle play a solution."""

    async def run() -> RunResult:
        oracle = OracleHarness()
        session = await oracle.start_session(env, REQUEST, HarnessPlan())
        prepared = PreparedTask("t", "", None, TaskInput("do"), solution=solution, run_timeout_seconds=limit)
        return await oracle.run_task(session, prepared, REQUEST, HarnessPlan())

    return asyncio.run(run())


def test_unavailable() -> None:
    """A task without a solution is not attempted, and the reason is said."""
    oracle = OracleHarness()
    assert oracle.unavailable(TaskSpec("t", has_solution=True), REQUEST) is None
    assert "no reference solution" in str(oracle.unavailable(TaskSpec("t"), REQUEST))


def test_answer_needs_no_sandbox() -> None:
    """An answer is given as it is."""
    assert play(ReferenceSolution(answer=42), None).final_answer == 42


def test_command(tmp_path: Path) -> None:
    """The folder is uploaded to a fresh target, and the command gets its variables and the limit."""
    env = FakeSandbox(lambda command, options: ExecResult(3, "out\n", "err\n"))
    done = play(
        ReferenceSolution(command=["bash", "/solution/solve.sh"], directory=str(tmp_path), env={"A": "b"}), env, 7.0
    )
    command, options = env.commands[-1]
    assert command == ["bash", "/solution/solve.sh"]
    assert (options["env"], options["timeout"], options["shell"]) == ({"A": "b"}, 7.0, False)
    assert env.resets == ["/solution"]
    assert [issue.code for issue in done.issues] == ["solution_status"]
    assert done.agent_output == "out\nerr\n"
    assert (tmp_path / "logs" / "agent.txt").read_text() == "out\nerr\n"


def test_one_file_alone(tmp_path: Path) -> None:
    """A single script is uploaded without the folder in which it lies."""
    (tmp_path / "solution.sh").write_text("true\n")
    env = FakeSandbox()
    solution = ReferenceSolution(command="x", directory=str(tmp_path / "solution.sh"), target="/oracle")
    play(solution, env)
    assert env.uploads == [("solution.sh", "/oracle/solution.sh")]
    assert env.commands[-1][1]["shell"] is True


def test_timeout_is_the_agents() -> None:
    """A solution that is stopped at its limit is an agent timeout that keeps its output."""
    env = FakeSandbox(lambda command, options: ExecResult(-1, "half", timed_out=True))
    with pytest.raises(AgentFailure) as caught:
        play(ReferenceSolution(command="x"), env, 1.0)
    assert caught.value.failure_mode == "agent_timeout"
    assert caught.value.result.agent_output == "half"  # type: ignore[attr-defined]


def test_patch() -> None:
    """A patch is written byte for byte and applied with git."""
    env = FakeSandbox()
    play(ReferenceSolution(patch=b"diff\r\n"), env)
    assert env.files == {"/solution/solution.patch": b"diff\r\n"}
    assert list(env.commands[-1][0])[:2] == ["git", "apply"]


def test_keystrokes() -> None:
    """Keys are typed in order; a blocking one that hangs is noted and the rest is typed."""

    def answer(command: Any, options: dict[str, Any]) -> ExecResult | None:
        return ExecResult(-1, timed_out=True) if "wait-for" in command else None

    env = FakeSandbox(answer)
    keys = [Keystroke("a", block=True), Keystroke("C-d", append_enter=False), Keystroke("b")]
    done = play(ReferenceSolution(keystrokes=keys), env)
    assert [words[-1] for words in env.sent("send-keys")][-3:] == ["C-d", "b", "Enter"]
    assert [issue.code for issue in done.issues] == ["solution_blocked"]


@pytest.mark.parametrize("solution", [None, ReferenceSolution(command="x")])
def test_misuse(solution: ReferenceSolution | None) -> None:
    """No solution, or no sandbox for one that needs it, is a harness error."""
    with pytest.raises(HarnessError):
        play(solution, None)
