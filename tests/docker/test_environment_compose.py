"""Compose projects on a real engine."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docker
import pytest

from pytest_agentcompass.components.context import AttemptContext
from pytest_agentcompass.contracts.environment import BuildSpec, ComposeSpec, EnvironmentSpec, Resources
from pytest_agentcompass.contracts.network import NetworkMode, NetworkPolicy
from pytest_agentcompass.environments.docker.build import content_tag
from pytest_agentcompass.environments.docker.compose import compose_program
from pytest_agentcompass.errors import PlanningError, SandboxError

pytestmark = pytest.mark.docker
Run = Callable[[Any], Any]
NONE = NetworkPolicy(mode=NetworkMode.NO_NETWORK)

_TWO = """
services:
  client:
    build: {{dockerfile: Dockerfile}}
    image: ${{NAME}}-client
    container_name: ${{NAME}}
    command: ["sh", "-c", "sleep infinity"]
    environment: {{DOLLAR: "a$$b", FROM_VARIABLE: "${{NAME}}"}}
    volumes: ["./:/app", "data:/data"]
    ports: ["8080:80"]
    depends_on: {{ledger: {{condition: service_healthy}}}}
    networks: [books]
  ledger:
    image: {image}
    container_name: fixed-name
    command: ["sh", "-c", "sleep 1; mkdir /www; echo entry > /www/january; cd /www; exec python3 -m http.server 8000"]
    networks: [books]
    healthcheck: {{test: ["CMD", "curl", "-sf", "http://127.0.0.1:8000/january"], interval: 0.5s, retries: 30}}
networks:
  books: {{name: fixed-network}}
volumes:
  data: {{}}
"""


@pytest.fixture(autouse=True)
def _compose(docker_client: docker.APIClient, unavailable: Callable[[str], None]) -> None:
    try:
        compose_program()
    except SandboxError as error:
        unavailable(error.message)


def _task(folder: Path, text: str, image: str) -> EnvironmentSpec:
    folder.mkdir(exist_ok=True)
    (folder / "docker-compose.yaml").write_text(text)
    build = f"FROM {image}\nWORKDIR /app\nRUN : {folder}; echo {folder.parent.name} > /built\n"
    (folder / "Dockerfile").write_text(build)
    compose = ComposeSpec(file=str(folder / "docker-compose.yaml"), service="client", variables={"NAME": "given"})
    return EnvironmentSpec(compose=compose)


@pytest.fixture
def two(tmp_path: Path, base_image: str, docker_client: docker.APIClient) -> Any:
    """A task of two services, one of them built; to be asked for before `run` and `sandboxes`, which uses its image."""
    spec = _task(tmp_path / "task", _TWO.format(image=base_image), base_image)
    yield spec
    docker_client.remove_image(content_tag(BuildSpec(context=str(tmp_path / "task")), None), force=True)


def test_two_services(
    two: EnvironmentSpec,
    run: Run,
    sandboxes: Any,
    docker_client: docker.APIClient,
    attempt: AttemptContext,
    tmp_path: Path,
) -> None:
    """The agent's service waits for its healthy sidecar, is driven like any container, and everything is labelled."""
    sandbox = sandboxes.open(
        two.model_copy(update={"resources": Resources(memory_mb=200), "env_variables": {"X": "$1"}})
    )
    script = """pwd; cat /built; echo $DOLLAR $FROM_VARIABLE $X
curl -s http://ledger:8000/january http://fixed-name:8000/january"""
    result = run(sandbox.exec(script, shell=True))
    assert result.stdout == f"/app\n{tmp_path.name}\na$b given $1\nentry\nentry\n"
    assert sandbox.info["services"] == ["client", "ledger"]
    assert "ports" in sandbox.info["notes"][0]
    where = {"label": f"agentcompass.run={attempt.run_id}"}
    assert len(docker_client.containers(filters=where)) == 2
    assert len(docker_client.networks(filters=where)) == 1
    assert len(docker_client.volumes(filters=where)["Volumes"]) == 1
    assert docker_client.inspect_container(sandbox.info["container"])["HostConfig"]["Memory"] == 200 * 2**20
    run(sandbox.exec("touch /app/new; setsid sleep 901 >/dev/null 2>&1 &", shell=True))
    assert run(sandbox.kill_leftovers()) == []
    assert "sleep 901" not in run(sandbox.exec(["ps", "-ef"])).stdout
    assert "sleep infinity" in run(sandbox.exec(["ps", "-ef"])).stdout
    assert not (tmp_path / "task" / "new").exists()
    assert run(sandbox.exec("sleep 30", shell=True, timeout=1)).timed_out
    with pytest.raises(PlanningError):
        run(sandbox.set_network_policy(NONE))


