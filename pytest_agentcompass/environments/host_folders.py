"""The private folders of host_process attempts, and what dead owners left of them."""

from __future__ import annotations

import functools
import json
import os
import stat
import tempfile
import time
from pathlib import Path
from typing import Any

from ..components.context import current_attempt
from ..components.owner import boot_id, host_name, owner_alive, process_start_time
from ..components.process_tree import ProcessTree
from ..errors import AgentCompassError, SandboxError
from .host_files import remove_tree

__all__ = ["default_root", "make_box", "private_folder", "remove_run", "sweep"]

_OWNER = "owner.json"
_UNOWNED_SECONDS = 3600.0  # a folder without owner file is that old before it counts as abandoned


def default_root() -> str:
    """Return the folder of this user under which attempts get their own."""
    return os.path.join(tempfile.gettempdir(), f"agentcompass-{os.getuid()}", "host_process")


def private_folder(path: str) -> str:
    """Make *path* if it is missing and return it; SandboxError unless it is ours alone."""
    try:
        if not os.path.lexists(path):
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            Path(path).mkdir(mode=0o700, exist_ok=True)
        found = os.lstat(path)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            raise SandboxError(f"{path} is not a folder of this user; remove it, or set TMPDIR to another place")
        if found.st_mode & 0o077:
            os.chmod(path, 0o700)
    except OSError as error:
        raise SandboxError(
            f"folder {path} cannot be made: {error.strerror or error}; set TMPDIR to another place"
        ) from error
    return path


def make_box(root: str, token: str, *, keep: bool = False) -> str:
    """Make the folder of one attempt under *root*, with `work`, `home` and `tmp`, and say whose it is.

    One that is to be *kept* stays when its owner is dead.
    """
    private_folder(root)
    try:
        attempt = current_attempt()
        slug, run_id, labels = attempt.slug, attempt.run_id, dict(attempt.labels)
    except AgentCompassError:  # opened by a script, outside of a run
        slug, run_id, labels = "session", "", {}
    owner = {**_owner(os.getpid()), "run": run_id, "token": token, "labels": labels, "kept": keep}
    try:
        box = tempfile.mkdtemp(prefix=f"{slug}-", dir=root)
        try:
            with open(os.path.join(box, _OWNER), "w", encoding="utf-8") as stream:
                json.dump(owner, stream)
            for name in ("work", "home", "tmp"):
                os.mkdir(os.path.join(box, name))
        except OSError:
            remove_tree(box)
            raise
    except OSError as error:
        raise SandboxError(
            f"a folder for the attempt cannot be made under {root}: {error.strerror or error}"
        ) from error
    return box


def sweep(root: str | None = None) -> list[str]:
    """Remove the folders and end the processes of attempts whose owner is dead; return one line for each."""
    done = []
    for box, owner in _boxes(root):
        if _abandoned(box, owner) and not owner.get("kept"):
            _kill([owner.get("token")], 2.0)
            done.append(_remove(box))
    return done


def remove_run(run_id: str, root: str | None = None, *, owner: int | None = None, seconds: float = 4.0) -> list[str]:
    """End the processes and remove the folders of a run (of the process *owner*), dead or alive; say what was done.

    Works without an event loop. At most about *seconds* are spent on killing. Kept folders stay.
    """
    found = [
        (box, mine)
        for box, mine in _boxes(root)
        if mine.get("run") == run_id and not mine.get("kept") and owner in (None, mine.get("pid"))
    ]
    _kill([mine.get("token") for _, mine in found], seconds)
    return [_remove(box) for box, _ in found]


@functools.lru_cache(maxsize=2)
def _owner(pid: int) -> dict[str, Any]:
    return {"pid": pid, "start": process_start_time(pid), "boot": boot_id(), "host": host_name()}


def _boxes(root: str | None) -> list[tuple[str, dict[str, Any]]]:
    root = root or default_root()
    try:
        names = sorted(os.listdir(root))
    except OSError:
        return []
    return [(box, _read_owner(box)) for name in names if os.path.isdir(box := os.path.join(root, name))]


def _read_owner(box: str) -> dict[str, Any]:
    try:
        owner = json.loads(Path(box, _OWNER).read_bytes())
    except (OSError, ValueError):
        return {}
    return owner if isinstance(owner, dict) else {}


def _abandoned(box: str, owner: dict[str, Any]) -> bool:
    pid = owner.get("pid")
    if type(pid) is int:
        return not owner_alive(pid, str(owner.get("start", "")), str(owner.get("boot", "")), str(owner.get("host", "")))
    try:
        return time.time() - os.stat(box).st_mtime > _UNOWNED_SECONDS
    except OSError:
        return False


def _remove(box: str) -> str:
    try:
        remove_tree(box)
    except SandboxError as error:
        return error.message
    return f"removed {box}"


def _kill(tokens: list[Any], seconds: float) -> None:
    trees = [ProcessTree(token, adopt=True) for token in tokens if isinstance(token, str) and token]
    deadline = time.monotonic() + seconds
    while trees and time.monotonic() < deadline:
        trees = [tree for tree in trees if tree.kill_once()]
        time.sleep(0.005)
