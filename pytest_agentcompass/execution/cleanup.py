"""What dead owners left behind, and what must go at once."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..components.registry import Registry

__all__ = ["force_remove", "sweep"]


def sweep(registry: Registry, *, everywhere: bool = False) -> list[str]:
    """Remove sandboxes whose owners are dead and return one line each.

    Providers that this process has not used are asked only with *everywhere*: a run on the host
    does not look for a Docker engine.
    """
    lines: list[str] = []
    for id in registry.ids("environment"):
        if everywhere or registry.is_loaded("environment", id):
            lines.extend(registry.make("environment", id).sweep())
    return lines


def force_remove(registry: Registry, run_id: str, owner: int | None = None) -> None:
    """Remove every sandbox of a run (of one owner process) now, without asking it to end; bounded in time."""
    for id in registry.ids("environment"):
        if registry.is_loaded("environment", id):
            try:
                registry.make("environment", id).remove_run(run_id, owner)
            except Exception as error:  # the process is about to end: say it and go on with the next provider
                print(f"agentcompass: {id}: {error}", file=sys.stderr)
