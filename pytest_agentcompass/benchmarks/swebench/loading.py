"""From rows to tasks: light ones that point at their row."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...contracts.request import RunRequest
from ...contracts.task import TaskProblem, TaskSpec
from ...errors import AgentCompassError, ConfigError, TaskLoadError, nearest
from .hub import cache_dir, cached_dataset, cached_parquet, is_hub_name
from .images import image_name
from .params import SwebenchParams
from .rows import Row, missing_columns_message, parse_row, row_digest
from .sources import Found, read_rows, reload_row

__all__ = ["WORKDIR", "load_instances", "row_of", "select_instances"]

WORKDIR = "/testbed"
#: providers that have no images: the repository is cloned there
_NO_IMAGES = frozenset({"host_process"})


def load_instances(params: SwebenchParams, req: RunRequest) -> list[TaskSpec | TaskProblem]:
    """Return a task per row in the order of the rows; a broken row is a problem that names its number.

    Raises TaskLoadError when the dataset cannot be read or holds no row.
    """
    path = _local_path(params)
    found = [_task(item, params, req) for item in read_rows(path, params.split)]
    if not found:
        raise TaskLoadError(f"benchmark.dataset: {path} holds no row (split {params.split!r})")
    _warn_of_old_rows(found)
    return found


def select_instances(tasks: list[TaskSpec], params: SwebenchParams) -> list[TaskSpec]:
    """Return the tasks of the chosen repositories and difficulties; ConfigError for one that no task has."""
    for name, wanted in (("repo", params.repo), ("difficulty", params.difficulty)):
        if wanted:
            values = {task.task_id: _value(task, name) for task in tasks}
            known = set(values.values()) - {""}
            for item in wanted:
                if item not in known:
                    raise ConfigError(f"benchmark.{name}: no instance has {item!r}; {nearest(item, known)}")
            tasks = [task for task in tasks if values[task.task_id] in wanted]
    return tasks


def row_of(task: TaskSpec) -> Row:
    """Read the row of *task* again."""
    return reload_row(str(task.source), str(task.fingerprint))


def _value(task: TaskSpec, name: str) -> str:
    return task.category if name == "repo" else task.difficulty


def _local_path(params: SwebenchParams) -> Path:
    cache = Path(params.cache_dir).expanduser() if params.cache_dir else cache_dir()
    if params.path is None and is_hub_name(params.dataset):
        return cached_dataset(params.dataset, params.split, params.revision, cache, refresh=params.refresh)
    path = Path(params.path or params.dataset).expanduser().absolute()
    if path.is_dir() and (path / f"{params.split}.parquet").is_file():
        path = path / f"{params.split}.parquet"
    if path.suffix == ".parquet":
        if not path.is_file():
            raise TaskLoadError(f"benchmark.dataset: {path} does not exist")
        return cached_parquet(path, cache)
    return path


def _task(found: Found, params: SwebenchParams, req: RunRequest) -> TaskSpec | TaskProblem:
    source, number, raw = found
    name = raw.get("instance_id") if isinstance(raw, dict) else None
    shown = name if isinstance(name, str) and name else f"row {number}"
    try:
        if isinstance(raw, AgentCompassError):
            raise raw
        return _spec(parse_row(raw), raw, source, params, req)
    except TaskLoadError as error:
        return TaskProblem(shown, f"row {number} ({source}), instance {shown!r}: {error.message}", source)


def _spec(row: Row, raw: dict[str, Any], source: str, params: SwebenchParams, req: RunRequest) -> TaskSpec:
    environment: dict[str, Any] = {}
    if req.environment.id not in _NO_IMAGES:
        environment = {
            "image": image_name(row.instance_id, row.image, params.namespace, params.arch),
            "workdir": WORKDIR,
        }
    return TaskSpec(
        task_id=row.instance_id,
        question=row.problem_statement,
        category=row.repo,
        difficulty=row.difficulty,
        tags=tuple(dict.fromkeys(item for item in (row.repo.rpartition("/")[2], row.version) if item)),
        metadata={
            "repo": row.repo,
            "base_commit": row.base_commit,
            "version": row.version,
            "log_parser": row.log_parser,
            "missing_columns": list(row.missing),
            **({"image_assets": True} if row.image_assets else {}),
        },
        environment=environment,
        has_solution=bool(row.patch.strip()),
        source=source,
        fingerprint=row_digest(raw),
    )


def _warn_of_old_rows(found: Sequence[TaskSpec | TaskProblem]) -> None:
    """Put one warning on the first task whose row lacks what grading needs."""
    old = [item for item in found if isinstance(item, TaskSpec) and item.metadata["missing_columns"]]
    if old:
        rest = f" ({len(old) - 1} more rows like it)" if len(old) > 1 else ""
        old[0].warnings = (
            f"{old[0].source}: {missing_columns_message(tuple(old[0].metadata['missing_columns']))}{rest}",
        )
