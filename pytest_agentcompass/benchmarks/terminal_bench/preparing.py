"""Making a sandbox ready for the agent, and what the oracle may know."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...components.terminal import TerminalSession
from ...contracts.task import Keystroke, PreparedTask, ReferenceSolution, TaskInput, TaskSpec
from ...errors import SetupError
from .guard import Guard
from .tb1 import read_keystrokes
from .templates import expand_all

if TYPE_CHECKING:
    from ...components.environment import EnvironmentSession

__all__ = ["guard_of", "make_folders", "prepare_first", "solution_of", "step_table"]

_TB2_FOLDERS = ("/logs/agent", "/logs/verifier", "/logs/artifacts")


def step_table(task: TaskSpec, name: str | None) -> dict[str, Any]:
    """Return what `task.toml` says about a step; an empty table for a task of one step."""
    return next((step for step in task.metadata.get("steps", []) if step["name"] == name), {})


async def prepare_first(task: TaskSpec, env: EnvironmentSession) -> PreparedTask:
    """Prepare the sandbox and return the task, or its first step."""
    for source, target in task.metadata.get("uploads", []):
        if Path(source).is_dir():
            await env.upload_dir(source, target)
        else:
            await env.upload(source, target)
    folders = _TB2_FOLDERS if task.metadata["format"] == "tb2" else tuple(task.metadata.get("log_dirs", ()))
    image_user = env.default_user
    if task.metadata.get("agent_user"):
        # The agent's alone: the sandbox's own processes and the verifier keep the image's user.
        env.default_user = task.metadata["agent_user"]
    guard = await make_folders(env, list(folders))
    steps = task.metadata.get("steps", [])
    prepared = PreparedTask(
        task_id=task.task_id,
        category=task.category,
        ground_truth=None,
        input=TaskInput(prompt=task.question, workspace=env.default_workdir),
        metadata={
            "present": list(guard.present),
            "workdir": guard.workdir,
            "record_terminal": bool(task.metadata.get("record")),
            "image_user": image_user or "root",
        },
        solution=solution_of(task, steps[0]["name"] if steps else None),
        step=steps[0]["name"] if steps else None,
        run_timeout_seconds=(steps[0]["agent_timeout"] or task.metadata["agent_timeout"]) if steps else None,
    )
    if task.metadata.get("same_shell"):
        terminal = await TerminalSession.open(env, "agent", record=prepared.metadata["record_terminal"])
        await terminal.save_pane("pre-agent")
    return prepared


async def make_folders(env: EnvironmentSession, folders: list[str]) -> Guard:
    """Make log folders for the agent's user and note what could be mistaken for planted files later."""
    guard = Guard(env.default_workdir or "/")
    owner = env.default_user
    command = ""
    if folders:
        words = " ".join(shlex.quote(folder) for folder in folders)
        command = f"mkdir -p {words} && " + (f"chown {shlex.quote(owner)} {words}; " if owner else "true; ")
    done = await env.exec(command + guard.survey(), shell=True, user="root", timeout=60)
    if not done.ok:
        raise SetupError(f"the log folders could not be made: {done.output.strip()[-300:]}")
    return guard.saw(done.stdout)


def guard_of(prepared: PreparedTask) -> Guard:
    """Return the guard as it was at preparation."""
    return Guard(prepared.metadata.get("workdir", "/"), tuple(prepared.metadata.get("present", ())))


def solution_of(task: TaskSpec, step: str | None) -> ReferenceSolution | None:
    """Return how the oracle solves the task (or a step of it); None when there is no solution."""
    if not task.has_solution:
        return None
    folder = Path(task.metadata["dir"])
    if task.metadata["format"] == "tb2":
        source = folder / "steps" / step / "solution" if step else folder / "solution"
        env = expand_all(task.metadata["solution_env"], os.environ, "solution.env")
        return ReferenceSolution(command=["bash", "/solution/solve.sh"], directory=str(source), env=env)
    if task.metadata["solution"] == "solution.yaml":
        return ReferenceSolution(keystrokes=[Keystroke(**item) for item in read_keystrokes(folder / "solution.yaml")])
    # The script alone is given to the sandbox, as by the format's own harness: the folder holds the tests.
    script = str(folder / "solution.sh")
    return ReferenceSolution(command=["bash", "/oracle/solution.sh"], directory=script, target="/oracle")
