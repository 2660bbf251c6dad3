"""The event loop that attempts run on: one background thread, entered from sync code."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from ..components.calls import contained

__all__ = ["Portal"]

T = TypeVar("T")


class Portal:
    """A running event loop in a thread of its own.

    `call` blocks the calling thread until the coroutine ends. When the caller is interrupted
    (Ctrl-C, a timeout signal), the coroutine is cancelled and waited for, at most *grace* seconds:
    it holds sandboxes that it must release.
    """

    def __init__(self, grace: float = 30.0) -> None:
        self.grace = grace
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop, started on first use."""
        if self._loop is None:
            ready = threading.Event()
            self._thread = threading.Thread(target=self._serve, args=(ready,), name="agentcompass-loop", daemon=True)
            self._thread.start()
            ready.wait()
        assert self._loop is not None
        return self._loop

    def _serve(self, ready: threading.Event) -> None:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            self._stop = asyncio.Event()
            self._loop.call_soon(ready.set)
            runner.run(self._stop.wait())

    def start(self, coroutine: Coroutine[Any, Any, T]) -> _Running[T]:
        """Start *coroutine* and return a handle."""
        running: _Running[T] = _Running(coroutine)
        self.loop.call_soon_threadsafe(running.begin, self.loop)
        return running

    def call(self, function: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> T:
        """Run `function(*args)` on the loop and return its result."""
        running = self.start(function(*args))
        try:
            running.done.wait()
        except BaseException as error:
            running.cancel(self.loop, "" if isinstance(error, KeyboardInterrupt) else str(error))
            running.done.wait(self.grace)
            raise
        return running.result()

    def close(self) -> None:
        """Stop the loop; tasks that are left are cancelled."""
        if self._loop is not None and self._thread is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(self.grace)
            self._loop = self._thread = None


class _Running(Generic[T]):
    """A coroutine on the portal's loop, as its starter sees it."""

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self.done = threading.Event()
        self._coroutine = coroutine
        self._task: asyncio.Task[T] | None = None

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Make the task (on the loop's thread)."""
        self._task = loop.create_task(contained(self._coroutine))
        self._task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[T]) -> None:
        self._coroutine.close()  # one that was cancelled before it began
        self.done.set()

    def cancel(self, loop: asyncio.AbstractEventLoop, why: str = "") -> None:
        """Ask the coroutine to end, saying *why*; `done` is set when it really has."""
        loop.call_soon_threadsafe(lambda: self._task and self._task.cancel(why or None))

    def result(self) -> T:
        """Return what the coroutine returned, or raise what it raised."""
        assert self._task is not None
        return self._task.result()
