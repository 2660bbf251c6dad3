"""Allow lists and deny lists on a real engine: what a sandbox reaches, by the proxy and around it."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docker
import pytest

from pytest_agentcompass.components.context import AttemptContext
from pytest_agentcompass.components.terminal import TerminalSession
from pytest_agentcompass.contracts.environment import ComposeSpec, EnvironmentSpec
from pytest_agentcompass.contracts.network import NetworkPolicy
from pytest_agentcompass.environments.docker import DockerEnvironment, remove_run
from pytest_agentcompass.environments.docker.compose import compose_program
from pytest_agentcompass.environments.docker.engine import engine
from pytest_agentcompass.environments.docker.network import Network
from pytest_agentcompass.errors import SandboxError

pytestmark = pytest.mark.docker
Run = Callable[[Any], Any]

PUBLIC = NetworkPolicy()
NONE = NetworkPolicy.model_validate("no-network")
# One line for each target: what it answered, or nothing.
ASK = 'for url in {}; do curl -s -m 5 -w " %{{http_code}}\\n" "$url" | tail -1; done'
# Raw frames would reach this machine by the address that IPv6 gives every bridge.
RAW = """import socket
try:
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
except OSError as error:
    print(type(error).__name__)"""
AROUND = """for target in {}; do
  timeout 3 bash -c "exec 3<>/dev/tcp/$target" 2>/dev/null && echo "reached $target"
done; true"""


def allow(*hosts: str) -> NetworkPolicy:
    """Return a policy that lets *hosts* through."""
    return NetworkPolicy.model_validate({"mode": "allowlist", "hosts": hosts})


def deny(*hosts: str) -> NetworkPolicy:
    """Return a policy that keeps *hosts* out."""
    return NetworkPolicy.model_validate({"mode": "denylist", "hosts": hosts})


def spec(image: str, **given: Any) -> EnvironmentSpec:
    """Return an environment whose proxies run in *image* too."""
    return EnvironmentSpec(image=image, params={"egress_image": image}, **given)


@pytest.fixture
def servers(run: Run, sandboxes: Any, base_image: str) -> list[str]:
    """The addresses of two containers that serve HTTP on port 8000."""
    return [_serve(run, sandboxes.open(EnvironmentSpec(image=base_image))) for _ in range(2)]


def _serve(run: Run, sandbox: Any) -> str:
    start = "mkdir -p /www; echo hello > /www/index.html; cd /www; setsid python3 -m http.server 8000 >/dev/null 2>&1 &"
    wait = "for i in $(seq 100); do curl -s localhost:8000 >/dev/null && break; sleep 0.1; done; hostname -i"
    assert run(sandbox.exec(start, shell=True)).ok
    return str(run(sandbox.exec(wait, shell=True)).stdout.strip())


def _asked(run: Run, sandbox: Any, *urls: str) -> list[str]:
    return list(run(sandbox.exec(ASK.format(" ".join(urls)), shell=True)).stdout.splitlines())


def _around(run: Run, sandbox: Any, *targets: tuple[str, int]) -> str:
    """Return which targets the sandbox reaches when it does not ask the proxy."""
    words = " ".join(f"{host}/{port}" for host, port in targets)
    return str(run(sandbox.exec(AROUND.format(words), shell=True)).stdout)


def test_an_allow_list(run: Run, sandboxes: Any, base_image: str, servers: list[str]) -> None:
    """What is listed is reached by HTTP and through tunnels; nothing else is, with the proxy or around it."""
    good, bad = servers
    sandbox = sandboxes.open(spec(base_image), baseline_network_policy=allow(f"{good}:8000"))
    assert _asked(run, sandbox, f"{good}:8000", f"{bad}:8000", f"{good}:8001", "https://example.org/") == [
        " 200", " 403", " 403", " 000",
    ]  # fmt: skip
    told = run(sandbox.exec(["curl", "-s", f"{bad}:8000"])).stdout
    assert told == (
        f"agentcompass: {bad}:8000 cannot be reached under this task's network policy: "
        f"only these can be reached: {good}:8000\n"
    )
    tunnel = run(sandbox.exec(["curl", "-sp", f"http://{good}:8000/"]))  # CONNECT
    assert tunnel.stdout == "hello\n"
    bridge = good.rpartition(".")[0] + ".1"
    with socket.create_server(("0.0.0.0", 0)) as server:
        port = server.getsockname()[1]
        own = run(sandbox.exec("hostname -i", shell=True)).stdout.strip().rpartition(".")
        machine = [(f"{own[0]}.{int(own[2]) // 8 * 8 + host}", port) for host in (1, 2)]
        assert _around(run, sandbox, (good, 8000), (bad, 8000), (bridge, port), *machine) == ""
        assert _asked(run, sandbox, f"{bridge}:{port}", f"host.docker.internal:{port}") == [" 403", " 403"]
    assert run(sandbox.exec(["python3", "-c", RAW])).stdout == "PermissionError\n"
    run(sandbox.observe())
    targets = sandbox.info["network_targets"]
    assert targets["allowed"] == [f"{good}:8000"]
    assert set(targets["refused"]) >= {f"{bad}:8000", f"{good}:8001", "example.org:443", f"{bridge}:{port}"}


def test_names(run: Run, sandboxes: Any, base_image: str, servers: list[str]) -> None:
    """A listed name is looked up by the proxy, with the task's own names; a wildcard does not open local addresses."""
    hosts = {"good.test": servers[0], "sub.wild.test": servers[1]}
    policy = allow("good.test", "*.wild.test", "absent.invalid")
    sandbox = sandboxes.open(spec(base_image, extra_hosts=hosts), baseline_network_policy=policy)
    urls = ("http://good.test:8000", "http://GOOD.test:8000", "http://sub.wild.test:8000", "http://absent.invalid/")
    assert _asked(run, sandbox, *urls) == [" 200", " 200", " 403", " 502"]
    python = "import urllib.request as u; print(u.urlopen('http://good.test:8000').read())"
    assert run(sandbox.exec(["python3", "-c", python])).stdout == "b'hello\\n'\n"


