"""Reading the fields of one task, from YAML (text as written) or JSON, into a TaskSpec."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from ...components.answers import check_expected
from ...components.yaml_file import Map, Scalar, line_of, number, text, typed
from ...contracts.environment import EnvironmentSpec
from ...contracts.task import Artifact, TaskSpec
from ...errors import ConfigError, nearest
from .places import clash

__all__ = ["FIELDS", "KEY", "RUN_SECONDS", "VERIFY_SECONDS", "build_task"]

KEY = "_tasks"  # where TaskSpec.metadata holds what this benchmark needs itself
RUN_SECONDS = 1800.0
VERIFY_SECONDS = 600.0
FIELDS = frozenset(
    {
        "answer",
        "answer_file",
        "artifacts",
        "category",
        "difficulty",
        "env",
        "environment",
        "estimated_seconds",
        "expected",
        "files",
        "id",
        "image",
        "instruction",
        "match",
        "metadata",
        "network",
        "question",
        "setup",
        "solution",
        "tags",
        "timeout",
        "tolerance",
        "verify",
        "verify_files",
        "verify_timeout",
        "workdir",
    }
)


def build_task(fields: Mapping[str, Any], source: str, folder: str, default_match: str) -> TaskSpec:
    """Return the task that the row *fields* describes; *folder* is where its local files are looked for.

    Raises ConfigError, with the line where it is known, for whatever cannot be used.
    """
    _check_names(fields)
    task_id = _id(fields)
    instruction = _required_text(fields, _either(fields, "instruction", "question"))
    own: dict[str, Any] = {}
    verify = _command(fields, "verify")
    expected = _expected(fields, own, default_match)
    if verify is None and expected is None:
        raise ConfigError("has neither verify (a command) nor answer: nothing could be graded")
    _store(own, "verify", verify)
    _store(own, "setup", _commands(fields, "setup"))
    _store(own, "answer_file", _path(fields, "answer_file"))
    hashes: list[bytes] = []
    for name in ("files", "verify_files"):
        _store(own, name, _files(fields, name, folder, hashes))
    solution = _command(fields, "solution")
    _store(own, "solution", solution)
    user = typed(fields.get("metadata")) or {}
    if not isinstance(user, dict):
        raise _error(fields, "metadata", "must be a mapping")
    if KEY in user:
        raise _error(fields, "metadata", f"may not hold the key {KEY!r}")
    task = TaskSpec(
        task_id,
        instruction,
        category=_optional_text(fields, "category"),
        difficulty=_optional_text(fields, "difficulty"),
        ground_truth=expected,
        metadata={**user, KEY: own} if own else user,
        tags=tuple(_texts(fields, "tags")),
        environment=_hints(fields, needs_sandbox=verify is not None),
        run_timeout_seconds=_seconds(fields, "timeout", RUN_SECONDS),
        evaluation_timeout_seconds=_seconds(fields, "verify_timeout", VERIFY_SECONDS),
        artifacts=tuple(_artifacts(fields)),
        has_solution=solution is not None or (verify is None and own.get("match") != "regex"),
        source=source,
        fingerprint=hashlib.sha256(b"".join(hashes)).hexdigest() if hashes else "",
    )
    if "estimated_seconds" in fields:
        task.estimated_seconds = _seconds(fields, "estimated_seconds", 0.0)
    return task


def _store(own: dict[str, Any], name: str, value: Any) -> None:
    if value:
        own[name] = value


def _check_names(row: Mapping[str, Any]) -> None:
    for name in row:
        if name not in FIELDS:
            raise _error(
                row, name, f"is no field of a task; {nearest(name, FIELDS)} (your own data goes under metadata)"
            )


def _either(row: Mapping[str, Any], name: str, alias: str) -> str:
    """Return under which of its two names the row holds a field."""
    if name in row and alias in row:
        raise _error(row, alias, f"and {name} are the same field; give one of them")
    return alias if alias in row else name


def _error(row: Mapping[str, Any], name: str, message: str) -> ConfigError:
    line = line_of(row, name)
    place = f"{getattr(row, 'source', '')}:{line}: " if line else ""
    return ConfigError(f"{place}{name} {message}")


def _id(fields: Mapping[str, Any]) -> str:
    task_id = _required_text(fields, "id")
    if not task_id.strip():
        raise _error(fields, "id", f"is {'blank' if task_id else 'empty'}; every task needs one")
    return task_id


def _required_text(fields: Mapping[str, Any], name: str) -> str:
    if name not in fields:
        shown = f"{name} (or question)" if name == "instruction" else name
        raise ConfigError(f"{shown} is missing")
    value = _as_text(fields, name, fields[name])
    if name != "id" and not value.strip():
        raise _error(fields, name, "is empty")
    return value


def _optional_text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    return "" if value is None else _as_text(fields, name, value)


def _as_text(fields: Mapping[str, Any], name: str, value: Any, shown: str = "") -> str:
    if type(value) is str:
        return value
    if isinstance(value, (Scalar, Map)) or isinstance(fields, Map):
        return text(value, shown or name)
    raise _error(fields, shown or name, f"must be a text, not {_json_kind(value)}")


def _json_kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return f"the number {value!r}"
    return "a list" if isinstance(value, list) else "a mapping"


def _texts(fields: Mapping[str, Any], name: str) -> list[str]:
    value = fields.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise _error(fields, name, "must be a list of texts")
    return [_as_text(fields, f"{name}[{index}]", item) for index, item in enumerate(value)]


def _command(fields: Mapping[str, Any], name: str) -> str | list[str] | None:
    """Return a shell text or an argument vector; None when it is not given."""
    if name not in fields:
        return None
    if isinstance(fields[name], list):
        words = _texts(fields, name)
        if not words or not words[0].strip():
            raise _error(fields, name, "is an empty command")
        return words
    return _required_text(fields, name)


def _commands(fields: Mapping[str, Any], name: str) -> list[str]:
    if name not in fields:
        return []
    return _texts(fields, name) if isinstance(fields[name], list) else [_required_text(fields, name)]


def _expected(fields: Mapping[str, Any], own: dict[str, Any], default_match: str) -> str | list[str] | None:
    """Return the expected answer (or the list of those that count), and put how it is compared into *own*."""
    key = _either(fields, "expected", "answer")
    if key not in fields:
        for name in ("match", "tolerance"):
            if name in fields:
                raise _error(fields, name, "says how an answer is compared, but the task has no answer")
        return None
    match = _optional_text(fields, "match") or default_match
    value = fields[key]
    wanted = [_answer(fields, key, item) for item in (value if isinstance(value, list) else [value])]
    if not wanted:
        raise _error(fields, key, "is an empty list")
    for item in wanted:
        check_expected(item, match)
    own["match"] = match
    if "tolerance" in fields:
        if match != "numeric":
            raise _error(fields, "tolerance", "goes with match: numeric only")
        own["tolerance"] = _finite(fields, "tolerance", least=0.0)
    return wanted if isinstance(value, list) else wanted[0]


def _answer(fields: Mapping[str, Any], key: str, value: Any) -> str:
    """Return an answer as text: a number counts as it is written (JSON: as Python writes it)."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    return _as_text(fields, key, value)


