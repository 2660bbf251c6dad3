"""A time limit that does not depend on the goodwill of what it limits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ..components.calls import contained
from ..errors import AgentCompassError

__all__ = ["guarded"]

T = TypeVar("T")
_GRACE = 10.0  # seconds that a cancelled coroutine has to end what it started


async def guarded(function: Callable[[], Coroutine[Any, Any, T]], limit: float | None, slack: float, what: str) -> T:
    """Await `function()` for at most *limit* + *slack* seconds.

    A coroutine that does not heed its cancellation within ten seconds is abandoned. Raises
    TimeoutError with a message that names *what* limit was over.
    """
    task = asyncio.ensure_future(contained(function()))
    try:
        done, _ = await asyncio.wait({task}, timeout=None if limit is None else limit + slack)
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait({task}, timeout=_GRACE)
        raise
    if done:
        return task.result()
    task.cancel()
    await asyncio.wait({task}, timeout=_GRACE)
    if task.done() and not task.cancelled() and isinstance(task.exception(), AgentCompassError | None):
        return task.result()
    raise TimeoutError(f"{what} was over and it was stopped")
