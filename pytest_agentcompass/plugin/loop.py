"""The run loop of `concurrency=N` in one process: the engine makes attempts, the items report them.

The engine's loop runs in a background thread; this thread runs each item's protocol as its attempt
finishes. Items that need something of the user's to run first stay item-driven, and the run says so.
"""

from __future__ import annotations

import os
import queue
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ..components.calls import use_threads
from ..execution.engine import Engine, Job
from .background import Aside
from .nodes import AttemptItem
from .state import ATTEMPT

if TYPE_CHECKING:
    from ..execution.attempt import Attempt
    from .session import AgentCompassRun

__all__ = ["EngineLoop"]

OURS = frozenset(
    {
        "agentcompass_attempt",
        "agentcompass_request",
        "agentcompass_task",
        "environment_session",
        "execution_plan",
        "harness_session",
        "request",
        "event_loop_policy",  # pytest-asyncio puts it on every item
    }
)
_LATE = OURS - {"agentcompass_request", "agentcompass_task", "event_loop_policy", "request"}
_SETUP = "pytest_runtest_setup"
_POLL = 0.2  # seconds between looks at signals and stop requests


class Sentinel(pytest.Item):
    """Stands behind the session as next item, so that session fixtures live on between engine items."""

    def runtest(self) -> None:
        """Never run."""


def _may_not_run(item: AttemptItem) -> bool:
    """Whether a mark may keep the item from running: pytest decides that right before it would run."""
    marks = [mark for mark in item.iter_markers() if mark.name in ("skip", "skipif", "xfail")]
    return any(mark.name != "xfail" or mark.kwargs.get("run") is False for mark in marks)


def _has_setup_hook(item: AttemptItem) -> bool:
    """Whether a conftest.py looks at items before they run: it may skip them."""
    files = (getattr(impl.plugin, "__file__", None) for impl in item.ihook.pytest_runtest_setup.get_hookimpls())
    return any(Path(file).name == "conftest.py" for file in files if file)


def _obstacle(item: AttemptItem, harmless: frozenset[str] | set[str]) -> str:
    """Return what of the user's must run before the attempt, or an empty text."""
    definitions = item._fixtureinfo.name2fixturedefs
    for name in sorted(OURS & set(definitions)):
        module = getattr(definitions[name][-1].func, "__module__", "")
        if module != __name__.rpartition(".")[0] + ".fixtures" and name not in ("request", "event_loop_policy"):
            return f"the fixture {name!r} is overridden"
    if _may_not_run(item):
        return "a mark skips some"
    if _SETUP not in harmless and _has_setup_hook(item):
        return f"a conftest.py has {_SETUP!r}"
    for name in sorted(set(item.fixturenames) & harmless - OURS):
        if name in definitions and (used := set(definitions[name][-1].argnames) & _LATE):
            return f"the fixture {name!r} uses {sorted(used)[0]!r}"
    extra = sorted(set(item.fixturenames) - harmless)
    return f"the fixture {extra[0]!r} is used" if extra else ""


def time_limit(item: pytest.Item) -> tuple[float, str] | None:
    """Return pytest-timeout's limit for *item* and what is said when it is over; the engine keeps it in its stead."""
    config = item.config
    if not config.pluginmanager.hasplugin("timeout"):
        return None
    mark = item.get_closest_marker("timeout")
    given: Any = (mark.args[0] if mark.args else mark.kwargs.get("timeout")) if mark is not None else None
    if given is None:
        given = config.getoption("timeout") or os.environ.get("PYTEST_TIMEOUT") or config.getini("timeout")
    seconds = float(given or 0)
    if seconds <= 0:
        return None
    said = f"pytest-timeout's limit of {seconds:g} s for the whole attempt was over (timeout= limits the agent)"
    return seconds, said


class EngineLoop:
    """Replaces pytest's loop when this process makes several attempts at once."""

    def __init__(self, run: AgentCompassRun) -> None:
        self.run = run
        self.slots = 1
        self.mine: list[AttemptItem] = []
        self.reasons: Counter[str] = Counter()

    @pytest.hookimpl(tryfirst=True)  # before the terminal shows `pytest_report_collectionfinish`
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Choose the items that the engine makes; none where one attempt at a time is wanted, or xdist runs them."""
        self.slots = self.run.slots
        plain = session.config.option.collectonly or session.config.pluginmanager.hasplugin("dsession")
        if self.run.context is None or self.slots <= 1 or plain:
            return
        harmless = OURS | set(session.config.getini("agentcompass_harmless_fixtures"))
        for item in session.items:
            if isinstance(item, AttemptItem):
                reason = _obstacle(item, harmless)
                if reason:
                    self.reasons[reason] += 1
                else:
                    self.mine.append(item)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run all items; leave it to pytest (or xdist) when there is nothing for the engine."""
        if not self.mine:
            return None
        use_threads(2 * min(self.slots, len(self.mine)))
        engine_items = set(map(id, self.mine))
        others = [item for item in session.items if id(item) not in engine_items]
        self._drive(session, self.mine, others)
        return True

    def pytest_report_collectionfinish(self) -> list[str]:
        """Say how attempts are driven."""
        most = min(self.slots, len(self.mine))
        said = [f"agentcompass: up to {most} attempts at once in this process"] if most > 1 else []
        for reason, count in self.reasons.most_common():
            said.append(
                f"agentcompass: {count} attempts run one after another: {reason}, which must run first "
                "(an autouse fixture or hook that need not: list it in agentcompass_harmless_fixtures)"
            )
        return said

    def _drive(self, session: pytest.Session, mine: list[AttemptItem], others: list[pytest.Item]) -> None:
        assert self.run.context is not None
        done: queue.SimpleQueue[tuple[AttemptItem, Attempt]] = queue.SimpleQueue()
        engine = Engine(self.run.context, self.slots, lambda job, attempt: done.put((job.payload, attempt)))
        self.run.in_flight = engine.active
        jobs = [
            Job(self.run.context.request(item.request_node.request), item.task, item.number, item, time_limit(item))
            for item in mine
        ]
        running = self.run.portal.start(engine.run_jobs(jobs))
        sentinel: Sentinel = Sentinel.from_parent(session, name="sentinel", nodeid="agentcompass::sentinel")
        left = len(mine)
        aside = Aside(session.config, self.run.context.directory.path / "run.log")
        try:
            while left or others:
                if others and done.empty():
                    self._protocol(session, others.pop(0), sentinel)
                    continue
                try:
                    with aside:
                        item, attempt = done.get(timeout=_POLL)
                except queue.Empty:
                    if running.done.is_set() and done.empty():
                        break
                    continue
                left -= 1
                aside.hand_over(item, attempt)
                item.stash[ATTEMPT] = attempt
                self._protocol(session, item, sentinel if left or others else None)
            running.done.wait(self.run.portal.grace)  # the last attempt is handed over before the engine is through
        finally:
            aside.close()
            engine.stop()
            if not running.done.is_set():
                running.cancel(self.run.portal.loop)
                running.done.wait(self.run.portal.grace)
        running.result()
        reason = self.run.context.admission.breaker.reason
        if reason and left:
            raise session.Interrupted(f"agentcompass: {reason}")

    def _protocol(self, session: pytest.Session, item: pytest.Item, nextitem: Any) -> None:
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=nextitem)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
