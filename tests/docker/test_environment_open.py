"""Opening and closing real containers: settings, images, builds, health, networks, and what a failure leaves."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docker
import pytest

from pytest_agentcompass.components.context import AttemptContext
from pytest_agentcompass.contracts.environment import BuildSpec, EnvironmentSpec, Healthcheck, Mount, Resources
from pytest_agentcompass.contracts.network import NetworkMode, NetworkPolicy
from pytest_agentcompass.contracts.request import BenchmarkSpec, RunRequest
from pytest_agentcompass.environments.docker import DockerEnvironment, remove_run, sweep
from pytest_agentcompass.environments.docker.build import build_image, content_tag, forget_builds
from pytest_agentcompass.environments.docker.engine import engine
from pytest_agentcompass.environments.docker.owner import private_root
from pytest_agentcompass.errors import ConfigError, PlanningError, SandboxError, SetupError
from pytest_agentcompass.redaction import add_secret

pytestmark = pytest.mark.docker
Run = Callable[[Any], Any]
NONE = NetworkPolicy(mode=NetworkMode.NO_NETWORK)


def _ours(client: docker.APIClient, attempt: AttemptContext) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.containers(all=True, filters={"label": f"agentcompass.run={attempt.run_id}"})
    return found


def test_settings_arrive(run: Run, sandboxes: Any, base_image: str, docker_client: docker.APIClient) -> None:
    """Limits, user, folder, variables, host names and mounts are the container's."""
    spec = EnvironmentSpec(
        image=base_image,
        user="1000",
        workdir="/made/for/it",
        hostname="boxy",
        extra_hosts={"peer": "10.1.2.3"},
        shm_size_mb=32,
        env_variables={"GIVEN": "yes"},
        resources=Resources(cpus=0.5, memory_mb=128, pids=100, storage_mb=1),
    )
    sandbox = sandboxes.open(spec)
    script = (
        "id -u; pwd; hostname; echo $GIVEN; grep peer /etc/hosts; df -m /dev/shm | tail -1 | tr -s ' ' | cut -d' ' -f2"
    )
    out = run(sandbox.exec(script, shell=True)).stdout
    assert out == "1000\n/made/for/it\nboxy\nyes\n10.1.2.3\tpeer\n32\n"
    host = docker_client.inspect_container(sandbox.info["container"])["HostConfig"]
    assert (host["NanoCpus"], host["Memory"], host["MemorySwap"], host["PidsLimit"]) == (5 * 10**8, 2**27, 2**27, 100)
    assert sandbox.info["limits"] == {"cpus": 0.5, "memory_mb": 128, "pids": 100, "shm_size_mb": 32}
    assert DockerEnvironment().notes(spec) == ["storage_mb is not enforced by environment 'docker'"]


def test_secrets_stay_out_of_the_configuration(
    run: Run, sandboxes: Any, base_image: str, docker_client: docker.APIClient
) -> None:
    """A known secret among the sandbox's variables reaches commands but not what `docker inspect` shows."""
    add_secret("hunter2-hunter2")
    sandbox = sandboxes.open(EnvironmentSpec(image=base_image, env_variables={"PW": "hunter2-hunter2", "A": "b"}))
    assert "hunter2" not in json.dumps(docker_client.inspect_container(sandbox.info["container"]))
    assert run(sandbox.exec('echo "$PW $A"', shell=True)).stdout == "hunter2-hunter2 b\n"


def test_mounts_are_private_copies(
    run: Run, sandboxes: Any, base_image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the sandbox writes into a copied mount never reaches the source; the copy is removed at close."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))  # other runs have their copies elsewhere
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / ".dot").write_text("d")
    sandbox = sandboxes.open(
        EnvironmentSpec(image=base_image, mounts=(Mount(source=str(tmp_path / "task"), target="/app"),))
    )
    assert run(sandbox.exec("cat /app/.dot; touch /app/new; echo spoilt > /app/.dot", shell=True)).stdout == "d"
    run(sandbox.close())
    assert [path.name for path in (tmp_path / "task").iterdir()] == [".dot"]
    assert (tmp_path / "task" / ".dot").read_text() == "d"
    assert list(private_root().iterdir()) == []
    with pytest.raises(SandboxError, match="no such folder"):
        sandboxes.open(EnvironmentSpec(image=base_image, mounts=(Mount(source="/no/such", target="/app"),)))


def test_missing_image_names_itself(sandboxes: Any, docker_client: docker.APIClient, attempt: AttemptContext) -> None:
    """An image that is not there is an error that names it, each time, and nothing is made."""
    for _ in range(2):
        with pytest.raises(SandboxError, match=r"image 'nosuch-image:1' does not exist"):
            sandboxes.open(EnvironmentSpec(image="nosuch-image:1"))
    assert _ours(docker_client, attempt) == []


