"""Live progress on the terminal: a line that is kept up to date, or one line per finished attempt.

* A terminal: below pytest's own output stands one line with what is going on, drawn once a second and wiped
  away before pytest writes anything. pytest's dots and `-v` lines stay as they are.
* No terminal, or continuous integration (`CI` is set), and attempts at once (`concurrency` or `-n`): a line per
  attempt as it finishes, in place of its dot; with `-v` below pytest's own line; with `-q` none.

`runtime.progress`: auto (as above), on (also with `-q`, also one at a time), off.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from ..execution.progress import EventTail, Progress, finished_line, status_line

if TYPE_CHECKING:
    from .session import AgentCompassRun

__all__ = ["LiveLine", "ProgressLines", "ProgressStart", "choose_progress"]

_INTERVAL = 1.0  # seconds between two drawings of the live line
_OUTCOME = "agentcompass_outcome"


def choose_progress(run: AgentCompassRun) -> ProgressLines | LiveLine | None:
    """Return the plugin that shows progress in this session, or None."""
    config, wanted = run.config, run.resolved.options.progress
    reporter = config.pluginmanager.getplugin("terminalreporter")
    if wanted == "off" or run.is_worker or run.collect_only or reporter is None:
        return None
    if wanted == "auto" and config.option.verbose < 0:
        return None
    if reporter.isatty and config.getoption("capture") in ("fd", "sys") and _can_draw():
        return LiveLine(run, reporter)
    return ProgressLines(run, reporter, always=wanted == "on")


def _can_draw() -> bool:
    """Whether what is drawn again and again does not end up in a log, as it does in continuous integration."""
    ci = os.environ.get("CI") or os.environ.get("BUILD_NUMBER")  # as pytest tells it
    return not ci and os.environ.get("TERM", "dumb") != "dumb"


class ProgressStart:
    """Chooses how progress is shown once the terminal reporter is there."""

    def __init__(self, run: AgentCompassRun) -> None:
        self.run = run

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self) -> None:
        """Register the plugin that shows progress."""
        chosen = choose_progress(self.run)
        if chosen is not None:
            self.run.config.pluginmanager.register(chosen, "agentcompass-progress")


def _properties(report: pytest.TestReport | pytest.CollectReport) -> dict[str, Any]:
    return dict(getattr(report, "user_properties", ()))  # a collection error has none, and is asked for its status too


class _Counter:
    """Knows how many attempts are planned, here or in the workers."""

    def __init__(self, run: AgentCompassRun) -> None:
        self.run = run
        self._total = 0

    @property
    def total(self) -> int:
        """The number of planned attempts; 0 before they are collected."""
        if not self._total and self.run.context is not None:
            self._total = len(self.run.context.directory.planned())
        return self._total


class ProgressLines(_Counter):
    """One line per finished attempt."""

    def __init__(self, run: AgentCompassRun, reporter: Any, always: bool = False) -> None:
        super().__init__(run)
        self._reporter = reporter
        self._always = always
        self._number = 0
        self._over = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self) -> None:
        """Write no file names before lines that name the attempt anyway."""
        if self._shown() and self.run.config.option.verbose <= 0:
            self._reporter.showfspath = False

    def _shown(self) -> bool:
        return self._always or self.run.slots > 1 or bool(self.run.config.pluginmanager.hasplugin("dsession"))

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport | pytest.CollectReport) -> tuple[str, str, str] | None:
        """Leave an attempt's dot out where its line stands instead."""
        if self._over or self.run.config.option.verbose > 0 or not self._shown() or _OUTCOME not in _properties(report):
            return None
        if report.outcome == "rerun":  # type: ignore[comparison-overlap]
            return None
        category: str = "error" if report.failed and report.when != "call" else report.outcome
        if hasattr(report, "wasxfail"):
            category = "xfailed" if report.skipped else "xpassed"
        return ("" if report.passed and report.when != "call" else category), "", ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """From now on pytest asks for the word of an outcome, for its summary."""
        self._over = True

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write the line of an attempt whose outcome has arrived."""
        properties = _properties(report)
        outcome = properties.get(_OUTCOME)
        if outcome is None or report.when == "teardown" or report.outcome == "rerun" or not self._shown():  # type: ignore[comparison-overlap]
            return
        self._number += 1
        name = report.nodeid.removeprefix("agentcompass::")
        seconds = properties.get("agentcompass_seconds")
        took = float(seconds) if seconds else None
        mode = str(properties.get("agentcompass_failure_mode", ""))
        writer = self._reporter._tw
        if writer.width_of_current_line:
            writer.line()
        writer.write(finished_line(self._number, self.total, name, str(outcome), mode, took))
        if self.run.config.option.verbose > 0:
            self._reporter.currentfspath = "agentcompass"  # the reporter ends the line before it begins its next
        else:
            writer.line()
            self._reporter.currentfspath = None


class LiveLine(_Counter):
    """A line below the output, drawn by a thread of its own."""

    def __init__(self, run: AgentCompassRun, reporter: Any) -> None:
        super().__init__(run)
        self._progress = Progress()
        self._reporter = reporter
        self._screen: _Screen | None = None
        self._tail: EventTail | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self) -> None:
        """Begin to draw."""
        context = self.run.context
        if context is None:
            return
        size = os.path.getsize(context.directory.path / "events.jsonl")
        self._tail = EventTail(context.directory.path / "events.jsonl", 0 if not context.resumed else size)
        self._screen = _Screen(self._reporter._tw)
        self._thread = threading.Thread(target=self._draw, name="agentcompass-progress", daemon=True)
        self._thread.start()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Wipe the line away."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(5)
        if self._screen is not None:
            self._screen.close()

    def pytest_enter_pdb(self) -> None:
        """Leave the terminal to the debugger."""
        if self._screen is not None:
            self._screen.pause(True)

    def pytest_leave_pdb(self) -> None:
        """Go on."""
        if self._screen is not None:
            self._screen.pause(False)

    def _draw(self) -> None:
        assert self._tail is not None and self._screen is not None
        while not self._stop.wait(_INTERVAL):
            for event in self._tail.fresh():
                self._progress.feed(event)
            self._progress.total = self.total
            self._screen.show(status_line(self._progress, time.time(), self._screen.width - 1))


class _Screen:
    """The terminal's last line, shared with pytest's own writer, whose file is wrapped while this is open."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer
        self._file = writer._file
        self._lock = threading.RLock()
        self._drawn = False
        self._back = ""
        self._paused = False
        # pytest may capture the standard output while an attempt runs: a handle of our own reaches the terminal
        self._handle = os.dup(self._file.fileno() if hasattr(self._file, "fileno") else sys.__stdout__.fileno())  # type: ignore[union-attr]
        writer._file = _Wiping(self._file, self)

    @property
    def width(self) -> int:
        """The columns of the terminal; pytest's writer cannot tell them while the output is captured."""
        try:
            return os.get_terminal_size(self._handle).columns or int(self._writer.fullwidth)
        except OSError:
            return int(self._writer.fullwidth)

    def show(self, text: str) -> None:
        """Draw *text* below the line that pytest is writing, and go back to where that was."""
        with self._lock:
            written, width = self._writer.width_of_current_line, max(1, self.width)
            if self._paused or (written and written % width == 0):  # a full line: there is no place to go back to
                return
            self._file.flush()
            self._back = "\x1b[A\r" + (f"\x1b[{written % width}C" if written else "")
            self._put(f"\n\r\x1b[2K{text}{self._back}")
            self._drawn = True

    def pause(self, paused: bool) -> None:
        """Stop drawing, or go on."""
        with self._lock:
            self.wipe()
            self._paused = paused

    def wipe(self) -> None:
        """Take the line away."""
        if self._drawn:
            self._drawn = False
            self._put(f"\x1b[B\r\x1b[J{self._back}")

    def _put(self, text: str) -> None:
        try:
            os.write(self._handle, text.encode("utf-8", "replace"))
        except OSError:
            pass  # the terminal is gone; the run is not

    def write(self, text: str) -> int:
        """Wipe the line and let pytest write."""
        with self._lock:
            self.wipe()
            return int(self._file.write(text))

    def close(self) -> None:
        """Give the terminal back."""
        with self._lock:
            self.wipe()
            self._writer._file = self._file
            os.close(self._handle)
            self._handle = -1


class _Wiping:
    """The writer's file, with the live line wiped before each write."""

    def __init__(self, file: Any, screen: _Screen) -> None:
        self._file = file
        self._screen = screen

    def write(self, text: str) -> int:
        """Write *text* where the live line may have been."""
        return self._screen.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)
