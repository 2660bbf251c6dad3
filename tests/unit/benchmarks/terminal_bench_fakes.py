"""A sandbox that answers from a script and remembers what it was asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_agentcompass.components.environment import EnvironmentSession
from pytest_agentcompass.contracts.outcome import ExecResult

Answer = Callable[[Sequence[str] | str, dict[str, Any]], ExecResult | None]


class FakeSandbox(EnvironmentSession):
    """Records commands; *answer* may give a result for one (None: it ended well with no output)."""

    default_workdir = "/app"

    def __init__(self, answer: Answer | None = None, files: Mapping[str, bytes] | None = None) -> None:
        super().__init__()
        self.answer = answer
        self.files = dict(files or {})
        self.commands: list[tuple[Sequence[str] | str, dict[str, Any]]] = []
        self.uploads: list[tuple[str, str]] = []
        self.resets: list[str] = []
        self.left: list[str] = []
        self.kept: list[bool] = []

    async def exec(self, command: Sequence[str] | str, **options: Any) -> ExecResult:
        """Remember and answer."""
        self.commands.append((command, options))
        found = self.answer(command, options) if self.answer else None
        return found or ExecResult(0)

    async def upload(self, src: str | Path, dst: str, **options: Any) -> None:
        """Remember."""
        self.uploads.append((Path(src).name, dst))

    async def upload_dir(self, src: str | Path, dst: str, **options: Any) -> None:
        """Remember."""
        self.uploads.append((Path(src).name + "/", dst))

    async def download(self, src: str, dst: str | Path) -> None:
        """Not needed here."""
        raise FileNotFoundError(src)

    async def download_dir(self, src: str, dst: str | Path) -> list[str]:
        """Not needed here."""
        raise FileNotFoundError(src)

    async def read_bytes(self, path: str, *, limit: int | None = None) -> bytes:
        """Return a known file."""
        if path not in self.files:
            raise FileNotFoundError(path)
        return self.files[path][:limit]

    async def write_bytes(self, path: str, content: bytes, **options: Any) -> None:
        """Keep a file."""
        self.files[path] = content

    async def close(self) -> None:
        """Nothing to do."""

    async def reset_dir(self, path: str, *, user: str | None = None) -> None:
        """Remember."""
        self.resets.append(path)

    async def kill_leftovers(self, *, keep_services: bool = True) -> list[str]:
        """Remember and tell what stayed."""
        self.kept.append(keep_services)
        return self.left

    def sent(self, word: str) -> list[list[str]]:
        """Return the tmux commands of one kind, behind that word."""
        lists = [list(command) for command, _ in self.commands if not isinstance(command, str)]
        return [words[words.index(word) + 1 :] for words in lists if word in words]
