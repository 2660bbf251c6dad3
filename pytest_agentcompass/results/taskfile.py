"""The tasks of a request on disk: loaded once by one process, read by all others."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .. import errors
from ..contracts.task import TaskProblem, TaskSpec
from ..errors import AgentCompassError, ResultsError, TaskLoadError
from ..redaction import clean_text, known_secrets, plain
from .files import json_row, parse_json, read_bytes, write_atomic

__all__ = ["LoadedTasks", "read_task_file", "read_task_head", "write_task_error", "write_task_file"]

_HEAD_CAP = 1 << 20  # bytes


@dataclass(frozen=True, slots=True)
class LoadedTasks:
    """The selected tasks of a request, in order, those that cannot be used, and notes beside them."""

    tasks: list[TaskSpec]
    problems: list[TaskProblem]
    extra: dict[str, Any] = field(default_factory=dict)


def write_task_file(path: Path, request: str, loaded: LoadedTasks) -> None:
    """Write *loaded* as JSON lines: a head that counts, then one line for each task and problem.

    TaskLoadError naming the task whose row is no plain JSON data (NaN, dates, bytes).
    """
    head = {
        "request": request,
        "tasks": len(loaded.tasks),
        "problems": len(loaded.problems),
        "extra": plain(loaded.extra),
    }
    lines = [json_row(head)]
    lines += [_task_row(request, task) for task in loaded.tasks]
    lines += [json_row({"request": request, "problem": asdict(problem)}) for problem in loaded.problems]
    write_atomic(path, _Vault().hide("\n".join(lines) + "\n").encode("ascii"))


def _task_row(request: str, task: TaskSpec) -> str:
    try:
        return json_row({"request": request, "task": task.to_row()})
    except (TypeError, ValueError, RecursionError) as error:
        where = f" ({task.source})" if task.source else ""
        raise TaskLoadError(
            f"task {task.task_id!r}{where} holds a value that JSON cannot carry: {error}; "
            "a task is texts, finite numbers, booleans, null, lists and mappings with text keys"
        ) from None


def write_task_error(path: Path, request: str, error: AgentCompassError) -> None:
    """Store why the tasks could not be loaded, so that every process reports the same."""
    data = {key: value for key, value in plain(error._data).items() if isinstance(key, str)}
    row = {"kind": type(error).__name__, "message": clean_text(error.message), "data": data}
    write_atomic(path, (json_row({"request": request, "error": row}) + "\n").encode("ascii"))


def read_task_file(path: Path) -> LoadedTasks:
    """Return what was stored: the tasks, or the stored error raised again.

    ResultsError naming file and line when the file is damaged; FileNotFoundError when there is none.
    """
    try:
        text = _Vault().show(read_bytes(path).decode("ascii"))
    except ValueError as error:
        raise ResultsError(f"{path}: not a task file: {error}", path=str(path)) from None
    rows = list(_rows(path, text))
    head = rows[0] if rows else {}
    if "error" in head:
        raise _stored_error(head["error"])
    try:
        tasks = [TaskSpec.from_row(row["task"]) for row in rows[1:] if "task" in row]
        problems = [TaskProblem(**row["problem"]) for row in rows[1:] if "problem" in row]
        whole = head["tasks"] == len(tasks) and head["problems"] == len(problems)
        extra = head["extra"]
    except (TypeError, KeyError, AttributeError) as error:
        raise ResultsError(
            f"{path}: a row is not a task: {error!r}; delete the file to load again", path=str(path)
        ) from None
    if not whole:
        raise ResultsError(
            f"{path}: {len(tasks)} of {head['tasks']} tasks; delete the file to load again", path=str(path)
        )
    return LoadedTasks(tasks, problems, extra)


def read_task_head(path: Path) -> dict[str, Any]:
    """Return what stands beside the tasks in *path* (`LoadedTasks.extra`) without reading them; empty without it."""
    try:
        with path.open("rb") as file:
            extra = parse_json(file.readline(_HEAD_CAP)).get("extra")
    except (OSError, ValueError, AttributeError):
        return {}
    return extra if isinstance(extra, dict) else {}


def _rows(path: Path, text: str) -> Iterable[dict[str, Any]]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line:
            continue
        try:
            row = parse_json(line)
        except ValueError as error:
            raise ResultsError(
                f"{path}:{number}: not JSON: {error}; delete the file to load again", path=str(path)
            ) from None
        if not isinstance(row, dict):
            raise ResultsError(f"{path}:{number}: not a row of ours; delete the file to load again", path=str(path))
        yield row


def _stored_error(row: dict[str, Any]) -> AgentCompassError:
    kind = getattr(errors, str(row.get("kind")), None)
    if not (isinstance(kind, type) and issubclass(kind, AgentCompassError)):
        kind = AgentCompassError
    data = row.get("data")
    return kind(str(row.get("message")), **(data if isinstance(data, dict) else {}))


class _Vault:
    """Secrets never reach the disk, and yet workers read the tasks exactly as they were loaded.

    A known value becomes a mark that holds 24 bits of its hash (enough to tell the few secrets of a
    process apart, useless for guessing them); a reader that knows the same secret puts it back.
    """

    def __init__(self) -> None:
        self._marks = {json_row(value)[1:-1]: _mark(value) for value in known_secrets()}

    def hide(self, text: str) -> str:
        """Replace every known secret by its mark."""
        if not self._marks:
            return text
        longest_first = sorted(self._marks, key=len, reverse=True)
        return re.sub("|".join(map(re.escape, longest_first)), lambda hit: self._marks[hit[0]], text)

    def show(self, text: str) -> str:
        """Put the secrets that this process knows back."""
        if "[secret:" not in text:
            return text
        values = {mark: value for value, mark in self._marks.items()}
        return re.sub(r"\[secret:[0-9a-f]{6}\]", lambda hit: values.get(hit[0], hit[0]), text)


def _mark(value: str) -> str:
    return f"[secret:{hashlib.sha256(value.encode('utf-8', 'surrogatepass')).hexdigest()[:6]}]"