def test_the_sandbox_reaches_itself(run: Run, sandboxes: Any, base_image: str) -> None:
    """What a sandbox serves is asked for without the proxy, by each of its own names and addresses."""
    given = {"extra_hosts": {"me.test": "127.0.0.1"}, "hostname": "boxy"}
    for options in (given, {}):
        sandbox = sandboxes.open(spec(base_image, **options), baseline_network_policy=allow("a.org"))
        _serve(run, sandbox)
        own = ["localhost", "127.0.0.1", "0.0.0.0", "$(hostname)", "$(hostname -i)", *options.get("extra_hosts", ())]
        assert _asked(run, sandbox, *(f"http://{name}:8000" for name in own)) == [" 200"] * len(own)


def test_the_address_of_this_machine(run: Run, sandboxes: Any, base_image: str) -> None:
    """It is the gateway of the engine's bridge, also with an engine's first start, which does not name it."""
    routes = run(sandboxes.open(EnvironmentSpec(image=base_image)).exec(["cat", "/proc/net/route"])).stdout
    gateway = next(fields[2] for fields in map(str.split, routes.splitlines()) if fields[1] == "00000000")
    address = run(sandboxes.open(spec(base_image), baseline_network_policy=NONE).machine_address())
    assert address == socket.inet_ntoa(bytes.fromhex(gateway)[::-1])


def test_a_deny_list(run: Run, sandboxes: Any, base_image: str, servers: list[str]) -> None:
    """Local addresses and what is listed are refused; the rest of the world is let out."""
    hosts = {"bad.test": "192.88.99.7"}
    sandbox = sandboxes.open(spec(base_image, extra_hosts=hosts), baseline_network_policy=deny("bad.test"))
    assert _asked(run, sandbox, f"{servers[0]}:8000", "http://bad.test", "http://192.88.99.7") == [" 403"] * 3
    assert _around(run, sandbox, (servers[0], 8000)) == ""
    run(sandbox.exec(["curl", "-s", "-m", "1", "http://192.88.99.8"]))  # nobody answers there
    assert sandbox.info.get("network_targets") is None
    run(sandbox.observe())
    assert sandbox.info["network_targets"]["allowed"] == ["192.88.99.8:80"]


