"""Compose files: one plain service becomes `EnvironmentSpec` hints, anything more a derived compose file.

The derived file has all variables put in, absolute paths, no fixed container names, no host folders for
logs and content-addressed image names, so that attempts share nothing but images.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...components.yaml_file import Map, Scalar, load_yaml_text
from ...errors import ConfigError, TaskLoadError, nearest
from .derived import derived_hints
from .fields import megabytes, read_task_text
from .templates import interpolate

__all__ = ["ComposeFile", "read_compose", "seconds", "service_hints"]

#: keys of a service that the plain path takes or may leave out
_IGNORED = frozenset(
    [
        "container_name",
        "ports",
        "expose",
        "stdin_open",
        "tty",
        "init",
        "restart",
        "stop_signal",
        "stop_grace_period",
        "labels",
        "logging",
        "pull_policy",
        "attach",
        "annotations",
        "memswap_limit",
        "mem_reservation",
        "mem_swappiness",
        "oom_score_adj",
    ]
)
_TAKEN = frozenset(
    [
        "build",
        "image",
        "command",
        "environment",
        "volumes",
        "working_dir",
        "user",
        "hostname",
        "extra_hosts",
        "tmpfs",
        "shm_size",
        "platform",
        "deploy",
        "cpus",
        "mem_limit",
        "pids_limit",
        "network_mode",
        "healthcheck",
        "networks",
    ]
)
#: folders that the verifier or the oracle fills later, and that must be removable until then
_LATE = ("/tests", "/oracle", "/solution", "/logs/verifier")
_WORDS = (
    *("image", "cpus", "mem_limit", "pids_limit", "working_dir"),
    *("user", "hostname", "platform", "shm_size", "network_mode"),
)
_LIMITS = ("cpus", "memory", "pids")
_CONTAINER_LOGS = "/logs"
_AGENT_LOGS = "/agent-logs"
_VARIABLES = {
    "T_BENCH_TEST_DIR": "/tests",
    "T_BENCH_CONTAINER_LOGS_PATH": _CONTAINER_LOGS,
    "T_BENCH_CONTAINER_AGENT_LOGS_PATH": _AGENT_LOGS,
    "T_BENCH_TASK_LOGS_PATH": "\0logs",
    "T_BENCH_TASK_AGENT_LOGS_PATH": "\0agent-logs",
    "T_BENCH_TASK_DOCKER_CLIENT_CONTAINER_NAME": "\0container",
    "T_BENCH_TASK_DOCKER_CLIENT_IMAGE_NAME": "\0image",
    "T_BENCH_TASK_DOCKER_NAME_PREFIX": "\0prefix",
    "COMPOSE_PROJECT_NAME": "agentcompass",
}


@dataclass(slots=True)
class ComposeFile:
    """A compose file with its variables put in; *notes* are for the user."""

    path: Path
    data: dict[str, Any]
    notes: list[str] = field(default_factory=list)
    log_dirs: list[str] = field(default_factory=list)
    uploads: list[list[str]] = field(default_factory=list)

    @property
    def services(self) -> dict[str, Any]:
        """The services by name."""
        return self.data["services"]  # type: ignore[no-any-return]

    def wrong(self, message: str) -> TaskLoadError:
        """Return an error about this file."""
        return TaskLoadError(f"{self.path}: {message}")


def read_compose(path: Path, environ: Mapping[str, str]) -> ComposeFile:
    """Read a compose file as text values, with the harness's variables and *environ* put in."""
    try:
        tree = load_yaml_text(read_task_text(path), str(path))
    except ConfigError as error:
        raise TaskLoadError(error.message) from error
    if not isinstance(tree, Map) or not isinstance(tree.get("services"), Map) or not tree["services"]:
        raise TaskLoadError(f"{path}: services must hold at least one service")
    missing: set[str] = set()
    try:
        data = _plain(tree, {**environ, **_VARIABLES}, missing)
    except TaskLoadError as error:
        raise TaskLoadError(f"{path}: {error.message}") from error
    compose = ComposeFile(path, data)
    compose.notes += [f"{path}: the variable {name} is not set; the empty text is used" for name in sorted(missing)]
    for name, service in compose.services.items():
        if not isinstance(service, dict):
            raise compose.wrong(f"services.{name} must be a mapping")
        _check_shapes(compose, name, service)
    return compose


