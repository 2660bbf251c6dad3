"""Attempts that need no work any more: what a resumed run had finished already, and what the engine made."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from ..execution.engine import skip
from ..execution.reuse import stands_unplanned, take_over
from .state import ATTEMPT, run_of

if TYPE_CHECKING:
    from .nodes import AttemptItem

__all__ = ["is_last_report", "may_report_at_once", "report_at_once", "settle"]

_SETTLED = "agentcompass_settled"  # attribute of a report that stands for all three phases of its item
_PHASE_HOOKS = (
    "pytest_runtest_setup",
    "pytest_runtest_call",
    "pytest_runtest_teardown",
    "pytest_runtest_makereport",
    "pytest_runtest_logreport",
)
#: plugins whose hooks have nothing to do for an item that does not run (`junitxml` waits for the teardown)
_IDLE = ("_pytest.", "pytest_agentcompass.", "xdist.", "pytest_timeout", "_hypothesis_pytestplugin")
_ENDING = (pytest.exit.Exception, KeyboardInterrupt)  # what ends the session, whatever runs
_QUICK: pytest.StashKey[bool] = pytest.StashKey()


def settle(item: AttemptItem) -> bool:
    """Whether the attempt needs no fixtures: its record is there, or only its evaluation is missing."""
    run = run_of(item.config)
    if ATTEMPT not in item.stash and run.context is not None:
        context = run.context.request(item.request_node.request)
        if not run.context.resumed and context.source is None and not context.strategy.sequential:
            return False
        attempt = run.make_attempt(item)
        earlier = run.earlier_records(item) if context.strategy.sequential and item.number > 1 else []
        if earlier and context.strategy.satisfied(earlier):
            skip(attempt)
        elif stands_unplanned(attempt):
            attempt.released = True  # nothing was opened
        elif not run.portal.call(take_over, attempt) and not attempt.restored:
            return False
        item.stash[ATTEMPT] = attempt
    made = item.stash.get(ATTEMPT, None)
    return made is not None and (made.record is not None or made.restored)


def may_report_at_once(item: AttemptItem) -> bool:
    """Whether one report can stand for the settled *item*: it passed, and nobody but pytest looks at its phases.

    Setting up and tearing down nothing is most of what resuming a finished run would cost.
    """
    attempt = item.stash[ATTEMPT]
    if attempt.record is None or attempt.record.outcome != "passed" or not attempt.released or item.fixturenames:
        return False
    return _nobody_looks(item.config) and not any(
        mark.name in ("skip", "skipif", "xfail", "usefixtures") for mark in item.iter_markers()
    )


def is_last_report(report: pytest.TestReport) -> bool:
    """Whether *report* is the last one of its item."""
    return report.when == "teardown" or hasattr(report, _SETTLED)


def _nobody_looks(config: pytest.Config) -> bool:
    """Whether all hooks of an item's phases belong to plugins that have nothing to do for one that does not run."""
    if _QUICK not in config.stash:
        implementations = [impl for name in _PHASE_HOOKS for impl in getattr(config.hook, name).get_hookimpls()]
        names = {f"{_module(impl.plugin)}." for impl in implementations}
        foreign = [name for name in names if not name.startswith(_IDLE) or name.startswith("_pytest.junitxml.")]
        option = config.option
        asked = any(getattr(option, name, False) for name in ("setupshow", "setuponly", "setupplan", "usepdb", "trace"))
        config.stash[_QUICK] = not foreign and not asked and not hasattr(config, "workerinput")
    return config.stash[_QUICK]


def _module(plugin: object) -> str:
    return plugin.__name__ if isinstance(plugin, ModuleType) else type(plugin).__module__


def report_at_once(item: AttemptItem, nextitem: pytest.Item | None) -> None:
    """Report the settled *item* with one report of its call phase."""
    call: pytest.CallInfo[Any] = pytest.CallInfo.from_call(lambda: None, when="call", reraise=_ENDING)
    report = item.ihook.pytest_runtest_makereport(item=item, call=call)
    setattr(report, _SETTLED, True)
    item.ihook.pytest_runtest_logreport(report=report)
    state = item.session._setupstate
    if state.stack:  # of items before, which left to this one what they share
        call = pytest.CallInfo.from_call(lambda: state.teardown_exact(nextitem), when="teardown", reraise=_ENDING)
        if call.excinfo is not None:
            report = item.ihook.pytest_runtest_makereport(item=item, call=call)
            item.ihook.pytest_runtest_logreport(report=report)
