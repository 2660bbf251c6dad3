"""Budget, deadline, limits and circuit breaker in a session: when they begin, how they stop it, what they say."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ..config.options import RuntimeOptions, least, strictest
from ..errors import AgentCompassError
from .nodes import AttemptItem
from .options import start_folder
from .settled import settle
from .state import ATTEMPT, case_of

if TYPE_CHECKING:
    from ..contracts.record import AttemptRecord
    from .session import AgentCompassRun

__all__ = ["RunControl", "asked_concurrency", "named_options", "run_options"]

_MANY = 500  # items
_CUT = ("budget_spent", "deadline")


def run_options(run: AgentCompassRun) -> RuntimeOptions:
    """Return the options of the run: those of its suites, the strictest of each where there are several."""
    suites = [run.resolved.read_suite(path).options for path in run.suites]
    return strictest(suites) if suites else run.resolved.options


def asked_concurrency(config: pytest.Config) -> int | None:
    """Return the `concurrency` that the run is asked for, before anything is collected."""
    return least(options.task_concurrency for options in named_options(config))


def named_options(config: pytest.Config) -> list[RuntimeOptions]:
    """Return the options of each suite that is named on the command line; where there is none, those of the words."""
    from .session import resolve

    resolved, _ = resolve(config)
    found = []
    for word in config.args:
        path = start_folder(config) / word.partition("::")[0]
        if path.name.endswith(".agentcompass.yaml") and path.is_file():
            try:
                found.append(resolved.read_suite(path).options)
            except AgentCompassError:
                pass  # its own collection error says what is wrong
    return found or [resolved.options]


class RunControl:
    """Hooks that start the run's clock and end a run that may not go on."""

    def __init__(self, run: AgentCompassRun) -> None:
        self.run = run
        self._stopped = False

    def pytest_report_header(self) -> list[str]:
        """Say when there are fewer workers than attempts that may be in flight."""
        workers = self.run.config.getoption("numprocesses", None) or 0
        wanted = asked_concurrency(self.run.config) if workers else None
        if wanted is None or 0 < wanted <= workers:
            return []
        one = "1 worker makes" if workers == 1 else f"{workers} workers make"
        said = f"{one} one attempt each at a time; for concurrency={wanted} in one process leave -n out"
        return [f"agentcompass: {said}"]

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """The preflight is over: from here the deadline counts, and the options of all suites are known."""
        if self.run.context is not None:
            options = replace(run_options(self.run), task_concurrency=self.run.concurrency)
            self.run.context.use_options(options, self.run.concurrency if self.run.is_worker else None)
            if not self.run.is_worker:
                self.run.context.admission.start_clock()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        """Start no attempt of a run that was stopped; it stays pending."""
        context = self.run.context
        if context is None:
            return None
        if self.run.is_worker:  # all workers have collected: the first item of any of them starts the clock
            context.admission.start_clock()
        case = case_of(item)
        if isinstance(item, AttemptItem):
            settle(item)
        attempt = item.stash.get(ATTEMPT, None)
        if case is None or (attempt is not None and attempt.record is not None):
            return None
        request = context.request(self.run.requests[case[0]])
        slots = context.options.task_concurrency or 1
        reason = self.run.portal.call(context.admission.breaker.check, request.environment, request.request, slots)
        if not reason:
            return None
        item.session.shouldstop = f"agentcompass: {reason}"
        return True

    @pytest.hookimpl(trylast=True)  # behind the session's own, which counts failures
    def pytest_runtest_logreport(self) -> None:
        """Let workers begin no further try when the run is to stop: their attempts under way end."""
        session: Any = self.run.config.pluginmanager.getplugin("session")
        reason = getattr(session, "shouldfail", False)
        if reason and self.run.context is not None and not self._stopped:
            self._stopped = True
            self.run.context.admission.stop(str(reason))

    def pytest_unconfigure(self) -> None:
        """Give the items back to the garbage collector; remove what limits left outside of the run directory."""
        gc.unfreeze()
        if self.run.context is not None and self.run.config.pluginmanager.hasplugin("dsession"):
            self.run.context.limits.forget_run()

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say what kept attempts from being made."""
        context = self.run.context
        if context is None or self.run.is_worker:
            return
        for line in _cut_lines(self._records()):
            terminalreporter.write_line(line, yellow=True)
        reason = context.admission.breaker.reason
        if reason:
            terminalreporter.write_line(f"STOPPED: {reason}", red=True)
            terminalreporter.write_line("what did not start is pending, not failed: run it when the cause is gone")

    def _records(self) -> list[AttemptRecord]:
        reporting = self.run.config.pluginmanager.getplugin("agentcompass-reporting")
        return [record for result in getattr(reporting, "results", ()) for record in result.records]


def _cut_lines(records: list[AttemptRecord]) -> list[str]:
    """Return one line per reason for which attempts were skipped."""
    lines = []
    for mode in _CUT:
        hit = [record for record in records if record.failure_mode.value == mode]
        if hit:
            why = hit[0].issues[-1]["message"] if hit[0].issues else mode
            number = f"{len(hit)} attempt{'s were' if len(hit) > 1 else ' was'}"
            lines.append(f"{number} skipped, not failed ({mode}): {why}")
            if why.endswith("are spent"):  # time counts anew
                lines.append("a resumed run goes on counting from there: give it a larger budget")
    return lines
