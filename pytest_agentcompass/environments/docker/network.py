"""What one sandbox may reach: the engine's network that it is in, and the egress proxy beside it."""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ...contracts.network import NetworkMode, NetworkPolicy
from ...errors import SandboxError
from .egress import Egress, EgressSettings, listed, open_egress
from .engine import Engine, engine_errors

__all__ = ["Network"]

_NETWORKS = {NetworkMode.PUBLIC: "bridge", NetworkMode.NO_NETWORK: "none"}


@dataclass(slots=True)
class Network:
    """The way out of one sandbox.

    *project* says that the sandbox belongs to a compose project, whose own networks it keeps: it can be under
    a restricted policy from start to end, or under a public one. *made* lists the proxies that exist.
    *container* is the sandbox's, once it is there.
    """

    engine: Engine
    policy: NetworkPolicy
    settings: EgressSettings
    made: list[Egress]
    project: bool = False
    container: str = ""
    egress: Egress | None = None
    seen: dict[str, dict[str, None]] = field(default_factory=dict)

    def open(self) -> str:
        """Make what the first policy needs; return the engine's network for the sandbox ("" for a project's own)."""
        self.egress = self._egress(self.policy)
        return self._name(self.policy, self.egress)

    def join(self, container: str) -> None:
        """Let the running *container* of a project join the network of the first policy."""
        self.container = container
        name = self.open()
        if name:
            with engine_errors("connecting the sandbox with its egress proxy"):
                self.engine.client.connect_container_to_network(container, name)

    @property
    def variables(self) -> dict[str, str]:
        """What commands of the sandbox need to know of the proxy."""
        return self.egress.variables(self.container[:12]) if self.egress is not None else {}

    def can_switch(self, policy: NetworkPolicy) -> bool:
        """Whether the sandbox can be put under *policy*."""
        return not self.project or policy.restricted == self.policy.restricted

    def switch(self, policy: NetworkPolicy, gone: Callable[[], str] | None = None) -> None:
        """Put the sandbox under *policy*: what is connected by the old one ends, then the new one holds.

        When it fails the sandbox has no way out, or still the old one.
        """
        egress, client = self._egress(policy), self.engine.client
        old, new = self._name(self.policy, self.egress), self._name(policy, egress)
        with engine_errors(f"switching the sandbox's network to {policy}", gone):
            if old and old != new:
                client.disconnect_container_from_network(self.container, old, force=True)
            if new and old != new:
                client.connect_container_to_network(self.container, new)
        before, self.egress, self.policy = self.egress, egress, policy
        if before is not None:
            # The sandbox is under the new policy: what stays of the old one is removed with the sandbox.
            with contextlib.suppress(SandboxError):
                self._note(before)
                before.close()
                self.made.remove(before)

    def machine_address(self) -> str | None:
        """Return the address of this machine on the bridge; None under a public policy or with an engine elsewhere."""
        if not self.policy.restricted or not self.engine.local:
            return None
        with engine_errors("looking at the engine's bridge"):
            pools = self.engine.client.inspect_network("bridge")["IPAM"].get("Config") or []
        return next((_gateway(pool) for pool in pools if "." in pool.get("Subnet", "")), None)

    def targets(self) -> dict[str, list[str]]:
        """Return what the sandbox asked its proxies for: `allowed` and `refused`, each as `host:port`."""
        if self.egress is not None:
            self._note(self.egress)
        return {verdict: list(targets) for verdict, targets in self.seen.items() if targets}

    def _note(self, egress: Egress) -> None:
        for verdict, targets in egress.targets().items():
            self.seen.setdefault(verdict, {}).update(dict.fromkeys(targets))

    def _egress(self, policy: NetworkPolicy) -> Egress | None:
        return open_egress(self.engine, policy, self.settings, self.made) if listed(policy) else None

    def _name(self, policy: NetworkPolicy, egress: Egress | None) -> str:
        if egress is not None:
            return egress.name
        return "" if self.project else _NETWORKS[policy.mode]


def _gateway(pool: Mapping[str, str]) -> str:
    """Return the bridge's own address: an engine names it only from its second start on, until then it is the first."""
    return pool.get("Gateway") or str(ipaddress.ip_network(pool["Subnet"], strict=False)[1])