def _finite(fields: Mapping[str, Any], name: str, *, least: float) -> float:
    try:
        value = float(number(fields[name], name))
    except OverflowError:
        raise _error(fields, name, "is too large") from None
    if not math.isfinite(value) or value < least:
        raise _error(fields, name, f"must be a finite number of at least {least:g}, not {value:g}")
    return value


def _seconds(fields: Mapping[str, Any], name: str, default: float) -> float:
    if fields.get(name) is None:
        return default
    value = _finite(fields, name, least=0.0)
    if value == 0.0:
        raise _error(fields, name, "must be more than 0 seconds")
    return value


def _path(fields: Mapping[str, Any], name: str) -> str | None:
    return _checked_path(fields, name, _required_text(fields, name)) if name in fields else None


def _checked_path(fields: Mapping[str, Any], name: str, path: str) -> str:
    if not path.strip() or "\0" in path or ".." in path.split("/") or path.endswith("/"):
        raise _error(fields, name, f"holds {path!r}, which is no path of a file in the sandbox (relative, without ..)")
    return path


def _files(fields: Mapping[str, Any], name: str, folder: str, hashes: list[bytes]) -> dict[str, dict[str, Any]]:
    """Return sandbox path -> {text} or {source} with an optional mode."""
    given = fields.get(name)
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise _error(fields, name, "must be a mapping of path to content")
    files = {
        _checked_path(given, name, path): _file(given, path, value, folder, hashes) for path, value in given.items()
    }
    if found := clash(files, name):
        raise _error(given, *found)
    return files


def _file(given: Mapping[str, Any], path: str, value: Any, folder: str, hashes: list[bytes]) -> dict[str, Any]:
    if not isinstance(value, dict):
        return {"text": _content(given, path, value, f"the file {path!r}")}
    known = ("content", "source", "executable")
    for key in value:
        if key not in known:
            raise _error(value, key, f"is not known for the file {path!r}; {nearest(key, known)}")
    if ("content" in value) == ("source" in value):
        raise _error(given, path, "needs either content or source")
    file: dict[str, Any] = {}
    if "source" in value:
        file["source"] = _local(value, folder, hashes)
    else:
        file["text"] = _content(value, "content", value["content"])
    executable = typed(value.get("executable", False))
    if type(executable) is not bool:
        raise _error(value, "executable", "must be true or false")
    if executable:
        file["mode"] = 0o755
    return file


