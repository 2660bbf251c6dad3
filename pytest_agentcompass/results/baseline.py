"""Reading what an earlier run left for comparison: its summary.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ..contracts.summary import SUMMARY_KIND, SUMMARY_SCHEMA_VERSION, Summary
from ..errors import ResultsError
from .files import parse_json, read_bytes

__all__ = ["parse_summary", "read_baseline"]


def read_baseline(path: Path) -> Summary:
    """Return the summary of the run that *path* names: a run directory, or a summary.json.

    Raises ResultsError that says what to do: nothing there, not a summary, damaged, of a newer schema.
    """
    file = path / "summary.json" if path.is_dir() else path
    try:
        raw = read_bytes(file)
    except FileNotFoundError:
        raise ResultsError(_absent(path, file), path=str(path)) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ResultsError(f"{file}: cannot be read: {reason}", path=str(path)) from None
    try:
        data = parse_json(raw)
    except ValueError as error:
        raise ResultsError(f"{file}: not a summary.json: {error}", path=str(path)) from None
    return parse_summary(data, str(file))


def parse_summary(data: Any, where: str) -> Summary:
    """Return the summary that *data* holds; ResultsError naming *where*, and the key that is wrong."""
    kind = data.get("kind") if isinstance(data, dict) else None
    if kind != SUMMARY_KIND:
        raise ResultsError(
            f"{where}: not a summary of an agentcompass run: kind is {kind!r}, expected {SUMMARY_KIND!r}"
        )
    version = data.get("schema_version")
    if version != SUMMARY_SCHEMA_VERSION:
        newer = isinstance(version, int) and version > SUMMARY_SCHEMA_VERSION
        what = "update pytest-agentcompass to read it" if newer else "rebuild it: pytest-agentcompass report RUN_DIR"
        raise ResultsError(
            f"{where}: written in summary schema {version!r}; this version reads {SUMMARY_SCHEMA_VERSION}; {what}"
        )
    try:
        return Summary.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ResultsError(f"{where}: damaged at {place}: {first['msg']}; rebuild it with `report RUN_DIR`") from None


def _absent(path: Path, file: Path) -> str:
    if path.is_dir() and (path / "run.json").exists():
        return f"{path}: this run has no summary.json yet; make it with: pytest-agentcompass report {path}"
    if path.is_dir():
        return f"{path}: not a run directory (no run.json and no summary.json in it)"
    return f"{file}: there is no such file; a baseline is a run directory or the summary.json of an earlier run"
