"""`runtime.order=longest_first`: within each request the attempts that take longest are begun first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ..execution.order import longest_first, recorded_seconds
from ..results.files import json_bytes, parse_json, read_bytes, write_atomic
from .control import named_options, run_options
from .nodes import AttemptItem
from .options import start_folder

if TYPE_CHECKING:
    from .session import AgentCompassRun

__all__ = ["Ordering"]

_FILE = "durations.json"


class Ordering:
    """Hooks that put items in order; the controller settles once for all workers what is known."""

    def __init__(self, run: AgentCompassRun) -> None:
        self.run = run

    def pytest_sessionstart(self) -> None:
        """Look what the earlier run tells, before workers start: they must all come to the same order.

        What the suites of a folder want is known only when they are read.
        """
        context = self.run.context
        wanted = any(options.order == "longest_first" for options in named_options(self.run.config))
        folders = any((start_folder(self.run.config) / word).is_dir() for word in self.run.config.args)
        if (wanted or folders) and context is not None and not self.run.is_worker:
            found = recorded_seconds(self.run.results_dir, context.directory.path)
            write_atomic(context.directory.path / _FILE, json_bytes(found))

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Sort the attempts of each request, at the places that they have among all items."""
        path = self.run.context.directory.path / _FILE if self.run.context is not None else None
        if path is None or not path.exists() or run_options(self.run).order != "longest_first":
            return
        known: dict[str, dict[str, float]] = parse_json(read_bytes(path))
        places: dict[str, list[int]] = {}
        for place, item in enumerate(items):
            if isinstance(item, AttemptItem):
                places.setdefault(item.request_node.nodeid, []).append(place)
        for mine in places.values():
            attempts = [items[place] for place in mine]
            for place, item in zip(mine, longest_first(attempts, lambda item: _estimate(item, known)), strict=True):
                items[place] = item


def _estimate(item: pytest.Item, known: dict[str, dict[str, float]]) -> float | None:
    assert isinstance(item, AttemptItem)
    recorded = known.get(item.request_node.request.name, {}).get(item.task.task_id)
    return item.task.estimated_seconds if recorded is None else recorded
