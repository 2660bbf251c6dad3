"""An engine that goes away while a run goes on: asked by a socket of our own that answers as one would."""

from __future__ import annotations

import asyncio
import gc
import socketserver
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from pytest_agentcompass.components.context import AttemptContext, set_current_attempt
from pytest_agentcompass.contracts.environment import EnvironmentSpec
from pytest_agentcompass.contracts.plan import ExecutionPlan
from pytest_agentcompass.contracts.request import BenchmarkSpec, RunRequest
from pytest_agentcompass.environments.docker import DockerEnvironment
from pytest_agentcompass.environments.docker.engine import forget_engine
from pytest_agentcompass.environments.docker.images import forget_images
from pytest_agentcompass.errors import SandboxError

# docker's own connections to a socket that went away are left to the garbage collector
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
REQUEST = RunRequest(benchmark=BenchmarkSpec(id="tasks"))
ANSWERS = {
    "/version": b'{"ApiVersion": "1.41", "MinAPIVersion": "1.12"}',
    "/v1.41/_ping": b"OK",
    "/v1.41/images/base/json": b'{"Id": "sha256:1", "Config": {}}',
}


class _Handler(BaseHTTPRequestHandler):
    """Answers what is asked before a container is made; the making it refuses as an engine in trouble does."""

    protocol_version = "HTTP/1.0"

    def do_GET(self) -> None:
        """Tell the version, live, and know one image."""
        self._answer(200, ANSWERS.get(self.path, b"{}"))

    def do_POST(self) -> None:
        """Fail to make a container."""
        self._answer(409, b'{"message": "no space left on device"}')

    def do_DELETE(self) -> None:
        """Fail to remove it."""
        self._answer(400, b'{"message": "cannot remove"}')

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        """Return a name of the peer, which a unix socket has none of."""
        return "local"

    def log_message(self, format: str, *args: object) -> None:
        """Be silent."""


class _Engine(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


@pytest.fixture
def trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[_Engine]:
    """An engine of our own at DOCKER_HOST; close it and no engine answers any more."""
    path = tmp_path / "e.sock"
    server = _Engine(str(path), _Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
    forget_engine()
    forget_images()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()
    forget_engine()
    forget_images()
    gc.collect()  # now, where the mark above holds, and not in some later test


def test_preflight_asks_the_engine_anew(trouble: _Engine, tmp_path: Path) -> None:
    """An engine that answered before and is gone now is told as such: the run stops on that word."""
    environment = DockerEnvironment()
    assert asyncio.run(environment.preflight(REQUEST)) is None
    trouble.server_close()
    (tmp_path / "e.sock").unlink()
    assert "no Docker engine answers at unix://" in str(asyncio.run(environment.preflight(REQUEST)))


def test_the_first_reason_of_a_failed_opening_is_told_first(trouble: _Engine, tmp_path: Path) -> None:
    """What cannot be removed after a failed opening does not hide why it failed."""
    set_current_attempt(AttemptContext("run", "r", "t", 1, tmp_path))
    plan = ExecutionPlan(environment=EnvironmentSpec(image="base"))
    with pytest.raises(SandboxError) as caught:
        asyncio.run(DockerEnvironment().open(REQUEST, plan))
    first, _, second = caught.value.message.partition("; besides, ")
    assert "no space left on device" in first
    assert "could not be removed: cannot remove" in second