def test_no_image_and_unknown_params(sandboxes: Any, base_image: str) -> None:
    """No image at all and a parameter that does not exist are said before anything is opened."""
    with pytest.raises(PlanningError, match="needs an image"):
        sandboxes.open(EnvironmentSpec())
    with pytest.raises(ConfigError, match=r"environment\.params\.pulll.*known: .*pull"):
        sandboxes.open(EnvironmentSpec(image=base_image, params={"pulll": "never"}))


def test_failed_start_leaves_nothing(
    sandboxes: Any, base_image: str, docker_client: docker.APIClient, attempt: AttemptContext
) -> None:
    """A container that cannot start, a failing setup and a failing health check leave no container."""
    with pytest.raises(SandboxError, match="nosuchprogram"):
        sandboxes.open(EnvironmentSpec(image=base_image, command=("nosuchprogram",), params={"init": False}))
    with pytest.raises(SetupError, match=r"setup command 'echo why; exit 3' ended with status 3:\nwhy"):
        sandboxes.open(EnvironmentSpec(image=base_image, setup=("true", "echo why; exit 3")))
    check = Healthcheck(command="echo sick; exit 1", interval=0.1, retries=2)
    with pytest.raises(SetupError, match=r"health check .* ended with status 1 2 times in a row:\nsick"):
        sandboxes.open(EnvironmentSpec(image=base_image, healthcheck=check))
    assert _ours(docker_client, attempt) == []


def test_health_check_waits(run: Run, sandboxes: Any, base_image: str) -> None:
    """A check that fails at first is tried again; failures in the start period do not count."""
    check = Healthcheck(command="test -e /ready", interval=0.2, retries=1, start_period=20, start_interval=0.2)
    sandbox = sandboxes.open(
        EnvironmentSpec(image=base_image, command=("sh", "-c", "sleep 1; touch /ready; sleep 1000"), healthcheck=check)
    )
    assert run(sandbox.is_file("/ready"))


@pytest.mark.parametrize("delay", [0.0, 0.02, 0.1, 0.3])
def test_cancelled_opening_leaves_nothing(
    run: Run, sandboxes: Any, base_image: str, docker_client: docker.APIClient, attempt: AttemptContext, delay: float
) -> None:
    """A cancellation at any moment of the opening removes what was made."""

    async def cancel() -> None:
        task = asyncio.ensure_future(sandboxes.aopen(EnvironmentSpec(image=base_image, setup=("sleep 5",))))
        await asyncio.sleep(delay)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(cancel())
    assert _ours(docker_client, attempt) == []


def test_close_twice_and_after_removal(
    run: Run, sandboxes: Any, base_image: str, docker_client: docker.APIClient
) -> None:
    """close() may be called again, side by side, cancelled, and when the container is gone already."""
    sandbox = sandboxes.open(EnvironmentSpec(image=base_image))
    docker_client.remove_container(sandbox.info["container"], force=True)
    run(sandbox.close())
    other = sandboxes.open(EnvironmentSpec(image=base_image))

    async def cancelled() -> None:
        task = asyncio.ensure_future(other.close())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.gather(other.close(), other.close())

    run(cancelled())


def test_attempts_side_by_side(run: Run, sandboxes: Any, base_image: str) -> None:
    """Sessions of one attempt (its retries, its fresh evaluation) do not collide."""

    async def many() -> list[str]:
        opened = await asyncio.gather(*(sandboxes.aopen(EnvironmentSpec(image=base_image)) for _ in range(4)))
        results = await asyncio.gather(*(session.exec(["hostname"]) for session in opened))
        return [result.stdout for result in results]

    assert len(set(run(many()))) == 4


def test_network_policies(run: Run, sandboxes: Any, base_image: str) -> None:
    """no-network has no way out at all; switching takes and gives the network."""
    routes = "tail -n +2 /proc/net/route | wc -l; ls /sys/class/net | grep -vc lo"
    closed = sandboxes.open(EnvironmentSpec(image=base_image), baseline_network_policy=NONE)
    assert run(closed.exec(routes, shell=True)).stdout == "0\n0\n"
    run(closed.set_network_policy(NetworkPolicy()))
    assert run(closed.exec(routes, shell=True)).stdout != "0\n0\n"
    run(closed.set_network_policy(NONE))
    assert run(closed.exec(routes, shell=True)).stdout == "0\n0\n"
    assert closed.network_policy == NONE