def test_switching(run: Run, sandboxes: Any, base_image: str, servers: list[str], attempt: AttemptContext) -> None:
    """Each switch takes the old way out, with what is connected by it, and no trace of proxies stays."""
    good, bad = servers
    sandbox = sandboxes.open(spec(base_image))
    assert run(sandbox.exec("env | grep -ic proxy", shell=True)).stdout == "0\n"
    held = f"""exec 3<>/dev/tcp/{bad}/8000; sleep 2; printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3; timeout 5 cat <&3"""

    async def switch_meanwhile() -> Any:
        waiting = asyncio.ensure_future(sandbox.exec(["bash", "-c", held]))
        await asyncio.sleep(1)
        await sandbox.set_network_policy(allow(f"{good}:8000"))
        return await waiting

    assert "200" not in run(switch_meanwhile()).stdout
    assert _asked(run, sandbox, f"{good}:8000", f"{bad}:8000") == [" 200", " 403"]
    run(sandbox.set_network_policy(allow(f"{bad}:8000")))
    assert _asked(run, sandbox, f"{good}:8000", f"{bad}:8000") == [" 403", " 200"]
    assert len(_proxies(attempt)) == 1
    run(sandbox.set_network_policy(NONE))
    assert run(sandbox.exec("ls /sys/class/net; env | grep -ic proxy", shell=True)).stdout == "lo\n0\n"
    assert _proxies(attempt) == []
    run(sandbox.set_network_policy(allow(f"{good}:8000")))
    assert _asked(run, sandbox, f"{good}:8000") == [" 200"]
    run(sandbox.set_network_policy(PUBLIC))
    assert _asked(run, sandbox, f"{good}:8000", f"{bad}:8000") == [" 200", " 200"]
    assert run(sandbox.exec("env | grep -ic proxy", shell=True)).stdout == "0\n"
    run(sandbox.observe())
    assert sandbox.info["network_targets"]["refused"] == [f"{bad}:8000", f"{good}:8000"]


def _proxies(attempt: AttemptContext) -> list[str]:
    """Return the names of the proxies that the test's run has."""
    where = {"name": "-egress-", "label": f"agentcompass.run={attempt.run_id}"}
    return [item["Names"][0] for item in engine().client.containers(all=True, filters=where)]


def test_a_terminal_learns_of_the_proxy(run: Run, sandboxes: Any, base_image: str, servers: list[str]) -> None:
    """A terminal that was opened before the switch has the variables of after, until something was typed into it."""
    sandbox = sandboxes.open(spec(base_image))
    ask = f"curl -s -o /dev/null -w '%{{http_code}}' {servers[0]}:8000; echo"

    async def shown() -> str:
        terminal = await TerminalSession.open(sandbox, "agent")
        await terminal.send_keys(ask, enter=True, block=True, max_timeout=30)
        return await terminal.capture()

    async def work() -> tuple[str, str, str]:
        terminal = await TerminalSession.open(sandbox, "agent")
        await sandbox.set_network_policy(allow(f"{servers[0]}:8000"))
        proxied = await shown()
        await terminal.send_keys("export KEPT=yes", enter=True, block=True)
        await sandbox.set_network_policy(PUBLIC)
        await terminal.send_keys("echo kept: $KEPT", enter=True, block=True)
        kept = await terminal.capture()
        await terminal.close()
        return proxied, kept, await shown()

    proxied, kept, public = run(work())
    assert "\n200\n" in proxied
    assert "\nkept: yes\n" in kept
    assert "\n200\n" in public


def test_sandboxes_do_not_reach_each_other(run: Run, sandboxes: Any, base_image: str, servers: list[str]) -> None:
    """More sandboxes than the engine's own pool has networks are open at once, each alone with its proxy."""
    policy = allow(f"{servers[0]}:8000")

    async def many() -> list[Any]:
        opening = [sandboxes.aopen(spec(base_image), baseline_network_policy=policy) for _ in range(34)]
        return await asyncio.gather(*opening)

    opened = run(many())
    assert _asked(run, opened[-1], f"{servers[0]}:8000") == [" 200"]
    other = str(run(opened[0].exec("hostname -i", shell=True)).stdout.strip())
    proxy = run(opened[0].exec("echo $http_proxy", shell=True)).stdout.strip().rpartition("//")[2].split(":")
    serve = "setsid python3 -m http.server 8000 >/dev/null 2>&1 & sleep 1"
    run(opened[0].exec(serve, shell=True))
    assert _around(run, opened[1], (other, 8000), (proxy[0], int(proxy[1]))) == ""
    assert _asked(run, opened[1], f"{other}:8000") == [" 403"]


