"""Files that an attempt leaves: out of the sandbox, and back into a fresh one."""

from __future__ import annotations

import fnmatch
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import AgentCompassError
from ..redaction import known_secrets, scrub_bytes

if TYPE_CHECKING:
    from ..components.context import AttemptContext
    from ..components.environment import EnvironmentSession
    from ..contracts.outcome import RunResult
    from ..contracts.request import RunRequest
    from ..contracts.task import Artifact

__all__ = ["collect_artifacts", "restore_artifacts"]

_LISTED = 200  # files of a folder that the record names one by one


async def collect_artifacts(
    artifacts: list[Artifact],
    environment: EnvironmentSession,
    attempt: AttemptContext,
    result: RunResult,
    request: RunRequest,
) -> None:
    """Copy *artifacts* into the attempt's `artifacts/`; what is missing or left out is noted, never fatal."""
    root = attempt.directory / "artifacts"
    for artifact in artifacts:
        name = _destination(artifact)
        target = root / name
        if artifact.service is not None:
            result.note(
                "collect_artifacts",
                "artifact_service",
                f"artifact {artifact.source}: service {artifact.service!r} is not read",
            )
            continue
        try:
            await _fetch(artifact, environment, target, name, result)
        except FileNotFoundError:
            result.artifacts[name] = {"source": artifact.source, "status": "missing"}
            result.note("collect_artifacts", "artifact_missing", f"artifact {artifact.source} was not there")
        except AgentCompassError as error:
            result.artifacts[name] = {"source": artifact.source, "status": "failed"}
            result.note("collect_artifacts", "artifact_failed", f"artifact {artifact.source}: {error.message}")
    _limit(root, request.execution.artifact_limit_bytes, request.execution.artifact_limit_files, result)
    if known_secrets():
        _scrub_files(root, result)


def _destination(artifact: Artifact) -> str:
    """Return the path under `artifacts/`: never absolute, never upward."""
    text = artifact.destination or artifact.source
    parts = [part for part in text.replace("\\", "/").split("/") if part not in ("", ".", "..")]
    return "/".join(parts) or "root"


async def _fetch(
    artifact: Artifact, environment: EnvironmentSession, target: Path, name: str, result: RunResult
) -> None:
    if await environment.is_dir(artifact.source):
        target.mkdir(parents=True, exist_ok=True)
        for note in await environment.download_dir(artifact.source, target):
            result.note("collect_artifacts", "artifact_left_out", f"artifact {artifact.source}: {note}")
        for path in _matching(target, artifact.exclude):
            result.artifacts[f"{name}/{path.relative_to(target).as_posix()}"] = {
                "source": artifact.source,
                "status": "excluded",
            }
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        for path in _files(target)[:_LISTED]:
            inside = path.relative_to(target).as_posix()
            source = f"{artifact.source.rstrip('/')}/{inside}"
            result.artifacts[f"{name}/{inside}"] = {"source": source, "status": "collected", "in": name}
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        await environment.download(artifact.source, target)
    result.artifacts[name] = {"source": artifact.source, "status": "collected"}


def _matching(root: Path, patterns: tuple[str, ...]) -> list[Path]:
    found = []
    for folder, names, files in os.walk(root):
        for entry in [*names, *files]:
            path = Path(folder, entry)
            relative = path.relative_to(root).as_posix()
            if any(fnmatch.fnmatch(entry, pattern) or fnmatch.fnmatch(relative, pattern) for pattern in patterns):
                found.append(path)
                if entry in names:
                    names.remove(entry)
    return found


def _files(root: Path) -> list[Path]:
    return (
        [path for path in sorted(root.rglob("*")) if path.is_file() and not path.is_symlink()] if root.is_dir() else []
    )


def _limit(root: Path, limit_bytes: int, limit_files: int, result: RunResult) -> None:
    """Remove what is over the limits and say so."""
    total = count = dropped = 0
    for path in _files(root):
        size = path.stat().st_size
        if total + size > limit_bytes or count >= limit_files:
            path.unlink()
            dropped += 1
        else:
            total, count = total + size, count + 1
    if dropped:
        limit = f"{limit_bytes} bytes and {limit_files} files"
        result.note(
            "collect_artifacts", "artifact_limit", f"{dropped} artifact files were dropped: over the limit of {limit}"
        )


def _scrub_files(root: Path, result: RunResult) -> None:
    for path in _files(root):
        content = path.read_bytes()
        clean = scrub_bytes(content)
        if clean != content:
            path.write_bytes(clean)
            name = path.relative_to(root).as_posix()
            result.artifacts.setdefault(name, {"source": name, "status": "collected"})["scrubbed"] = True
            result.note("collect_artifacts", "artifact_scrubbed", f"artifact {name} held a secret, which was masked")


async def restore_artifacts(attempt: AttemptContext, result: RunResult, environment: EnvironmentSession) -> None:
    """Put collected artifacts back at their paths in a fresh sandbox."""
    for name, entry in result.artifacts.items():
        path = attempt.directory / "artifacts" / name
        if not isinstance(entry, dict) or entry.get("status") != "collected" or "in" in entry or not path.exists():
            continue  # missing, excluded, or part of a folder that is put back as a whole
        if path.is_dir():
            await environment.upload_dir(path, entry["source"])
        else:
            await environment.upload(path, entry["source"])
