"""Whether the kernel killed a process of a container for memory: told by its cgroup's counter alone.

An exit status of 137 says only that a process was killed; the engine reports no out-of-memory event
for commands that were started by exec.
"""

from __future__ import annotations

import re
from pathlib import Path

from ...errors import EnvironmentGone, SandboxError
from .engine import Engine
from .exec import Runner

__all__ = ["OomCounter"]

_COUNT = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)
# Where engines put a container's cgroup: version 1, then 2; cgroupfs, then systemd driver.
_HOST_FILES = (
    "/sys/fs/cgroup/memory/docker/{id}/memory.oom_control",
    "/sys/fs/cgroup/memory/system.slice/docker-{id}.scope/memory.oom_control",
    "/sys/fs/cgroup/docker/{id}/memory.events",
    "/sys/fs/cgroup/system.slice/docker-{id}.scope/memory.events",
)
_SCRIPT = """
for file in /sys/fs/cgroup/memory/memory.oom_control /sys/fs/cgroup/memory.events; do
  [ -r $file ] && while read -r line; do echo "$line"; done <$file
done
exit 0
"""


def parse_count(text: str) -> int:
    """Return the `oom_kill` counter of a cgroup file; 0 where there is none."""
    found = _COUNT.search(text)
    return int(found.group(1)) if found else 0


class OomCounter:
    """The counter of one container, read on the host where that is possible, else in the container."""

    def __init__(self, engine: Engine, container: str) -> None:
        files = [Path(name.format(id=container)) for name in _HOST_FILES] if engine.local else []
        self._candidates = files
        self._file: Path | None = None
        self._looked = False
        self._last = 0

    def remember(self) -> None:
        """Take the count before a command (only where it costs next to nothing)."""
        count = self._on_host()
        if count is not None:
            self._last = count

    def _on_host(self) -> int | None:
        if not self._looked:
            self._file = next((file for file in self._candidates if file.is_file()), None)
            self._looked = True
        if self._file is None:
            return None
        try:
            return parse_count(self._file.read_text())
        except OSError:
            return None

    async def rose(self, runner: Runner) -> bool:
        """Return whether the count has risen since it was last taken."""
        count = self._on_host()
        if count is None:
            try:
                count = parse_count((await runner.script(_SCRIPT)).stdout)
            except EnvironmentGone:
                raise
            except SandboxError:
                return False
        rose, self._last = count > self._last, count
        return rose
