"""Joining run directories: shards of one run, or runs of parts of a suite."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..contracts.record import AttemptRecord
from ..errors import ResultsError
from .files import json_row, parse_json, read_bytes
from .fingerprints import differences
from .rundir import PlannedAttempt, RunDirectory
from .shards import ShardPlan, read_shard_plan

__all__ = ["merge_runs"]

_NAMED = 5


@dataclass(frozen=True, slots=True)
class _Part:
    run: RunDirectory
    info: dict[str, Any]
    shard: ShardPlan | None
    planned: tuple[PlannedAttempt, ...]

    @property
    def name(self) -> str:
        return f"{self.run.path} (shard {self.shard.shard})" if self.shard else str(self.run.path)


def merge_runs(
    directories: Sequence[Path],
    results_dir: Path,
    *,
    run_name: str = "merged",
    run_id: str | None = None,
    allow_gaps: bool = False,
) -> RunDirectory:
    """Make a new run directory that holds all attempts of *directories*, and return it.

    Raises ResultsError, and makes nothing, when they do not belong together (other requests, tasks or
    agents, shards of another plan), when an attempt was made twice with different outcomes, and, unless
    *allow_gaps*, when a shard or an attempt is missing.
    """
    parts = [_part(path) for path in directories]
    _refuse_same(parts)
    planned = _whole_plan(parts)
    _check_requests(parts)
    chosen = _choose(parts, planned)
    gaps = _gaps(parts, planned, chosen)
    if gaps and not allow_gaps:
        raise ResultsError(f"{'; '.join(gaps)}. Run what is missing, or merge what is there with --allow-gaps")
    merged = RunDirectory.create(results_dir, run_name, run_id)
    try:
        _copy(parts, planned, chosen, merged)
    except BaseException as error:
        shutil.rmtree(merged.path, ignore_errors=True)
        if isinstance(error, OSError):
            raise ResultsError(f"{error.filename}: cannot be copied: {error.strerror}") from error
        raise
    merged.update_run_info(**_info(parts, gaps))
    return merged


def _part(path: Path) -> _Part:
    run = RunDirectory.open(path)
    return _Part(run, run.read_run_info(), read_shard_plan(run.path), tuple(run.planned()))


def _refuse_same(parts: Sequence[_Part]) -> None:
    seen: set[Path] = set()
    for part in parts:
        if part.run.path in seen:
            raise ResultsError(f"{part.run.path} is given twice")
        seen.add(part.run.path)


def _whole_plan(parts: Sequence[_Part]) -> list[PlannedAttempt]:
    """Return every attempt of the whole, in order."""
    plans = [part.shard for part in parts if part.shard is not None]
    if not plans:
        return list(dict.fromkeys(attempt for part in parts for attempt in part.planned))
    first = next(part for part in parts if part.shard is not None)
    for part in parts:
        if part.shard is None:
            raise ResultsError(f"{part.run.path} is no shard, but {first.name} is; merge shards with shards alone")
        assert first.shard is not None
        if part.shard.shard.count != first.shard.shard.count:
            raise ResultsError(f"{part.name} and {first.name} are parts of different splits")
        if part.shard.planned != first.shard.planned:
            differ = sorted(set(part.shard.planned) ^ set(first.shard.planned))
            names = _some(differ) if differ else "their order differs"
            raise ResultsError(
                f"{part.name} and {first.name} were planned from different tasks or attempts: {names}; "
                "run all shards from the same suite with the same settings"
            )
    return list(plans[0].planned)


def _check_requests(parts: Sequence[_Part]) -> None:
    """Refuse parts whose request of one name is not the same: other agent, model, benchmark or limits."""
    seen: dict[str, tuple[_Part, dict[str, str]]] = {}
    for part in parts:
        for request in dict.fromkeys(name for name, _, _ in part.planned):
            own = _request_parts(part.run, request)
            first, known = seen.setdefault(request, (part, own))
            changed = differences(known, own) if known and own else []
            if changed:
                rows = "\n".join(f"  {key}: {old} and {new}" for key, old, new in changed[:_NAMED])
                raise ResultsError(f"request {request!r} differs between {first.name} and {part.name}:\n{rows}")


def _request_parts(run: RunDirectory, request: str) -> dict[str, str]:
    try:
        found = parse_json(read_bytes(run.task_file(request).with_name("request.json")))
    except (OSError, ValueError):
        return {}  # an older run: the fingerprints of its records still tell
    return found if isinstance(found, dict) else {}


def _choose(parts: Sequence[_Part], planned: Iterable[PlannedAttempt]) -> dict[PlannedAttempt, _Part]:
    """Return where the record of each attempt comes from; ResultsError for overlaps that disagree."""
    chosen: dict[PlannedAttempt, _Part] = {}
    prints: dict[tuple[str, str], tuple[_Part, dict[str, str]]] = {}
    for attempt in planned:
        found = [(part, record) for part in parts if (record := part.run.read_record(*attempt)) is not None]
        for part, record in found:
            _same_task(prints, part, record)
        if found:
            _refuse_conflict(attempt, found)
            chosen[attempt] = found[0][0]
    return chosen


def _same_task(prints: dict[tuple[str, str], tuple[_Part, dict[str, str]]], part: _Part, record: AttemptRecord) -> None:
    """Refuse attempts at one task whose task or run fingerprint differs."""
    if not record.fingerprint:
        return
    first, known = prints.setdefault((record.request, record.task_id), (part, record.fingerprint))
    for kind in ("task", "run"):
        if known.get(kind) != record.fingerprint.get(kind):
            what = (
                "the task (text, grader, image or limits)" if kind == "task" else "the agent, the model or its settings"
            )
            raise ResultsError(
                f"task {record.task_id!r} of request {record.request!r}: {what} differs between "
                f"{first.name} and {part.name}; these are not attempts of one run"
            )


def _refuse_conflict(attempt: PlannedAttempt, found: Sequence[tuple[_Part, AttemptRecord]]) -> None:
    (first, known), *others = found
    for part, record in others:
        if (known.outcome, known.score, known.failure_mode) != (record.outcome, record.score, record.failure_mode):
            raise ResultsError(
                f"{_place(attempt)} was made twice and the outcomes disagree: {known.outcome} in {first.name}, "
                f"{record.outcome} in {part.name}; leave one of the two directories out"
            )


def _gaps(parts: Sequence[_Part], planned: Sequence[PlannedAttempt], chosen: dict[PlannedAttempt, _Part]) -> list[str]:
    found = []
    missing = [attempt for attempt in planned if attempt not in chosen]
    plans = [part.shard.shard for part in parts if part.shard is not None]
    if plans and missing:  # a shard without tasks leaves no directory, and nothing is missing
        left = sorted(set(range(1, plans[0].count + 1)) - {shard.index for shard in plans})
        if left:
            names = ", ".join(f"{index}/{plans[0].count}" for index in left)
            found.append(f"shard {names} is missing" if len(left) == 1 else f"shards {names} are missing")
    if missing:
        what = (
            "1 planned attempt has no record"
            if len(missing) == 1
            else f"{len(missing)} planned attempts have no record"
        )
        found.append(f"{what}: {_some(missing)}")
    return found


def _copy(
    parts: Sequence[_Part], planned: Sequence[PlannedAttempt], chosen: dict[PlannedAttempt, _Part], merged: RunDirectory
) -> None:
    for request in dict.fromkeys(name for name, _, _ in planned):
        source = next((part.run.task_file(request) for part in parts if part.run.task_file(request).exists()), None)
        if source is not None:
            shutil.copytree(source.parent, merged.task_file(request).parent, symlinks=True)
    for attempt, part in chosen.items():
        shutil.copytree(part.run.attempt_dir(*attempt), merged.attempt_dir(*attempt), symlinks=True)
    merged.write_planned(planned)


def _info(parts: Sequence[_Part], gaps: Sequence[str]) -> dict[str, Any]:
    """Return what run.json of the whole says."""
    requests: dict[str, Any] = {}
    for part in parts:
        for info in part.info.get("requests") or ():
            if isinstance(info, dict):
                requests.setdefault(str(info.get("name")), info)
    return {
        "requests": list(requests.values()),
        "status": "finished" if all(part.info.get("status") == "finished" for part in parts) else "interrupted",
        "started_at": min((str(part.info.get("started_at") or "") for part in parts), default=""),
        "finished_at": max((str(part.info.get("finished_at") or "") for part in parts), default=""),
        "merged_from": [_origin(part) for part in parts],
        "partial_reasons": [*_united(parts, "partial_reasons"), *gaps],
        "broken": _united(parts, "broken"),
        "gate_rules": _gate_rules(parts),
    }


def _origin(part: _Part) -> dict[str, Any]:
    shard = str(part.shard.shard) if part.shard else None
    return {"run_id": part.info.get("run_id"), "shard": shard, "host": (part.info.get("host") or {}).get("name")}


def _united(parts: Sequence[_Part], key: str) -> list[str]:
    return list(dict.fromkeys(str(text) for part in parts for text in part.info.get(key) or ()))


def _gate_rules(parts: Sequence[_Part]) -> list[Any]:
    """Return the gates of the parts, each once: only where their files lie may differ between machines."""
    found: dict[str, Any] = {}
    for part in parts:
        for item in part.info.get("gate_rules") or ():
            found.setdefault(json_row([item.get("gates"), item.get("requests")]), item)
    return list(found.values())


def _place(attempt: PlannedAttempt) -> str:
    return f"{attempt[0]}::{attempt[1]}::attempt{attempt[2]}"


def _some(attempts: Sequence[PlannedAttempt]) -> str:
    more = f" and {len(attempts) - _NAMED} more" if len(attempts) > _NAMED else ""
    return ", ".join(map(_place, attempts[:_NAMED])) + more
