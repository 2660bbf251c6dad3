"""What of the suite this process collects: shards, and what the command line left out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ..contracts.request import RunRequest
from ..errors import AgentCompassError
from ..redaction import plain
from ..results.files import json_bytes, parse_json, read_bytes, write_atomic
from ..results.shards import Shard, ShardPlan, deal, parse_shard, read_timings, write_shard_plan
from .options import SELECTED, option, start_folder
from .state import case_of

if TYPE_CHECKING:
    from .session import AgentCompassRun

__all__ = ["Selection", "adopt_requests", "collected", "selection_reasons"]

_FILE = "collected.json"


class Selection:
    """Takes this shard's items, counts what others deselected, and writes both down for the controller."""

    def __init__(self, run: AgentCompassRun) -> None:
        self.run = run
        self.deselected = 0
        self._dealing = False
        try:
            given = option(run.config, "shard")
            self.shard: Shard | None = parse_shard(given) if given else None
            timings = option(run.config, "shard-timings")
            self.timings = read_timings(start_folder(run.config) / timings) if timings else None
        except AgentCompassError as error:
            raise pytest.UsageError(error.message) from None

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Keep the items of this shard; a task's attempts stay together, tests of the user's own stay anyway."""
        if self.shard is None:
            return
        cases = [(item, case_of(item)) for item in items]
        planned = tuple(dict.fromkeys(case for _, case in cases if case))
        shards = deal([case[:2] for case in planned], self.shard.count, self.timings)
        mine = [item for item, case in cases if case is None or shards[case[:2]] == self.shard.index]
        others = [item for item, case in cases if case is not None and shards[case[:2]] != self.shard.index]
        if self.run.context is not None:
            write_shard_plan(self.run.context.directory.path, ShardPlan(self.shard, planned))
        self._dealing = True
        config.hook.pytest_deselected(items=others)
        self._dealing = False
        items[:] = mine

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Count what `-k`, `-m`, `--lf`, `--deselect` and conftest.py files left out."""
        if not self._dealing:
            self.deselected += sum(case_of(item) is not None for item in items)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Write down what was collected: under xdist only the workers know."""
        if self.run.context is not None:
            data = {
                "suites": [str(path) for path in self.run.suites],
                "deselected": self.deselected,
                "requests": {name: item.model_dump(mode="json") for name, item in self.run.requests.items()},
            }
            write_atomic(self.run.context.directory.path / _FILE, json_bytes(plain(data)))


def collected(run_dir: Path) -> tuple[list[Path], int]:
    """Return the suites that were collected, and how many attempts were deselected."""
    data = _read(run_dir)
    return [Path(path) for path in data.get("suites", [])], int(data.get("deselected", 0))


def adopt_requests(run: AgentCompassRun) -> None:
    """Make the requests that only workers collected known in the controller: reports are about them."""
    if run.context is not None:
        for name, info in _read(run.context.directory.path).get("requests", {}).items():
            if name not in run.requests:
                run.requests[name] = RunRequest.model_validate(info)


def _read(run_dir: Path) -> dict[str, Any]:
    try:
        data = parse_json(read_bytes(run_dir / _FILE))
    except (OSError, ValueError):
        return {}  # nothing was collected
    return data if isinstance(data, dict) else {}


def selection_reasons(run: AgentCompassRun, deselected: int) -> list[str]:
    """Return why this run does not cover what its suites define, as far as the command line says."""
    config, found = run.config, []
    if deselected:
        what = "1 attempt was" if deselected == 1 else f"{deselected} attempts were"
        found.append(f"{what} deselected{_selectors(config)}")
    elif config.getoption("lf", False):
        found.append("--lf runs only what failed last time")
    if config.stash.get(SELECTED, None) or any("::" in str(word) for word in config.args):
        found.append("single tasks or attempts were named on the command line")
    for key in ("limit", "sample_ids"):
        if run.resolved.words.has(f"benchmark.{key}"):
            found.append(f"{key}= on the command line takes only some of the tasks")
    return found


def _selectors(config: pytest.Config) -> str:
    named: list[str] = []
    for key, flag in (("keyword", "-k"), ("markexpr", "-m")):
        value: Any = config.getoption(key, "")
        if value:
            named.append(f"{flag} {value!r}")
    named += [
        flag
        for key, flag in (("lf", "--lf"), ("deselect", "--deselect"), ("stepwise", "--sw"))
        if config.getoption(key, None)
    ]
    return f" ({', '.join(named)})" if named else ""
