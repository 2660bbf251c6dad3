"""From rows to tasks, by the mapping of columns."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...components.answers import check_expected
from ...contracts.task import TaskProblem, TaskSpec
from ...errors import ConfigError, TaskLoadError, nearest
from .params import QaFields, QaParams
from .rows import read_rows

__all__ = ["KEY", "LETTERS", "load_tasks", "oracle_answer"]

KEY = "qa"
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_COMPARED = ("exact", "normalized", "numeric", "regex")
_ROLES = ("system", "user", "assistant")


def load_tasks(params: QaParams) -> list[TaskSpec | TaskProblem]:
    """Return the tasks of the rows that the filter keeps, in order; a row that cannot be used is a problem."""
    items: list[TaskSpec | TaskProblem] = []
    kept = 0
    for source, number, row in read_rows(params):
        if isinstance(row, str):
            items.append(TaskProblem(f"row {number}", f"{source}: {row}", source))
            continue
        try:
            if not _kept(row, params.filter):
                continue
            kept += 1
            items.append(_task(row, number, source, params))
        except ConfigError as error:
            items.append(TaskProblem(f"row {number}", f"{source}: {error.message}", source))
    if not items:
        what = "the filter keeps no row" if params.filter else "holds no row"
        raise TaskLoadError(f"{params.path or params.dataset}: {what}")
    return _unique(items)


def _unique(items: list[TaskSpec | TaskProblem]) -> list[TaskSpec | TaskProblem]:
    seen: dict[str, str] = {}
    for at, item in enumerate(items):
        if isinstance(item, TaskProblem):
            continue
        first = seen.setdefault(item.task_id, item.source)
        if first != item.source:
            text = (
                f"{item.source}: the id {item.task_id!r} was given before, at {first}; map fields.id to another column"
            )
            items[at] = TaskProblem(item.task_id, text, item.source)
    return items


def _kept(row: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    for column, value in wanted.items():
        found = _column(row, column, f"filter.{column}")
        values = value if isinstance(value, (list, tuple)) else [value]
        if not any(found == item or str(found) == str(item) for item in values):
            return False
    return True


def _column(row: Mapping[str, Any], name: str, what: str) -> Any:
    if name in row:
        return row[name]
    value: Any = row
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            raise ConfigError(f"{what}: there is no column {name!r}; {nearest(name, row)}")
        value = value[part]
    return value


def _task(row: Mapping[str, Any], number: int, source: str, params: QaParams) -> TaskSpec:
    fields = params.fields

    def get(name: str) -> Any:
        column = getattr(fields, name)
        return None if column is None else _column(row, column, f"fields.{name}")

    task_id = _text(get("id")) if fields.id else _text(row.get("id")) or f"{number:05d}"
    question = _text(get("question"))
    messages = _messages(get("messages"))
    if not task_id.strip():
        raise ConfigError(f"fields.id: the column {fields.id!r} is empty")
    if not question.strip() and not messages:
        raise ConfigError(f"fields.question: the column {fields.question!r} is empty")
    own: dict[str, Any] = {"messages": messages, "media": _media(get("image"), get("audio"), params)}
    own |= {"file": _file(get("file"), params), "tests": _text(get("tests"))}
    answer, own["choices"] = _answer(row, task_id, params)
    own["solution"] = _text(get("solution"))
    tags = get("tags")
    return TaskSpec(
        task_id=task_id,
        question=question + _listed(own["choices"]) + _suffix(params),
        category=_text(get("category")),
        difficulty=_text(get("difficulty")),
        tags=tuple(str(tag) for tag in tags) if isinstance(tags, list) else tuple(filter(None, [_text(tags)])),
        ground_truth=answer,
        metadata={
            KEY: {key: value for key, value in own.items() if value}
            | {"system_prompt": _text(get("system_prompt")) or params.system_prompt or "", "plain_question": question}
        },
        environment={"evaluation_environment_mode": "reuse"} if params.grader.kind == "code" else {},
        has_solution=bool(own["solution"] or _solution(answer, params)),
        source=source,
    )


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, (str, int, float)) and not isinstance(value, bool):
        return str(value)
    return json.dumps(value, ensure_ascii=False)


def _answer(row: Mapping[str, Any], task_id: str, params: QaParams) -> tuple[Any, list[str]]:
    fields, kind = params.fields, params.grader.kind
    if kind == "code":
        if not fields.tests or not _text(_column(row, fields.tests, "fields.tests")).strip():
            raise ConfigError("grader code needs fields.tests, the column with the program that grades")
        return None, []
    value = _column(row, fields.answer, "fields.answer")
    if value is None or not _text(value).strip():
        raise ConfigError(f"fields.answer: the column {fields.answer!r} is empty")
    if kind == "choice":
        return _choice(row, value, task_id, params)
    if kind == "json":
        return _json(value), []
    expected = [_text(item) for item in value] if isinstance(value, list) else _text(value)
    if kind in _COMPARED:
        for item in expected if isinstance(expected, list) else [expected]:
            check_expected(item, kind)
    return expected, []


def _json(value: Any) -> Any:
    """Return the value that is wanted; a text is read as JSON where it is JSON."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _choice(row: Mapping[str, Any], answer: Any, task_id: str, params: QaParams) -> tuple[str, list[str]]:
    options, shuffle = _options(row, params.fields), params.shuffle_choices
    if not options:  # they stand in the question; the answer is the letter
        letter = _text(answer).strip().strip("().").upper()
        if letter not in LETTERS or len(letter) != 1:
            raise ConfigError(f"fields.answer: {answer!r} is no letter, and fields.choices names no options")
        return letter, []
    if not 2 <= len(options) <= len(LETTERS):
        raise ConfigError(f"fields.choices: {len(options)} options; there must be 2 to {len(LETTERS)}")
    right = _right(answer, options)
    if shuffle or (shuffle is None and isinstance(params.fields.choices, tuple)):
        text = options[right]
        options = sorted(options, key=lambda item: hashlib.sha256(f"{task_id}\0{item}".encode()).digest())
        right = options.index(text)
    return LETTERS[right], options