def _check_shapes(compose: ComposeFile, name: str, service: dict[str, Any]) -> None:
    """Raise TaskLoadError for a field whose value is of another kind than all of compose's forms."""
    deploy, check = service.get("deploy") or {}, service.get("healthcheck") or {}
    resources = deploy.get("resources") or {} if isinstance(deploy, dict) else {}
    limits = resources.get("limits") or {} if isinstance(resources, dict) else {}
    limits = limits if isinstance(limits, dict) else {"": limits}
    shapes: dict[str, tuple[Any, tuple[type, ...]]] = {
        **{key: (service.get(key), (list,)) for key in ("volumes", "ports")},
        **{key: (service.get(key), (list, str)) for key in ("tmpfs", "command")},
        **{key: (service.get(key), (list, dict)) for key in ("environment", "extra_hosts")},
        **{key: (service.get(key), (str,)) for key in _WORDS},
        "build": (service.get("build"), (dict, str)),
        "deploy": (deploy, (dict,)),
        "deploy.resources": (resources, (dict,)),
        "deploy.resources.limits": (limits.get("", limits), (dict,)),
        **{f"deploy.resources.limits.{key}": (value, (str,)) for key, value in limits.items() if key in _LIMITS},
        "healthcheck": (check, (dict,)),
    }
    for key, (value, kinds) in shapes.items():
        if value is not None and not isinstance(value, kinds):
            allowed = " or ".join(
                {"list": "a list", "dict": "a mapping", "str": "a text"}[kind.__name__] for kind in kinds
            )
            raise compose.wrong(f"services.{name}.{key} must be {allowed}, not {value!r:.100}")
    retries = check.get("retries")
    if retries is not None and not str(retries).isdecimal():
        raise compose.wrong(f"services.{name}.healthcheck.retries must be a whole number, not {retries!r}")


def _plain(node: Any, variables: Mapping[str, str], missing: set[str]) -> Any:
    if isinstance(node, Scalar):
        return None if node.is_null else interpolate(node.text, variables, missing)
    if isinstance(node, Mapping):
        return {key: _plain(value, variables, missing) for key, value in node.items()}
    return [_plain(item, variables, missing) for item in node]


def _main_service(compose: ComposeFile, preferred: str) -> str:
    """Return the agent's service: *preferred*, the one with the harness's container name, or the only one."""
    if preferred in compose.services:
        return preferred
    named = [
        name
        for name, service in compose.services.items()
        if service.get("container_name") == _VARIABLES["T_BENCH_TASK_DOCKER_CLIENT_CONTAINER_NAME"]
    ]
    if len(named) == 1 or len(compose.services) == 1:
        return named[0] if named else next(iter(compose.services))
    raise compose.wrong(f"none of the services is called {preferred!r}; {nearest(preferred, compose.services)}")


def service_hints(
    compose: ComposeFile, preferred: str, base: Mapping[str, Any], *, build_timeout: float, content: str
) -> dict[str, Any]:
    """Return `EnvironmentSpec` hints for a compose file.

    *base* is what the format implies for the main service (TB2: its build or image); *content* is the task's
    content hash, which names the images that compose builds.
    """
    implied = bool(base) and preferred not in compose.services
    if implied:
        compose.services[preferred] = {}
    name = preferred if implied else _main_service(compose, preferred)
    service = {**base, **compose.services[name]}
    compose.services[name] = service
    if service.get("image") == _VARIABLES["T_BENCH_TASK_DOCKER_CLIENT_IMAGE_NAME"]:
        del service["image"]
    if service.get("build") is None and not service.get("image"):
        raise compose.wrong(f"services.{name} has neither build nor image")
    for item, other in compose.services.items():
        other["volumes"] = _volumes(compose, item, other, main=item == name)
    if len(compose.services) == 1 and _is_plain(service, compose.data):
        return _single(compose, name, service, build_timeout)
    return derived_hints(compose, name, build_timeout, content)


