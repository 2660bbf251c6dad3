"""Back-off that all processes share: when a model's endpoint says "too many requests", everybody slows down.

    backoff = shared_backoff(base_url)
    await backoff.wait()                     # before each call
    ...
    backoff.report(retry_after=seconds)      # after a 429 or 529; None where the answer names no time
    backoff.succeeded()                      # after an answer

The times stand in a small file of the user's, so workers of one run and separate runs on the machine
obey the same pause. Refusals that arrive while a pause is on belong to the burst that caused it and do
not lengthen the next one.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .machine import SharedValue, private_dir, safe_name

__all__ = ["SharedBackoff", "shared_backoff"]

_FIRST = 2.0  # seconds of the first pause where the endpoint names none
_LONGEST = 120.0  # seconds; also the most that is believed of an endpoint's own word
_SPREAD = 0.5  # waiters come back over this share of the pause, not all at once


class SharedBackoff:
    """The pause of one endpoint, kept in the file *path*; *clock* gives monotonic seconds."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._value = SharedValue(path)
        self._clock = clock

    def remaining(self) -> float:
        """Return the seconds until calls may go on; 0 when there is no pause."""
        until = self._value.read().get("until", 0.0)
        return float(min(max(0.0, until - self._clock()), _LONGEST))

    async def wait(self) -> float:
        """Sleep until the pause is over (again, when it was prolonged meanwhile) and return the seconds slept."""
        slept = 0.0
        while (left := self.remaining()) > 0:
            pause = left + random.uniform(0.0, _SPREAD * left)
            await asyncio.sleep(pause)
            slept += pause
        return slept

    def report(self, retry_after: float | None = None) -> float:
        """Note a refusal and return the length of the pause in seconds.

        Without *retry_after* (seconds) pauses double from 2 s to 120 s, with jitter.
        """
        value = self._value.update(lambda old: self._prolonged(old, retry_after))
        return float(max(0.0, value["until"] - self._clock()))

    def _prolonged(self, old: dict[str, Any], retry_after: float | None) -> dict[str, Any]:
        now, until, level = self._clock(), old.get("until", 0.0), old.get("level", 0)
        in_burst = until > now
        if retry_after is not None:
            pause = min(max(retry_after, 0.0), _LONGEST)
        elif in_burst:
            pause = 0.0
        else:
            pause = min(_LONGEST, _FIRST * 2 ** min(level, 16)) * random.uniform(0.5, 1.0)
        return {"until": max(until, now + pause), "level": level if in_burst else level + 1}

    def succeeded(self) -> None:
        """Note an answer: the next refusal starts with a short pause again. Free while there is nothing to forget."""
        value = self._value.read()
        if value.get("level") and value.get("until", 0.0) <= self._clock():
            self._value.update(lambda old: {} if old.get("until", 0.0) <= self._clock() else old)


def shared_backoff(endpoint: str, folder: Path | None = None) -> SharedBackoff:
    """Return the back-off of *endpoint* (its base URL, or any name), shared by this user's processes."""
    return SharedBackoff((folder or private_dir()) / "backoff" / f"{safe_name(endpoint)}.json")
