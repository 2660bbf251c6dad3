"""Writing an attempt's trajectory while it runs: scrubbed, one line per step."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..contracts.trajectory import TRAJECTORY_SCHEMA, TRAJECTORY_VERSION, TrajectoryStep
from ..errors import AgentCompassError
from ..redaction import plain
from .context import current_attempt

__all__ = ["TrajectoryLog", "now", "shorten"]

_TEXT = 20_000  # characters of one text that are kept


def now() -> str:
    """Return the time (UTC) as records write it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def shorten(text: str, limit: int = _TEXT) -> str:
    """Return *text*, of a long one its head and tail with the cut stated."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters cut ...]\n{text[-half:]}"


class TrajectoryLog:
    """The steps of one run of an agent; goes into the attempt's `trajectory.jsonl`, where there is an attempt.

    A task with several steps runs its agent several times: the lines follow each other in one file.
    """

    def __init__(self, harness: str, version: str = "", model: str = "", path: Path | None = None) -> None:
        self.rows: list[dict[str, Any]] = []
        self._path = path or _path()
        self._next = 1
        if self._path is not None:
            header = {"schema": TRAJECTORY_SCHEMA, "version": TRAJECTORY_VERSION, "harness": harness}
            self._begin({**header, "harness_version": version, "model": model})

    def _begin(self, header: dict[str, Any]) -> None:
        assert self._path is not None
        if self._path.is_file():
            self._next = max(1, self._path.read_bytes().count(b"\n"))
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._append(plain(header))

    def new(self, **values: Any) -> TrajectoryStep:
        """Return the next step, begun now."""
        step = TrajectoryStep(step=self._next, started_at=now(), **values)
        self._next += 1
        return step

    def add(self, step: TrajectoryStep) -> None:
        """Write a step that is over."""
        row = plain(_short(step.to_row()))
        self.rows.append(row)
        if self._path is not None:
            self._append(row)

    def _append(self, row: dict[str, Any]) -> None:
        assert self._path is not None
        with open(self._path, "a", encoding="utf-8", newline="") as stream:
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")


def _path() -> Path | None:
    try:
        return current_attempt().directory / "trajectory.jsonl"
    except AgentCompassError:  # run by a script, outside of a run
        return None


def _short(value: Any) -> Any:
    if isinstance(value, str):
        return shorten(value)
    if isinstance(value, dict):
        return {key: _short(item) for key, item in value.items()}
    return [_short(item) for item in value] if isinstance(value, list) else value