def _is_plain(service: dict[str, Any], data: dict[str, Any]) -> bool:
    known = all(key in _TAKEN or key in _IGNORED or key.startswith("x-") for key in service)
    top = all(key in ("services", "version", "name", "volumes", "networks") or key.startswith("x-") for key in data)
    networks = service.get("networks") in (None, [], ["default"]) and not data.get("networks")
    mode = service.get("network_mode") in (None, "", "bridge", "none", "default")
    healthy = isinstance(service.get("healthcheck"), (dict, type(None)))
    return known and top and networks and mode and healthy and _is_plain_build(service.get("build"))


def _is_plain_build(build: Any) -> bool:
    if not isinstance(build, dict):
        return True
    return not set(build) - {"context", "dockerfile", "target", "args", "tags", "network", "platforms"} and (
        "://" not in str(build.get("context", ""))
    )


def _volumes(compose: ComposeFile, name: str, service: dict[str, Any], *, main: bool) -> list[dict[str, Any]]:
    """Return the mounts of a service in long form, log mounts and mounts of the main service set apart."""
    kept = []
    for item in service.get("volumes") or []:
        mount = _mount(compose, name, item)
        source, target = mount["source"], mount["target"]
        if source.startswith("\0"):
            compose.log_dirs.append(target)
        elif main and target.rstrip("/") in _LATE:
            compose.notes.append(
                f"{compose.path}: services.{name}: {target} is made when it is needed, and not mounted"
            )
        elif mount["type"] == "bind":
            kept.append({**mount, "source": _inside(compose, name, source)})
        elif not main or mount["type"] != "volume":
            kept.append(mount)
    return kept


def _mount(compose: ComposeFile, name: str, item: Any) -> dict[str, Any]:
    if isinstance(item, dict):
        source, target = str(item.get("source") or ""), str(item.get("target") or "")
        kind, read_only = str(item.get("type") or "volume"), str(item.get("read_only")).lower() == "true"
    else:
        parts = str(item).split(":")
        source, target = (parts[0], parts[1]) if len(parts) > 1 else ("", parts[0])
        read_only = len(parts) > 2 and "ro" in parts[2].split(",")
        kind = "bind" if source.startswith(("/", ".", "~", "\0")) else "volume"
    if not target.startswith("/"):
        raise compose.wrong(f"services.{name}.volumes: {item!r} has no absolute path in the container")
    return {"type": kind, "source": source, "target": target, "read_only": read_only}


def _inside(compose: ComposeFile, name: str, source: str) -> str:
    """Return the absolute path of a mounted host folder; only the task's own folder may be mounted."""
    root = compose.path.parent.resolve()
    path = Path(os.path.normpath(root / os.path.expanduser(source)))
    if path != root and root not in path.parents:
        raise compose.wrong(
            f"services.{name}.volumes: the host path {source!r} lies outside of the task folder and is not mounted; "
            "put what the task needs into the task folder"
        )
    return str(path)


def _pairs(compose: ComposeFile, value: Any, key: str) -> dict[str, str]:
    """Return a list of `K=V` or a mapping as a dict; a name alone takes the host's value."""
    result: dict[str, str] = {}
    if isinstance(value, dict):
        items = [(name, text) for name, text in value.items()]
    elif isinstance(value, list):
        items = [(head, tail if mark else None) for head, mark, tail in (str(item).partition("=") for item in value)]
    elif value is None:
        items = []
    else:
        raise compose.wrong(f"{key} must be a list or a mapping, not {value!r}")
    for name, text in items:
        found = os.environ.get(name) if text is None else text
        if found is not None:
            result[str(name)] = str(found).replace("\0", "")
    return result


def _build(compose: ComposeFile, service: dict[str, Any], name: str, timeout: float) -> dict[str, Any] | None:
    build = service.get("build")
    if build is None:
        return None
    table = {"context": build} if isinstance(build, str) else build
    context = Path(os.path.normpath(compose.path.parent.resolve() / str(table.get("context") or ".")))
    dockerfile = str(table.get("dockerfile") or "Dockerfile")
    if not (context / dockerfile).is_file():
        raise compose.wrong(f"services.{name}.build: there is no {dockerfile} in {context}")
    result: dict[str, Any] = {"context": str(context), "dockerfile": dockerfile, "timeout_seconds": timeout}
    if table.get("target"):
        result["target"] = str(table["target"])
    if table.get("args"):
        result["args"] = _pairs(compose, table["args"], f"services.{name}.build.args")
    return result


