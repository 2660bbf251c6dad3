"""Files that would change how the verifier's python and pytest start, planted by an agent."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field

__all__ = ["Guard"]

_MODULES = ("pytest.py", "pytest", "_pytest", "pluggy", "pluggy.py", "sitecustomize.py", "usercustomize.py")
_SETTINGS = ("pytest.ini", ".pytest.ini", "tox.ini", "setup.cfg", "pyproject.toml", "conftest.py")


@dataclass(slots=True)
class Guard:
    """Knows which such files the image itself has (*present*), so that only new ones are set aside.

    Settings count in the root folder alone (pytest finds those from /tests), and not where the agent
    works there; modules count in the working directory, which `python -m pytest` puts on the path.
    """

    workdir: str = "/"
    present: tuple[str, ...] = field(default=())

    def watched(self) -> list[str]:
        """Return the paths that are looked at."""
        folder = self.workdir.rstrip("/")
        settings = [f"/{name}" for name in _SETTINGS] if folder else []
        return [*(f"{folder}/{name}" for name in _MODULES), *settings]

    def survey(self) -> str:
        """Return a shell command that prints the watched paths that exist."""
        return f'for f in {self._words(self.watched())}; do [ -e "$f" ] || [ -L "$f" ] && echo "present $f"; done; true'

    def saw(self, output: str) -> Guard:
        """Return a guard that takes what `survey` printed for the image's own."""
        return Guard(self.workdir, tuple(line[8:] for line in output.splitlines() if line.startswith("present ")))

    def script(self, aside: str, opened: list[str], shared: str | None) -> str:
        """Return a shell command (for root) that moves new files *aside* and makes folders readable.

        *shared* is made writable for every user.
        """
        new = [path for path in self.watched() if path not in self.present]
        lines = [
            f'for f in {self._words(new)}; do if [ -e "$f" ] || [ -L "$f" ]; then '
            f'mkdir -p {aside}/aside && mv "$f" {aside}/aside/ && echo "planted $f"; fi; done',
            f"chmod -R a+rX {self._words(opened)}",
        ]
        if shared:
            lines.append(f"chmod 1777 {shlex.quote(shared)}")
        return "\n".join(lines)

    @staticmethod
    def planted(output: str) -> list[str]:
        """Return the paths that `script` set aside."""
        return [line[8:] for line in output.splitlines() if line.startswith("planted ")]

    @staticmethod
    def _words(paths: list[str]) -> str:
        return " ".join(shlex.quote(path) for path in paths)
