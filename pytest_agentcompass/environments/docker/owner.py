"""Who owns what was made: labels on everything in the engine, an owner file in private folders.

What is left by a process that died without cleaning up is found by these marks. Something is only
removed when its owner was a process of this machine and of this process namespace and is dead.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import shutil
import stat
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path

from ...components.context import current_attempt
from ...components.owner import owner_alive, process_start_time
from ...errors import SandboxError

__all__ = [
    "ATTEMPT",
    "KEEP",
    "OWNER_PID",
    "RUN",
    "is_left_over",
    "labels",
    "owner_is_dead",
    "private_folder",
    "private_root",
    "sweep_folders",
]

RUN = "agentcompass.run"
ATTEMPT = "agentcompass.attempt"
KEEP = "agentcompass.keep"
OWNER_PID = "agentcompass.owner_pid"
_OWNER_START = "agentcompass.owner_start"
_BOOT = "agentcompass.boot_id"
_HOST = "agentcompass.host"
_OWNER_FILE = ".owner.json"


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


@functools.cache
def _host() -> str:
    """Return a name of this machine and process namespace: pids mean something only within it."""
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    text = "\0".join((platform.node(), _read("/etc/machine-id"), namespace))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@functools.cache
def _owner(pid: int) -> dict[str, str]:
    return {
        OWNER_PID: str(pid),
        _OWNER_START: process_start_time(pid),
        _BOOT: _read("/proc/sys/kernel/random/boot_id"),
        _HOST: _host(),
    }


def labels(*, keep: bool = False) -> dict[str, str]:
    """Return the labels of everything that is made for the current attempt; *keep* outlives its owner."""
    context = current_attempt()
    kept = {KEEP: "1"} if keep else {}
    return {**context.labels, RUN: context.run_id, ATTEMPT: context.slug, **kept, **_owner(os.getpid())}


def owner_is_dead(marks: Mapping[str, str]) -> bool:
    """Whether *marks* name an owner on this machine that does not live any more."""
    if marks.get(_HOST) != _host() or not marks.get(OWNER_PID, "").isdigit():
        return False
    if marks.get(_BOOT, "") != _read("/proc/sys/kernel/random/boot_id"):
        return True
    return not owner_alive(int(marks[OWNER_PID]), marks.get(_OWNER_START))


def private_root() -> Path:
    """Return this user's folder for temporary data, made with mode 0700; refuses a planted one."""
    uid = os.getuid() if hasattr(os, "getuid") else 0
    root = Path(tempfile.gettempdir()) / f"agentcompass-{uid}"
    try:
        root.mkdir(mode=0o700)
    except FileExistsError:
        status = os.lstat(root)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != uid:
            raise SandboxError(f"{root} is not a folder of this user: remove it or set TMPDIR") from None
    return root


def private_folder(name: str, run_id: str, *, keep: bool = False) -> Path:
    """Make a fresh private folder; `sweep_folders` removes it when this process is dead, unless it is to *keep*."""
    folder = private_root() / f"{name}-{uuid.uuid4().hex[:8]}"
    folder.mkdir(mode=0o700)
    (folder / _OWNER_FILE).write_text(json.dumps({**_owner(os.getpid()), RUN: run_id, **({KEEP: "1"} if keep else {})}))
    return folder


def _marks(folder: Path) -> dict[str, str]:
    try:
        marks = json.loads((folder / _OWNER_FILE).read_text())
    except (OSError, ValueError):
        return {}
    return marks if isinstance(marks, dict) else {}


def is_left_over(marks: Mapping[str, str], *, kept: bool = False) -> bool:
    """Whether the owner is dead and nobody asked to keep it (with *kept*: even then)."""
    return owner_is_dead(marks) and (kept or KEEP not in marks)


def sweep_folders(run_id: str | None = None, *, kept: bool = False) -> list[str]:
    """Remove left-over folders, or with *run_id* those of that run; return what was removed."""
    removed = []
    for folder in sorted(private_root().iterdir()):
        marks = _marks(folder)
        if marks and (marks.get(RUN) == run_id if run_id is not None else is_left_over(marks, kept=kept)):
            shutil.rmtree(folder, ignore_errors=True)
            removed.append(f"folder {folder.name}")
    return removed
