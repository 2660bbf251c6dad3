"""The run's progress as an append-only file of JSON lines, readable while the run goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..errors import ResultsError
from ..redaction import clean_text, plain
from .files import json_row, parse_json

__all__ = ["EventLog", "bad_lines_note", "read_events"]

_LINE_CAP = 32_768  # bytes; a payload that makes the line longer is left out and its size stated
_START = '{"time":"'  # how every line of ours begins


def _now() -> datetime:
    return datetime.now(UTC)


class EventLog:
    """Appends events; any number of processes and threads may write to one file.

    Each event is one `write` to a file opened for appending, so lines never mix. A log that was torn
    by a crash goes on on a new line. An event that the disk refuses is counted in `lost`: progress
    must not stop a run, whose records fail loudly by themselves.
    """

    def __init__(self, path: Path, clock: Callable[[], datetime] = _now) -> None:
        self.path = path
        self.lost = 0
        self._clock = clock
        try:
            self._handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            raise ResultsError(f"{path}: cannot be opened: {error.strerror}", path=str(path)) from error
        size = os.fstat(self._handle).st_size
        self._torn = size > 0 and os.pread(self._handle, 1, size - 1) != b"\n"

    def emit(
        self,
        kind: str,
        *,
        request: str | None = None,
        task: str | None = None,
        attempt: int | None = None,
        phase: str | None = None,
        status: str | None = None,
        **payload: Any,
    ) -> None:
        """Append one event, with the time (UTC, milliseconds) and what is known of where it happened."""
        event: dict[str, Any] = {"time": self._clock().isoformat(timespec="milliseconds"), "kind": clean_text(kind)}
        known = {"request": request, "task": task, "attempt": attempt, "phase": phase, "status": status}
        event.update((key, plain(value)) for key, value in known.items() if value is not None)
        self._append(_line(event, payload))

    def _append(self, line: bytes) -> None:
        lead = b"\n" if self._torn else b""
        try:
            written = os.write(self._handle, lead + line)
        except OSError:
            self.lost += 1
            return
        self._torn = written < len(lead) + len(line)
        self.lost += self._torn

    def close(self) -> None:
        """Close the file; harmless when done twice."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)

    def __enter__(self) -> EventLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _line(event: dict[str, Any], payload: dict[str, Any]) -> bytes:
    try:
        line = json_row({**event, **({"payload": plain(payload)} if payload else {})}).encode("ascii") + b"\n"
        note = f"{len(line)} bytes left out"
    except RecursionError:
        line, note = b"", "nested too deeply, left out"
    if line and len(line) <= _LINE_CAP:
        return line
    return json_row({**event, "payload": note}).encode("ascii") + b"\n"


def read_events(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Return the good events of *path* and the number of bad lines; ([], 0) when there is no file.

    Events that were glued into one line are taken apart; torn, zeroed and foreign lines and those that
    are not strict JSON (NaN) are counted, never raised.
    """
    events: list[dict[str, Any]] = []
    bad = 0
    try:
        content = path.read_bytes()
    except OSError:
        return [], 0
    for line in content.split(b"\n"):
        found, whole = _take_apart(line)
        events.extend(found)
        bad += not whole
    return events, bad


def bad_lines_note(path: Path, bad: int) -> str:
    """Return the one warning about *bad* lines of *path*."""
    lines = "1 line" if bad == 1 else f"{bad} lines"
    return f"{path}: {lines} could not be read (torn by a crash or foreign) and left out"


def _take_apart(line: bytes) -> tuple[list[dict[str, Any]], bool]:
    """Return the events of one line and whether all of it was good."""
    if not line.strip():
        return [], True
    try:
        text = line.decode("utf-8").strip()
    except UnicodeDecodeError:
        return [], False
    found = list(_objects(text))
    rest = text[found[-1][1] :] if found else text
    events = [event for event, _ in found]
    if not rest.strip():
        return events, True
    # A torn line that swallowed the next event: ours always begin in the same way.
    cut = rest.find(_START, 1)
    if cut > 0:
        events += [event for event, _ in _objects(rest[cut:]) if "kind" in event]
    return events, False


def _objects(text: str) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield the JSON objects that *text* begins with, each with the position of its end."""
    place = 0
    while place < len(text):
        try:
            _, end = _plain_decoder.raw_decode(text, place)
            value = parse_json(text[place:end])
        except (ValueError, RecursionError):
            return
        if not isinstance(value, dict):
            return
        yield value, end
        place = end + len(text[end:]) - len(text[end:].lstrip())


_plain_decoder = json.JSONDecoder()