def test_a_run_is_removed_with_its_proxies(
    run: Run, sandboxes: Any, base_image: str, attempt: AttemptContext, docker_client: docker.APIClient
) -> None:
    """What sweeps a killed run finds proxies and networks by their labels."""
    sandboxes.open(spec(base_image), baseline_network_policy=allow("a.org"))
    where = {"label": f"agentcompass.run={attempt.run_id}"}
    assert len(docker_client.containers(filters=where)) == 2
    lines = remove_run(attempt.run_id)
    assert len([line for line in lines if line.startswith("container")]) == 2
    assert len([line for line in lines if line.startswith("network")]) == 1


def test_images_that_cannot_run_the_proxy(
    run: Run, sandboxes: Any, base_image: str, docker_client: docker.APIClient, tmp_path: Path
) -> None:
    """A missing image is told when the sandbox opens, before the agent costs anything; so is one without python3."""
    missing = EnvironmentSpec(image=base_image, params={"egress_image": "no-such:image"})
    with pytest.raises(SandboxError, match=r"egress_image\): image 'no-such:image' does not exist"):
        sandboxes.open(missing, run_network_policy=allow("a.org"))
    name = f"agentcompass-test-{tmp_path.name.replace('_', '-').lower()}"
    (tmp_path / "Dockerfile").write_text(f"FROM {base_image}\nRUN rm /usr/bin/python3\n")
    for line in docker_client.build(path=str(tmp_path), tag=name, rm=True, forcerm=True, decode=True):
        assert "error" not in line, line
    try:
        without = EnvironmentSpec(image=base_image, params={"egress_image": name})
        with pytest.raises(SandboxError, match=f"egress proxy.*{name}.*python3"):
            sandboxes.open(without, baseline_network_policy=allow("a.org"))
    finally:
        docker_client.remove_image(name, force=True)


