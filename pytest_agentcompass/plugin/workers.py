"""xdist: what workers are told, and what the controller does when one dies."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

from ..components.owner import process_start_time
from ..redaction import clean_text, plain
from .options import start_folder

if TYPE_CHECKING:
    from .session import AgentCompassRun

__all__ = ["WorkerHooks", "signal_workers"]


def _wire(value: Any) -> Any:
    """Return *value* as plain data; tuples stay tuples, by which pytest knows the reason of a skip."""
    if type(value) is tuple:
        return tuple(_wire(item) for item in value)
    if type(value) is list:
        return [_wire(item) for item in value]
    if type(value) is dict:
        return {clean_text(str(key)): _wire(item) for key, item in value.items()}
    return plain(value)


def signal_workers(run: AgentCompassRun, number: int) -> None:
    """Send a signal to the workers of this run that are still there."""
    folder = run.context.directory.path / "workers" if run.context is not None else None
    for path in sorted(folder.glob("*")) if folder is not None and folder.is_dir() else []:
        try:
            pid, start = path.read_text(encoding="ascii").split()
            if process_start_time(int(pid)) == start:  # the number may be another process's by now
                os.kill(int(pid), number)
        except (OSError, ValueError):
            continue


class WorkerHooks:
    """Hooks of xdist, in the controller and in the workers."""

    def __init__(self, run: AgentCompassRun) -> None:
        self.run = run
        self._died = False

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Say in the run directory which process a worker is."""
        if self.run.is_worker and self.run.context is not None:
            pids = self.run.context.directory.path / "workers"
            pids.mkdir(exist_ok=True)
            worker: str = session.config.workerinput["workerid"]  # type: ignore[attr-defined]
            (pids / worker).write_text(f"{os.getpid()} {process_start_time()}", encoding="ascii")

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker (also one that replaces a dead one) where the run is."""
        node.workerinput["agentcompass_cwd"] = str(start_folder(self.run.config))
        if self.run.context is not None:
            node.workerinput["agentcompass_rundir"] = str(self.run.context.directory.path)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_report_to_serializable(self) -> Generator[None, Any, Any]:
        """Let only plain data on the wire, whatever a plugin put on a report.

        One Path or lone surrogate in it kills the worker, and the outcome is lost.
        """
        data = yield
        return _wire(data) if self.run.is_worker else data

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: Any) -> None:
        """Remove what a dead worker left."""
        if error:
            self._died = True
            self._sweep()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Look again: a worker that was lost may have been dying only."""
        if self._died:
            self._sweep()

    def _sweep(self) -> None:
        """Ask the providers of all requests: with workers this process itself has used none."""
        for id in self.run.environment_ids():
            self.run.notes.extend(self.run.registry.make("environment", id).sweep())

    def pytest_keyboard_interrupt(self, excinfo: Any) -> None:
        """Ask the workers to end: xdist's own way lets them finish their items first."""
        if not self.run.is_worker:
            signal_workers(self.run, signal.SIGTERM)
