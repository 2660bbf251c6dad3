"""From an environment section to the engine's container settings: pure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import docker
from docker.types import Mount
from pydantic import BaseModel, ConfigDict, Field

from ...contracts.environment import EnvironmentSpec
from ...redaction import known_secrets

__all__ = ["DockerParams", "container_settings", "limits", "split_secrets"]

_SLEEP = ["sh", "-c", "sleep infinity"]
_CPU = 1_000_000_000
_MIB = 1024 * 1024


class DockerParams(BaseModel):
    """`environment.params` of the Docker environment.

    *pull*: whether a missing image is pulled. *init*: run an init as pid 1. *pids_limit*: processes
    per sandbox where the task sets none. *egress_image*: an image with python3 for the proxies that enforce
    allow lists and deny lists.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    pull: str = Field(default="never", pattern="^(never|missing)$")
    init: bool = True
    pids_limit: int = Field(default=4096, gt=0)
    egress_image: str = Field(default="python:3-slim", min_length=1)
    download_limit_bytes: int = Field(default=1_000_000_000, gt=0)


def split_secrets(variables: dict[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the variables that may stand in the container's configuration, and those with secrets.

    Whoever may ask the engine can read the configuration: secrets are given to each command instead.
    """
    secrets = known_secrets()
    hidden = {name: value for name, value in variables.items() if any(secret in value for secret in secrets)}
    return {name: value for name, value in variables.items() if name not in hidden}, hidden


def limits(spec: EnvironmentSpec, params: DockerParams) -> dict[str, Any]:
    """Return the limits that are enforced, as the record tells them."""
    wanted = spec.resources
    found = {
        "cpus": wanted.cpus,
        "memory_mb": wanted.memory_mb,
        "pids": wanted.pids or params.pids_limit,
        "shm_size_mb": spec.shm_size_mb,
    }
    return {name: value for name, value in found.items() if value is not None}


def _host_config(
    client: docker.APIClient,
    spec: EnvironmentSpec,
    params: DockerParams,
    network: str,
    mounts: list[tuple[Path, str, bool]],
    restricted: bool,
) -> dict[str, Any]:
    memory = spec.resources.memory_mb * _MIB if spec.resources.memory_mb else None
    settings: dict[str, Any] = {
        "init": params.init,
        "mem_limit": memory,
        "memswap_limit": memory,
        "nano_cpus": int(spec.resources.cpus * _CPU) if spec.resources.cpus else None,
        "pids_limit": spec.resources.pids or params.pids_limit,
        "shm_size": spec.shm_size_mb * _MIB if spec.shm_size_mb else None,
        "network_mode": network,
        # Raw frames reach this machine around its rules, also where it has no address in the network.
        "cap_drop": ["NET_RAW"] if restricted else None,
        "extra_hosts": dict(spec.extra_hosts) or None,
        "tmpfs": _tmpfs(spec.tmpfs) or None,
        "mounts": [Mount(target, str(source), type="bind", read_only=ro) for source, target, ro in mounts] or None,
    }
    return client.create_host_config(**{name: value for name, value in settings.items() if value is not None})


def _tmpfs(entries: tuple[str, ...]) -> dict[str, str]:
    """Split `/path:options`."""
    return {path: options for path, _, options in (entry.partition(":") for entry in entries)}


def container_settings(
    client: docker.APIClient,
    spec: EnvironmentSpec,
    params: DockerParams,
    *,
    image: str,
    name: str,
    labels: dict[str, str],
    variables: dict[str, str],
    network: str,
    mounts: list[tuple[Path, str, bool]],
    restricted: bool = False,
) -> dict[str, Any]:
    """Return the arguments of the SDK's `create_container`; *network* is the engine's name of one.

    *restricted* says that a policy other than `public` holds at some time.

    Without a command of the task's own the container sleeps, behind the image's ENTRYPOINT where it
    has one. The host's proxy variables are kept out.
    """
    return {
        "image": image,
        "command": list(spec.command) if spec.command is not None else _SLEEP,
        "name": name,
        "hostname": spec.hostname,
        "user": spec.user,
        "working_dir": spec.workdir,
        "environment": variables,
        "labels": labels,
        "platform": spec.platform,
        "host_config": _host_config(client, spec, params, network, mounts, restricted),
        "use_config_proxy": False,
    }