# ---------------------------------------------------------------- builds


def _context(folder: Path, base_image: str, *lines: str) -> BuildSpec:
    folder.mkdir(exist_ok=True)
    (folder / "Dockerfile").write_text("\n".join((f"FROM {base_image}", *lines)) + "\n")
    return BuildSpec(context=str(folder))


@pytest.fixture
def built(docker_client: docker.APIClient) -> Any:
    """Remove the images of the given specs after the test; ask for it before `run` and `sandboxes`."""
    specs: list[BuildSpec] = []
    yield specs.append
    for spec in specs:
        tag = content_tag(spec, None)
        if docker_client.images(name=tag):
            docker_client.remove_image(tag, force=True)


def test_build(
    built: Any, run: Run, sandboxes: Any, base_image: str, tmp_path: Path, docker_client: docker.APIClient
) -> None:
    """A Dockerfile is built with its arguments, without ignored files, with odd names, and only once."""
    unique = tmp_path.name
    spec = _context(
        tmp_path / "c",
        base_image,
        "ARG WHO",
        "COPY . /in",
        f"RUN echo $WHO {unique} > /who",
        "WORKDIR /in",
        "USER 1000",
    )
    context = Path(spec.context)
    (context / ".dockerignore").write_text("# comment\nsecret*\n!secret-kept\n")
    (context / "secret.txt").write_text("s")
    (context / "secret-kept").write_text("k")
    Path(os.fsdecode(os.fsencode(context) + b"/bad\xff")).write_text("b")
    spec = spec.model_copy(update={"args": {"WHO": "me"}})
    built(spec)
    sandbox = sandboxes.open(EnvironmentSpec(build=spec))
    assert run(sandbox.exec("id -u; pwd; cat /who; ls /in | wc -l; cat secret*", shell=True)).stdout == (
        f"1000\n/in\nme {unique}\n3\nk"
    )
    made = docker_client.inspect_image(sandbox.info["image"])["Created"]  # type: ignore[no-untyped-call]
    again = sandboxes.open(EnvironmentSpec(build=spec))
    assert again.info["image_id"] == sandbox.info["image_id"]
    same = docker_client.inspect_image(again.info["image"])  # type: ignore[no-untyped-call]
    assert same["Created"] == made


def test_build_follows_its_base(
    built: Any, run: Run, sandboxes: Any, base_image: str, tmp_path: Path, docker_client: docker.APIClient
) -> None:
    """An image is built again when the name it starts from means another image since; a lost name changes nothing."""
    name = f"agentcompass-test-{uuid.uuid4().hex}"
    spec = _context(tmp_path / "c", name, f"RUN echo {name}")
    built(spec)
    bases = []
    for text in ("old", "new", None):
        forget_builds()
        if text:
            base = _context(tmp_path / text, base_image, f"RUN echo {text} > /base")
            built(base)
            docker_client.tag(build_image(engine(), base).id, name, force=True)
        else:
            docker_client.remove_image(name)
        bases.append(run(sandboxes.open(EnvironmentSpec(build=spec)).exec(["cat", "/base"])).stdout)
    assert bases == ["old\n", "new\n", "new\n"]


def test_tag_follows_content(base_image: str, tmp_path: Path, docker_client: docker.APIClient) -> None:
    """Content, modes, links, arguments and target change the tag; times and places do not."""
    spec = _context(tmp_path / "c", base_image)
    context = Path(spec.context)
    tags = [content_tag(spec, None)]
    for change in (
        lambda: (context / "f").write_text("1"),
        lambda: (context / "f").write_text("2"),
        lambda: (context / "f").chmod(0o755),
        lambda: (context / "l").symlink_to("f"),
        lambda: (context / "e").mkdir(),
    ):
        change()
        tags.append(content_tag(spec, None))
    tags.append(content_tag(spec.model_copy(update={"args": {"A": "1"}}), None))
    tags.append(content_tag(spec.model_copy(update={"target": "t"}), None))
    tags.append(content_tag(spec, "linux/amd64"))
    assert len(set(tags)) == len(tags)
    before = content_tag(spec, None)
    os.utime(context / "f", (1, 1))
    context.rename(tmp_path / "moved")
    assert content_tag(BuildSpec(context=str(tmp_path / "moved")), None) == before


