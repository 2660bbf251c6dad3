"""`show --follow`: a run, or the attempts of one task, as lines while it goes on."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import ResultsError, nearest
from ..execution.progress import EventTail, duration_text
from ..results.lock import in_use
from ..results.rundir import PlannedAttempt, RunDirectory
from .escape import one_line, terminal_text

__all__ = ["follow"]

_INTERVAL = 0.3  # seconds between two looks
_FIRST_LINES = 20  # of what a file holds already
_WIDTH = 2_000  # characters of one line
_CHUNK = 262_144  # bytes of one file that are shown after one look
_BEGINNINGS = ("run_started", "run_resumed")
_ENDS = ("attempt_finished", "reuse_loaded")
_SILENT = ("execution_plan_resolved",)
_FILES = ("logs/*", "commands.txt", "trajectory.jsonl")


def follow(run: RunDirectory, task: str = "", pause: Callable[[float], None] = time.sleep) -> Iterator[str]:
    """Yield what happens in *run* until it ends; of a run that is over, its last session.

    With *task* (a task id, or `id/N` for one attempt) only what concerns it, with its logs and its
    trajectory, until its attempts have ended. Logs are there when their command has ended.
    """
    follower = _Follower(run, task)
    while True:
        over = not in_use(run.path)
        yield from follower.look(last=over)
        if over or follower.over():
            break
        pause(_INTERVAL)
    yield from follower.rest()
    info = run.read_run_info()
    status = str(info.get("status", "unknown"))
    gone = status == "running" and not in_use(run.path)
    yield f"run {info.get('run_id', run.path.name)}: {'its process is gone; resume it' if gone else status}"


class _Follower:
    """What was shown so far."""

    def __init__(self, run: RunDirectory, task: str) -> None:
        self._run = run
        self._task = task
        self._events = EventTail(run.path / "events.jsonl")
        self._first = True
        self._finished = False
        self._left: set[PlannedAttempt] | None = None
        self._files: dict[Path, _FileTail] = {}
        self._source: Path | None = None

    def look(self, last: bool = False) -> Iterator[str]:
        """Yield what is new; with *last* nothing more will come."""
        events = self._events.fresh()
        if self._first:
            starts = [place for place, event in enumerate(events) if event.get("kind") in _BEGINNINGS]
            events = events[starts[-1] if starts else 0 :]
        chosen = self._chosen()
        ended = set()
        for event in events:
            key = (str(event.get("request")), str(event.get("task")), event.get("attempt", 0))
            self._finished = self._finished or event.get("kind") == "run_finished"
            if event.get("kind") in _ENDS:
                ended.add(key)
            if event.get("kind") not in _SILENT and self._concerns(key):
                yield _event_line(event)
        for key in chosen:
            yield from self._look_into(key, last)
        if chosen:
            self._left = (set(chosen) if self._left is None else self._left) - ended
        self._first = False

    def over(self) -> bool:
        """Whether nothing more is to come."""
        return self._finished or self._left == set()

    def rest(self) -> Iterator[str]:
        """Yield the last lines of files, which end without a line end."""
        for key in self._chosen():
            yield from self._look_into(key, last=True)

    def _concerns(self, key: PlannedAttempt) -> bool:
        return not self._task or self._task in (key[1], f"{key[1]}/{key[2]}")

    def _chosen(self) -> list[PlannedAttempt]:
        """Return the planned attempts of the task; ResultsError when the plan has none."""
        if not self._task:
            return []
        planned = self._run.planned()
        chosen = [key for key in planned if self._concerns(key)]
        if planned and not chosen:
            known = dict.fromkeys(key[1] for key in planned)
            raise ResultsError(f"{self._run.path}: no task {self._task!r} is planned; {nearest(self._task, known)}")
        return chosen

    def _look_into(self, key: PlannedAttempt, last: bool = False) -> Iterator[str]:
        folder = self._run.attempt_dir(*key)
        for path in sorted(path for pattern in _FILES for path in folder.glob(pattern)):
            raw = self._files.setdefault(path, _FileTail(path)).fresh(last)
            steps = path.name == "trajectory.jsonl"
            lines = [shown for line in raw for shown in (_step_lines(line) if steps else _log_lines(line))]
            if self._first and len(lines) > _FIRST_LINES:
                lines = ["...", *lines[-_FIRST_LINES:]]
            if lines and path != self._source:
                self._source = path
                yield f"==> {one_line('/'.join(map(str, key)))} {path.relative_to(folder)} <=="
            yield from lines


@dataclass(slots=True)
class _FileTail:
    """A text file that grows, or is written anew."""

    path: Path
    place: int = 0
    held: bytes = b""

    def fresh(self, last: bool = False) -> list[str]:
        """Return the lines that were added, of very many the last ones.

        One without an end waits for it until the next look, or not at all with *last*.
        """
        try:
            with open(self.path, "rb") as file:
                size = file.seek(0, 2)
                if size < self.place:
                    self.place, self.held = 0, b""
                if size - self.place > _CHUNK:
                    self.place, self.held = size - _CHUNK, b"...\n"
                file.seek(self.place)
                raw = self.held + file.read(_CHUNK)
                self.place = file.tell()
        except OSError:
            return []  # removed, or no file
        last = last or raw == self.held  # nothing came any more
        whole, end, self.held = (raw, b"", b"") if last else raw.rpartition(b"\n")
        return (whole + end).decode("utf-8", "replace").splitlines()


def _log_lines(line: str) -> list[str]:
    return [text[:_WIDTH] for text in terminal_text(line).split("\n")]


def _event_line(event: Mapping[str, Any]) -> str:
    where = "/".join(str(event[name]) for name in ("request", "task", "attempt") if name in event)
    said = [str(event.get("kind", "")).replace("_", " ")]
    if event.get("kind") == "phase_changed":
        said = []
    said += [str(event[name]) for name in ("phase", "status") if name in event]
    payload = event.get("payload")
    for name, value in payload.items() if isinstance(payload, dict) else ():
        if value not in (None, "", "none"):
            said.append(duration_text(value) if name == "seconds" and isinstance(value, float) else f"{name} {value}")
    return (
        f"{str(event.get('time', ''))[11:19]} {one_line(where, 60)}{': ' if where else ''}{one_line(', '.join(said))}"
    )


def _step_lines(line: str) -> Iterator[str]:
    """Yield a step of a trajectory as a person reads it; nothing for its header."""
    try:
        row = json.loads(line)
    except ValueError:
        return
    if not isinstance(row, dict) or "step" not in row:
        return
    yield f"step {row['step']}: {one_line(str(row.get('error') or row.get('output') or ''), 400)}"
    for call in row.get("tool_calls", ()):
        yield f"  {one_line(str(call.get('name', '')))} {one_line(str(call.get('arguments', '')), 400)}"
    for seen in row.get("observations", ()):
        code = f"[{seen['exit_code']}] " if "exit_code" in seen else ""
        yield f"  -> {code}{one_line(str(seen.get('content', '')), 400)}"
