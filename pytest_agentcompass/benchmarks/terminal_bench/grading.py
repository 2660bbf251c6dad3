"""Grading: the ground is cleared, the verifier runs, and its verdict goes to the result."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...contracts.outcome import FailureMode, RunResult
from ...errors import EvaluationError
from .guard import Guard
from .params import TerminalBenchParams
from .preparing import guard_of, step_table
from .pytest_text import read_pytest_text
from .rewards import MAX_REWARD_BYTES, Reward, decide
from .same_shell import run_in_same_shell
from .templates import expand_all
from .verdicts import Evidence, Verdict, judge, short_names, tail
from .verifier import Script, lay_ground, private_dir, report_options, run_script

if TYPE_CHECKING:
    from ...components.environment import EnvironmentSession
    from ...contracts.task import PreparedTask, TaskSpec

__all__ = ["clear_leftovers", "grade_tb1", "grade_tb2"]

_REWARDS = "/logs/verifier"


async def clear_leftovers(env: EnvironmentSession, result: RunResult, rule: str, *, same_shell: bool) -> None:
    """End what the agent left by the *rule*; after its timeout everything. What stayed is noted."""
    for name, terminal in list(env.terminals.items()):
        if not terminal.closed:
            await terminal.save_pane("post-agent" if name == "agent" else f"post-agent-{name}")
    if same_shell:
        result.note(
            "evaluate", "leftovers", "the tests run in the agent's shell, so its processes were left alone", "info"
        )
        return
    timed_out = result.failure_mode is FailureMode.AGENT_TIMEOUT
    if rule == "keep" and not timed_out:
        return
    for terminal in list(env.terminals.values()):
        await terminal.close()
    for line in await env.kill_leftovers(keep_services=rule == "services" and not timed_out):
        text = f"a process of the agent lives on: {line}"
        if all(issue.message != text for issue in result.issues):
            result.note("evaluate", "leftover", text, "info")


async def grade_tb1(
    task: TaskSpec, env: EnvironmentSession, guard: Guard, timeout: float | None, result: RunResult
) -> None:
    """Run `run-tests.sh` as root (or in the agent's shell) and set the verdict."""
    folder, private = Path(task.metadata["dir"]), private_dir()
    same_shell = bool(task.metadata["same_shell"])
    script = Script("run-tests.sh", [folder / "tests"], [folder / "run-tests.sh"], "root", timeout)
    if "TEST_DIR" not in task.environment.get("env_variables", {}):
        script.env = {"TEST_DIR": "/tests"}
    wanted, reliable = report_options(script.folders, script.files)
    if wanted and task.metadata["parser"] == "pytest":
        script.report = f"{private}/report.xml"
    await lay_ground(env, script, guard, private, result)
    if same_shell:
        done = await run_in_same_shell(env, script, private, result)
        await env.terminals["agent"].save_pane("post-test")
    else:
        done = await run_script(env, script, result)
    if done is None:
        result.metrics.update(correct=False, reward=0.0)
        return
    report = await _read(env, script.report) if script.report else None
    evidence = Evidence(done.output, done.returncode, report, reliable and script.report is not None)
    _apply(judge(task.metadata["parser"], evidence), result)


def _apply(verdict: Verdict, result: RunResult) -> None:
    result.tests = verdict.tests
    result.metrics.update(correct=verdict.correct, reward=float(verdict.correct))
    result.telemetry["test_counts"] = verdict.counts
    for code, message in verdict.notes:
        result.note("evaluate", code, message, "info")


async def _read(env: EnvironmentSession, path: str, limit: int = 50_000_000) -> bytes | None:
    try:
        return await env.read_bytes(path, limit=limit)
    except FileNotFoundError:
        return None


async def grade_tb2(
    task: TaskSpec,
    env: EnvironmentSession,
    prepared: PreparedTask,
    params: TerminalBenchParams,
    timeout: float | None,
    result: RunResult,
    step: str | None = None,
) -> Reward | None:
    """Run `test.sh` of the task (or of a *step*) and return its reward; None when its limit was over."""
    folder, table = Path(task.metadata["dir"]), step_table(task, step)
    user = table.get("verifier_user") or task.metadata["verifier_user"] or _image_user(task, prepared)
    folders = [folder / "tests", *([folder / "steps" / step / "tests"] if step else [])]
    script = Script(
        "test.sh", folders, [], user, timeout,
        env=_environment(task, table, os.environ),
        fresh=[(_REWARDS, user or env.default_user)],
        log=f"verifier-{step}.txt" if step else "verifier.txt",
    )  # fmt: skip
    await lay_ground(env, script, guard_of(prepared), private_dir(), result)
    done = await run_script(env, script, result)
    if done is None:
        return None
    _tell_tests(done.output, result)
    try:
        return await _reward(task, env, params)
    except EvaluationError as error:
        raise EvaluationError(
            f"{error.message} (looked for {_REWARDS}/reward.json and {_REWARDS}/reward.txt; test.sh ended with status "
            f"{done.returncode}); {tail(done.output)}",
            "verifier_not_started" if _never_ran(error, done.returncode) else error.failure_mode,
        ) from error


def _never_ran(error: EvaluationError, returncode: int) -> bool:
    return error.failure_mode == "no_reward" and returncode == 126


def _image_user(task: TaskSpec, prepared: PreparedTask) -> str | None:
    """Return the image's own user where the agent was given another one."""
    return str(prepared.metadata["image_user"]) if task.metadata["agent_user"] else None


def _environment(task: TaskSpec, table: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, str]:
    values = {**task.metadata["verifier_env"], **table.get("verifier_env", {})}
    return expand_all(values, environ, "verifier.env")


def _tell_tests(output: str, result: RunResult) -> None:
    """Put the tests that the output shows on the record; they decide nothing."""
    text = read_pytest_text(output)
    tests: dict[str, str] = {}
    for run in text.runs:
        tests.update(run.tests)
    result.tests = short_names(tests or text.loose)


async def _reward(task: TaskSpec, env: EnvironmentSession, params: TerminalBenchParams) -> Reward:
    found = await _reward_files(env)
    files = {name: await _reward_file(env, name) if name in found else None for name in ("reward.json", "reward.txt")}
    low, high = task.metadata["range"]
    return decide(files["reward.json"], files["reward.txt"], limits=(low, high), rule=params.rule)


async def _reward_files(env: EnvironmentSession) -> set[str]:
    """Return which reward files are there; EvaluationError for one that is no regular file."""
    command = (
        f"cd {_REWARDS} 2>/dev/null && [ ! -L {_REWARDS} ] || exit 0; for f in reward.json reward.txt; do "
        'if [ -L "$f" ]; then echo "link $f"; elif [ -f "$f" ]; then echo "file $f"; '
        'elif [ -e "$f" ]; then echo "other $f"; fi; done'
    )
    done = await env.exec(command, shell=True, user="root", timeout=30)
    found = {name: kind for kind, _, name in (line.partition(" ") for line in done.stdout.splitlines())}
    for name, kind in found.items():
        if kind != "file":
            raise EvaluationError(f"{name} is {'a link' if kind == 'link' else 'no regular file'} and is not read")
    return set(found)


async def _reward_file(env: EnvironmentSession, name: str) -> bytes | None:
    content = await _read(env, f"{_REWARDS}/{name}", MAX_REWARD_BYTES + 1)
    if content is not None and len(content) > MAX_REWARD_BYTES:
        raise EvaluationError(f"{name} is larger than {MAX_REWARD_BYTES} bytes")
    return content
