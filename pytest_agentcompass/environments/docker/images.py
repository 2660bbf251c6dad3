"""Images: looked up once per process, pulled only when asked, and built once per content."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from docker.errors import APIError, ImageNotFound

from ...errors import SandboxError
from .engine import Engine, engine_errors

__all__ = ["Image", "Once", "find_image", "forget_images", "image_layers", "image_lookup"]


@dataclass(frozen=True, slots=True)
class Image:
    """What a container takes from its image."""

    id: str
    name: str
    user: str
    workdir: str
    has_entrypoint: bool


class Once:
    """Results by key, each made once per process; others wait meanwhile.

    Failures that carry `lasting=True` are kept too; an engine in trouble is asked again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[Any, threading.Lock] = {}
        self._values: dict[Any, Any] = {}

    def get(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return the value for *key*; a lasting SandboxError that *make* raised is raised again."""
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            if key not in self._values:
                try:
                    self._values[key] = make()
                except SandboxError as error:
                    if not getattr(error, "lasting", False):
                        raise
                    self._values[key] = error
            value = self._values[key]
        if isinstance(value, SandboxError):
            raise SandboxError(value.message, lasting=True)
        return value

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._locks.clear()
            self._values.clear()


_images = Once()


def forget_images() -> None:
    """Look every image up again from now on."""
    _images.clear()


def image_lookup(engine: Engine, name: str) -> Image | None:
    """Ask the engine for the local image *name*."""
    with engine_errors(f"looking for image {name!r}"):
        try:
            found = engine.client.inspect_image(name)  # type: ignore[no-untyped-call]
        except ImageNotFound:
            return None
    config = found.get("Config") or {}
    return Image(
        id=found["Id"],
        name=name,
        user=config.get("User") or "",
        workdir=config.get("WorkingDir") or "",
        has_entrypoint=bool(config.get("Entrypoint")),
    )


def image_layers(engine: Engine, name: str) -> list[str] | None:
    """Return the digests of the layers of the local image *name*, lowest first; None when there is none."""
    with engine_errors(f"looking for image {name!r}"):
        try:
            found = engine.client.inspect_image(name)  # type: ignore[no-untyped-call]
        except ImageNotFound:
            return None
    return list((found.get("RootFS") or {}).get("Layers") or [])


def find_image(engine: Engine, name: str, *, pull: bool, platform: str | None = None) -> Image:
    """Return the local image *name*; with *pull* a missing one is pulled.

    Raises SandboxError naming the image; the answer is kept for the process's life.
    """
    image: Image = _images.get((name, pull, platform), lambda: _find(engine, name, pull, platform))
    return image


def _find(engine: Engine, name: str, pull: bool, platform: str | None) -> Image:
    image = image_lookup(engine, name)
    if image is None and pull:
        _pull(engine, name, platform)
        image = image_lookup(engine, name)
    if image is None:
        advice = "check its name" if pull else "build or pull it first, or set environment.params.pull=missing"
        raise SandboxError(f"image {name!r} does not exist on this engine: {advice}", image=name, lasting=True)
    return image


def _pull(engine: Engine, name: str, platform: str | None) -> None:
    repository, _, tag = name.rpartition(":")
    if not repository or "/" in tag or "@" in name:
        repository, tag = name, "" if "@" in name else "latest"
    with engine_errors(f"pulling image {name!r}"):
        try:
            for line in engine.client.pull(repository, tag or None, stream=True, decode=True, platform=platform):
                if "error" in line:
                    raise SandboxError(f"image {name!r} cannot be pulled: {line['error']}", image=name)
        except APIError as error:
            raise SandboxError(f"image {name!r} cannot be pulled: {error.explanation or error}", image=name) from error
