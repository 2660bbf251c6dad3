"""Copying into and out of a container with the engine's archive calls: no program in the image is needed.

The engine follows links in the folder that an archive is put into, so each part of a path is looked
at first. A link that the image came with is as good as a folder; one that appeared since is refused.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import posixpath
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import requests

from ...errors import EnvironmentGone, SandboxError
from ..archive import Limits, Ownership, extract_tar
from .engine import Engine, engine_errors, raise_for_status

__all__ = ["Place", "Transfers"]

# Modes in the engine's path state are those of Go's fs.FileMode.
_GO_DIR, _GO_LINK, _GO_TYPES = 1 << 31, 1 << 27, 0x8F280000
_STAT_HEADER = "X-Docker-Container-Path-Stat"


@dataclass(frozen=True, slots=True)
class PathState:
    """What stands at a path: `kind` is `folder`, `link`, `file` or `other`; *target* where a link leads."""

    kind: str
    size: int
    target: str


@dataclass(frozen=True, slots=True)
class Place:
    """Where an archive goes: an existing *folder*, and the *parents* (relative to it) to make first."""

    folder: str
    parents: tuple[str, ...]
    state: PathState | None
    name: str


def _path_state(header: str) -> PathState:
    data = json.loads(base64.b64decode(header))
    mode = int(data["mode"])
    kind = "other" if mode & _GO_TYPES else "file"
    kind = "folder" if mode & _GO_DIR else "link" if mode & _GO_LINK else kind
    return PathState(kind, int(data["size"]), str(data.get("linkTarget") or ""))


class Transfers:
    """Blocking copies into and out of one container; paths are absolute and normal."""

    def __init__(self, engine: Engine, container: str, cause: Any) -> None:
        self._engine, self._container, self._cause = engine, container, cause
        self._users: dict[str, tuple[int, int]] = {}

    def _url(self) -> str:
        return self._engine.url(f"/containers/{self._container}/archive")

    def state(self, path: str) -> PathState | None:
        """Return what stands at *path* (a link is not followed), or None."""
        with engine_errors(f"looking at {path}", self._cause):
            client = self._engine.client
            response = client.head(self._url(), params={"path": path}, timeout=client.timeout)
        header = response.headers.get(_STAT_HEADER)
        if header is not None:
            return _path_state(header)
        # A response to HEAD has no text: the loss of the container must be told from a missing path.
        if response.status_code == 404 and self._cause().endswith("while the attempt ran"):
            raise EnvironmentGone(self._cause())
        if response.status_code in (404, 400):
            return None
        try:
            with self.get(path) as (state, _):
                return state
        except FileNotFoundError:
            return None

    def place(self, path: str) -> Place:
        """Return where an archive for *path* goes; SandboxError for a planted link or a file in the way."""
        path = posixpath.normpath(path)
        if path == "/":
            return Place("/", (), PathState("folder", 0, ""), "")
        parts = path.strip("/").split("/")
        folder = ""
        for index, part in enumerate(parts[:-1]):
            here = f"{folder}/{part}"
            state = self.state(here)
            if state is None:
                missing = tuple("/".join(parts[index:end]) for end in range(index + 1, len(parts)))
                return Place(folder or "/", missing, None, "/".join(parts[index:]))
            folder = self._through(here, state)
        return Place(folder or "/", (), self.state(f"{folder}/{parts[-1]}"), parts[-1])

    def _through(self, path: str, state: PathState) -> str:
        if state.kind == "folder":
            return path
        if state.kind == "link" and not self._is_new(path):
            return state.target
        what = f"a link to {state.target}" if state.kind == "link" else "no folder"
        raise SandboxError(f"{path} in the sandbox is {what}: nothing is copied through it")

    def _is_new(self, path: str) -> bool:
        """Whether *path* was added or changed since the container was made."""
        with engine_errors(f"looking for changes at {path}", self._cause):
            changes = self._engine.client.diff(self._container) or []
        return any(change["Path"] == path for change in changes)

    def put(self, folder: str, data: IO[bytes]) -> None:
        """Extract the archive *data* in the existing *folder*."""
        with data, engine_errors(f"copying into {folder}", self._cause):
            client = self._engine.client
            response = client.put(self._url(), params={"path": folder}, data=data, timeout=client.timeout)
            raise_for_status(response)

    @contextlib.contextmanager
    def get(self, path: str) -> Iterator[tuple[PathState, IO[bytes]]]:
        """Give the archive of *path*; FileNotFoundError when there is nothing."""
        with engine_errors(f"copying {path} out", self._cause):
            client = self._engine.client
            # Without this the engine would compress what only crosses a local socket.
            plain = {"Accept-Encoding": "identity"}
            response = client.get(
                self._url(), params={"path": path}, headers=plain, stream=True, timeout=client.timeout
            )
            try:
                yield self._opened(response, path), cast(IO[bytes], response.raw)
            except tarfile.TarError as error:
                raise SandboxError(f"copying {path} out: the engine's archive is damaged: {error}") from error
            finally:
                # Unread data would make the connection unusable: it is closed, not given back.
                response.raw.close()
                response.close()

    def _opened(self, response: requests.Response, path: str) -> PathState:
        header = response.headers.get(_STAT_HEADER)
        if response.status_code == 200 and header:
            return _path_state(header)
        text = response.text.lower()
        if (response.status_code == 404 and "no such container" not in text) or "not a directory" in text:
            raise FileNotFoundError(f"{path} does not exist in the sandbox")
        raise_for_status(response)
        raise SandboxError(f"copying {path} out: the engine answers with status {response.status_code}")

    def real_path(self, path: str) -> tuple[str, PathState]:
        """Return *path* with a link at its end followed (inside the container), and what stands there."""
        state = self.state(path)
        if state is not None and state.kind == "link":
            path = state.target
            state = self.state(path) if path else None
        if state is None:
            raise FileNotFoundError(f"{path} does not exist in the sandbox")
        return path, state

    def read(self, path: str, limit: int | None) -> bytes:
        """Return the content of a regular file; FileNotFoundError for anything else."""
        with self.get(path) as (state, source):
            if state.kind != "link":
                return self._content(state, source, path, limit)
        path, _ = self.real_path(path)
        with self.get(path) as (state, source):
            return self._content(state, source, path, limit)

    def _content(self, state: PathState, source: IO[bytes], path: str, limit: int | None) -> bytes:
        if state.kind != "file":
            raise FileNotFoundError(f"{path} in the sandbox is no regular file")
        target = io.BytesIO()
        self._copy(source, target, path, limit)
        return target.getvalue()

    def _copy(self, source: IO[bytes], target: IO[bytes], path: str, limit: int | None) -> None:
        with tarfile.open(fileobj=source, mode="r|", errors="surrogateescape") as tar:
            member = tar.next()
            content = tar.extractfile(member) if member is not None and member.isreg() else None
            if content is None:
                raise FileNotFoundError(f"{path} in the sandbox is no regular file")
            left = limit if limit is not None else member.size if member else 0
            while left > 0 and (data := content.read(min(left, 1 << 20))):
                target.write(data)
                left -= len(data)

    def download(self, path: str, dst: Path, max_bytes: int) -> None:
        """Copy a regular file; SandboxError when it is larger than *max_bytes*."""
        path, state = self.real_path(path)
        if state.kind != "file":
            raise FileNotFoundError(f"{path} in the sandbox is no regular file")
        if state.size > max_bytes:
            raise SandboxError(f"{path} in the sandbox has {state.size} bytes; the limit is {max_bytes}")
        dst.parent.mkdir(parents=True, exist_ok=True)
        partial = dst.with_name(f".{dst.name[:200]}.part")
        try:
            with self.get(path) as (_, source), open(partial, "wb") as target:
                self._copy(source, target, path, None)
            partial.replace(dst)
        finally:
            partial.unlink(missing_ok=True)

    def download_dir(self, path: str, dst: Path, limits: Limits) -> list[str]:
        """Copy a folder's contents; see `archive.extract_tar`."""
        path, state = self.real_path(path)
        if state.kind != "folder":
            raise FileNotFoundError(f"{path} in the sandbox is no folder")
        with self.get(path) as (_, source):
            return extract_tar(source, dst, limits, strip=0 if path == "/" else 1)

    # ------------------------------------------------------------ users

    def owner(self, user: str | None, *, readable: bool) -> Ownership:
        """Return who shall own uploaded files; SandboxError for a name the sandbox does not know."""
        if not user:
            return Ownership(readable=readable)
        if user not in self._users:
            self._users[user] = self._look_up(user)
        return Ownership(*self._users[user])

    def _look_up(self, user: str) -> tuple[int, int]:
        name, _, group = user.partition(":")
        line = next((line for line in self._table("/etc/passwd") if name in (line[0], line[2])), None)
        if line is None and not name.isdigit():
            raise SandboxError(f"user {name!r} is not known in the sandbox (it is not in /etc/passwd)")
        uid, gid = (int(line[2]), int(line[3])) if line is not None else (int(name), 0)
        return uid, self._group(group) if group else gid

    def _group(self, group: str) -> int:
        if group.isdigit():
            return int(group)
        line = next((line for line in self._table("/etc/group") if line[0] == group), None)
        if line is None:
            raise SandboxError(f"group {group!r} is not known in the sandbox (it is not in /etc/group)")
        return int(line[2])

    def _table(self, path: str) -> list[list[str]]:
        try:
            text = self.read(path, 1_000_000).decode("utf-8", "replace")
        except FileNotFoundError:
            return []
        lines = [line.split(":") for line in text.splitlines()]
        return [
            line for line in lines if len(line) >= 4 and line[2].isdigit() and (line[3].isdigit() or "group" in path)
        ]
