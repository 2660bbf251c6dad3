"""What a user should know beside the outcomes: notes of task files, of a resumed run, of what was tidied up."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

from ..redaction import clean_text

if TYPE_CHECKING:
    from .session import AgentCompassRun

__all__ = ["Notes"]

_SHOWN = 20
_WIRE = "agentcompass_notes"  # what a worker tells its controller


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
        return (yield)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take in the notes of a worker."""
        self.run.notes.extend(getattr(node, "workeroutput", {}).get(_WIRE, ()))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Show what was not shown yet."""
        for line in self._lines() if not self.run.is_worker and self.run.context is not None else ():
            terminalreporter.write_line(line)

    def _lines(self) -> list[str]:
        fresh = [note for note in dict.fromkeys(self.run.notes) if note not in self._said]
        self._said.update(fresh)
        shown = [f"agentcompass: note: {note}" for note in fresh[:_SHOWN]]
        return shown + ([f"agentcompass: and {len(fresh) - _SHOWN} more notes"] if len(fresh) > _SHOWN else [])
