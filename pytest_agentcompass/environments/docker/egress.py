"""An egress proxy beside a sandbox: a network without a way out, and the one container that has one.

The network is internal, and the engine's machine has no address in it. Each sandbox has its own, so sandboxes
do not reach each other. Networks are taken from a range that no host uses (RFC 2544), eight addresses each:
the engine's own pool of about thirty is never used up.
"""

from __future__ import annotations

import io
import ipaddress
import json
import random
import re
import secrets
import tarfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from docker.errors import APIError
from docker.types import IPAMConfig, IPAMPool, LogConfig

from ...contracts.network import NetworkMode, NetworkPolicy
from ...errors import SandboxError
from . import egress_proxy
from .engine import Engine, engine_errors
from .images import find_image
from .sweep import remove_container, remove_network

__all__ = ["Egress", "EgressSettings", "listed", "machine_addresses", "open_egress", "program_archive"]

_RANGE = ipaddress.IPv4Network("198.18.0.0/15")
_PREFIX = 29
_TRIES = 50
_PORT = 3128
_START_SECONDS = 60.0
_FOLDER, _ORDER = "agentcompass-egress", "order.json"
PROGRAM = f"import runpy, sys; sys.path.insert(0, '/{_FOLDER}'); runpy.run_module('egress_proxy', None, '__main__')"
_CLOSED = {"net.ipv4.ip_forward": "0", "net.ipv4.conf.all.rp_filter": "1"}
_OPTIONS = {"com.docker.network.bridge.inhibit_ipv4": "true"}
_PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_MIB = 1024 * 1024


def listed(policy: NetworkPolicy | None) -> bool:
    """Whether *policy* needs a proxy to be enforced."""
    return policy is not None and policy.mode in (NetworkMode.ALLOWLIST, NetworkMode.DENYLIST)


@dataclass(frozen=True, slots=True)
class EgressSettings:
    """What the proxies of one sandbox have in common.

    *image* has python3; *hosts* are names with addresses of the task's own; *direct* names are asked without
    the proxy (the sandbox's own, services of the same compose project).
    """

    name: str
    image: str
    labels: Mapping[str, str]
    pull: bool = False
    hosts: Mapping[str, str] = field(default_factory=dict)
    direct: tuple[str, ...] = ()


@dataclass(slots=True)
class Egress:
    """One proxy and its network, which have the same name in the engine."""

    engine: Engine
    name: str
    subnet: ipaddress.IPv4Network | None = None
    direct: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        """The proxy's address in its network; all others are the sandbox's."""
        return str(self.subnet[2]) if self.subnet is not None else ""

    def variables(self, *own: str) -> dict[str, str]:
        """Return the variables that lead programs to the proxy, in both spellings; *own* are the sandbox's names."""
        url = f"http://{self.address}:{_PORT}"
        addresses = [str(address) for address in self.subnet or () if str(address) != self.address]
        direct = ",".join(("localhost", "127.0.0.1", "0.0.0.0", *addresses, *self.direct, *own))
        pairs = {**dict.fromkeys(_PROXY_VARIABLES, url), "NO_PROXY": direct}
        return {**pairs, **{name.lower(): value for name, value in pairs.items()}}

    def targets(self) -> dict[str, list[str]]:
        """Return what the sandbox asked for: `allowed` and `refused`, each as `host:port`; `...` stands for more."""
        found: dict[str, list[str]] = {"allowed": [], "refused": []}
        with engine_errors("reading what the egress proxy said"):
            text = self.engine.client.logs(self.name, stdout=True, stderr=False).decode("utf-8", "replace")
        for line in text.splitlines():
            try:
                verdict, target = json.loads(line)
            except (ValueError, TypeError):
                continue
            if verdict in found:
                found[verdict].append(str(target))
            elif str(verdict).startswith("more "):
                found[verdict[5:]].append("...")
        return found

    def close(self) -> None:
        """Remove proxy and network; SandboxError when one stays. A network that is in use stays."""
        with engine_errors("removing the egress proxy"):
            problem = remove_container(self.engine.client, self.name) or remove_network(self.engine.client, self.name)
        if problem:
            raise SandboxError(f"the egress proxy {self.name} could not be removed: {problem}")


def machine_addresses(trie: Path = Path("/proc/net/fib_trie"), inet6: Path = Path("/proc/net/if_inet6")) -> list[str]:
    """Return this machine's addresses, which a sandbox is not to reach; empty where the kernel does not tell."""
    found: dict[str, None] = {}
    try:
        text = trie.read_text()
    except OSError:
        text = ""
    for address in re.findall(r"\|-- (\d+\.\d+\.\d+\.\d+)\n\s+/32 host LOCAL", text):
        found[address] = None
    try:
        lines = inet6.read_text().split("\n")
    except OSError:
        lines = []
    for line in lines:
        if re.match(r"[0-9a-f]{32} ", line):
            found[str(ipaddress.IPv6Address(int(line[:32], 16)))] = None
    return list(found)


