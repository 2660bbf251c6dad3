"""xdist: who runs what, when items take minutes.

xdist's own schedulers send chunks, and its worker does not start an item before it knows the next one: a
short item may wait behind a long one while other workers are idle. Here each worker gets one unit of work
at a time, in declared order, when it is free. What lets the worker start without a next item is a *pause*,
an item that does nothing and stands for "the next item is not known yet". The worker appends the pauses
behind its collected items, and the controller takes their ids off again before anyone counts them.

A unit is one attempt; all attempts of a task whose strategy runs them one after another; or a few
neighbouring tests of the user's own from one file. The pause of an attempt hangs under its request (or
file), so that fixtures of module scope live on until the worker turns to another one.

Ours is used for `-n N` and `--dist load`; any other `--dist` is left alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from xdist.scheduler import LoadScheduling  # type: ignore[import-untyped]  # xdist ships no types

from ..redaction import clean_text
from .nodes import AttemptItem
from .state import case_of

if TYPE_CHECKING:
    from xdist.remote import Producer  # type: ignore[import-untyped]
    from xdist.workermanage import WorkerController  # type: ignore[import-untyped]

    from .session import AgentCompassRun

__all__ = ["OneByOne", "Pause", "Scheduling", "auto_workers", "make_units"]

_INPUT = "agentcompass_pauses"
_PAUSE = "agentcompass-pause"
_CHAIN = "agentcompass-pause-chain"  # under a request whose strategy runs a task's attempts in a row
_CHUNK = 10  # tests of the user's own that travel together
_PER_CPU = 4  # workers per processor for `-n auto`: attempts wait most of the time
_AT_LEAST = 8


class Pause(pytest.Item):
    """Stands for an item that is not known yet; running it tears down what the next item does not share."""

    def runtest(self) -> None:
        """Never run."""


class Scheduling:
    """Hooks of the controller and of the workers."""

    def __init__(self, run: AgentCompassRun) -> None:
        self.run = run
        self._pauses: list[str] = []

    # -- controller ---------------------------------------------------------------------------

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Producer) -> OneByOne | None:
        """Return our scheduler, unless the user chose a way of distributing."""
        return OneByOne(config, log, self._pauses) if self._wanted(config) else None

    def _wanted(self, config: pytest.Config) -> bool:
        return bool(config.getvalue("dist") == "load")

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker whether it is to add pauses."""
        node.workerinput[_INPUT] = self._wanted(node.config)

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Take the pauses off a worker's collection, before anyone counts it."""
        items = len(ids)
        while items and ids[items - 1].rpartition("::")[2] in (_PAUSE, _CHAIN):
            items -= 1
        self._pauses[:] = ids[items:]
        del ids[items:]

    # -- workers ------------------------------------------------------------------------------

    @pytest.hookimpl(tryfirst=True)  # before the worker sends the ids to the controller
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Append the pauses, when nobody (--lf, --nf, --sw) chooses or sorts items any more."""
        items = session.items
        if items and self.run.is_worker and self.run.config.workerinput.get(_INPUT):  # type: ignore[attr-defined]
            items.extend(_make_pauses(session, items))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        """Pass over a pause: only tear down what the next item does not share; no hook of an item's phases sees it."""
        if not isinstance(item, Pause):
            return None
        state = item.session._setupstate
        call: pytest.CallInfo[Any] = pytest.CallInfo.from_call(
            lambda: state.teardown_exact(nextitem), when="teardown", reraise=(pytest.exit.Exception, KeyboardInterrupt)
        )
        if call.excinfo is not None:
            report = pytest.TestReport.from_item_and_call(item, call)
            report.longrepr = clean_text(str(report.longrepr))  # a lone surrogate would kill the worker
            item.ihook.pytest_runtest_logreport(report=report)
        return True


