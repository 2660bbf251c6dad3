"""Loading Terminal-Bench 2 (Harbor) tasks: `task.toml`, `environment/`, `tests/test.sh`, steps."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...contracts.task import Artifact, TaskSpec
from ...errors import TaskLoadError
from .content import content_hash
from .fields import Fields, read_task_text, read_toml
from .params import TerminalBenchParams
from .tb2_environment import environment_hints, expanded, healthcheck, network_hints

__all__ = ["load_tb2"]

_KNOWN = {
    "": "version schema_version source artifacts multi_step_reward_strategy steps task metadata agent verifier "
    "environment solution reward_range",
    "agent": "timeout_sec user network_mode allowed_hosts",
    "verifier": "timeout_sec env user environment_mode environment collect network_mode allowed_hosts",
    "environment": "build_timeout_sec docker_image os cpus memory_mb storage_mb gpus gpu_types tpu mcp_servers env "
    "skills_dir healthcheck workdir network_mode allowed_hosts allow_internet memory storage",
}


def load_tb2(folder: Path, params: TerminalBenchParams, environ: Mapping[str, str] = os.environ) -> TaskSpec:
    """Return the task of *folder*; TaskLoadError names file, line and field of what is wrong."""
    fields = read_toml(folder / "task.toml")
    warnings = _misspelt(fields)
    agent, verifier, environment = (fields.table(name) for name in ("agent", "verifier", "environment"))
    _refuse_unsupported(folder, environment)
    steps = _steps(folder, fields, warnings, environ)
    metadata = _metadata(folder, fields, agent, verifier, steps, params, environ)
    _check_tests(folder, steps)
    content = content_hash(folder)
    hints = environment_hints(folder, environment, metadata, params, content, warnings, environ)
    hints.update(network_hints(agent, verifier, environment, warnings))
    artifacts = _artifacts(fields, [*(_table(fields, index) for index in range(len(steps)))])
    _verifier_mode(folder, verifier, params, artifacts, steps, metadata, hints, warnings)
    warnings += _named(folder, environment)
    about = fields.table("metadata")
    return TaskSpec(
        task_id=folder.name,
        question=_question(folder, steps),
        category=_soft(about, "category"),
        metadata=metadata,
        tags=_tags(about, fields),
        difficulty=_soft(about, "difficulty"),
        environment=hints,
        run_timeout_seconds=agent.number("timeout_sec"),
        evaluation_timeout_seconds=metadata["verifier_timeout"],
        artifacts=artifacts,
        has_solution=_has_solution(folder, steps),
        estimated_seconds=_estimate(agent, verifier, metadata, steps),
        source=str(folder / "task.toml"),
        warnings=tuple(warnings),
        fingerprint=content,
    )


def _table(fields: Fields, index: int) -> Fields:
    return fields.tables("steps")[index]


def _misspelt(fields: Fields) -> list[str]:
    notes = []
    for name, known in _KNOWN.items():
        table = fields.table(name) if name else fields
        notes += table.misspelt(known.split())
    return notes


def _refuse_unsupported(folder: Path, environment: Fields) -> None:
    if (
        environment.choice("os", ("linux", "windows"), "linux") == "windows"
        or (folder / "tests" / "test.bat").is_file()
    ):
        raise TaskLoadError(f"{environment.where('os')}: environment.os: Windows containers are not supported")
    if environment.data.get("tpu"):
        raise TaskLoadError(f"{environment.where('tpu')}: environment.tpu: TPUs are not supported")


def _metadata(
    folder: Path,
    fields: Fields,
    agent: Fields,
    verifier: Fields,
    steps: list[dict[str, Any]],
    params: TerminalBenchParams,
    environ: Mapping[str, str],
) -> dict[str, Any]:
    solution = fields.table("solution")
    timeout = verifier.number("timeout_sec", 600.0)
    assert timeout is not None
    metadata: dict[str, Any] = {
        "format": "tb2",
        "dir": str(folder),
        "agent_timeout": agent.number("timeout_sec"),
        "agent_user": agent.word("user"),
        "verifier_timeout": max((step["verifier_timeout"] or timeout for step in steps), default=timeout),
        "verifier_default_timeout": timeout,
        "verifier_user": verifier.word("user"),
        "verifier_env": _templates(verifier, environ),
        "solution_env": _templates(solution, environ),
        "strategy": fields.choice("multi_step_reward_strategy", ("mean", "final"), "mean"),
        "steps": steps,
        "range": _range(fields, params),
        "workdir": fields.table("environment").text("workdir"),
    }
    return metadata


def _templates(table: Fields, environ: Mapping[str, str]) -> dict[str, str]:
    """Return an `env` table with its templates: they are checked here and put in when they are used."""
    values = table.env("env")
    expanded(table, values, environ)
    return values


def _range(fields: Fields, params: TerminalBenchParams) -> list[float]:
    value = fields.data.get("reward_range")
    if value is None:
        return list(params.reward_range)
    good = isinstance(value, list) and len(value) == 2 and all(type(item) in (int, float) for item in value)
    if not good or value[0] >= value[1]:
        raise fields.wrong("reward_range", "a list of the least and the greatest reward")
    return [float(item) for item in value]


def _steps(folder: Path, fields: Fields, warnings: list[str], environ: Mapping[str, str]) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = []
    for table in fields.tables("steps"):
        name = table.text("name")
        if not name or "/" in name or name in (".", ".."):
            raise table.wrong("name", "the name of a folder under steps/")
        if name in [step["name"] for step in steps]:
            raise TaskLoadError(f"{table.where('name')}: {table.key('name')} {name!r} is used twice")
        if not (folder / "steps" / name).is_dir():
            raise TaskLoadError(f"{table.where('name')}: {table.key('name')} {name!r}: there is no folder steps/{name}")
        agent, verifier = table.table("agent"), table.table("verifier")
        warnings += [
            f"{part.where(key)}: {part.key(key)} is not supported for a single step and ignored"
            for part, keys in ((agent, ("user", "network_mode")), (verifier, ("network_mode", "environment_mode")))
            for key in keys
            if part.data.get(key)
        ]
        steps.append(
            {
                "name": name,
                "min_reward": _min_reward(table),
                "agent_timeout": agent.number("timeout_sec"),
                "verifier_timeout": verifier.number("timeout_sec"),
                "verifier_env": _templates(verifier, environ),
                "verifier_user": verifier.word("user"),
                "healthcheck": healthcheck(table),
            }
        )
    return steps


def _min_reward(table: Fields) -> float | dict[str, float] | None:
    value = table.data.get("min_reward")
    if isinstance(value, dict) and all(type(item) in (int, float) for item in value.values()):
        return {str(key): float(item) for key, item in value.items()}
    return table.number("min_reward", least=float("-1e308"))


def _check_tests(folder: Path, steps: list[dict[str, Any]]) -> None:
    if not steps:
        return _need_script(folder, folder / "tests", "tests/test.sh")
    if (folder / "tests" / "test.sh").is_file():
        return None
    for step in steps:
        _need_script(folder, folder / "steps" / step["name"] / "tests", f"steps/{step['name']}/tests/test.sh")
    return None


def _need_script(folder: Path, tests: Path, name: str) -> None:
    if (tests / "test.sh").is_file():
        return
    found = sorted(item.name for item in tests.iterdir())[:10] if tests.is_dir() else []
    tail = f"files found in {name.rpartition('/')[0]}/ are {', '.join(found)}" if found else "there is no such folder"
    raise TaskLoadError(f"{folder / name}: the task has no {name}, so it cannot be graded; {tail}")


def _question(folder: Path, steps: list[dict[str, Any]]) -> str:
    parts = [folder / "steps" / step["name"] / "instruction.md" for step in steps] or [folder / "instruction.md"]
    texts = []
    for path in parts:
        if not path.is_file():
            raise TaskLoadError(f"{path}: is missing, so there is no instruction")
        texts.append(read_task_text(path))
        if not texts[-1].strip():
            raise TaskLoadError(f"{path}: is empty, so there is no instruction")
    return texts[0]


def _has_solution(folder: Path, steps: list[dict[str, Any]]) -> bool:
    if not steps:
        return (folder / "solution" / "solve.sh").is_file()
    return all((folder / "steps" / step["name"] / "solution" / "solve.sh").is_file() for step in steps)


def _artifacts(fields: Fields, steps: list[Fields]) -> tuple[Artifact, ...]:
    found: dict[tuple[str, str | None], Artifact] = {}
    for table in (fields, *steps):
        value = table.data.get("artifacts")
        if value is not None and not isinstance(value, list):
            raise table.wrong("artifacts", "a list of paths or tables")
        for index, item in enumerate(value or []):
            artifact = _artifact(Fields(item if isinstance(item, dict) else {"source": item}, table.path, table.lines,
                                        f"{table.key('artifacts')}[{index}]"))  # fmt: skip
            found.setdefault((artifact.source, artifact.service), artifact)
    return tuple(found.values())


def _artifact(entry: Fields) -> Artifact:
    source = entry.text("source")
    if not source:
        raise entry.wrong("source", "a path in the container")
    exclude = entry.texts("exclude")
    return Artifact(
        source=source, destination=entry.text("destination"), exclude=exclude, service=entry.text("service")
    )


def _verifier_mode(
    folder: Path,
    verifier: Fields,
    params: TerminalBenchParams,
    artifacts: tuple[Artifact, ...],
    steps: list[dict[str, Any]],
    metadata: dict[str, Any],
    hints: dict[str, Any],
    warnings: list[str],
) -> None:
    """Take a verifier in a sandbox of its own as evaluation mode `fresh`, as far as that is possible."""
    written = verifier.choice("environment_mode", ("shared", "separate"), "shared")
    where = verifier.where("environment_mode")
    if verifier.data.get("collect"):
        if written == "shared":
            warnings.append(
                f"{verifier.where('collect')}: verifier.collect is used by a separate verifier only; it is ignored"
            )
        metadata["collect"] = [_collect(table) for table in verifier.tables("collect")]
    if (params.verifier.mode or written) == "shared":
        if written == "separate":
            warnings.append(f"{where}: verifier.environment_mode 'separate' is overruled by benchmark.verifier.mode")
        if verifier.data.get("environment"):
            warnings.append(
                f"{verifier.where('environment')}: verifier.environment is used by a separate verifier only"
            )
        return
    problem = None
    if (folder / "tests" / "Dockerfile").is_file() or verifier.data.get("environment"):
        problem = "a verifier image of its own (tests/Dockerfile, verifier.environment) is not supported"
    elif steps:
        problem = "a task with steps cannot have a separate verifier"
    elif not artifacts:
        problem = "no artifacts are declared, so a separate verifier would see nothing of the agent's work"
    if problem:
        raise TaskLoadError(f"{where}: verifier mode 'separate': {problem}; set benchmark.verifier.mode=shared")
    hints["evaluation_environment_mode"] = "fresh"


def _collect(table: Fields) -> dict[str, Any]:
    command = table.text("command")
    if not command:
        raise table.wrong("command", "a shell command")
    if table.text("service") not in (None, "", "main"):
        raise TaskLoadError(f"{table.where('service')}: {table.key('service')}: only the service 'main' is supported")
    return {"command": command, "timeout": table.number("timeout_sec", 60.0), "user": table.word("user")}


def _named(folder: Path, environment: Fields) -> list[str]:
    """Return a warning for each field of the format that is set and not honoured."""
    notes = [
        f"{environment.where(name)}: environment.{name} is not supported and ignored"
        for name in ("mcp_servers", "skills_dir", "gpu_types")
        if environment.data.get(name)
    ]
    if (folder / "trajectory.json").is_file():
        notes.append(f"{folder / 'trajectory.json'}: a prior trajectory is not supported and ignored")
    ignores = [path for name in ("tests", "solution") if (path := folder / name / ".harborignore").is_file()]
    return notes + [f"{path}: is not honoured; all files are uploaded" for path in ignores]


def _soft(about: Fields, name: str) -> str:
    """Return a word of the free table `metadata`, where any type is allowed."""
    value = about.data.get(name)
    return str(value) if isinstance(value, (str, int, float)) else ""


def _tags(about: Fields, fields: Fields) -> tuple[str, ...]:
    listed = about.data.get("tags") or fields.table("task").data.get("keywords") or []
    return (
        tuple(str(item) for item in listed if isinstance(item, (str, int, float))) if isinstance(listed, list) else ()
    )


def _estimate(agent: Fields, verifier: Fields, metadata: dict[str, Any], steps: list[dict[str, Any]]) -> float | None:
    if not steps:
        limit = agent.number("timeout_sec")
        return None if limit is None else (limit + metadata["verifier_timeout"]) / 2
    limits = [step[name] for step in steps for name in ("agent_timeout", "verifier_timeout") if step[name]]
    return sum(limits) / 2 if limits else None
