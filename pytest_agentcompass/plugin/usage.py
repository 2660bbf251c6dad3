"""Usage errors: the same words with and without workers, and no run directory that nobody asked for."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Generator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from ..redaction import clean_text

if TYPE_CHECKING:
    from .session import AgentCompassRun

__all__ = ["UsageErrors", "check_arguments"]

_WIRE = "agentcompass_usage_error"  # what a worker tells its controller


def check_arguments(config: pytest.Config) -> None:
    """Raise pytest's own UsageError for paths that are not there and expressions that cannot be read.

    pytest finds them while it collects; under xdist only the workers do, and nobody hears of it.
    """
    for word in () if config.option.pyargs else config.args:
        path = config.invocation_params.dir / str(word).partition("[")[0].partition("::")[0]
        if not os.path.exists(path):  # Path.exists raises for names that are too long
            raise pytest.UsageError(f"file or directory not found: {word}")
    syntax: Any = SimpleNamespace(option=config.option, hook=config.hook, getini=lambda name: None)
    mark: Any = config.pluginmanager.getplugin("mark")  # names of marks are checked later: tasks bring some
    mark.pytest_collection_modifyitems(items=[], config=syntax)


class UsageErrors:
    """Ends a run that pytest refused, in the controller and in the workers."""

    def __init__(self, run: AgentCompassRun) -> None:
        self.run = run
        self._ended = False
        self._dropped: Path | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Refuse what can be refused before the run directory is made."""
        if not self.run.is_worker:
            check_arguments(session.config)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> Generator[None, None, None]:
        """Tell the controller what pytest said here; in the controller, drop a run in which nothing was made."""
        self._ended = True
        error = sys.exception()
        if self.run.is_worker and isinstance(error, pytest.UsageError):
            output: dict[str, Any] = session.config.workeroutput  # type: ignore[attr-defined]
            output[_WIRE] = [clean_text(str(text)) for text in error.args]
        if exitstatus in (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED):
            self._drop(refused=exitstatus == pytest.ExitCode.USAGE_ERROR)
        return (yield)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Say in the controller what pytest refused in a worker: xdist would show an empty run or its own fault."""
        if texts := getattr(node, "workeroutput", {}).get(_WIRE):
            raise pytest.UsageError(*texts)

    def pytest_unconfigure(self) -> None:
        """Remove the directory of a dropped run, now that no worker writes into it any more."""
        if not self._ended:
            self._drop(refused=True)
        if self._dropped is not None:
            shutil.rmtree(self._dropped, ignore_errors=True)

    def _drop(self, refused: bool) -> None:
        """Take its directory away from a new run without attempts; a refused resume leaves its run as it was."""
        context = self.run.context
        if context is None or self.run.is_worker:
            return
        if context.resumed and refused:
            context.directory.update_run_info(status=self.run.status_before)
        elif context.resumed or (context.directory.path / "attempts").exists() or context.directory.planned():
            return  # there is something to report on
        else:
            self._dropped = context.directory.path
        context.events.close()
        self.run.context = None
