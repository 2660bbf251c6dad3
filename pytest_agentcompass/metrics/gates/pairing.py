"""Pairing a run with its baseline, task by task."""

from __future__ import annotations

from dataclasses import dataclass, field

from .scope import Scope, ScopedTask

__all__ = ["Pairing", "pair"]

Key = tuple[str, str]


@dataclass(slots=True)
class Pairing:
    """The tasks of both runs, joined on request and task id.

    *foreign*: tasks whose fingerprint differs, so that they are not the same tasks; *unmarked*: tasks that
    have outcomes but no fingerprint.
    """

    pairs: list[tuple[ScopedTask, ScopedTask]] = field(default_factory=list)
    only_candidate: list[Key] = field(default_factory=list)
    only_baseline: list[Key] = field(default_factory=list)
    foreign: list[Key] = field(default_factory=list)
    unmarked: list[Key] = field(default_factory=list)

    def share(self, partial: bool = False) -> float:
        """Return which share of the tasks of both runs is paired (of this run's, where it is *partial* on purpose)."""
        everything = len(self.pairs) + len(self.only_candidate) + len(self.foreign)
        everything += 0 if partial else len(self.only_baseline)
        return len(self.pairs) / everything if everything else 0.0


def pair(candidate: Scope, baseline: Scope) -> Pairing:
    """Join both runs. A run of one request pairs with a baseline of one request whatever their names."""
    found = Pairing()
    single = len(candidate.requests) == 1 and len(baseline.requests) == 1
    rename = {baseline.requests[0].name: candidate.requests[0].name} if single else {}
    others = {(rename.get(task.request, task.request), task.task.task_id): task for task in baseline.tasks}
    for task in candidate.tasks:
        other = others.pop(task.key, None)
        if other is None:
            found.only_candidate.append(task.key)
        else:
            _sort(found, task, other)
    found.only_baseline.extend(others)
    return found


def _sort(found: Pairing, task: ScopedTask, other: ScopedTask) -> None:
    ours, theirs = task.task.fingerprint, other.task.fingerprint
    if ours and theirs and ours != theirs:
        found.foreign.append(task.key)
        return
    if (task.valid and not ours) or (other.valid and not theirs):
        found.unmarked.append(task.key)
    found.pairs.append((task, other))