def open_egress(engine: Engine, policy: NetworkPolicy, settings: EgressSettings, made: list[Egress]) -> Egress:
    """Start a proxy for *policy*, which is noted in *made* before anything exists; SandboxError when it fails."""
    image = find_image(engine, settings.image, pull=settings.pull)
    egress = Egress(engine, f"{settings.name}-egress-{secrets.token_hex(2)}", direct=settings.direct)
    made.append(egress)
    with engine_errors("making the network of an egress proxy"):
        egress.subnet = _network(engine, egress.name, settings.labels)
    with engine_errors(f"starting an egress proxy of image {settings.image!r}"):
        _start(engine, egress, policy, settings, image.id)
        _wait(engine, egress, settings)
    return egress


def _network(engine: Engine, name: str, labels: Mapping[str, str]) -> ipaddress.IPv4Network:
    """Make a network of eight addresses and return it; one that overlaps with another is passed over."""
    problem = ""
    for _ in range(_TRIES):
        base = int(_RANGE.network_address) + (random.randrange(_RANGE.num_addresses) & ~0b111)
        subnet = ipaddress.IPv4Network((base, _PREFIX))
        pool = IPAMPool(subnet=str(subnet), gateway=str(subnet[1]))
        try:
            engine.client.create_network(
                name,
                driver="bridge",
                options=_OPTIONS,
                ipam=IPAMConfig(pool_configs=[pool]),
                internal=True,
                labels=dict(labels),
            )
        except APIError as error:
            problem = str(error.explanation or error)
            if "overlap" not in problem.lower():
                raise
        else:
            return subnet
    raise SandboxError(f"no free network was found in {_RANGE} ({problem})")


def _start(engine: Engine, egress: Egress, policy: NetworkPolicy, settings: EgressSettings, image: str) -> None:
    client = engine.client
    order = {
        "mode": policy.mode.value,
        "hosts": list(policy.hosts),
        "address": egress.address,
        "port": _PORT,
        "own": machine_addresses() if engine.local else [],
        "peers": str(egress.subnet),
    }
    container = client.create_container(
        image,
        ["python3", "-I", "-c", PROGRAM, f"/{_FOLDER}/{_ORDER}"],
        name=egress.name,
        entrypoint=[],
        user="65534:65534",
        working_dir="/",
        labels=dict(settings.labels),
        use_config_proxy=False,
        host_config=client.create_host_config(
            network_mode="bridge",
            init=True,
            mem_limit=256 * _MIB,
            pids_limit=128,
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            sysctls=_CLOSED,
            extra_hosts={"host.docker.internal": "host-gateway", **settings.hosts},
            log_config=LogConfig(type="json-file", config={"max-size": "1m", "max-file": "1"}),
        ),
    )["Id"]
    client.connect_container_to_network(container, egress.name, ipv4_address=egress.address)
    client.put_archive(container, "/", program_archive(order))
    client.start(container)


def program_archive(order: Mapping[str, Any]) -> bytes:
    """Return the proxy's program and its *order* as an archive of one folder."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        package = Path(egress_proxy.__file__).parent
        files = {f"{package.name}/{path.name}": path.read_bytes() for path in sorted(package.glob("*.py"))}
        for name, content in {**files, _ORDER: json.dumps(order).encode()}.items():
            entry = tarfile.TarInfo(f"{_FOLDER}/{name}")
            entry.size, entry.mode = len(content), 0o444
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def _wait(engine: Engine, egress: Egress, settings: EgressSettings) -> None:
    """Wait until the proxy listens; SandboxError with what it printed when it ends instead."""
    deadline = time.monotonic() + _START_SECONDS
    while True:
        if b'["listens"' in engine.client.logs(egress.name, stdout=True, stderr=False):
            return
        state: dict[str, Any] = engine.client.inspect_container(egress.name)["State"]
        if not state.get("Running") or time.monotonic() > deadline:
            text = engine.client.logs(egress.name).decode("utf-8", "replace").strip()[-1000:]
            raise SandboxError(
                f"the egress proxy did not start in image {settings.image!r} (environment.params.egress_image "
                f"must have python3 of 3.8 or later): {text or state.get('Error') or 'it said nothing'}"
            )
        time.sleep(0.05)
