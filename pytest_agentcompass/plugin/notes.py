"""What a user should know beside the outcomes: notes of task files, of a resumed run, of what was tidied up."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ..redaction import clean_text
from ..results.rundir import Damage

if TYPE_CHECKING:
    from .session import AgentCompassRun

__all__ = ["Notes"]

_SHOWN = 20
_WIRE, _DAMAGE = "agentcompass_notes", "agentcompass_damage"  # what a worker tells its controller


class Notes:
    """Shows the notes of this process below the collection, those of workers and later ones at the end."""

    def __init__(self, run: AgentCompassRun) -> None:
        self.run = run
        self._said: set[str] = set()

    def pytest_report_collectionfinish(self) -> list[str]:
        """Show what is known before anything runs."""
        return self._lines()

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, None, None]:
        """Hand the notes of a worker to its controller: a worker shows nothing."""
        if self.run.is_worker:
            output: dict[str, Any] = session.config.workeroutput  # type: ignore[attr-defined]
            output[_WIRE] = [clean_text(note) for note in self.run.notes]
            output[_DAMAGE] = [(str(item.path), clean_text(item.reason)) for item in self._damaged()]
        return (yield)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take in the notes of a worker."""
        output = getattr(node, "workeroutput", {})
        self.run.notes.extend(output.get(_WIRE, ()))
        known = {item.path for item in self._damaged()}
        found = [Damage(Path(path), reason) for path, reason in output.get(_DAMAGE, ())]
        self._damaged().extend(item for item in found if item.path not in known)

    def _damaged(self) -> list[Damage]:
        return self.run.context.directory.damaged if self.run.context is not None else []

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Show what was not shown yet."""
        self.run.notes.extend(f"{item}: damaged, so that it counted as not there" for item in self._damaged())
        for line in self._lines() if not self.run.is_worker and self.run.context is not None else ():
            terminalreporter.write_line(line)

    def _lines(self) -> list[str]:
        fresh = [note for note in dict.fromkeys(self.run.notes) if note not in self._said]
        self._said.update(fresh)
        shown = [f"agentcompass: note: {note}" for note in fresh[:_SHOWN]]
        return shown + ([f"agentcompass: and {len(fresh) - _SHOWN} more notes"] if len(fresh) > _SHOWN else [])
