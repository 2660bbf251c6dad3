"""The sandbox of a TB2 task: image or build, compose, limits, health check and network policies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...contracts.network import NetworkPolicy
from ...errors import TaskLoadError
from .compose import read_compose, service_hints
from .fields import Fields, megabytes
from .params import TerminalBenchParams
from .templates import expand_all

__all__ = ["environment_hints", "expanded", "healthcheck", "network_hints"]

_MODES = ("public", "no-network", "allowlist")


def expanded(table: Fields, values: dict[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return an `env` table with its templates put in; TaskLoadError names the file."""
    try:
        return expand_all(values, environ, table.key("env"))
    except TaskLoadError as error:
        raise TaskLoadError(f"{table.path}: {error.message}") from error


def environment_hints(
    folder: Path,
    table: Fields,
    metadata: dict[str, Any],
    params: TerminalBenchParams,
    content: str,
    warnings: list[str],
    environ: Mapping[str, str],
) -> dict[str, Any]:
    """Return the `EnvironmentSpec` hints of a task's `environment/` and `[environment]`."""
    source = folder / "environment"
    timeout = table.number("build_timeout_sec", 600.0)
    assert timeout is not None
    base = _base(source, table, params, warnings)
    compose_path = source / "docker-compose.yaml"
    environment = expanded(table, table.env("env"), environ)
    if compose_path.is_file():
        compose = read_compose(compose_path, {**environ, **environment})
        hints = service_hints(compose, "main", base, build_timeout=timeout, content=content)
        metadata["log_dirs"], metadata["uploads"] = compose.log_dirs, compose.uploads
        warnings += compose.notes
        if "compose" in hints:
            metadata["compose_dir"] = str(Path(hints["compose"]["file"]).parent)
    elif "build" in base:
        hints = {"build": {"context": str(source), "dockerfile": "Dockerfile", "timeout_seconds": timeout}}
    elif base:
        hints = {"image": base["image"]}
    else:
        raise TaskLoadError(f"{source}: holds neither Dockerfile nor docker-compose.yaml, and no docker_image is set")
    if environment:
        hints["env_variables"] = {**hints.get("env_variables", {}), **environment}
    if table.text("workdir"):
        hints["workdir"] = table.text("workdir")
    if resources := _resources(table, warnings):
        hints["resources"] = {**hints.get("resources", {}), **resources}
    if check := healthcheck(table):
        hints["healthcheck"] = check
    return hints


def _base(source: Path, table: Fields, params: TerminalBenchParams, warnings: list[str]) -> dict[str, Any]:
    """Return what the format implies for the service `main`: its Dockerfile, or the published image."""
    image, built = table.text("docker_image"), (source / "Dockerfile").is_file()
    if built and not (image and params.image == "published"):
        if image:
            warnings.append(
                f"{table.where('docker_image')}: environment.docker_image {image!r} is not used, the Dockerfile "
                "is built; benchmark.image=published takes the image"
            )
        return {"build": {"context": ".", "dockerfile": "Dockerfile"}}
    return {"image": image} if image else {}


def _resources(table: Fields, warnings: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "cpus": table.number("cpus"),
        "memory_mb": table.integer("memory_mb") or _legacy(table, "memory", "memory_mb", warnings),
        "storage_mb": table.integer("storage_mb") or _legacy(table, "storage", "storage_mb", warnings),
        "gpu": table.integer("gpus", least=0) or None,
    }
    return {name: value for name, value in found.items() if value is not None}


def _legacy(table: Fields, name: str, newer: str, warnings: list[str]) -> int | None:
    value = table.data.get(name)
    if value is None:
        return None
    size = megabytes(str(value)) if isinstance(value, (str, int)) else None
    if not size:
        raise table.wrong(name, "a size such as '4G'")
    warnings.append(f"{table.where(name)}: {table.key(name)} is the older name of {newer}")
    return size


def healthcheck(table: Fields) -> dict[str, Any] | None:
    """Return the health check of a table (times are seconds, with or without `_sec`), None without one."""
    check = table.table("healthcheck")
    if not check.data:
        return None
    command = check.text("command")
    if not command:
        raise check.wrong("command", "a shell command")
    result: dict[str, Any] = {"command": command}
    for name in ("interval", "timeout", "start_period", "start_interval"):
        value = check.number(f"{name}_sec", check.number(name, zero=True), zero=True)
        if value is not None:
            result[name] = value
    retries = check.integer("retries", least=0)
    return result if retries is None else {**result, "retries": retries}


def network_hints(agent: Fields, verifier: Fields, environment: Fields, warnings: list[str]) -> dict[str, Any]:
    """Return the policies of the three phases; a phase's own table wins over `[environment]`."""
    general = _policy(environment)
    internet = environment.flag("allow_internet", None)
    if internet is not None:
        note = f"{environment.where('allow_internet')}: environment.allow_internet is the older name of network_mode"
        if general is None:
            general = None if internet else "no-network"
        if not internet or "network_mode" in environment.data:
            warnings.append(note)
    found = {
        "baseline_network_policy": general,
        "run_network_policy": _policy(agent) or general,
        "evaluation_network_policy": _policy(verifier) or general,
    }
    return {name: value for name, value in found.items() if value is not None}


def _policy(table: Fields) -> Any:
    mode = table.choice("network_mode", _MODES, "")
    hosts = table.texts("allowed_hosts")
    if not mode:
        if hosts:
            raise TaskLoadError(
                f"{table.where('allowed_hosts')}: {table.key('allowed_hosts')} needs network_mode 'allowlist'"
            )
        return None
    policy = {"mode": mode, "hosts": list(hosts)} if hosts else mode
    try:
        NetworkPolicy.model_validate(policy)
    except ValueError as error:
        reason = str(error).split("Value error, ")[-1].split(" [type=")[0]
        raise TaskLoadError(f"{table.where('network_mode')}: {table.key('network_mode')}: {reason}") from error
    return policy
