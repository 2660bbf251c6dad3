"""Running git in a sandbox, the same whatever its configuration says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...errors import SandboxError

if TYPE_CHECKING:
    from ...components.environment import EnvironmentSession

__all__ = ["GIT_SETTINGS", "git"]

_SECONDS = 300.0
_SHOWN = 4000
_CONFIG = {
    "safe.directory": "*",
    "core.fsmonitor": "false",
    "core.hooksPath": "/dev/null",
    "core.autocrlf": "false",
    "core.safecrlf": "false",
    "core.quotePath": "true",
    "diff.noprefix": "false",
    "diff.mnemonicPrefix": "false",
    "color.ui": "false",
    "gc.auto": "0",
    "advice.addEmbeddedRepo": "false",
}
#: Environment variables that set all of this for one command, scripts included.
GIT_SETTINGS: Mapping[str, str] = {
    "GIT_CONFIG_COUNT": str(len(_CONFIG)),
    **{f"GIT_CONFIG_KEY_{number}": name for number, name in enumerate(_CONFIG)},
    **{f"GIT_CONFIG_VALUE_{number}": value for number, value in enumerate(_CONFIG.values())},
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}


async def git(
    env: EnvironmentSession, workdir: str | None, arguments: list[str], variables: Mapping[str, str] | None = None
) -> str:
    """Return what a git command prints; SandboxError says which one failed and what git said."""
    settings = {**GIT_SETTINGS, **(variables or {})}
    done = await env.exec(["git", *arguments], cwd=workdir, env=settings, timeout=_SECONDS)
    if not done.ok:
        why = f"took longer than {_SECONDS:g} s" if done.timed_out else done.output[-_SHOWN:].strip()
        raise SandboxError(f"git {' '.join(arguments)[:200]} failed in the sandbox: {why}")
    return done.stdout