def _content(given: Mapping[str, Any], name: str, value: Any, shown: str = "") -> str:
    if isinstance(value, Scalar):
        return text(value, shown or name, empty=True)
    return _as_text(given, name, value, shown)


def _local(value: Mapping[str, Any], folder: str, hashes: list[bytes]) -> str:
    written = _required_text(value, "source")
    path = os.path.normpath(os.path.join(folder, written))
    try:
        if os.path.isdir(path):
            for base, folders, names in os.walk(path):
                folders.sort()
                hashes.extend(_hash(os.path.join(base, item), path) for item in sorted(names))
        else:
            hashes.append(_hash(path, folder))
    except OSError as error:
        raise _error(value, "source", f"{written!r} cannot be read: {error.strerror or error} ({path})") from None
    return path


def _hash(path: str, folder: str) -> bytes:
    name = os.path.relpath(path, folder).encode("utf-8", "surrogateescape")
    if os.path.islink(path) and not os.path.exists(path):
        content = os.readlink(path).encode("utf-8", "surrogateescape")
    else:
        with open(path, "rb") as stream:
            content = stream.read()
    return hashlib.sha256(name + b"\0" + content).digest()


def _artifacts(fields: Mapping[str, Any]) -> list[Artifact]:
    given = fields.get("artifacts")
    if given is None:
        return []
    if not isinstance(given, list):
        raise _error(fields, "artifacts", "must be a list of paths")
    return [_artifact(fields, item) for item in given]


def _artifact(fields: Mapping[str, Any], item: Any) -> Artifact:
    if not isinstance(item, dict):
        return Artifact(_as_text(fields, "artifacts", item))
    known = ("source", "destination", "exclude", "service")
    for key in item:
        if key not in known:
            raise _error(item, key, f"is not known for an artifact; {nearest(key, known)}")
    return Artifact(
        _required_text(item, "source"),
        _optional_text(item, "destination") or None,
        tuple(_texts(item, "exclude")),
        _optional_text(item, "service") or None,
    )


def _hints(fields: Mapping[str, Any], *, needs_sandbox: bool) -> dict[str, Any]:
    """Return the environment hints, checked against EnvironmentSpec."""
    given = fields.get("environment")
    hints = _given_hints(fields, given) if given is not None else {}
    for name in ("image", "workdir"):
        if name in fields:
            hints[name] = _required_text(fields, name)
    if fields.get("env") is not None:
        hints["env_variables"] = {**hints.get("env_variables", {}), **_variables(fields, "env")}
    if fields.get("network") is not None:
        policy = typed(fields["network"])
        hints |= {f"{phase}_network_policy": policy for phase in ("baseline", "run", "evaluation")}
    if not needs_sandbox:
        # An answer is graded without the sandbox, so it can be graded again from the record alone.
        hints.setdefault("evaluation_environment_mode", "none")
    if hints and hints != {"evaluation_environment_mode": "none"}:
        _check_hints(fields, hints)
    return hints


def _given_hints(fields: Mapping[str, Any], given: Any) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise _error(fields, "environment", "must be a mapping")
    known = set(EnvironmentSpec.model_fields) - {"id", "params"}
    for key in given:
        if key not in known:
            raise _error(given, key, f"is no hint that a task can give; {nearest(key, known)}")
    hints = {key: typed(value) for key, value in given.items()}
    for key in ("env_variables", "run_env_variables", "evaluation_env_variables"):
        if key in given:
            hints[key] = _variables(given, key)
    return hints


def _variables(fields: Mapping[str, Any], name: str) -> dict[str, str]:
    given = fields[name]
    if not isinstance(given, dict):
        raise _error(fields, name, "must be a mapping of names to texts")
    return {key: _content(given, key, value, f"the variable {key!r}") for key, value in given.items()}


def _check_hints(fields: Mapping[str, Any], hints: dict[str, Any]) -> None:
    try:
        EnvironmentSpec.model_validate(hints)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        line = next((line_of(fields, name) for name in ("environment", "network", "env") if name in fields), 0)
        place = f"{getattr(fields, 'source', '')}:{line}: " if line else ""
        what = str(first["msg"]).removeprefix("Value error, ")
        raise ConfigError(f"{place}environment hint {key}: {what} (got {first['input']!r})") from None
