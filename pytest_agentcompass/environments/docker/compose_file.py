"""From a resolved compose configuration to one attempt's own: pure rewriting of plain data."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ...contracts.environment import EnvironmentSpec
from ...errors import SandboxError
from .settings import DockerParams, split_secrets

__all__ = ["Rewrite", "rewrite"]

_ISOLATED = {"com.docker.network.bridge.inhibit_ipv4": "true"}
_HOST_MODES = ("host", "bridge")
_STRONG = frozenset({"ALL", "NET_ADMIN", "NET_RAW", "SYS_ADMIN", "SYS_MODULE"})


class Rewrite:
    """One attempt's copy of a compose configuration, and what was changed in it.

    *private* maps a host folder to this attempt's copy of it.
    """

    def __init__(self, config: Mapping[str, Any], name: str, labels: dict[str, str], private: Callable[[Path], Path]):
        self.data: dict[str, Any] = copy.deepcopy(dict(config))
        self.data["name"] = name
        self.notes: list[str] = []
        self._name, self._labels, self._private = name, labels, private

    @property
    def services(self) -> dict[str, Any]:
        """The services by name."""
        found: dict[str, Any] = self.data.get("services") or {}
        return found

    @property
    def names(self) -> list[str]:
        """Under which names the services find each other: their own, host names and aliases."""
        found = set(self.services)
        for service in self.services.values():
            found.add(str(service.get("hostname") or ""))
            networks = service.get("networks")
            for settings in networks.values() if isinstance(networks, dict) else ():
                found.update(str(alias) for alias in (settings or {}).get("aliases") or ())
        return sorted(found - {""})

    def label_everything(self) -> None:
        """Mark services, networks and volumes, and give each a name of this attempt's alone."""
        self.data.setdefault("networks", {}).setdefault("default", None)
        for kind in ("networks", "volumes"):
            for key, value in list((self.data.get(kind) or {}).items()):
                item = self.data[kind][key] = dict(value or {})
                if not item.get("external"):
                    item["name"] = f"{self._name}_{key}"
                    item["labels"] = {**_pairs(item.get("labels")), **self._labels}
        for key, service in self.services.items():
            service["labels"] = {**_pairs(service.get("labels")), **self._labels}
            self._free_name(key, service)
            if service.pop("ports", None):
                self.notes.append(f"service {key}: published ports are left out, services reach each other without")

    def _free_name(self, key: str, service: dict[str, Any]) -> None:
        """Drop a fixed container name (two attempts would collide); it stays as a network alias."""
        alias = service.pop("container_name", None)
        if not alias or service.get("network_mode"):
            return
        networks = service.get("networks") or {"default": None}
        networks = dict.fromkeys(networks) if isinstance(networks, list) else dict(networks)
        for network, settings in networks.items():
            given: dict[str, Any] = dict(settings or {})
            networks[network] = {**given, "aliases": [*(given.get("aliases") or []), alias]}
        service["networks"] = networks

    def set_image(self, key: str, image: str) -> None:
        """Let service *key*, and whoever names its image, use the built *image*."""
        service = self.services[key]
        old = service.pop("image", None)
        service.pop("build", None)
        service["image"] = image
        for other in self.services.values():
            if old and other.get("image") == old and not other.get("build"):
                other["image"] = image

    def pull_never(self) -> None:
        """Keep compose from pulling: images are looked up before."""
        for service in self.services.values():
            service["pull_policy"] = "never"

    def copy_mounts(self, root: Path) -> list[str]:
        """Mount private copies of what lies in the task's folder *root*; return where they are mounted."""
        targets = []
        for service in self.services.values():
            for volume in service.get("volumes") or []:
                source = Path(str(volume.get("source", "")))
                if volume.get("type") == "bind" and (source == root or root in source.parents) and source.exists():
                    volume["source"] = _escape(str(self._private(source)))
                    targets.append(str(volume["target"]))
        return targets

    def isolate(self, mode: str) -> None:
        """Take every way out away, for network *mode*: internal networks without a gateway address."""
        for key, service in self.services.items():
            used = str(service.get("network_mode") or "")
            if used in _HOST_MODES or used.startswith("container:"):
                raise SandboxError(f"service {key} uses network_mode {used}: {mode} cannot be enforced")
            _take_raw_frames(key, service, mode)
        for key, network in self.data["networks"].items():
            if network.get("external"):
                raise SandboxError(f"network {key} is external: {mode} cannot be enforced")
            network["internal"] = True
            if network.get("driver", "bridge") == "bridge":
                network["driver_opts"] = {**(network.get("driver_opts") or {}), **_ISOLATED}

    def fit(
        self, key: str, spec: EnvironmentSpec, params: DockerParams, mounts: list[tuple[Path, str, bool]]
    ) -> dict[str, str]:
        """Give the agent's service what the environment section sets; return variables kept out of it."""
        service = self.services[key]
        variables, hidden = split_secrets(dict(spec.env_variables))
        service["environment"] = {
            **_pairs(service.get("environment")),
            **{name: _escape(value) for name, value in variables.items()},
        }
        memory = f"{spec.resources.memory_mb}m" if spec.resources.memory_mb else None
        wanted = {
            "user": spec.user,
            "working_dir": spec.workdir,
            "command": [_escape(part) for part in spec.command] if spec.command is not None else None,
            "hostname": spec.hostname,
            "cpus": spec.resources.cpus,
            "mem_limit": memory,
            "memswap_limit": memory,
            "shm_size": f"{spec.shm_size_mb}m" if spec.shm_size_mb else None,
        }
        service.update({name: value for name, value in wanted.items() if value is not None})
        self._add(service, spec, mounts)
        if spec.resources.pids or "pids_limit" not in service:
            service["pids_limit"] = spec.resources.pids or params.pids_limit
            _deploy_limits(service).pop("pids", None)
        if spec.resources.cpus:
            _deploy_limits(service).pop("cpus", None)
        if memory:
            _deploy_limits(service).pop("memory", None)
        service.setdefault("init", params.init)
        return hidden

    def _add(self, service: dict[str, Any], spec: EnvironmentSpec, mounts: list[tuple[Path, str, bool]]) -> None:
        service.setdefault("volumes", [])
        for source, target, read_only in mounts:
            service["volumes"].append(
                {"type": "bind", "source": _escape(str(source)), "target": target, "read_only": read_only}
            )
        if spec.tmpfs:
            service["tmpfs"] = [*_list(service.get("tmpfs")), *spec.tmpfs]
        if spec.extra_hosts:
            known = service.get("extra_hosts") or []
            known = [f"{host}={address}" for host, address in known.items()] if isinstance(known, dict) else known
            service["extra_hosts"] = [*known, *(f"{host}={address}" for host, address in spec.extra_hosts.items())]


