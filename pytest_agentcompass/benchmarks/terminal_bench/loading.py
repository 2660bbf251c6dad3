"""From a folder to tasks: which folders are tasks, in which format, and what is wrong with the others."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from ...contracts.environment import EnvironmentSpec
from ...contracts.task import TaskProblem, TaskSpec
from ...errors import ConfigError, TaskLoadError
from .params import TerminalBenchParams
from .tb1 import load_tb1
from .tb2 import load_tb2

__all__ = ["load_folder"]

_FILES = {"tb1": "task.yaml", "tb2": "task.toml"}


def load_folder(params: TerminalBenchParams) -> list[TaskSpec | TaskProblem]:
    """Return the tasks of the dataset (or of the one task folder) sorted by name.

    Raises TaskLoadError when the folder does not exist or holds no task folder.
    """
    root = Path(params.path).expanduser().resolve()
    if not root.is_dir():
        what = "is a file, not a folder of tasks" if root.exists() else "does not exist"
        raise TaskLoadError(f"benchmark.path: {root} {what}")
    folders = [root] if _format(root, "auto") else _folders(root)
    if not folders:
        raise TaskLoadError(
            f"benchmark.path: {root} holds no task: a task is a folder with a task.yaml (tb1) or a task.toml (tb2); "
            f"found: {_listed(root)}"
        )
    return [_load(folder, params) for folder in folders]


def _folders(root: Path) -> list[Path]:
    """Return the sub-folders that may be tasks; stray files and hidden folders are no tasks."""
    hidden = (".", "__")
    return sorted(
        (item for item in root.iterdir() if item.is_dir() and not item.name.startswith(hidden)),
        key=lambda item: item.name,
    )


def _format(folder: Path, wanted: str) -> str | None:
    formats = ("tb2", "tb1") if wanted == "auto" else (wanted,)
    return next((name for name in formats if (folder / _FILES[name]).is_file()), None)


def _load(folder: Path, params: TerminalBenchParams) -> TaskSpec | TaskProblem:
    found = _format(folder, params.format)
    try:
        if found is None:
            raise TaskLoadError(_unknown(folder, params.format))
        task = load_tb1(folder) if found == "tb1" else load_tb2(folder, params)
        _check_hints(task)
        return task
    except ConfigError as error:
        return TaskProblem(folder.name, f"task {folder.name!r} cannot be used: {error.message}", str(folder))
    except (OSError, RecursionError) as error:
        return TaskProblem(folder.name, f"task {folder.name!r} cannot be used: {folder}: {error}", str(folder))


def _check_hints(task: TaskSpec) -> None:
    """Raise TaskLoadError for hints that no sandbox can be opened with."""
    try:
        EnvironmentSpec.model_validate(task.environment)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise TaskLoadError(
            f"{task.source}: the environment's {field}: {first['msg']}, not {first['input']!r:.100}"
        ) from error


def _unknown(folder: Path, wanted: str) -> str:
    if wanted != "auto":
        other = _format(folder, "auto")
        tail = f"; it holds a {_FILES[other]} (benchmark.format={other})" if other else ""
        return f"{folder}: has no {_FILES[wanted]}, which the format {wanted} needs{tail}"
    return f"{folder}: holds neither task.yaml (tb1) nor task.toml (tb2); found: {_listed(folder)}"


def _listed(folder: Path) -> str:
    names = sorted(item.name for item in folder.iterdir())
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return (", ".join(names[:10]) or "nothing") + more
