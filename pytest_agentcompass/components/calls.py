"""Calling extension methods that may be sync or async."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

__all__ = ["call", "contained", "finish", "in_thread", "is_cancellation", "shutdown_threads", "use_threads"]

T = TypeVar("T")

_pool: ThreadPoolExecutor | None = None
_size = 8


def use_threads(count: int) -> None:
    """Size the pool for blocking calls: at least two threads per attempt in flight."""
    global _pool, _size
    if count > _size:
        _size = count
        if _pool is not None:
            old, _pool = _pool, None
            old.shutdown(wait=False)


def shutdown_threads() -> None:
    """Let the pool's idle threads go."""
    global _pool
    if _pool is not None:
        _pool.shutdown(wait=False, cancel_futures=True)
        _pool = None


async def in_thread(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Run a blocking *function* in the pool, with the caller's context."""
    global _pool
    if _pool is None:
        _pool = ThreadPoolExecutor(max_workers=_size, thread_name_prefix="agentcompass")
    context = contextvars.copy_context()
    return await asyncio.get_running_loop().run_in_executor(_pool, lambda: context.run(function, *args, **kwargs))


async def contained(awaitable: Awaitable[T]) -> T:
    """Await what runs code of others: the two exceptions that would end the event loop come out as a RuntimeError."""
    try:
        return await awaitable
    except (KeyboardInterrupt, SystemExit) as error:
        raise RuntimeError(f"raised {error!r}, which ends whole programs: components raise an Exception") from error


def is_cancellation(error: BaseException) -> bool:
    """Whether *error* is a cancellation of the current task, not one that code of others raised by itself."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


async def finish(awaitable: Awaitable[T]) -> T:
    """Await what must not be left half done (closing a sandbox); a cancellation meanwhile is raised afterwards."""
    task = asyncio.ensure_future(contained(awaitable))
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # looked at: the cancellation goes first
        raise cancelled
    return task.result()


async def call(method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Await *method*, or run it in a thread when it is sync."""
    if inspect.iscoroutinefunction(method):
        return await contained(method(*args, **kwargs))
    result = await contained(in_thread(method, *args, **kwargs))
    return await contained(result) if inspect.isawaitable(result) else result
