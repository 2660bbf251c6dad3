"""Loading task files: a YAML file with `tasks:`, a JSONL file with one question a line, or a folder of both."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from typing import Any

from ...components.yaml_file import Map, Scalar, Seq, load_yaml_file
from ...contracts.task import TaskProblem, TaskSpec
from ...errors import ConfigError, TaskLoadError, nearest
from .fields import KEY, build_task

__all__ = ["load_path"]

_YAML = (".yaml", ".yml")
_JSONL = (".jsonl", ".ndjson")
_TOP = ("tasks", "name", "suite", "version", "description")
_SUITE_TOP = (*_TOP, "task_concurrency", "runtime", "defaults", "requests", "gates")


def load_path(path: str, default_match: str) -> list[TaskSpec | TaskProblem]:
    """Return the tasks of a file, or of all task files of a folder by name, in the order in which they are written.

    Raises TaskLoadError when there is nothing to load, or a YAML file cannot be parsed at all.
    """
    items: list[TaskSpec | TaskProblem] = []
    files = _task_files(path)
    for file in files:
        load = _load_jsonl if file.endswith(_JSONL) else _load_yaml
        items += load(file, default_match)
    if not items:
        raise TaskLoadError(f"{path}: holds no task")
    return _without_duplicates(items)


def _task_files(path: str) -> list[str]:
    if os.path.isdir(path):
        names = sorted(name for name in os.listdir(path) if name.endswith(_YAML + _JSONL) and not name.startswith("."))
        if not names:
            raise TaskLoadError(f"{path}: holds no task file (*.yaml, *.yml, *.jsonl)")
        return [os.path.join(path, name) for name in names]
    if not os.path.exists(path):
        folder, name = os.path.split(path)
        near = os.listdir(folder or ".") if os.path.isdir(folder or ".") else []
        hint = nearest(name, near) if near else f"the folder {folder!r} does not exist"
        raise TaskLoadError(f"{path}: there is no such file or folder; {hint}")
    if not path.endswith(_YAML + _JSONL):
        raise TaskLoadError(f"{path}: a task file ends in .yaml, .yml or .jsonl")
    return [path]


def _load_yaml(path: str, default_match: str) -> list[TaskSpec | TaskProblem]:
    try:
        tree = load_yaml_file(path)
    except ConfigError as error:
        raise TaskLoadError(error.message) from error
    rows = _rows_of(tree, path)
    folder = os.path.dirname(os.path.abspath(path))
    return [_build(row, f"{path}:{_line(row)}", folder, default_match) for row in rows]


def _line(row: Any) -> int:
    return int(getattr(row, "line", 0))


def _rows_of(tree: Any, path: str) -> list[Any]:
    if isinstance(tree, Scalar) and tree.is_null:
        raise TaskLoadError(f"{path}: is empty; it needs a list under tasks:")
    if not isinstance(tree, Map):
        raise TaskLoadError(f"{path}: the top level must be a mapping with the key tasks")
    known = _SUITE_TOP if path.endswith(tuple(f".agentcompass{end}" for end in _YAML)) else _TOP
    for key in tree:
        if key not in known:
            raise TaskLoadError(f"{path}:{tree.lines[key]}: {key!r} is not known in a task file; {nearest(key, known)}")
    rows = tree.get("tasks")
    if rows is None:
        raise TaskLoadError(f"{path}: has no list of tasks (key tasks)")
    if not isinstance(rows, Seq):
        raise TaskLoadError(f"{path}:{tree.lines['tasks']}: tasks must be a list")
    return rows


def _load_jsonl(path: str, default_match: str) -> list[TaskSpec | TaskProblem]:
    folder = os.path.dirname(os.path.abspath(path))
    items: list[TaskSpec | TaskProblem] = []
    numbered = False
    for line, raw in _lines(path):
        source = f"{path}:{line}"
        try:
            row = _parse(raw)
        except ValueError as error:
            items.append(TaskProblem(f"line {line}", f"{source}: {error}", source))
            continue
        item = _build(row, source, folder, default_match)
        if not numbered and isinstance(item, TaskSpec) and _is_number_as_text(row, item):
            numbered = True
            text = f"{source}: answers given as numbers are compared as text (here {item.ground_truth!r})"
            item.warnings = (text,)
        items.append(item)
    return items


def _lines(path: str) -> Iterator[tuple[int, bytes]]:
    """Yield line number and bytes of each line that is not blank; only a line feed ends a line."""
    try:
        with open(path, "rb") as stream:
            content = stream.read()
    except OSError as error:
        raise TaskLoadError(f"{path}: cannot be read: {error.strerror or error}") from error
    for line, raw in enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if raw := raw.strip(b" \t\r"):
            yield line, raw


def _parse(raw: bytes) -> dict[str, Any]:
    try:
        written = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"is no UTF-8 text (byte {error.start + 1} of the line)") from None
    try:
        row = _decoder.decode(written)
    except json.JSONDecodeError as error:
        raise ValueError(f"is no JSON object: {error.msg} (column {error.colno})") from None
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    if not isinstance(row, dict):
        raise ValueError("is no JSON object: every line holds one, such as {...}")
    if "\\u" in written:
        _check_characters(row)
    return row


def _check_characters(value: Any) -> None:
    """Refuse what no file and no process can take; only an escape can bring it into JSON."""
    if isinstance(value, str):
        if "\0" in value:
            raise ValueError(f"holds a NUL character in {value[:60]!r}")
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise ValueError(f"holds half of a surrogate pair in {value[:60]!r}") from None
    elif isinstance(value, dict):
        for key, item in value.items():
            _check_characters(key)
            _check_characters(item)
    elif isinstance(value, list):
        for item in value:
            _check_characters(item)


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice!r} is given twice")
    return row


def _constant(name: str) -> Any:
    raise ValueError(f"holds {name}, which is no JSON")


def _float(written: str) -> float:
    value = float(written)
    if not math.isfinite(value):
        raise ValueError(f"holds the number {written}, which is too large")
    return value


_decoder = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_constant, parse_float=_float)


def _is_number_as_text(row: dict[str, Any], task: TaskSpec) -> bool:
    value = row.get("answer", row.get("expected"))
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    return bool(task.metadata[KEY]["match"] != "numeric")


def _build(row: Any, source: str, folder: str, default_match: str) -> TaskSpec | TaskProblem:
    """Return the task of a row, or the problem that names the row, the field and what is allowed."""
    if not isinstance(row, dict):
        return TaskProblem(f"line {source.rpartition(':')[2]}", f"{source}: a task must be a mapping", source)
    try:
        task = build_task(row, source, folder, default_match)
        if isinstance(row, Map):
            _check_characters(task.to_row())
        return task
    except (ConfigError, ValueError) as error:
        message = str(error)
        file = source.rpartition(":")[0]
        if not message.startswith(f"{file}:"):
            message = f"{source}: {message}"
        return TaskProblem(_name(row, source), message, source)


def _name(row: dict[str, Any], source: str) -> str:
    """Return the id of a broken row where it can be shown, else its line."""
    value = row.get("id")
    name = value.text if isinstance(value, Scalar) and not value.is_null else value
    if isinstance(name, str) and name.strip() and name.isprintable():
        return name
    return f"line {source.rpartition(':')[2]}"


def _without_duplicates(items: list[TaskSpec | TaskProblem]) -> list[TaskSpec | TaskProblem]:
    """Replace tasks that share an id by one problem that names all their rows: none of them is the right one."""
    places: dict[str, list[str]] = {}
    for item in items:
        if isinstance(item, TaskSpec):
            places.setdefault(item.task_id, []).append(item.source)
    doubled = {task_id: rows for task_id, rows in places.items() if len(rows) > 1}
    if not doubled:
        return items
    result: list[TaskSpec | TaskProblem] = []
    for item in items:
        if not isinstance(item, TaskSpec) or item.task_id not in doubled:
            result.append(item)
        elif item.source == doubled[item.task_id][0]:
            result.append(_duplicate(item.task_id, doubled[item.task_id]))
    return result


def _duplicate(task_id: str, rows: list[str]) -> TaskProblem:
    where = " and ".join(rows)
    return TaskProblem(task_id, f"task id {task_id!r} is given {len(rows)} times: {where}; ids must differ", rows[0])
