"""The run directory: one folder that holds everything of a run.

    run.json                                     the run as a whole
    planned.jsonl                                the attempts of the run, in order
    requests/<request>/tasks.jsonl               the selected tasks of one request (what workers collect from)
    tasks.jsonl                                  the same of all requests, in order
    attempts/<request>/<task>/<n>/record.json    one attempt: the single source of truth
                                 /claim          locked while somebody makes the attempt
                                 /superseded/    records that a later try replaced

`<request>` and `<task>` are names of `layout`. Nothing that grows with the run is rewritten for an attempt.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..contracts.record import AttemptRecord
from ..contracts.task import TaskProblem, TaskSpec
from ..errors import AgentCompassError, ResultsError
from ..redaction import plain
from . import lock
from .files import (
    Stamp,
    json_bytes,
    json_row,
    keep_copy,
    locked,
    parse_json,
    read_bytes,
    read_file,
    stamp,
    write_atomic,
)
from .layout import attempt_path, request_dirname
from .records import DamagedRecord, decode_record, encode_record, slim
from .runinfo import check_schema, first_info, make_run_path, new_run_id, read_info, version_note
from .taskfile import LoadedTasks, read_task_file, read_task_head, write_task_error, write_task_file

__all__ = ["Damage", "LoadedTasks", "PlannedAttempt", "RunDirectory"]

PlannedAttempt = tuple[str, str, int]  # request, task id, attempt number from 1
Loader = Callable[[], tuple[list[TaskSpec], list[TaskProblem], dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Damage:
    """A file that holds no record although it should; its attempt counts as not done."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


