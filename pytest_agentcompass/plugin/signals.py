"""Ending well: TERM becomes an interrupt, a second signal removes by force, `os._exit` leaves a record."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from types import FrameType
from typing import TYPE_CHECKING, Any

import pytest

from ..components.context import current_attempt
from ..errors import AgentCompassError
from ..execution.cleanup import force_remove
from ..redaction import clean_text
from .state import ATTEMPT, case_of
from .workers import signal_workers

if TYPE_CHECKING:
    from ..execution.attempt import Attempt
    from .session import AgentCompassRun

__all__ = ["Signals"]

_FORCE_SECONDS = 8.0  # providers take up to five to remove what is open


class Signals:
    """Signal handlers of an active run; only in a main thread, put back when the session ends."""

    def __init__(self, run: AgentCompassRun) -> None:
        self.run = run
        self.current: pytest.Item | None = None
        self._old: dict[int, Any] = {}
        self._exit = os._exit
        self._pid = os.getpid()
        self._hits = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Install the handlers and make (or join) the run directory, before xdist starts its workers."""
        if threading.current_thread() is threading.main_thread():
            self._old[signal.SIGTERM] = signal.signal(signal.SIGTERM, self._stop)
            if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a job in the background ignores it
                self._old[signal.SIGINT] = signal.signal(signal.SIGINT, self._stop)
        os._exit = self._hard_exit  # type: ignore[assignment]
        self.run.open_directory()

    def pytest_unconfigure(self, config: pytest.Config) -> None:
        """Put everything back."""
        os._exit = self._exit
        for number, handler in self._old.items():
            signal.signal(number, handler)
        self._old.clear()
        self.run.close()

    @pytest.hookimpl(tryfirst=True, wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        """Remember which item runs."""
        self.current = item if case_of(item) is not None else None
        try:
            return (yield)
        finally:
            self.current = None

    def _stop(self, number: int, frame: FrameType | None) -> None:
        """First: end in order. Second: remove by force what is open, and exit. Third: exit at once.

        A worker hears of one Ctrl-C twice, from the terminal and from its controller, so it counts one less.
        """
        self._hits += 1
        asked = self._hits - 1 if self.run.is_worker and self._hits > 1 else self._hits
        if self._hits == 1:
            raise KeyboardInterrupt(*([] if number == signal.SIGINT else ["the run was asked to terminate (SIGTERM)"]))
        if asked == 2:
            self._force(128 + number)
        elif asked > 2:
            self._exit(128 + number)

    def _force(self, status: int) -> None:
        """Remove everything of the run now and exit; a timer sees to it where something blocks."""
        timer = threading.Timer(_FORCE_SECONDS, self._exit, [status])
        timer.daemon = True
        timer.start()
        try:
            self._force_remove()
            self.run.finish_after_crash()
        finally:
            self._exit(status)

    def _force_remove(self) -> None:
        """End the workers, then remove what they and this process have open (a worker: its own)."""
        if self.run.is_worker:
            force_remove(self.run.registry, self.run.run_id, owner=self._pid)
            return
        signal_workers(self.run, signal.SIGKILL)
        for id in self.run.environment_ids():
            self.run.registry.make("environment", id)  # with workers this process itself has used none
        force_remove(self.run.registry, self.run.run_id)

    def _hard_exit(self, status: int = 1) -> None:
        """Leave a record and no sandbox behind when something in this process calls `os._exit`.

        A forked child of the user's own calls it rightly and is let go. The status is never 0:
        a run that ends in the middle must not look green.
        """
        if os.getpid() != self._pid:
            self._exit(status)
        try:
            attempt = self._caller()
            if attempt is not None:
                attempt.lost(f"the process was ended by os._exit({status}) in the middle of the attempt")
            self._say(status, attempt)
            self.run.finish_after_crash()
            force_remove(self.run.registry, self.run.run_id, owner=self._pid)
        finally:
            self._exit(status or 1)

    def _caller(self) -> Attempt | None:
        """Return the attempt whose code runs in this task or thread, else that of the item that runs."""
        with contextlib.suppress(AgentCompassError):
            here = current_attempt()
            for attempt in list(self.run.in_flight.values()):
                if attempt.attempt_context is here:
                    return attempt
        return self.current.stash.get(ATTEMPT, None) if self.current is not None else None

    def _say(self, status: int, attempt: Attempt | None) -> None:
        """Tell on the terminal, past pytest's capture, what ended the run and how to go on."""
        if self.run.is_worker or self.run.context is None:
            return
        capture = self.run.config.pluginmanager.getplugin("capturemanager")
        if capture is not None:
            capture.suspend_global_capture(in_=False)
        where = f" in the middle of {attempt.request.name}::{attempt.task.task_id}" if attempt is not None else ""
        line = (
            f"\nagentcompass: something called os._exit({status}){where}; the run ends here. "
            f"To make the rest: pytest --agentcompass --agentcompass-resume={self.run.run_id}\n"
        )
        os.write(1, clean_text(line).encode())