def test_a_switch_that_fails(
    run: Run, sandboxes: Any, base_image: str, servers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A switch that fails is an error, and what was made for it is removed with the sandbox."""
    sandbox = sandboxes.open(spec(base_image))

    def broken(self: Network, policy: NetworkPolicy, egress: Any) -> str:
        return "no-such-network" if policy != PUBLIC else "bridge"

    monkeypatch.setattr(Network, "_name", broken)
    with pytest.raises(SandboxError, match="switching the sandbox's network to allowlist"):
        run(sandbox.set_network_policy(allow(f"{servers[0]}:8000")))
    assert _around(run, sandbox, (servers[0], 8000)) == ""


# ---------------------------------------------------------------- compose projects


_PROJECT = """
services:
  client:
    image: {image}
    command: ["sh", "-c", "sleep infinity"]
  pages:
    image: {image}
    command: ["sh", "-c", "mkdir /www; echo sibling > /www/index.html; cd /www; exec python3 -m http.server 8000"]
    healthcheck: {{test: ["CMD", "curl", "-sf", "http://127.0.0.1:8000/"], interval: 0.5s, retries: 30}}
"""


def test_a_compose_project(
    run: Run, sandboxes: Any, base_image: str, servers: list[str], tmp_path: Path, unavailable: Callable[[str], None]
) -> None:
    """Services reach each other without the proxy, the agent's reaches what is listed, and a list can be changed."""
    try:
        compose_program()
    except SandboxError as error:
        unavailable(error.message)
    good, bad = servers
    (tmp_path / "compose.yaml").write_text(_PROJECT.format(image=base_image))
    compose = ComposeSpec(file=str(tmp_path / "compose.yaml"), service="client")
    given = EnvironmentSpec(compose=compose, params={"egress_image": base_image})
    sandbox = sandboxes.open(given, baseline_network_policy=allow(f"{good}:8000"))
    urls = ("http://pages:8000", f"{good}:8000", f"{bad}:8000")
    assert _asked(run, sandbox, *urls) == [" 200", " 200", " 403"]
    assert _around(run, sandbox, (good, 8000), (bad, 8000)) == ""
    run(sandbox.set_network_policy(allow(f"{bad}:8000")))
    assert _asked(run, sandbox, *urls) == [" 200", " 403", " 200"]
    run(sandbox.set_network_policy(NONE))
    assert _asked(run, sandbox, *urls) == [" 200", " 000", " 000"]
    assert run(sandbox.exec(["python3", "-c", RAW])).stdout == "PermissionError\n"
    problems = DockerEnvironment().check(given.model_copy(update={"run_network_policy": allow("a.org")}))
    assert "cannot change between a public and a restricted network: baseline public, run allowlist" in problems[0]


@pytest.mark.parametrize(
    ("client", "reason"),
    [
        ("network_mode: 'container:other'", "uses network_mode container:other: no-network cannot"),
        ("network_mode: host", "uses network_mode host: no-network cannot"),
        ("privileged: true", "is privileged: no-network cannot"),
        ("cap_add: [CAP_NET_RAW, SYS_PTRACE]", "has cap_add NET_RAW: no-network cannot"),
    ],
)
def test_services_that_cannot_be_closed_in(
    sandboxes: Any, base_image: str, tmp_path: Path, unavailable: Callable[[str], None], client: str, reason: str
) -> None:
    """A service that has a way around its networks is refused, and the reason said."""
    try:
        compose_program()
    except SandboxError as error:
        unavailable(error.message)
    (tmp_path / "compose.yaml").write_text(f"services:\n  client:\n    image: {base_image}\n    {client}\n")
    compose = ComposeSpec(file=str(tmp_path / "compose.yaml"), service="client")
    with pytest.raises(SandboxError, match=reason):
        sandboxes.open(EnvironmentSpec(compose=compose), baseline_network_policy=NONE)


# ---------------------------------------------------------------- whole runs


def test_a_run_under_an_allow_list(run: Run, servers: list[str], base_image: str, tmp_path: Path) -> None:
    """The agent is told, reaches what is listed, and the record has the policy and what was asked for."""
    good, bad = servers
    task = {
        "id": "fetch",
        "instruction": "fetch it",
        "image": base_image,
        "workdir": "/job",
        "network": {"mode": "allowlist", "hosts": [f"{good}:8000"]},
        "verify": "grep -qx hello page && ! grep -q hello other",
    }
    (tmp_path / "tasks.yaml").write_text(json.dumps({"tasks": [task]}))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = f'curl -s {good}:8000 > page; curl -s {bad}:8000 > other; cat "$AGENTCOMPASS_INSTRUCTION_FILE"'
    words = ["benchmark=tasks", "benchmark.path=tasks.yaml", "harness=command", f"harness.command={command}"]
    words += ["environment=docker", f"environment.params.egress_image={base_image}"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--agentcompass", *words],
        cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    record = json.loads(next(tmp_path.glob("agentcompass-results/*/*/attempts/*/fetch*/1/record.json")).read_text())
    assert f"Only these hosts can be reached: {good}:8000." in record["agent_output"]
    assert record["plan"]["run_network_policy"] == f"allowlist({good}:8000)"
    assert record["environment"]["network_targets"] == {"allowed": [f"{good}:8000"], "refused": [f"{bad}:8000"]}
    assert engine().client.networks(filters={"label": f"agentcompass.run={record['run_id']}"}) == []


def test_what_the_agent_leaves_does_not_get_the_evaluations_network(
    run: Run, servers: list[str], base_image: str, tmp_path: Path
) -> None:
    """A process that waits for a wider network is ended before there is one."""
    task = {
        "id": "wait",
        "instruction": "x",
        "image": base_image,
        "workdir": "/job",
        "environment": {"run_network_policy": {"mode": "allowlist", "hosts": ["a.org"]}},
        "verify": f"sleep 2; cat got; curl -s {servers[0]}:8000 | grep -q hello && ! test -s got",
    }
    (tmp_path / "tasks.yaml").write_text(json.dumps({"tasks": [task]}))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    loop = f"while ! curl --noproxy '*' -fs -m 1 {servers[0]}:8000 >> got; do sleep 0.1; done"
    command = f'touch got; setsid bash -c "{loop}" >/dev/null 2>&1 &'
    words = ["benchmark=tasks", "benchmark.path=tasks.yaml", "harness=command", f"harness.command={command}"]
    words += ["environment=docker", f"environment.params.egress_image={base_image}"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--agentcompass", *words],
        cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


def test_a_missing_proxy_image_is_told_at_collection(base_image: str, tmp_path: Path) -> None:
    """Where the request itself asks for a list, nothing opens before the proxy's image is there."""
    task = {"id": "t", "instruction": "x", "image": base_image, "verify": "true"}
    (tmp_path / "tasks.yaml").write_text(json.dumps({"tasks": [task]}))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    words = ["benchmark=tasks", "benchmark.path=tasks.yaml", "harness=nop", "environment=docker"]
    words += ["environment.run_network_policy={mode: denylist, hosts: [a.org]}"]
    words += ["environment.params.egress_image=no-such:image"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--agentcompass", *words],
        cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "environment.params.egress_image): image 'no-such:image' does not exist" in done.stdout
    assert "1 error in" in done.stdout
