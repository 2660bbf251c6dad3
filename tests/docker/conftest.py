"""Fixtures of the container tests: a real engine, a base image, sessions that are closed again."""

from __future__ import annotations

import asyncio
import os
import subprocess
import uuid
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import docker
import pytest

from pytest_agentcompass.components.context import AttemptContext, set_current_attempt
from pytest_agentcompass.contracts.environment import EnvironmentSpec
from pytest_agentcompass.contracts.plan import ExecutionPlan
from pytest_agentcompass.contracts.request import BenchmarkSpec, RunRequest
from pytest_agentcompass.environments.docker import DockerEnvironment, DockerSession
from pytest_agentcompass.environments.docker.engine import engine
from pytest_agentcompass.errors import SandboxError

T = TypeVar("T")

BASE_IMAGE = "pytest-agentcompass-test:bookworm"


@pytest.fixture(scope="session")
def unavailable() -> Callable[[str], None]:
    """Skip with a reason, or fail where the engine is a must (the project's own CI)."""

    def give_up(reason: str) -> None:
        if os.environ.get("AGENTCOMPASS_REQUIRE_DOCKER") == "1":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)

    return give_up


@pytest.fixture(scope="session")
def docker_client(unavailable: Callable[[str], None]) -> docker.APIClient:
    """The engine's client; the test is skipped with the reason where there is no engine."""
    try:
        return engine().client
    except SandboxError as error:
        unavailable(error.message)
        raise


@pytest.fixture(scope="session")
def base_image(docker_client: docker.APIClient, unavailable: Callable[[str], None]) -> str:
    """The name of the tests' image, made where it is missing and can be made."""
    if not docker_client.images(name=BASE_IMAGE):
        script = Path(__file__).with_name("base_image.sh")
        made = subprocess.run([script], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        if made.returncode != 0:
            unavailable(f"the image {BASE_IMAGE} does not exist and cannot be made: {made.stderr.strip()}")
    return BASE_IMAGE


@pytest.fixture
def attempt(tmp_path: Path) -> Iterator[AttemptContext]:
    """The attempt that the test stands for; its run id is the test's alone."""
    context = AttemptContext(f"test-{uuid.uuid4().hex[:12]}", "main", "a task", 1, tmp_path / "attempt")
    set_current_attempt(context)
    yield context
    set_current_attempt(None)


@pytest.fixture
def nothing_left(docker_client: docker.APIClient, attempt: AttemptContext) -> Iterator[None]:
    """After the test no container, network or volume of its run exists."""
    yield
    where = {"label": f"agentcompass.run={attempt.run_id}"}
    assert docker_client.containers(all=True, filters=where) == []
    assert docker_client.networks(filters=where) == []
    assert not docker_client.volumes(filters=where)["Volumes"]


class Sandboxes:
    """Opens sessions and runs their coroutines on one event loop."""

    def __init__(self, loop: asyncio.Runner) -> None:
        self._loop = loop
        self.sessions: list[DockerSession] = []

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end."""
        return self._loop.run(work)

    async def aopen(self, spec: EnvironmentSpec, **plan: Any) -> DockerSession:
        """Open a session that the fixture closes."""
        request = RunRequest(benchmark=BenchmarkSpec(id="tasks"))
        session = await DockerEnvironment().open(request, ExecutionPlan(spec, **plan))
        self.sessions.append(session)
        return session

    def open(self, spec: EnvironmentSpec, **plan: Any) -> DockerSession:
        """Open a session that the fixture closes."""
        return self.run(self.aopen(spec, **plan))


@pytest.fixture
def sandboxes(base_image: str, nothing_left: None) -> Iterator[Sandboxes]:
    """A way to open sessions; whatever was opened is closed afterwards."""
    with asyncio.Runner() as loop:
        made = Sandboxes(loop)
        yield made
        for session in made.sessions:
            made.run(session.close())


@pytest.fixture
def sandbox(sandboxes: Sandboxes, base_image: str) -> DockerSession:
    """One open session on the base image."""
    return sandboxes.open(EnvironmentSpec(image=base_image))


@pytest.fixture
def run(sandboxes: Sandboxes) -> Callable[[Coroutine[Any, Any, T]], T]:
    """Run a coroutine on the sessions' loop."""
    return sandboxes.run
