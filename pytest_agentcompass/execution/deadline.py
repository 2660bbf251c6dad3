"""Cutting a running attempt at the run's deadline."""

from __future__ import annotations

import asyncio
from typing import Any

__all__ = ["DeadlineCut"]


class DeadlineCut:
    """Cancels the task that works on an attempt when the time is over; `hit` tells it from other cancellations."""

    def __init__(self) -> None:
        self.hit = False
        self._timer: asyncio.TimerHandle | None = None

    def arm(self, seconds: float | None) -> bool:
        """Cancel the current task in *seconds* (None: never); False when a phase around this one armed already."""
        if seconds is None or self._timer is not None:
            return False
        self._timer = asyncio.get_running_loop().call_later(seconds, self._fire, asyncio.current_task())
        return True

    def _fire(self, task: asyncio.Task[Any] | None) -> None:
        self.hit = True
        if task is not None:
            task.cancel()

    def disarm(self) -> None:
        """Let the task go on."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def taken(self) -> bool:
        """Whether the deadline was hit; the cancellation it sent counts as dealt with."""
        task = asyncio.current_task()
        if self.hit and task is not None and task.cancelling():
            task.uncancel()
        return self.hit