def _single(compose: ComposeFile, name: str, service: dict[str, Any], timeout: float) -> dict[str, Any]:
    at = f"services.{name}"
    hints: dict[str, Any] = {}
    build = _build(compose, service, name, timeout)
    hints.update({"build": build} if build else {"image": str(service["image"])})
    if environment := _pairs(compose, service.get("environment"), f"{at}.environment"):
        hints["env_variables"] = environment
    for ours, theirs in (
        ("workdir", "working_dir"),
        ("user", "user"),
        ("hostname", "hostname"),
        ("platform", "platform"),
    ):
        if service.get(theirs):
            hints[ours] = str(service[theirs])
    if service.get("command"):
        command = service["command"]
        hints["command"] = _words(compose, at, command)
    if binds := [item for item in service["volumes"] if item["type"] == "bind"]:
        hints["mounts"] = [{key: item[key] for key in ("source", "target", "read_only")} for item in binds]
    hints.update(_tmpfs(service))
    if hosts := _hosts(compose, service.get("extra_hosts"), at):
        hints["extra_hosts"] = hosts
    if service.get("network_mode") == "none":
        hints.update({f"{phase}_network_policy": "no-network" for phase in ("baseline", "run", "evaluation")})
    if resources := _resources(compose, service, at):
        hints["resources"] = resources
    if check := _healthcheck(service.get("healthcheck")):
        hints["healthcheck"] = check
    return hints


def _words(compose: ComposeFile, at: str, command: str | list[Any]) -> list[str]:
    if isinstance(command, list):
        return [str(word) for word in command]
    try:
        return shlex.split(command)
    except ValueError as error:
        raise compose.wrong(f"{at}.command {command!r:.100} cannot be split into words: {error}") from error


def _tmpfs(service: dict[str, Any]) -> dict[str, Any]:
    listed = service.get("tmpfs") or []
    paths = [listed] if isinstance(listed, str) else [str(item) for item in listed]
    paths += [item["target"] for item in service["volumes"] if item["type"] == "tmpfs"]
    hints: dict[str, Any] = {"tmpfs": paths} if paths else {}
    size = megabytes(str(service["shm_size"])) if service.get("shm_size") else None
    return {**hints, "shm_size_mb": size} if size else hints


def _hosts(compose: ComposeFile, value: Any, at: str) -> dict[str, str]:
    if isinstance(value, list):
        pairs = [str(item).replace("=", ":", 1).split(":", 1) for item in value]
        return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}
    return _pairs(compose, value, f"{at}.extra_hosts")


def _resources(compose: ComposeFile, service: dict[str, Any], at: str) -> dict[str, Any]:
    limits = ((service.get("deploy") or {}).get("resources") or {}).get("limits") or {}
    result: dict[str, Any] = {}
    cpus, memory = limits.get("cpus") or service.get("cpus"), limits.get("memory") or service.get("mem_limit")
    pids = limits.get("pids") or service.get("pids_limit")
    try:
        if cpus and float(cpus) > 0:
            result["cpus"] = float(cpus)
        if memory and megabytes(str(memory)):
            result["memory_mb"] = megabytes(str(memory))
        if pids and int(pids) > 0:
            result["pids"] = int(pids)
    except ValueError:
        raise compose.wrong(f"{at}: cpus {cpus!r} or pids {pids!r} is no number") from None
    return result


def _healthcheck(value: Any) -> dict[str, Any] | None:
    if not value or str(value.get("disable")).lower() == "true" or value.get("test") in (None, "NONE", ["NONE"]):
        return None
    test = value["test"]
    if isinstance(test, list):
        words = [str(word) for word in test]
        command = " ".join(words[1:]) if words[0] == "CMD-SHELL" else shlex.join(words[1:])
    else:
        command = str(test)
    result: dict[str, Any] = {"command": command}
    for name in ("interval", "timeout", "start_period", "start_interval"):
        if value.get(name):
            result[name] = seconds(str(value[name]))
    if value.get("retries"):
        result["retries"] = int(value["retries"])
    return result


def seconds(text: str) -> float:
    """Return a duration such as `1m30s`, `500ms` or `5` in seconds."""
    import re

    units = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}
    parts = re.findall(r"(\d+(?:\.\d+)?)(us|ms|s|m|h|)", text)
    return sum(float(number) * units[unit] for number, unit in parts)
