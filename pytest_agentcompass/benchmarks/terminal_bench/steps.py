"""Tasks with several steps: each is graded before the next is prepared; a gate may end the task early."""

from __future__ import annotations

import asyncio
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...contracts.outcome import RunResult
from ...contracts.task import PreparedTask, TaskInput, TaskSpec
from ...errors import SetupError
from .fields import read_task_text
from .preparing import solution_of, step_table
from .rewards import Reward

if TYPE_CHECKING:
    from ...components.environment import EnvironmentSession

__all__ = ["final_reward", "gate_holds", "prepare_step", "remember", "step_after"]


def remember(result: RunResult, name: str, reward: Reward | None) -> dict[str, Any]:
    """Add the outcome of a finished step to the result and return it (a timeout counts as 0)."""
    entry: dict[str, Any] = {
        "name": name,
        "reward": reward.reward if reward else 0.0,
        "correct": bool(reward and reward.correct),
        "rewards": reward.values if reward else {},
        "tests": dict(result.tests),
    }
    result.metadata["steps"] = [*result.metadata.get("steps", []), entry]
    return entry


def gate_holds(task: TaskSpec, entry: dict[str, Any]) -> bool:
    """Whether a finished step earned what its `min_reward` asks (a number, or one per key)."""
    least = step_table(task, entry["name"]).get("min_reward")
    if least is None:
        return True
    if isinstance(least, dict):
        return all(entry["rewards"].get(key, -math.inf) >= value for key, value in least.items())
    return bool(entry["reward"] >= least)


def step_after(task: TaskSpec, name: str | None) -> str | None:
    """Return the name of the step that follows, None after the last."""
    names = [step["name"] for step in task.metadata["steps"]]
    index = names.index(name) + 1 if name in names else len(names)
    return names[index] if index < len(names) else None


def final_reward(task: TaskSpec, done: list[dict[str, Any]]) -> tuple[float, bool]:
    """Return reward and success of the whole: the mean over all steps, or the last step's.

    A step that was not reached counts as 0.
    """
    total = len(task.metadata["steps"])
    if task.metadata["strategy"] == "final":
        last = done[-1] if len(done) == total else None
        return (last["reward"], last["correct"]) if last else (0.0, False)
    reward = math.fsum(entry["reward"] for entry in done) / total
    return reward, len(done) == total and all(entry["correct"] for entry in done)


async def prepare_step(task: TaskSpec, name: str, before: PreparedTask, env: EnvironmentSession) -> PreparedTask:
    """Hide the last step's tests, put the step's files into the working directory and run its `setup.sh`.

    Raises SetupError when `setup.sh` or the step's health check fails.
    """
    folder, table = Path(task.metadata["dir"]) / "steps" / name, step_table(task, name)
    for path in ("/tests", "/logs/verifier"):
        await env.reset_dir(path, user=env.default_user)
    workdir = before.metadata.get("workdir", "/")
    if (folder / "workdir").is_dir():
        await env.upload_dir(folder / "workdir", workdir, user=env.default_user)
    if (folder / "workdir" / "setup.sh").is_file():
        done = await env.exec(["bash", f"{workdir.rstrip('/')}/setup.sh"], cwd=workdir, timeout=600)
        if not done.ok:
            raise SetupError(
                f"step {name!r}: setup.sh ended with status {done.returncode}: {done.output.strip()[-500:]}"
            )
    if table.get("healthcheck"):
        await _wait_healthy(env, name, table["healthcheck"])
    return PreparedTask(
        task_id=task.task_id,
        category=task.category,
        ground_truth=None,
        input=TaskInput(prompt=read_task_text(folder / "instruction.md"), workspace=env.default_workdir),
        metadata=dict(before.metadata),
        solution=solution_of(task, name),
        step=name,
        run_timeout_seconds=table.get("agent_timeout") or task.metadata["agent_timeout"],
    )


async def _wait_healthy(env: EnvironmentSession, name: str, check: dict[str, Any]) -> None:
    """Wait until a step's health check holds; failures within its start period are not counted."""
    grace = time.monotonic() + check.get("start_period", 0.0)
    left = check.get("retries", 3)
    while True:
        done = await env.exec(check["command"], shell=True, timeout=check.get("timeout", 30.0))
        if done.ok:
            return
        starting = time.monotonic() < grace
        left -= 0 if starting else 1
        if left <= 0:
            raise SetupError(
                f"step {name!r}: the health check {check['command']!r} fails: {done.output.strip()[-300:]}"
            )
        await asyncio.sleep(check.get("start_interval" if starting else "interval", 5.0))
