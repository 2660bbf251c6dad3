"""The run loop of `concurrency=N` in one process: the engine makes attempts, the items report them.

The engine's loop runs in a background thread; this thread runs each item's protocol as its attempt
finishes. Items that need something of the user's to run first stay item-driven, and the run says so.
"""

from __future__ import annotations

import queue
from typing import TYPE_CHECKING, Any

import pytest

from ..components.calls import use_threads
from ..execution.engine import Engine, Job
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
_POLL = 0.2  # seconds between looks at signals and stop requests


class Sentinel(pytest.Item):
    """Stands behind the session as next item, so that session fixtures live on between engine items."""

    def runtest(self) -> None:
        """Never run."""


class EngineLoop:
    """Replaces pytest's loop when this process makes several attempts at once."""

    def __init__(self, run: AgentCompassRun) -> None:
        self.run = run
        self.slots = 1
        self.reasons: dict[str, int] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run all items; leave it to pytest (or xdist) when there is nothing for the engine."""
        if (
            self.run.context is None
            or session.config.option.collectonly
            or session.config.pluginmanager.hasplugin("dsession")
        ):
            return None
        harmless = OURS | set(session.config.getini("agentcompass_harmless_fixtures"))
        mine = [item for item in session.items if isinstance(item, AttemptItem) and not self._obstacle(item, harmless)]
        if not mine:
            return None
        use_threads(2 * self.slots)
        engine_items = set(map(id, mine))
        others = [item for item in session.items if id(item) not in engine_items]
        self._drive(session, mine, others)
        return True

    def _obstacle(self, item: AttemptItem, harmless: frozenset[str] | set[str]) -> str:
        """Return what of the user's must run before the attempt, or an empty text."""
        extra = set(item.fixturenames) - harmless
        reason = f"fixture {sorted(extra)[0]!r}" if extra else ""
        definitions = item._fixtureinfo.name2fixturedefs
        for name in OURS & set(definitions):
            module = getattr(definitions[name][-1].func, "__module__", "")
            if module != __name__.rpartition(".")[0] + ".fixtures" and name not in ("request", "event_loop_policy"):
                reason = reason or f"fixture {name!r} is overridden"
        if reason:
            self.reasons[reason] = self.reasons.get(reason, 0) + 1
        return reason

    def pytest_report_collectionfinish(self) -> list[str]:
        """Say how attempts are driven."""
        slots = self.run.slots
        return [f"agentcompass: up to {slots} attempts at once in this process"] if slots > 1 else []

    def _drive(self, session: pytest.Session, mine: list[AttemptItem], others: list[pytest.Item]) -> None:
        assert self.run.context is not None
        done: queue.SimpleQueue[tuple[AttemptItem, Attempt]] = queue.SimpleQueue()
        engine = Engine(self.run.context, self.slots, lambda job, attempt: done.put((job.payload, attempt)))
        jobs = [Job(self.run.context.request(item.request_node.request), item.task, item.number, item) for item in mine]
        running = self.run.portal.start(engine.run_jobs(jobs))
        sentinel: Sentinel = Sentinel.from_parent(session, name="sentinel", nodeid="agentcompass::sentinel")
        left = len(mine)
        try:
            while left or others:
                if others and done.empty():
                    self._protocol(session, others.pop(0), sentinel)
                    continue
                try:
                    item, attempt = done.get(timeout=_POLL)
                except queue.Empty:
                    if running.done.is_set() and done.empty():
                        break
                    continue
                left -= 1
                item.stash[ATTEMPT] = attempt
                self._protocol(session, item, sentinel if left or others else None)
        finally:
            engine.stop()
            if not running.done.is_set():
                running.cancel(self.run.portal.loop)
                running.done.wait(self.run.portal.grace)
        running.result()

    def _protocol(self, session: pytest.Session, item: pytest.Item, nextitem: Any) -> None:
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=nextitem)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
