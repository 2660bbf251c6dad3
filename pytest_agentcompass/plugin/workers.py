"""xdist: what workers are told, and what the controller does when one dies."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from ..execution.cleanup import sweep

if TYPE_CHECKING:
    from .session import AgentCompassRun

__all__ = ["WorkerHooks"]


class WorkerHooks:
    """Hooks of xdist, in the controller and in the workers."""

    def __init__(self, run: AgentCompassRun) -> None:
        self.run = run

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Say in the run directory which process a worker is."""
        if self.run.is_worker and self.run.context is not None:
            pids = self.run.context.directory.path / "workers"
            pids.mkdir(exist_ok=True)
            worker: str = session.config.workerinput["workerid"]  # type: ignore[attr-defined]
            (pids / worker).write_text(str(os.getpid()), encoding="ascii")

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker (also one that replaces a dead one) where the run is."""
        if self.run.context is not None:
            node.workerinput["agentcompass_rundir"] = str(self.run.context.directory.path)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: Any) -> None:
        """Remove what a dead worker left."""
        if error:
            self.run.notes.extend(sweep(self.run.registry))

    def pytest_keyboard_interrupt(self, excinfo: Any) -> None:
        """Ask the workers to end: xdist's own way lets them finish their items first."""
        if self.run.is_worker or self.run.context is None:
            return
        folder = self.run.context.directory.path / "workers"
        for path in sorted(folder.glob("*")) if folder.is_dir() else []:
            try:
                os.kill(int(path.read_text(encoding="ascii")), signal.SIGTERM)
            except (ProcessLookupError, ValueError, PermissionError):
                continue
