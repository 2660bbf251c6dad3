"""What an opening made in the engine and on this machine, and its removal."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from docker.errors import DockerException
from requests.exceptions import RequestException

from ...components.calls import in_thread
from ...errors import SandboxError
from .egress import Egress
from .engine import Engine, engine_errors
from .sweep import remove_container, remove_labelled

__all__ = ["Opened", "release"]


@dataclass(slots=True)
class Opened:
    """What open() made, in the order in which close() removes it.

    *project* is the label of a compose project; *egresses* are the proxies beside the sandbox; *folders* are
    private folders of this attempt.
    """

    container: str = ""
    project: str = ""
    egresses: list[Egress] = field(default_factory=list)
    folders: list[Path] = field(default_factory=list)
    copied_mounts: list[str] = field(default_factory=list)


async def release(engine: Engine, opened: Opened) -> None:
    """Remove what *opened* names; safe for things that are gone already."""
    await in_thread(_release, engine, opened)


def _release(engine: Engine, opened: Opened) -> None:
    try:
        with engine_errors("removing the sandbox"):
            if opened.copied_mounts and opened.container and os.geteuid() != 0:
                _make_removable(engine, opened)
            try:
                _remove_sandbox(engine, opened)
            finally:
                _close_all(opened.egresses)
    finally:
        for folder in opened.folders:
            shutil.rmtree(folder, ignore_errors=True)


def _close_all(egresses: list[Egress]) -> None:
    problems = []
    for egress in egresses:
        try:
            egress.close()
        except SandboxError as error:
            problems.append(error.message)
    if problems:
        raise SandboxError("; ".join(problems))


def _remove_sandbox(engine: Engine, opened: Opened) -> None:
    if opened.project:
        remove_labelled(engine.client, opened.project)
    elif opened.container:
        problem = remove_container(engine.client, opened.container)
        if problem:
            name = opened.container if opened.container.startswith("agentcompass-") else opened.container[:12]
            raise SandboxError(f"container {name} could not be removed: {problem}")


def _make_removable(engine: Engine, opened: Opened) -> None:
    """Let the host's user remove what the container's root wrote into private copies."""
    with suppress(DockerException, RequestException):  # at worst a folder is left for the next sweep
        made = engine.client.exec_create(
            opened.container, ["chmod", "-R", "a+rwX", *opened.copied_mounts], user="0:0", stdin=False
        )
        engine.client.exec_start(made["Id"])
