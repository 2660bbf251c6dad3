"""Network policies of an attempt: who decides them, and what the agent is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal
from urllib.parse import urlsplit

from ..contracts.environment import EnvironmentSpec
from ..contracts.network import NetworkMode, NetworkPolicy

__all__ = ["PHASES", "endpoint_host", "resolve_policies", "restriction_notice", "with_host"]

Phase = Literal["baseline", "run", "evaluation"]
PHASES: tuple[Phase, ...] = ("baseline", "run", "evaluation")


def resolve_policies(request: EnvironmentSpec, hints: EnvironmentSpec) -> dict[Phase, NetworkPolicy | None]:
    """Return each phase's policy: the request's, else the task's hint, else None."""
    found: dict[Phase, NetworkPolicy | None] = {}
    for phase in PHASES:
        name = f"{phase}_network_policy"
        own: NetworkPolicy | None = getattr(request, name)
        found[phase] = own if own is not None else getattr(hints, name)
    return found


def policy_fields(policies: Mapping[Phase, NetworkPolicy | None]) -> dict[str, NetworkPolicy | None]:
    """Return *policies* under the field names of `EnvironmentSpec` and `ExecutionPlan`."""
    return {f"{phase}_network_policy": policies[phase] for phase in PHASES}


def endpoint_host(base_url: str | None) -> str | None:
    """Return `host:port` of an endpoint as a policy entry, or None when there is no host in it."""
    if not base_url:
        return None
    parts = urlsplit(base_url if "://" in base_url else f"//{base_url}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if not host:
        return None
    port = port or (80 if parts.scheme == "http" else 443)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def with_host(policy: NetworkPolicy, host: str) -> NetworkPolicy:
    """Return *policy* with *host* reachable as well.

    A deny list is returned as it is: what it names stays out of reach.
    """
    if policy.mode is NetworkMode.NO_NETWORK:
        return NetworkPolicy(mode=NetworkMode.ALLOWLIST, hosts=(host,))
    if policy.mode is NetworkMode.ALLOWLIST and host not in policy.hosts:
        return NetworkPolicy(mode=NetworkMode.ALLOWLIST, hosts=(*policy.hosts, host))
    return policy


def restriction_notice(policy: NetworkPolicy) -> str:
    """Return the notice about *policy* for the end of a prompt; empty when nothing is restricted."""
    if policy.mode is NetworkMode.NO_NETWORK:
        return "Network access: none. Nothing outside of this environment can be reached, so do not try to download."
    if policy.mode is NetworkMode.ALLOWLIST:
        return f"Network access is restricted. Only these hosts can be reached: {_listed(policy)}."
    if policy.mode is NetworkMode.DENYLIST:
        return f"Network access is restricted. These hosts cannot be reached: {_listed(policy)}."
    return ""


def _listed(policy: NetworkPolicy) -> str:
    return ", ".join(policy.hosts)