def test_attempts_side_by_side(two: EnvironmentSpec, run: Run, sandboxes: Any) -> None:
    """Two attempts at a task with fixed names do not collide or see each other."""

    async def both() -> list[str]:
        opened = await asyncio.gather(sandboxes.aopen(two), sandboxes.aopen(two))
        await opened[0].exec("echo mine > /data/f", shell=True)
        return [(await session.exec("cat /data/f", shell=True)).stdout for session in opened]

    assert run(both()) == ["mine\n", ""]


def test_no_network(two: EnvironmentSpec, run: Run, sandboxes: Any) -> None:
    """Under no-network the services still reach each other, but neither the host nor anything else."""
    reach = """curl -s http://ledger:8000/january
gateway=$(hostname -i | cut -d. -f1-3).1
timeout 2 bash -c "exec 3<>/dev/tcp/$gateway/$PORT" 2>/dev/null && echo reached"""
    with socket.create_server(("0.0.0.0", 0)) as server:
        env = {"PORT": str(server.getsockname()[1])}
        opened = sandboxes.open(two)
        assert run(opened.exec(reach, shell=True, env=env)).stdout == "entry\nreached\n"
        closed = sandboxes.open(two, baseline_network_policy=NONE)
        assert run(closed.exec(reach, shell=True, env=env)).stdout == "entry\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("services: {other: {image: x}}", "no service 'client'.*known: other"),
        ("services: {client: {image: nosuch-image:1}}", "image 'nosuch-image:1' does not exist"),
        ("services: {client: [", "reading .*docker-compose.yaml"),
        (
            "services: {client: {image: IMAGE, command: [sh, -c, 'echo oops; exit 3']}}",
            "(?s)(ended.*oops|is not running: Exited \\(3\\))",  # seen while it starts, or right after
        ),
        (
            "services: {client: {image: IMAGE, command: [sleep, '100'], "
            "healthcheck: {test: 'echo sick; exit 1', interval: 0.3s, retries: 2}}}",
            "service 'client' .*is unhealthy.*sick",
        ),
        (
            "services: {client: {image: IMAGE, depends_on: {side: {condition: service_healthy}}}, "
            "side: {image: IMAGE, command: [sh, -c, 'echo no module; exit 2'], healthcheck: {test: 'false'}}}",
            "(?s)service 'side' of .* ended: Exited .2.*no module",
        ),
    ],
)
def test_broken_projects(
    sandboxes: Any, base_image: str, tmp_path: Path, text: str, problem: str, docker_client: docker.APIClient,
    attempt: AttemptContext,
) -> None:  # fmt: skip
    """A project that cannot be opened is one clear error and leaves nothing."""
    spec = _task(tmp_path / "task", text.replace("IMAGE", base_image), base_image)
    with pytest.raises(SandboxError, match=problem):
        sandboxes.open(spec)
    where = {"label": f"agentcompass.run={attempt.run_id}"}
    assert docker_client.containers(all=True, filters=where) == []
    assert docker_client.networks(filters=where) == []


def test_host_network_is_refused_under_no_network(sandboxes: Any, base_image: str, tmp_path: Path) -> None:
    """What cannot be isolated is refused, never silently open."""
    text = f"services: {{client: {{image: '{base_image}', network_mode: host}}}}"
    with pytest.raises(SandboxError, match="no-network cannot be enforced"):
        sandboxes.open(_task(tmp_path / "task", text, base_image), baseline_network_policy=NONE)