def _take_raw_frames(key: str, service: dict[str, Any], mode: str) -> None:
    """Take the right to send raw frames away, which reach this machine around its rules."""
    added = {str(name).upper().removeprefix("CAP_") for name in _list(service.get("cap_add"))} & _STRONG
    if service.get("privileged") or added:
        what = "is privileged" if service.get("privileged") else f"has cap_add {', '.join(sorted(added))}"
        raise SandboxError(f"service {key} {what}: {mode} cannot be enforced")
    service["cap_drop"] = sorted({*_list(service.get("cap_drop")), "NET_RAW"})


def _deploy_limits(service: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = ((service.get("deploy") or {}).get("resources") or {}).get("limits") or {}
    return found


def _list(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value or [])


def _pairs(value: Any) -> dict[str, Any]:
    """Return labels or variables as a mapping, whichever of the two notations they are in."""
    if isinstance(value, list):
        return {name: text for name, _, text in (str(item).partition("=") for item in value)}
    return dict(value or {})


def _escape(text: str) -> str:
    return text.replace("$", "$$")


def rewrite(
    config: Mapping[str, Any], *, name: str, labels: dict[str, str], private: Callable[[Path], Path]
) -> Rewrite:
    """Return the attempt's copy of *config*, labelled and with names of its own."""
    result = Rewrite(config, name, labels, private)
    result.label_everything()
    return result