def test_failing_build_shows_its_output(sandboxes: Any, base_image: str, tmp_path: Path) -> None:
    """A failing build is one clear error with the last lines, the same for every attempt, built once."""
    spec = _context(tmp_path / "c", base_image, f"RUN echo {tmp_path.name} looking for it && exit 9")
    messages = []
    for _ in range(2):
        with pytest.raises(
            SandboxError, match=r"(?s)Dockerfile failed: .*returned a non-zero code: 9.*looking for it"
        ) as caught:
            sandboxes.open(EnvironmentSpec(build=spec))
        messages.append(caught.value.message)
        (Path(spec.context) / "Dockerfile").write_text("FROM scratch\n")
    assert messages[0] == messages[1]
    with pytest.raises(SandboxError, match=r"no Dockerfile\.other in"):
        sandboxes.open(EnvironmentSpec(build=spec.model_copy(update={"dockerfile": "Dockerfile.other"})))


def test_build_time_limit(sandboxes: Any, base_image: str, tmp_path: Path) -> None:
    """A build that is not done in its time is given up, and says so."""
    spec = _context(tmp_path / "c", base_image, f"RUN echo {tmp_path.name} && sleep 60")
    with pytest.raises(SandboxError, match="not done after 2 s"):
        sandboxes.open(EnvironmentSpec(build=spec.model_copy(update={"timeout_seconds": 2.0})))


def test_entrypoint_runs(built: Any, run: Run, sandboxes: Any, base_image: str, tmp_path: Path) -> None:
    """The image's ENTRYPOINT runs although the container is told to sleep."""
    spec = _context(tmp_path / "c", base_image, 'ENTRYPOINT ["sh", "-c", "touch /entered; exec \\"$@\\"", "entry"]')
    built(spec)
    sandbox = sandboxes.open(EnvironmentSpec(build=spec))
    run(sandbox.exec(["sleep", "0.5"]))
    assert run(sandbox.is_file("/entered"))


# ---------------------------------------------------------------- what is left over

_ORPHAN = """
import asyncio, os, sys
from pathlib import Path
from pytest_agentcompass.components.context import AttemptContext, set_current_attempt
from pytest_agentcompass.contracts.environment import EnvironmentSpec, Mount
from pytest_agentcompass.contracts.plan import ExecutionPlan
from pytest_agentcompass.environments.docker import DockerEnvironment
set_current_attempt(AttemptContext(sys.argv[1], "main", "t", 1, Path(sys.argv[2])))
spec = EnvironmentSpec(image=sys.argv[3], mounts=(Mount(source=sys.argv[2], target="/m"),))
asyncio.run(DockerEnvironment().open(None, ExecutionPlan(spec)))
os.kill(os.getpid(), 9)
"""


def test_sweep_removes_what_the_dead_left(
    sandboxes: Any, base_image: str, docker_client: docker.APIClient, attempt: AttemptContext, tmp_path: Path
) -> None:
    """A killed process's container and folders are swept; those of the living stay."""
    alive = sandboxes.open(EnvironmentSpec(image=base_image))
    run_id = f"{attempt.run_id}-orphan"
    subprocess.run([sys.executable, "-c", _ORPHAN, run_id, str(tmp_path), base_image], check=False)
    where = {"label": f"agentcompass.run={run_id}"}
    left = docker_client.containers(filters=where)
    assert len(left) == 1
    name = left[0]["Names"][0].lstrip("/")
    lines = sweep()
    assert f"container {name}" in lines
    assert any(line.startswith("folder t-1-") for line in lines)
    assert docker_client.containers(all=True, filters=where) == []
    assert docker_client.inspect_container(alive.info["container"])["State"]["Running"]


def test_remove_run(sandboxes: Any, base_image: str, docker_client: docker.APIClient, attempt: AttemptContext) -> None:
    """Everything of one run is removed at once, alive or not."""
    for _ in range(3):
        sandboxes.open(EnvironmentSpec(image=base_image))
    assert len(remove_run(attempt.run_id)) == 3
    assert _ours(docker_client, attempt) == []


def test_unreachable_engine_is_one_message(tmp_path: Path) -> None:
    """Where no engine answers, preflight and open say what to do."""
    script = """
import asyncio
from pytest_agentcompass.environments.docker import DockerEnvironment
print(asyncio.run(DockerEnvironment().preflight(None)))
"""
    env = {**os.environ, "DOCKER_HOST": f"unix://{tmp_path}/nosuch.sock"}
    found = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True)
    assert found.stdout.startswith(f"no Docker engine answers at unix://{tmp_path}/nosuch.sock: start it")
    assert "environment=host_process" in found.stdout


def test_preflight_is_silent_where_all_is_well(run: Run, sandboxes: Any) -> None:
    """preflight returns None when the engine answers."""
    assert run(DockerEnvironment().preflight(RunRequest(benchmark=BenchmarkSpec(id="tasks")))) is None
