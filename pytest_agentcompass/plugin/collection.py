"""Collection hooks: the command line's request, suite files, marked tests of the user's own."""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ..contracts.task import TaskSpec
from ..errors import AgentCompassError
from .nodes import Folder, RequestNode, SuiteFile
from .options import start_folder
from .state import case_of, run_of

__all__: list[str] = []


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Attach the command line's request to the session, below the folders whose conftest.py it should see."""
    report = yield
    run = run_of(collector.config)
    if isinstance(collector, pytest.Session) and run.resolved.request is not None and report.passed:
        report.result.append(_attach(collector, report.result))
    return report


def _attach(session: pytest.Session, collected: Sequence[Any]) -> pytest.Collector:
    """Return the node to collect: the request under its chain of folders.

    pytest attaches the fixtures of a conftest.py when a Directory of that path is collected, and
    only once, so folders that pytest made already are reused and ours are collected, not just built.
    """
    config = session.config
    run = run_of(config)
    assert run.resolved.request is not None
    request = run.resolved.request.request

    def make_request(parent: pytest.Collector) -> RequestNode:
        return RequestNode.from_parent(
            parent,
            name=request.name,
            nodeid=f"agentcompass::{escape(request.name)}",
            path=config.rootpath,
            request=request,
            run=run,
        )

    start: pytest.Collector = session
    folders = _folders(config.rootpath, start_folder(config))
    known = {
        node.path: node for result in collected for node in result.listchain() if isinstance(node, pytest.Directory)
    }
    hits = [index for index, folder in enumerate(folders) if folder in known]
    if hits:
        start, folders = known[folders[hits[-1]]], folders[hits[-1] + 1 :]
    return _chain(start, folders, make_request)


def escape(name: str) -> str:
    """Return *name* as it stands in node ids."""
    from ..results.layout import escape_id

    return escape_id(name)


def _chain(parent: pytest.Collector, folders: list[Path], leaf: Any) -> pytest.Collector:
    if not folders:
        return leaf(parent)  # type: ignore[no-any-return]
    node: Folder = Folder.from_parent(parent, path=folders[0])
    node.make_child = lambda parent: _chain(parent, folders[1:], leaf)
    return node


def _folders(rootdir: Path, current: Path) -> list[Path]:
    """Return the folders from *rootdir* to *current*, or none when that is elsewhere."""
    chain = [current, *current.parents]
    return chain[chain.index(rootdir) :: -1] if rootdir in chain else []


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect a suite."""
    if file_path.name.endswith((".agentcompass.yaml", ".agentcompass.yml")):
        node: SuiteFile = SuiteFile.from_parent(parent, path=file_path)
        node.run = run_of(parent.config)
        return node
    return None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize a test that carries the marker over tasks and attempts."""
    marker = metafunc.definition.get_closest_marker("agentcompass")
    if marker is None:
        return
    if "agentcompass_attempt" not in metafunc.fixturenames:
        raise metafunc.definition.parent.CollectError(  # type: ignore[union-attr]
            f"{metafunc.definition.nodeid}: a test marked agentcompass needs the fixture agentcompass_attempt"
        )
    if marker.args:
        raise metafunc.definition.parent.CollectError(  # type: ignore[union-attr]
            f"{metafunc.definition.nodeid}: the marker agentcompass takes KEY=VALUE settings, not {marker.args[0]!r}"
        )
    run = run_of(metafunc.config)
    try:
        definition = metafunc.definition
        request = run.resolved.resolve(
            marker.kwargs, name=definition.nodeid, source=str(definition.path), base=definition.path.parent
        ).request
        tasks, problems = run.tasks_of(request)
        if problems:
            raise AgentCompassError("; ".join(item.message for item in problems))
    except AgentCompassError as error:
        raise metafunc.definition.parent.CollectError(error.message) from None  # type: ignore[union-attr]
    numbers = range(1, request.execution.attempts.k + 1)
    metafunc.parametrize(
        "agentcompass_request", [request], ids=[escape(request.benchmark.id)], indirect=True, scope="module"
    )
    metafunc.parametrize("agentcompass_task", tasks, ids=_task_name, indirect=True, scope="class")
    metafunc.parametrize("agentcompass_attempt", numbers, ids=lambda n: f"attempt{n}", indirect=True, scope="function")


def _task_name(task: TaskSpec) -> str:
    return escape(task.task_id)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Write down which attempts are planned, so that what is missing can be told from disk at any time."""
    run = run_of(session.config)
    refused = isinstance(sys.exception(), pytest.UsageError)  # pytest calls this hook then too
    if run.context is not None and not refused:
        cases = [case for item in session.items if (case := case_of(item))]
        try:
            run.context.directory.write_planned(cases, add=run.context.resumed)
        except AgentCompassError as error:
            raise pytest.UsageError(error.message) from None
