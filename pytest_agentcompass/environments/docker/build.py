"""Builds: an image is named after what goes into it and built once, whoever asks and however often."""

from __future__ import annotations

import collections
import contextlib
import hashlib
import json
import os
import socket
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import platformdirs
import portalocker
from docker.errors import APIError
from docker.utils.build import exclude_paths

from ...contracts.environment import BuildSpec
from ...errors import SandboxError
from ..archive import Ownership, pack_tree
from .base import final_base, is_built_on
from .engine import Engine, engine_errors, raise_for_status
from .images import Image, Once, image_lookup
from .owner import private_root

__all__ = ["abort_builds", "build_image", "content_tag", "forget_builds"]

_REPOSITORY = "agentcompass"
_BUILT = "agentcompass.built"
_FORMAT = b"1"
_TAIL_LINES = 30
_BROKE_OFF = "the engine broke off"

_builds = Once()
_running: set[int] = set()


def forget_builds() -> None:
    """Look at every build's content again from now on."""
    _builds.clear()


def build_image(engine: Engine, spec: BuildSpec, *, platform: str | None = None) -> Image:
    """Return the image of *spec*, built unless this engine has one of the same content on the same base.

    Raises SandboxError with the last lines of the build's output; the failure is kept for the
    process's life, so that a broken Dockerfile costs one build and not one per attempt.
    """
    key = (spec.model_dump_json(), platform)
    image: Image = _builds.get(key, lambda: _find_or_build(engine, spec, platform))
    return image


def _find_or_build(engine: Engine, spec: BuildSpec, platform: str | None) -> Image:
    context = _Context(spec)
    tag = content_tag(spec, platform, context)
    base = final_base(context.text.decode("utf-8", "replace"), spec.target)
    image = _current(engine, tag, base)
    if image is not None:
        return image
    with _build_lock(tag, spec.timeout_seconds):
        image = _current(engine, tag, base)
        if image is None:
            _build(engine, spec, platform, context, tag)
            image = image_lookup(engine, tag)
    if image is None:
        raise SandboxError(f"the image of {spec.context} was built but is not there (tag {tag})")
    return image


def _current(engine: Engine, tag: str, base: str | None) -> Image | None:
    """Return the image that was built; not one whose base has been pulled or built anew since."""
    image = image_lookup(engine, tag)
    return image if image is None or base is None or is_built_on(engine, tag, base) else None


class _Context:
    """The files of a build context after `.dockerignore`, and where the Dockerfile is in it."""

    def __init__(self, spec: BuildSpec) -> None:
        self.root = Path(spec.context).absolute()
        if not self.root.is_dir():
            raise SandboxError(f"build context {spec.context} is no folder", lasting=True)
        dockerfile = self.root / spec.dockerfile
        if not dockerfile.is_file():
            raise SandboxError(f"there is no {spec.dockerfile} in the build context {spec.context}", lasting=True)
        self.text = dockerfile.read_bytes()
        relative = os.path.relpath(dockerfile, self.root)
        self.outside = relative.startswith("..")
        self.dockerfile = ".agentcompass.Dockerfile" if self.outside else relative
        self.paths = self._paths(relative)

    def _paths(self, relative: str) -> frozenset[str]:
        ignore = self.root / f"{relative}.dockerignore"
        if not ignore.is_file():
            ignore = self.root / ".dockerignore"
        patterns = ignore.read_text("utf-8", "surrogateescape").splitlines() if ignore.is_file() else []
        patterns = [line.strip() for line in patterns if line.strip() and not line.lstrip().startswith("#")]
        dockerfile = None if self.outside else self.dockerfile
        found = {path for path in exclude_paths(str(self.root), patterns, dockerfile=dockerfile) if path}
        # A kept file inside of an ignored folder needs its folders.
        return frozenset(found | {parent for path in found for parent in _parents(path)})

    def entries(self) -> Iterator[tuple[str, os.stat_result]]:
        """Yield relative path and state in sorted order."""
        for path in sorted(self.paths, key=os.fsencode):
            yield path, os.lstat(self.root / path)

    def tar(self) -> IO[bytes]:
        extra = {self.dockerfile: self.text} if self.outside else {}
        return pack_tree(self.root, Ownership(), keep=self.paths.__contains__, extra=extra)


def _parents(path: str) -> Iterator[str]:
    while path := os.path.dirname(path):
        yield path


def content_tag(spec: BuildSpec, platform: str | None, context: _Context | None = None) -> str:
    """Return the image name of *spec*: a hash over all that decides what the build makes."""
    context = context or _Context(spec)
    total = hashlib.sha256(_FORMAT)
    settings = [context.dockerfile, spec.target, sorted(spec.args.items()), platform]
    for part in (json.dumps(settings).encode(), context.text):
        total.update(hashlib.sha256(part).digest())
    try:
        for path, status in context.entries():
            total.update(hashlib.sha256(os.fsencode(path)).digest())
            total.update(_entry_hash(context.root / path, status))
    except OSError as error:
        raise SandboxError(f"the build context {spec.context} cannot be read: {error}") from error
    return f"{_REPOSITORY}/build:{total.hexdigest()[:32]}"


