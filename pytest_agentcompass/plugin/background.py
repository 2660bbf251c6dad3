"""What attempts print and log while they run in the background of this process."""

from __future__ import annotations

import logging
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ..components.context import current_attempt
from ..errors import AgentCompassError
from ..redaction import clean_text

if TYPE_CHECKING:
    from ..execution.attempt import Attempt

__all__ = ["Aside"]

_LINES = 1_000  # log lines that are kept of one attempt


class Aside:
    """Keeps the terminal clean while this thread waits for attempts.

    pytest captures only around the phases of an item, so what the background prints meanwhile would go
    raw between the dots. As a context manager it captures and puts the text into the run's log; log
    records go to the report of the attempt that made them.
    """

    def __init__(self, config: pytest.Config, path: Path) -> None:
        self._capture: Any = config.pluginmanager.getplugin("capturemanager")
        self._path = path
        self._logs = _Logs()
        logging.getLogger().addHandler(self._logs)

    def __enter__(self) -> None:
        if self._capture is not None:
            self._capture.resume_global_capture()

    def __exit__(self, *_: object) -> None:
        if self._capture is None:
            return
        self._capture.suspend_global_capture(in_=False)
        text = "".join(self._capture.read_global_capture())
        if text:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(clean_text(text))

    def hand_over(self, item: pytest.Item, attempt: Attempt) -> None:
        """Give what *attempt* logged to the report of its *item*."""
        lines = self._logs.lines.pop(str(attempt.attempt_context.directory), [])
        if lines:
            item.add_report_section("call", "log", "\n".join(lines))

    def close(self) -> None:
        """Stop listening."""
        logging.getLogger().removeHandler(self._logs)


class _Logs(logging.Handler):
    """Sorts log records by the attempt that is current where they are made."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: defaultdict[str, list[str]] = defaultdict(list)
        self.setFormatter(logging.Formatter("%(levelname)-8s %(name)s:%(filename)s:%(lineno)d %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        try:
            lines = self.lines[str(current_attempt().directory)]
        except AgentCompassError:
            return  # of none
        if len(lines) < _LINES:
            lines.append(self.format(record))
