"""The limits that an attempt passes before its sandbox opens, and what it gives back when that is closed.

* run-wide: attempts in flight in the whole run (`concurrency`), over all xdist workers of the run
* provider: attempts in flight per environment id, over all runs of this user on this machine
* model: attempts in flight per endpoint, likewise
* opening rate: sandboxes opened per second and environment id, likewise

They are taken in this order and given back in the other, so nobody can block in a circle. 0 switches a
limit off. See `permits` for how runs with different limits and dead holders count.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from ..components.calls import in_thread
from ..components.machine import SharedValue, private_dir, safe_name
from .permits import PermitPool

if TYPE_CHECKING:
    from ..components.environment import BaseEnvironment
    from ..config.options import RuntimeOptions
    from ..contracts.request import ModelSpec

__all__ = ["Limits", "OpenRate", "Permits", "model_limit"]


class _Releasable(Protocol):
    def release(self) -> None: ...


@dataclass(slots=True)
class Permits:
    """What one attempt holds."""

    _held: list[_Releasable] = field(default_factory=list)

    def add(self, permit: _Releasable) -> None:
        """Take *permit* in."""
        self._held.append(permit)

    def release(self) -> None:
        """Give everything back, the last first; harmless when done twice."""
        while self._held:
            self._held.pop().release()


class OpenRate:
    """Spaces openings evenly: *per_second* of them over all processes that use the file *path*."""

    def __init__(self, path: Path, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._value = SharedValue(path)
        self._interval = 1.0 / per_second
        self._clock = clock

    def reserve(self) -> float:
        """Take the next free moment and return how many seconds away it is."""
        now = self._clock()

        def move(old: dict[str, Any]) -> dict[str, Any]:
            mine = max(now, float(old.get("next", 0.0)))
            return {"mine": mine, "next": mine + self._interval}

        return float(self._value.update(move)["mine"]) - now

    async def wait(self, on_wait: Callable[[], None] = lambda: None) -> None:
        """Sleep until the next free moment; *on_wait* is called when that is not now."""
        pause = await in_thread(self.reserve)
        if pause > 0:
            on_wait()
            await asyncio.sleep(pause)


def model_limit(limits: Mapping[str, int], model: ModelSpec) -> tuple[str, int] | None:
    """Return the limit that applies to *model* with its name: given by base URL, by its host, or by model id."""
    url = (model.base_url or "").rstrip("/")
    for key, limit in limits.items():
        if limit and key and key.rstrip("/") in (url, urlsplit(url).netloc, urlsplit(url).hostname, model.id):
            return key.rstrip("/"), limit
    return None


class Limits:
    """The limits of one process of a run; nothing is made on disk before a limit is used.

    *concurrency* is the run-wide limit where other processes share it (xdist workers), else None.
    *slots* is the same for attempts within this process, set by the engine.
    """

    def __init__(
        self, options: RuntimeOptions, run_key: str, concurrency: int | None = None, folder: Path | None = None
    ) -> None:
        self.options = options
        self.slots: asyncio.Semaphore | None = None
        self._run_key = run_key
        self._concurrency = concurrency or 0
        self._given = folder
        self._pools: dict[str, PermitPool] = {}
        self._rates: dict[str, OpenRate] = {}

    async def take(
        self,
        environment: BaseEnvironment,
        model: ModelSpec,
        on_wait: Callable[[str], None] = lambda what: None,
        *,
        has_slot: bool = False,
    ) -> Permits:
        """Wait for everything that an attempt needs and return it; *on_wait* is told what is waited for.

        *has_slot*: the engine gave the attempt its place among the slots of this process.
        """
        held = Permits()
        try:
            if self.slots is not None and not has_slot:
                await self._take_slot(held, on_wait)
            for name, limit, reclaim in self._wanted(environment, model):
                pool = self._pool(name, limit, reclaim)
                held.add(await pool.take(lambda what=name: on_wait(what)))  # type: ignore[misc]
            await self.pace(environment.id, on_wait)
        except BaseException:
            held.release()
            raise
        return held

    async def pace(self, environment_id: str, on_wait: Callable[[str], None] = lambda what: None) -> None:
        """Wait until one more sandbox of the provider may be opened."""
        rate = self.options.open_rates.get(environment_id, 0)
        if rate:
            name = f"open-rate {environment_id}"
            if name not in self._rates:
                self._rates[name] = OpenRate(self._folder("rates") / f"{safe_name(environment_id)}.json", rate)
            await self._rates[name].wait(lambda: on_wait(name))

    async def _take_slot(self, held: Permits, on_wait: Callable[[str], None]) -> None:
        assert self.slots is not None
        if self.slots.locked():
            on_wait("run")
        await self.slots.acquire()
        held.add(self.slots)

    def _wanted(self, environment: BaseEnvironment, model: ModelSpec) -> list[tuple[str, int, Any]]:
        wanted: list[tuple[str, int, Any]] = [("run", self._concurrency, None)]
        wanted.append(
            (
                f"provider {environment.id}",
                self.options.provider_limits.get(environment.id, 0),
                lambda: in_thread(environment.sweep),
            )
        )
        found = model_limit(self.options.model_limits, model)
        if found:
            wanted.append((f"model {found[0]}", found[1], None))
        return [item for item in wanted if item[1]]

    def _pool(self, name: str, limit: int, reclaim: Any) -> PermitPool:
        if name not in self._pools:
            key = f"run {self._run_key}" if name == "run" else name
            self._pools[name] = PermitPool(self._folder("permits") / safe_name(key), limit, reclaim)
        return self._pools[name]

    def _folder(self, name: str) -> Path:
        folder = (self._given or private_dir()) / name
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder

    def forget_run(self) -> None:
        """Remove the folder of the run's own permits: the run is over."""
        folder = (self._given or private_dir()) / "permits" / safe_name(f"run {self._run_key}")
        for path in sorted(folder.glob("*")) if folder.is_dir() else []:
            path.unlink(missing_ok=True)
        if folder.is_dir():
            folder.rmdir()