def _make_pauses(session: pytest.Session, items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Return a pause per module with attempts of ours, in order, and one under the session for the rest."""
    found: dict[str, pytest.Item] = {}
    for item in items:
        module = item.getparent(pytest.Module)
        if case_of(item) is None or module is None or module.nodeid in found:
            continue
        name = _CHAIN if isinstance(item, AttemptItem) and _in_sequence(item) else _PAUSE
        found[module.nodeid] = Pause.from_parent(module, name=name, nodeid=f"{module.nodeid}::{name}")
    return [*found.values(), Pause.from_parent(session, name=_PAUSE, nodeid=_PAUSE)]


def _in_sequence(item: AttemptItem) -> bool:
    """Whether the attempts of the item's task run one after another."""
    node = item.request_node
    return node.run.context is not None and bool(node.run.context.request(node.request).strategy.sequential)


def make_units(ids: Sequence[str], pauses: Sequence[str]) -> list[tuple[list[int], int]]:
    """Return the units of work, each as indices of *ids* and the index of its pause.

    *pauses* are the ids behind *ids*; the last of them is the session's, for items of no attempt.
    """
    known = {
        pause.rpartition("::")[0]: (len(ids) + place, pause.endswith(_CHAIN)) for place, pause in enumerate(pauses)
    }
    rest = len(ids) + len(pauses) - 1
    units: list[tuple[list[int], int]] = []
    key: object = None
    for index, nodeid in enumerate(ids):
        pause, chained = known.get(_module(nodeid, known), (rest, False))
        if pause == rest:
            before, key = key, nodeid.partition("::")[0]
            together = len(units[-1][0]) < _CHUNK if units else False
        else:
            before, key = key, nodeid.rpartition("::")[0] if chained else index
            together = True
        if key == before and together:
            units[-1][0].append(index)
        else:
            units.append(([index], pause))
    return units


def _module(nodeid: str, known: Iterable[str]) -> str:
    """Return the id among *known* that *nodeid* stands below; empty when there is none."""
    return max((name for name in known if name and nodeid.startswith(f"{name}::")), key=len, default="")


class OneByOne(LoadScheduling):  # type: ignore[misc]  # xdist ships no types
    """Gives each worker one unit at a time, in declared order."""

    def __init__(self, config: pytest.Config, log: Producer | None, pauses: list[str]) -> None:
        super().__init__(config, log)
        self.collection: list[str] | None = None
        self._pauses = pauses
        self._units: list[tuple[list[int], int]] = []

    @property
    def tests_finished(self) -> bool:
        """Whether no real item is left or under way (idle workers are kept: one of the others may die)."""
        return self.collection_is_completed and not self.has_pending

    @property
    def has_pending(self) -> bool:
        """Whether there are real items left."""
        return bool(self._units) or any(self._real(pending) for pending in self.node2pending.values())

    def _real(self, pending: Sequence[int]) -> list[int]:
        assert self.collection is not None or not pending
        return [index for index in pending if index < len(self.collection or ())]

    def schedule(self) -> None:
        """Begin, or give work to a worker that came later."""
        if self.collection is None:
            if not self._check_nodes_have_same_collection():
                self.log("**Different tests collected, aborting run**")
                return
            collected: list[str] = next(iter(self.node2collection.values()))
            self.collection = collected
            self._units = make_units(collected, self._pauses)
        for node in self.nodes:
            self.check_schedule(node)

    def check_schedule(self, node: WorkerController, duration: float = 0) -> None:
        """Give *node* the next unit if it is free."""
        if node.shutting_down or node not in self.node2collection or self._real(self.node2pending[node]):
            return
        if self._units:
            unit, pause = self._units.pop(0)
            self.node2pending[node].extend([*unit, pause])
            node.send_runtest_some([*unit, pause])

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        """Take note that *node* has done an item or passed a pause."""
        self.node2pending[node].remove(item_index)
        self.check_schedule(node, duration)

    def mark_test_pending(self, item: str) -> None:
        """Run *item* once more, before all others."""
        assert self.collection is not None
        index = self.collection.index(item)
        pause = next(pause for unit, pause in make_units(self.collection, self._pauses) if index in unit)
        self._units.insert(0, ([index], pause))
        for node in self.nodes:
            self.check_schedule(node)

    def remove_node(self, node: WorkerController) -> str | None:
        """Forget *node*; what it had not begun goes to others first. Returns the item that it died in."""
        pending = self.node2pending.pop(node)
        real = self._real(pending)
        if not real or self.collection is None:
            return None
        crashed = self.collection[real.pop(0)] if pending[0] == real[0] else None
        if real:
            pause = next(index for index in reversed(pending) if index >= len(self.collection))
            self._units.insert(0, (real, pause))
        for other in self.nodes:
            self.check_schedule(other)
        return crashed


def auto_workers(concurrency: int | None) -> int | None:
    """Return how many workers `-n auto` starts for *concurrency*; None leaves it to xdist.

    At most four per processor (at least 8): a worker takes about 40 MB. More attempts at once need
    `concurrency=N` without `-n`, in one process.
    """
    if not concurrency or os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS"):
        return None
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(concurrency, max(_AT_LEAST, _PER_CPU * processors))