def _entry_hash(path: Path, status: os.stat_result) -> bytes:
    kind = hashlib.sha256(oct(status.st_mode).encode())
    if stat.S_ISLNK(status.st_mode):
        kind.update(os.fsencode(os.readlink(path)))
    elif stat.S_ISREG(status.st_mode):
        with open(path, "rb") as file:
            kind.update(hashlib.file_digest(file, "sha256").digest())
    return kind.digest()


@contextlib.contextmanager
def _build_lock(tag: str, timeout: float) -> Iterator[None]:
    """Hold the machine-wide lock of one build; whoever waits finds the image afterwards."""
    folder = platformdirs.user_cache_path("pytest-agentcompass") / "build-locks"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        folder = private_root()
    path = folder / f"{tag.rpartition(':')[2]}.lock"
    lock = portalocker.Lock(path, mode="a", timeout=2 * timeout + 60, check_interval=0.2)
    try:
        lock.acquire()
    except portalocker.exceptions.LockException as error:
        raise SandboxError(f"another process has been building {tag} for too long (lock {path})") from error
    try:
        yield
    finally:
        lock.release()


def _build(engine: Engine, spec: BuildSpec, platform: str | None, context: _Context, tag: str) -> None:
    where = f"building the image of {spec.context}/{spec.dockerfile}"
    try:
        data = context.tar()
    except OSError as error:
        raise SandboxError(f"{where}: {error}") from error
    params: dict[str, Any] = {
        "t": tag,
        "dockerfile": context.dockerfile,
        "rm": "1",
        "forcerm": "1",
        "buildargs": json.dumps(spec.args),
        "labels": json.dumps({_BUILT: tag.rpartition(":")[2]}),
    }
    params.update({key: value for key, value in (("target", spec.target), ("platform", platform)) if value})
    lines: collections.deque[str] = collections.deque(maxlen=_TAIL_LINES)
    begun = time.monotonic()
    with data, engine_errors(where):
        problem = _post(engine, params, data, spec.timeout_seconds, lines)
    tail = "\n".join(lines)
    if time.monotonic() - begun >= spec.timeout_seconds:
        raise SandboxError(
            f"{where}: not done after {spec.timeout_seconds:g} s; its last output:\n{tail}", lasting=True
        )
    if problem:
        broke_off = problem.startswith(_BROKE_OFF)
        message = f"{where} failed: {problem}{_hint(problem)}; its last output:\n{tail}"
        raise SandboxError(message, lasting=not broke_off)


def _hint(problem: str) -> str:
    if "BuildKit" in problem or "unknown flag" in problem.lower():
        return " (the Dockerfile needs BuildKit: build the image beforehand and name it with environment.image)"
    return ""


def _post(
    engine: Engine, params: dict[str, Any], data: IO[bytes], timeout: float, lines: collections.deque[str]
) -> str | None:
    """Send the build and follow its output; return the error it ended with, or None."""
    client = engine.client
    headers = {"Content-Type": "application/x-tar"}
    # The credentials of private registries, as the SDK's own build call sends them: it has no public name.
    getattr(client, "_set_auth_headers")(headers)  # noqa: B009
    response = client.post(
        engine.url("/build"), params=params, data=data, headers=headers, stream=True, timeout=(60, timeout + 60)
    )
    raise_for_status(response)
    descriptor = response.raw.fileno()
    watchdog = threading.Timer(timeout, _hang_up, [descriptor])
    watchdog.daemon = True
    watchdog.start()
    _running.add(descriptor)
    try:
        return _follow(response.iter_lines(), lines)
    except (OSError, APIError) as error:
        return f"{_BROKE_OFF}: {error}"
    finally:
        _running.discard(descriptor)
        watchdog.cancel()
        response.close()


def abort_builds() -> None:
    """Give up the builds that this process waits for (a thread that waits would hold the process's exit)."""
    for descriptor in tuple(_running):
        _hang_up(descriptor)


def _hang_up(descriptor: int) -> None:
    """Shut the build's connection down: its reader ends, and the engine gives the build up."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connection:
        connection.shutdown(socket.SHUT_RDWR)


def _follow(output: Iterator[bytes], lines: collections.deque[str]) -> str | None:
    done = False
    for raw in output:
        if not raw.strip():
            continue
        message = json.loads(raw)
        if "error" in message:
            return str(message["error"])
        text = str(message.get("stream", "")).rstrip()
        lines.extend(line[:500] for line in text.splitlines())
        done = done or "aux" in message or "Successfully built" in text
    return None if done else _BROKE_OFF
