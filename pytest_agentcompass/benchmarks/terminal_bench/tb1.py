"""Loading Terminal-Bench 1 tasks: `task.yaml`, compose, `run-tests.sh`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...contracts.task import TaskSpec
from ...errors import TaskLoadError
from .compose import read_compose, service_hints
from .content import content_hash
from .fields import Fields, read_task_text, read_yaml

__all__ = ["PARSERS", "load_tb1", "read_keystrokes"]

PARSERS = ("pytest", "swebench", "swelancer", "mlebench", "sweperf")
_DIFFICULTIES = ("easy", "medium", "hard", "unknown")
_KNOWN = [
    "instruction",
    "difficulty",
    "author_name",
    "author_email",
    "category",
    "tags",
    "parser_name",
    "max_agent_timeout_sec",
    "max_test_timeout_sec",
    "run_tests_in_same_shell",
    "disable_asciinema",
    "estimated_duration_sec",
    "expert_time_estimate_min",
    "junior_time_estimate_min",
    "descriptions",
    "author",
]


def load_tb1(folder: Path, environ: Mapping[str, str] = os.environ) -> TaskSpec:
    """Return the task of *folder*; TaskLoadError names file, line and field of what is wrong."""
    fields, _ = read_yaml(folder / "task.yaml")
    warnings = fields.misspelt(_KNOWN)
    question = _instruction(fields, warnings)
    agent, tests = fields.number("max_agent_timeout_sec", 360.0), fields.number("max_test_timeout_sec", 60.0)
    estimate = fields.number("estimated_duration_sec", zero=True)
    metadata = _metadata(folder, fields)
    if not (folder / "run-tests.sh").is_file():
        raise TaskLoadError(f"{folder / 'run-tests.sh'}: is missing, so the task cannot be graded")
    content = content_hash(folder)
    hints = _environment(folder, metadata, warnings, content, environ)
    assert agent is not None and tests is not None
    return TaskSpec(
        task_id=folder.name,
        question=question,
        category=fields.text("category") or "software_engineering",
        metadata=metadata,
        tags=fields.texts("tags"),
        difficulty=_difficulty(fields, warnings),
        environment=hints,
        run_timeout_seconds=agent,
        evaluation_timeout_seconds=tests,
        has_solution=metadata["solution"] is not None,
        estimated_seconds=(agent + tests) / 2 if estimate is None else estimate,
        source=str(folder / "task.yaml"),
        warnings=tuple(warnings),
        fingerprint=content,
    )


def _instruction(fields: Fields, warnings: list[str]) -> str:
    text = fields.text("instruction")
    if text and text.strip():
        return _named_description(fields, text, warnings) or text
    if fields.data.get("descriptions"):
        return _description(fields, warnings)
    near = [name for name in ("description", "prompt", "task", "name") if name in fields.data]
    found = f"; found {', '.join(map(repr, near))}, which the format does not define" if near else ""
    raise TaskLoadError(f"{fields.path}: instruction is required and not set{found}")


def _named_description(fields: Fields, name: str, warnings: list[str]) -> str | None:
    """Return the descriptions where the instruction is no more than the key of one of them."""
    if not isinstance(fields.data.get("descriptions"), list):
        return None
    entries = fields.tables("descriptions")
    if name.strip() not in [entry.data.get("key") for entry in entries]:
        return None
    warnings.append(
        f"{fields.where('instruction')}: instruction {name.strip()!r} is only the key of an entry of 'descriptions'; "
        f"the agent gets the text of all {len(entries)} entries"
    )
    return "\n\n".join(str(entry.text("description") or "").strip() for entry in entries)


def _description(fields: Fields, warnings: list[str]) -> str:
    """Return the instruction of the older form: the entry `base` (else the first) of `descriptions`."""
    entries = fields.tables("descriptions")
    chosen = next((entry for entry in entries if entry.data.get("key") == "base"), entries[0])
    text = chosen.text("description")
    if not text or not text.strip():
        raise chosen.wrong("description", "the instruction")
    key = chosen.data.get("key", "first")
    warnings.append(f"{fields.path}: has no 'instruction'; the {key!r} entry of 'descriptions' is used")
    return text


def _difficulty(fields: Fields, warnings: list[str]) -> str:
    if "difficulty" not in fields.data:
        warnings.append(f"{fields.path}: has no 'difficulty'; 'unknown' is used")
    return fields.choice("difficulty", _DIFFICULTIES, "unknown")


def _metadata(folder: Path, fields: Fields) -> dict[str, Any]:
    solution = next((name for name in ("solution.sh", "solution.yaml") if (folder / name).is_file()), None)
    if solution == "solution.yaml":
        read_keystrokes(folder / solution)
    return {
        "format": "tb1",
        "dir": str(folder),
        "parser": fields.choice("parser_name", PARSERS, "pytest"),
        "same_shell": fields.flag("run_tests_in_same_shell"),
        "record": not fields.flag("disable_asciinema"),
        "author": fields.text("author_name") or "",
        "expert_minutes": fields.number("expert_time_estimate_min", zero=True),
        "junior_minutes": fields.number("junior_time_estimate_min", zero=True),
        "solution": solution,
    }


def read_keystrokes(path: Path) -> list[dict[str, Any]]:
    """Return the entries of a `solution.yaml`; TaskLoadError names what is wrong with one."""
    from ...components.yaml_file import load_yaml_text, typed

    data = typed(load_yaml_text(read_task_text(path), str(path)))
    if not isinstance(data, list) or not all(isinstance(item, dict) for item in data):
        raise TaskLoadError(f"{path}: must hold a list of entries with a 'command' each")
    return [_keystroke(Fields(item, path, {}, f"[{index}]")) for index, item in enumerate(data)]


def _keystroke(entry: Fields) -> dict[str, Any]:
    command = entry.data.get("command")
    if isinstance(command, (int, float)) and not isinstance(command, bool):
        command = str(command)
    if not isinstance(command, str):
        raise entry.wrong("command", "a text")
    return {
        "command": command,
        "min_timeout_sec": entry.number("min_timeout_sec", 0.0, zero=True),
        "max_timeout_sec": entry.number("max_timeout_sec", 180.0),
        "block": entry.flag("block"),
        "append_enter": entry.flag("append_enter", True),
    }


def _environment(
    folder: Path, metadata: dict[str, Any], warnings: list[str], content: str, environ: Mapping[str, str]
) -> dict[str, Any]:
    path = folder / "docker-compose.yaml"
    if not path.is_file():
        if not (folder / "Dockerfile").is_file():
            raise TaskLoadError(f"{path}: is missing, and there is no Dockerfile either")
        return {"build": {"context": str(folder), "dockerfile": "Dockerfile"}}
    compose = read_compose(path, environ)
    hints = service_hints(compose, "client", {}, build_timeout=600.0, content=content)
    metadata["log_dirs"], metadata["uploads"] = sorted(set(compose.log_dirs)), compose.uploads
    warnings += compose.notes
    if "compose" in hints:
        metadata["compose_dir"] = str(Path(hints["compose"]["file"]).parent)
    return hints