def _options(row: Mapping[str, Any], fields: QaFields) -> list[str]:
    if fields.choices is None:
        return []
    if isinstance(fields.choices, str):
        value = _column(row, fields.choices, "fields.choices")
        value = _json(value)
        if isinstance(value, Mapping):  # {"text": [...], "label": [...]}
            value = value.get("text", list(value.values()))
        if not isinstance(value, list):
            raise ConfigError(f"fields.choices: the column {fields.choices!r} holds no list")
        options = [_text(item).strip() for item in value]
    else:
        options = [_text(_column(row, name, "fields.choices")).strip() for name in fields.choices]
    if len(set(options)) != len(options):
        raise ConfigError(f"fields.choices: two options are the same: {options!r}")
    return options


def _right(answer: Any, options: list[str]) -> int:
    """Return which option is right: *answer* is its text, its letter, or its number from 0."""
    text = _text(answer).strip()
    if text in options:
        return options.index(text)
    letters = LETTERS[: len(options)]
    if len(text) == 1 and text.upper() in letters:
        return letters.index(text.upper())
    if text.isdecimal() and int(text) < len(options):
        return int(text)
    raise ConfigError(f"fields.answer: {text!r} is none of the options {options!r}, nor a letter or number of one")


def _listed(choices: list[str]) -> str:
    return "\n\n" + "\n".join(f"{LETTERS[at]}) {text}" for at, text in enumerate(choices)) if choices else ""


_SUFFIXES = {
    "choice": "Answer with the letter of the right option.",
    "json": "Answer with JSON and nothing else.",
    "code": "Answer with the program in one code block.",
}


def _suffix(params: QaParams) -> str:
    suffix = params.prompt_suffix if params.prompt_suffix is not None else _SUFFIXES.get(params.grader.kind, "")
    return f"\n\n{suffix}" if suffix else ""


def _solution(answer: Any, params: QaParams) -> str:
    """Return the oracle's answer, where the right answer is one."""
    if params.grader.kind in ("regex", "code"):
        return ""
    if params.grader.kind == "json":
        return json.dumps(answer, ensure_ascii=False)
    return str(answer[0] if isinstance(answer, list) else answer)


def oracle_answer(task: TaskSpec, params: QaParams) -> str:
    """Return what the oracle answers; empty where nobody knows a right answer."""
    return task.metadata[KEY].get("solution") or _solution(task.ground_truth, params)


def _messages(value: Any) -> list[dict[str, str]]:
    value = _json(value)
    if value in (None, ""):
        return []
    if not isinstance(value, list):
        raise ConfigError("fields.messages: the column holds no list of messages")
    for item in value:
        good = isinstance(item, Mapping) and item.get("role") in _ROLES and isinstance(item.get("content"), str)
        if not good:
            raise ConfigError(f"fields.messages: a message has role ({', '.join(_ROLES)}) and content, not {item!r}")
    return [{"role": item["role"], "content": item["content"]} for item in value]


def _media(image: Any, audio: Any, params: QaParams) -> list[dict[str, str]]:
    found = []
    for kind, value in (("image", image), ("audio", audio)):
        for item in value if isinstance(value, list) else [value]:
            text = _text(item)
            if not text.strip():
                continue
            if text.startswith("data:"):
                head, _, data = text.partition(",")
                found.append({"type": kind, "data": data, "mime_type": head[5:].partition(";")[0]})
            elif text.startswith(("http://", "https://")):
                found.append({"type": kind, "url": text})
            else:
                found.append({"type": kind, "path": _local(text, params, f"fields.{kind}")})
    return found


def _file(value: Any, params: QaParams) -> str:
    text = _text(value)
    return _local(text, params, "fields.file") if text.strip() else ""


def _local(name: str, params: QaParams, what: str) -> str:
    """Return the path of a file of the dataset; it may not lead out of the dataset's folder."""
    base = Path(os.path.expanduser(params.files_dir or str(Path(params.path or ".").parent))).absolute()
    path = Path(os.path.normpath(base / name))
    if base != path and base not in path.parents:
        raise ConfigError(f"{what}: {name!r} leads out of {base}")
    if not path.is_file():
        raise ConfigError(f"{what}: {path} does not exist; set files_dir")
    return str(path)
