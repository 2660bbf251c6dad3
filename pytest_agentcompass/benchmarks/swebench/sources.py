"""Where rows stand: files of rows, task repositories, and one row read again when it is needed.

Tasks hold no patch and no script: they point at their row (`FILE:LINE`, or a task folder), and whoever
prepares or grades an attempt reads that one row again. A digest tells when it is not the same any more.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from ...components.yaml_file import load_yaml_mapping, typed
from ...errors import AgentCompassError, TaskLoadError
from .rows import Row, parse_row, row_digest

__all__ = ["Found", "read_rows", "reload_row"]

#: source text, row number (from 1), and the row or why it is none
Found = tuple[str, int, dict[str, Any] | TaskLoadError]

_FILES = {
    "patch": "gold.patch",
    "test_patch": "test.patch",
    "eval_script": "eval.sh",
    "problem_statement": "problem_statement.md",
    "hints_text": "hints.md",
}
_OPTIONAL = frozenset({"hints_text"})
_TASK_FILE = "task.yaml"
_SUFFIXES = (".jsonl", ".json")


def read_rows(path: Path, split: str = "test") -> Iterator[Found]:
    """Yield the rows of a `.jsonl` or `.json` file, a folder with `SPLIT.jsonl`, or a task repository.

    Raises TaskLoadError when nothing can be read; a single broken row is yielded as its error.
    """
    if path.is_dir():
        yield from _read_folder(path, split)
    elif not path.exists():
        raise TaskLoadError(f"benchmark.dataset: {path} does not exist")
    elif path.suffix == ".jsonl":
        yield from _read_lines(path)
    elif path.suffix == ".json":
        yield from _read_list(path)
    else:
        raise TaskLoadError(f"benchmark.dataset: {path} is none of {', '.join(_SUFFIXES)}, .parquet, or a folder")


def reload_row(source: str, digest: str) -> Row:
    """Return the row that a task points at; TaskLoadError when it is gone or not the collected one any more."""
    raw = _raw_row(source)
    if row_digest(raw) != digest:
        raise TaskLoadError(f"{source}: the row has changed since its task was collected; start a new run")
    return parse_row(raw)


def _raw_row(source: str) -> dict[str, Any]:
    if Path(source).is_dir():
        return _read_task(Path(source))
    name, _, number = source.rpartition(":")
    path = Path(name)
    try:
        row = _parsed_list(path)[int(number) - 1] if path.suffix == ".json" else json.loads(_line(path, int(number)))
    except (OSError, ValueError, IndexError) as error:
        raise TaskLoadError(f"{source}: the row cannot be read again: {error}") from error
    if not isinstance(row, dict):
        raise TaskLoadError(f"{source}: holds no row any more")
    return row


# ---------------------------------------------------------------- files of rows


def _read_lines(path: Path) -> Iterator[Found]:
    """Yield one row per line; lines end at a line feed only, so other separators may stand inside of texts."""
    with _opened(path) as file:
        for number, line in enumerate(file, 1):
            content = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
            if not content.strip():
                continue
            try:
                row = json.loads(content)
            except (ValueError, RecursionError) as error:
                yield f"{path}:{number}", number, TaskLoadError(f"not JSON: {error}")
                continue
            yield f"{path}:{number}", number, _object(row)


def _opened(path: Path) -> Any:
    try:
        return path.open("rb")
    except OSError as error:
        raise TaskLoadError(f"{path}: cannot be read: {error.strerror or error}") from error


def _object(row: Any) -> dict[str, Any] | TaskLoadError:
    return row if isinstance(row, dict) else TaskLoadError("a row must be an object with columns")


def _line(path: Path, number: int) -> bytes:
    offsets = _offsets(path, path.stat().st_mtime_ns, path.stat().st_size)
    with path.open("rb") as file:
        file.seek(offsets[number - 1])
        return file.readline().removeprefix(b"\xef\xbb\xbf")


@lru_cache(maxsize=8)
def _offsets(path: Path, mtime: int, size: int) -> tuple[int, ...]:
    """Return where each line of a file begins; mtime and size make an edited file another key."""
    found, position = [], 0
    with path.open("rb") as file:
        for line in file:
            found.append(position)
            position += len(line)
    return tuple(found)


def _read_list(path: Path) -> Iterator[Found]:
    for number, row in enumerate(_parsed_list(path), 1):
        yield f"{path}:{number}", number, _object(row)


def _parsed_list(path: Path) -> list[Any]:
    try:
        rows = json.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise TaskLoadError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise TaskLoadError(f"{path}: not JSON: {error}") from error
    if not isinstance(rows, list):
        raise TaskLoadError(f"{path}: a .json file of rows holds one list of objects (one object a line is .jsonl)")
    return rows


# ---------------------------------------------------------------- folders


def _read_folder(path: Path, split: str) -> Iterator[Found]:
    if (path / "tasks").is_dir():
        yield from _read_repository(path, split)
        return
    for suffix in _SUFFIXES:
        if (path / f"{split}{suffix}").is_file():
            yield from read_rows(path / f"{split}{suffix}")
            return
    raise TaskLoadError(
        f"benchmark.dataset: {path} holds neither tasks/ (a task repository) nor {split}.jsonl, {split}.json "
        f"or {split}.parquet"
    )


def _read_repository(path: Path, split: str) -> Iterator[Found]:
    """Yield the tasks of *split* of a task repository, sorted by name; a task without a split belongs to all."""
    folders = sorted(item for item in (path / "tasks").iterdir() if (item / _TASK_FILE).is_file())
    if not folders:
        raise TaskLoadError(f"{path / 'tasks'}: holds no task folder (one with a {_TASK_FILE})")
    for number, folder in enumerate(folders, 1):
        try:
            row = _read_task(folder)
        except AgentCompassError as error:
            yield str(folder), number, TaskLoadError(error.message)
            continue
        if row.get("split") in (None, split):
            yield str(folder), number, row


def _read_task(folder: Path) -> dict[str, Any]:
    row: dict[str, Any] = typed(load_yaml_mapping(folder / _TASK_FILE))
    for column, name in _FILES.items():
        try:
            row[column] = (folder / name).read_bytes().decode("utf-8")
        except FileNotFoundError:
            if column not in _OPTIONAL:
                raise TaskLoadError(f"{folder / name}: is missing") from None
        except UnicodeDecodeError as error:
            raise TaskLoadError(f"{folder / name}: is no UTF-8 text: {error}") from error
    try:
        row.update(json.loads((folder / "tests.json").read_bytes()))
    except FileNotFoundError:
        raise TaskLoadError(f"{folder / 'tests.json'}: is missing") from None
    except (ValueError, TypeError) as error:
        raise TaskLoadError(f"{folder / 'tests.json'}: is no JSON object of test lists: {error}") from error
    row.setdefault("instance_id", folder.name)
    return row