@dataclass(slots=True)
class RunDirectory:
    """The files of one run; any number of processes may use one directory at a time.

    *damaged* lists each unreadable file that was met, once.
    """

    path: Path
    damaged: list[Damage] = field(default_factory=list)
    _kept: dict[PlannedAttempt, tuple[Stamp, AttemptRecord]] = field(default_factory=dict, repr=False)
    _plan: tuple[Stamp, list[PlannedAttempt]] | None = field(default=None, repr=False)

    @classmethod
    def create(cls, results_dir: Path, run_name: str = "run", run_id: str | None = None) -> RunDirectory:
        """Make a new run; without *run_id* it gets one of its own. ResultsError when the run exists."""
        run_id = run_id or new_run_id()
        run = cls(make_run_path(Path(results_dir), run_name, run_id))
        run.write_run_info(first_info(run_name, run_id))
        return run

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """Open an existing run; ResultsError when there is none or a newer version wrote it."""
        run = cls(Path(path).resolve())
        info, reason = read_info(run.path)
        if not info and not (run.path / "attempts").is_dir():
            raise ResultsError(f"{run.path} is not a run directory: run.json: {reason}", path=str(run.path))
        if not info:
            run._note(run.path / "run.json", reason)
        check_schema(run.path, info)
        return run

    # -- the run as a whole -------------------------------------------------------------------

    def write_run_info(self, info: Mapping[str, Any]) -> None:
        """Write `run.json`, scrubbed."""
        write_atomic(self.path / "run.json", json_bytes(plain(dict(info))))

    def read_run_info(self) -> dict[str, Any]:
        """Return the content of `run.json`; empty when it is damaged."""
        return read_info(self.path)[0]

    def update_run_info(self, **changes: Any) -> dict[str, Any]:
        """Replace entries of `run.json`, in one step for all processes; returns the new content."""
        with locked(self.path / ".run.json.lock"):
            info = {**self.read_run_info(), **changes}
            self.write_run_info(info)
        return info

    def finish(self, status: str) -> None:
        """Store how the run ended (`finished`, `interrupted`, ...) and when."""
        self.update_run_info(status=status, finished_at=datetime.now(UTC).isoformat(timespec="milliseconds"))

    def version_note(self) -> str:
        """Return a note when another version of the plugin began this run, else an empty text."""
        return version_note(self.read_run_info())

    # -- tasks --------------------------------------------------------------------------------

    def task_file(self, request: str) -> Path:
        """Return the path of the request's task file."""
        return self.path / "requests" / request_dirname(request) / "tasks.jsonl"

    def write_tasks(
        self,
        request: str,
        tasks: list[TaskSpec],
        problems: Iterable[TaskProblem] = (),
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        """Store the selected tasks of *request*, in order; TaskLoadError for data that JSON cannot carry."""
        write_task_file(self.task_file(request), request, LoadedTasks(tasks, list(problems), dict(extra or {})))

    def read_tasks(self, request: str) -> LoadedTasks:
        """Return the stored tasks of *request*, or raise the stored error; ResultsError when there are none."""
        try:
            return read_task_file(self.task_file(request))
        except FileNotFoundError:
            raise ResultsError(
                f"{self.path}: no tasks of request {request!r} are stored", path=str(self.path)
            ) from None

    def read_task_head(self, request: str) -> dict[str, Any]:
        """Return what is stored beside the tasks of *request* (`LoadedTasks.extra`); empty where nothing is."""
        return read_task_head(self.task_file(request))

    def load_tasks_once(self, request: str, loader: Loader, *, reload: bool = False) -> LoadedTasks:
        """Return the tasks of *request*: the first process loads and stores them, all others read.

        An AgentCompassError of the loader is stored too and raised in every process. With *reload* the
        loader runs in any case: whoever resumes a run must see what its dataset holds now.
        """
        path = self.task_file(request)
        with locked(path.with_name(".lock")):
            if not reload and path.exists():
                return read_task_file(path)
            try:
                write_task_file(path, request, LoadedTasks(*loader()))
            except AgentCompassError as error:
                write_task_error(path, request, error)
                raise
            return read_task_file(path)  # what all others see, also where JSON changed a tuple or a key

    # -- the plan -----------------------------------------------------------------------------

    def write_planned(self, planned: Iterable[PlannedAttempt], *, add: bool = False) -> None:
        """Store the attempts of the run, in order; with *add* behind those that are stored already.

        Also writes the run's `tasks.jsonl` of all planned requests.
        """
        with locked(self.path / ".planned.lock"):
            attempts = list(dict.fromkeys([*(self.planned() if add else ()), *planned]))
            rows = [json_row({"request": r, "task_id": t, "attempt": n}) + "\n" for r, t, n in attempts]
            write_atomic(self.path / "planned.jsonl", "".join(rows).encode("ascii"))
            self._write_all_tasks(dict.fromkeys(request for request, _, _ in attempts))

    def _write_all_tasks(self, requests: Iterable[str]) -> None:
        content: list[bytes] = []
        for request in requests:
            try:
                content.append(read_bytes(self.task_file(request)).partition(b"\n")[2])  # all but the head
            except FileNotFoundError:
                continue
        write_atomic(self.path / "tasks.jsonl", b"".join(content))

    def planned(self) -> list[PlannedAttempt]:
        """Return the planned attempts, in order; empty when nothing was planned yet."""
        path = self.path / "planned.jsonl"
        if self._plan is not None and self._plan[0] == stamp(path):
            return list(self._plan[1])
        try:
            content, state = read_file(path)
            rows = [parse_json(line) for line in content.split(b"\n") if line]
            found = [(sys.intern(str(row["request"])), str(row["task_id"]), int(row["attempt"])) for row in rows]
        except FileNotFoundError:
            return []
        except (ValueError, TypeError, KeyError) as error:
            raise ResultsError(f"{path}: damaged: {error}", path=str(path)) from None
        self._plan = state, found
        return list(found)

    def status_counts(self, request: str | None = None) -> dict[str, int]:
        """Return `planned`, `finished`, `running` and `missing` as the disk has them now.

        Finished: a whole record is there; running: none, but the attempt is claimed.
        """
        counts = dict.fromkeys(("planned", "finished", "running", "missing"), 0)
        for name, task_id, number in self.planned():
            if request is None or name == request:
                counts["planned"] += 1
                counts[self._state(self.attempt_dir(name, task_id, number))] += 1
        return counts

    def _state(self, attempt_dir: Path) -> str:
        if _looks_whole(attempt_dir / "record.json"):
            return "finished"
        return "running" if lock.is_claimed(attempt_dir) else "missing"

    # -- attempts -----------------------------------------------------------------------------

    def attempt_dir(self, request: str, task_id: str, attempt: int) -> Path:
        """Return the attempt's folder; it is made by whoever first writes into it."""
        return self.path / attempt_path(request, task_id, attempt)

    def _record_path(self, request: str, task_id: str, attempt: int) -> Path:
        return self.path / f"{attempt_path(request, task_id, attempt)}/record.json"

    def claim(self, request: str, task_id: str, attempt: int) -> lock.Claim | None:
        """Claim the attempt for this process; None when another has it (see `lock.claim`)."""
        return lock.claim(self.attempt_dir(request, task_id, attempt))

    def write_record(self, record: AttemptRecord) -> Path:
        """Store *record* and return its path; the whole record or nothing is there, whenever this dies.

        A record of an earlier try, or what cannot be read, is kept under `superseded/`.
        """
        path = self._record_path(record.request, record.task_id, record.attempt)
        content = encode_record(record)
        try:
            if path.exists() and not _same_try(path, record):
                keep_copy(path, path.parent / "superseded")
        except OSError as error:
            raise ResultsError(
                f"{path}: the earlier record cannot be kept: {error.strerror}", path=str(path)
            ) from error
        write_atomic(path, content, sync_name=False)
        return path

    def read_record(self, request: str, task_id: str, attempt: int, *, keep: bool = False) -> AttemptRecord | None:
        """Return the attempt's record; None when there is none or it is damaged (see `damaged`).

        With *keep* `records` need not read it again, as long as its file stays as it is.
        """
        path = self._record_path(request, task_id, attempt)
        found = self._read(path, request, task_id, attempt)
        if found is None:
            return None
        record, state = found
        if keep:
            self._kept[request, task_id, attempt] = state, slim(record)
        return record

    def records(self, request: str | None = None) -> Iterator[AttemptRecord]:
        """Yield the records of the planned attempts, in planned order; of all on disk when no plan is stored.

        They are `slim`: long outputs are cut, and what no report shows is left out.
        """
        planned = self.planned()
        for name, task_id, number in planned:
            if request is None or name == request:
                record = self._slim_record(name, task_id, number)
                if record is not None:
                    yield record
        if not planned:
            yield from self._found_records(request)

    def _slim_record(self, *key: Any) -> AttemptRecord | None:
        path = self._record_path(*key)
        kept = self._kept.get(key)
        if kept is not None and kept[0] == stamp(path):
            return kept[1]
        found = self._read(path, *key)
        return None if found is None else slim(found[0])

    def _found_records(self, request: str | None) -> Iterator[AttemptRecord]:
        pattern = f"{request_dirname(request) if request is not None else '*'}/*/*/record.json"
        found = (path for path in (self.path / "attempts").glob(pattern) if path.parent.name.isdecimal())
        for path in sorted(found, key=lambda path: (*path.parts[-4:-2], int(path.parent.name))):
            read = self._read(path, request)
            if read is None:
                continue
            record = slim(read[0])
            if self.attempt_dir(record.request, record.task_id, record.attempt) != path.parent:
                self._note(path, "belongs to another attempt")
                continue
            yield record

    def _read(self, path: Path, *identity: Any) -> tuple[AttemptRecord, Stamp] | None:
        try:
            content, state = read_file(path)
            return decode_record(content, *identity), state
        except (FileNotFoundError, NotADirectoryError):
            return None
        except DamagedRecord as error:
            self._note(path, error.message)
        except (OSError, ValueError) as error:
            self._note(path, str(error))
        return None

    def _note(self, path: Path, reason: str) -> None:
        if all(damage.path != path for damage in self.damaged):
            self.damaged.append(Damage(path, reason))


def _same_try(path: Path, record: AttemptRecord) -> bool:
    """Whether the record at *path* is an earlier state of *record*, not of another try."""
    try:
        stored = decode_record(read_bytes(path), record.request, record.task_id, record.attempt)
    except (OSError, ValueError, DamagedRecord):
        return False
    return (stored.run_id, stored.started_at) == (record.run_id, record.started_at)


def _looks_whole(path: Path) -> bool:
    """Whether a record ends as ours do; cheap, since counts are asked for while a run goes on."""
    try:
        with path.open("rb") as file:
            file.seek(-2, 2)
            return file.read() == b"}\n"
    except OSError:
        return False
