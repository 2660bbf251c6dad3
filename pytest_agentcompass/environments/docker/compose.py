"""Compose projects: the client starts them once, everything after goes through the engine."""

from __future__ import annotations

import collections
import json
import os
import re
import shutil
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...contracts.environment import BuildSpec, ComposeSpec, EnvironmentSpec
from ...contracts.network import NetworkPolicy
from ...errors import SandboxError, nearest
from .build import build_image
from .compose_file import Rewrite, rewrite
from .egress import listed
from .engine import Engine, engine_errors
from .images import find_image
from .release import Opened
from .settings import DockerParams

__all__ = ["Project", "open_project"]

_CONFIG_SECONDS, _POLL = 60.0, 0.5
_START_SECONDS = 900.0
_SERVICE, _PROJECT = "com.docker.compose.service", "com.docker.compose.project"
# What compose needs of the host; everything else that a file names must be given as a variable.
_HOST_VARIABLES = ("PATH", "HOME", "TMPDIR", "LANG", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR")
_PROGRESS = re.compile(r"\s*(?:Network|Volume|Container|Image) \S+\s+\w+\s*")
_BUILD_KEYS = frozenset(
    {"context", "dockerfile", "target", "args", "dockerfile_inline", "network", "labels", "tags", "pull"}
)

_lock = threading.Lock()
_program: list[str] | None = None


@dataclass(slots=True)
class Project:
    """A running project; `container` is the one of the agent's service, `names` those of all services."""

    container: str
    image: str
    image_id: str
    workdir: str
    user: str
    services: list[str]
    names: list[str]
    tmpfs: list[str] = field(default_factory=list)
    hidden_env: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def compose_program() -> list[str]:
    """Return the command line of Compose v2, looked up once; SandboxError when there is none."""
    global _program
    with _lock:
        if _program is None:
            for words in (["docker", "compose"], ["docker-compose"]):
                if shutil.which(words[0]) and _is_version_2(words):
                    _program = words
                    break
    if _program is None:
        raise SandboxError(
            "this task has a compose file, and neither `docker compose` nor `docker-compose` of version 2 is "
            "installed: install Docker Compose v2"
        )
    return _program


def _is_version_2(words: list[str]) -> bool:
    try:
        found = subprocess.run(
            [*words, "version", "--short"],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return found.returncode == 0 and found.stdout.strip().lstrip("v")[:1].isdigit() and found.stdout.strip()[:2] != "1."


def _environment(engine: Engine, variables: dict[str, str]) -> dict[str, str]:
    host = {name: value for name, value in os.environ.items() if name in _HOST_VARIABLES or name.startswith("DOCKER_")}
    return {**host, **variables, "DOCKER_HOST": engine.address, "COMPOSE_IGNORE_ORPHANS": "1"}


def _run(words: list[str], *, folder: Path, env: dict[str, str], seconds: float, doing: str) -> str:
    try:
        found = subprocess.run(
            [*compose_program(), *words],
            cwd=folder, env=env, timeout=seconds, capture_output=True, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise SandboxError(f"{doing}: compose was not done after {seconds:g} s") from error
    if found.returncode != 0:
        raise SandboxError(f"{doing}: {_without_progress(found.stderr.decode('utf-8', 'replace'))[-2000:]}")
    return found.stdout.decode("utf-8", "replace")


def _without_progress(text: str) -> str:
    """Return what compose said without the lines that only tell what it is doing."""
    kept = [line for line in text.splitlines() if not _PROGRESS.fullmatch(line)]
    return "\n".join(kept).strip() or text.strip()


def _resolve(engine: Engine, spec: ComposeSpec, name: str) -> dict[str, Any]:
    """Return the file's configuration with variables, extensions and relative paths resolved."""
    file = Path(spec.file).absolute()
    if not file.is_file():
        raise SandboxError(f"compose file {spec.file} does not exist")
    variables = {"COMPOSE_PROJECT_NAME": name, **spec.variables}
    words = ["--project-name", name, "--file", str(file), "config", "--format", "json"]
    output = _run(
        words,
        folder=file.parent,
        env=_environment(engine, variables),
        seconds=_CONFIG_SECONDS,
        doing=f"reading {spec.file}",
    )
    config: dict[str, Any] = json.loads(output)
    if spec.service not in config.get("services", {}):
        raise SandboxError(
            f"{spec.file} has no service {spec.service!r}; {nearest(spec.service, config.get('services', {}))}"
        )
    return config


def open_project(
    engine: Engine,
    spec: EnvironmentSpec,
    params: DockerParams,
    policy: NetworkPolicy,
    opened: Opened,
    *,
    name: str,
    folder: Path,
    labels: dict[str, str],
    mounts: list[tuple[Path, str, bool]],
) -> Project:
    """Build what is missing, start the services, wait until they are healthy, and find the agent's.

    *opened* is told before anything starts, so that a failure half-way is removed. *folder* is private.
    """
    compose = spec.compose
    if compose is None:
        raise SandboxError("there is no compose file to open")
    config = _resolve(engine, compose, name)
    root = Path(compose.file).absolute().parent
    made = rewrite(config, name=name, labels=labels, private=_Copies(folder).get)
    opened.copied_mounts += made.copy_mounts(root)
    hidden = made.fit(compose.service, spec, params, mounts)
    if policy.restricted:
        made.isolate(policy.mode.value)
        shared = str(made.services[compose.service].get("network_mode") or "")
        if listed(policy) and shared:
            raise SandboxError(
                f"service {compose.service} of {compose.file} uses network_mode {shared}, so it has no networks of its "
                f"own: {policy.mode.value} cannot be enforced"
            )
    _images(engine, made, compose, params)
    made.pull_never()
    file = folder / "compose.json"
    file.write_text(json.dumps(made.data))
    opened.project = f"{_PROJECT}={name}"
    _start(engine, compose, name, file)
    container = _wait_healthy(engine, name, compose)
    return _project(engine, container, made, compose.service, hidden)


def _start(engine: Engine, compose: ComposeSpec, name: str, file: Path) -> None:
    """Start the services; where compose gives up over one of them, SandboxError says what that one said."""
    root = Path(compose.file).absolute().parent
    try:
        _run(
            ["--project-name", name, "--project-directory", str(root), "--file", str(file), "up", "-d", "--no-build"],
            folder=root,
            env=_environment(engine, {}),
            seconds=_START_SECONDS,
            doing=f"starting the services of {compose.file}",
        )
    except SandboxError:
        for service, item in _states(engine, name, compose).items():
            _check(engine, service, item, compose)
        raise


class _Copies:
    """Private copies of host folders, each made once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[Path, Path] = {}

    def get(self, source: Path) -> Path:
        if source not in self._made:
            target = self._folder / f"copy-{len(self._made)}"
            try:
                if source.is_dir():
                    shutil.copytree(source, target, symlinks=True)
                else:
                    shutil.copy2(source, target)
            except (OSError, shutil.Error) as error:
                raise SandboxError(f"{source} cannot be copied for the sandbox: {error}") from error
            self._made[source] = target
        return self._made[source]


def _images(engine: Engine, made: Rewrite, compose: ComposeSpec, params: DockerParams) -> None:
    for key, service in made.services.items():
        if service.get("build"):
            spec = _build_spec(key, service["build"], compose)
            made.set_image(key, build_image(engine, spec, platform=service.get("platform")).name)
    for key, service in made.services.items():
        if not service.get("image"):
            raise SandboxError(f"service {key} of {compose.file} has neither an image nor a build")
        find_image(engine, service["image"], pull=params.pull == "missing", platform=service.get("platform"))


def _build_spec(key: str, build: dict[str, Any], compose: ComposeSpec) -> BuildSpec:
    unknown = sorted(name for name, value in build.items() if value and name not in _BUILD_KEYS)
    if unknown or build.get("dockerfile_inline"):
        what = ", ".join(unknown) or "dockerfile_inline"
        raise SandboxError(
            f"service {key} of {compose.file}: build settings that are not supported: {what}; "
            "build the image beforehand"
        )
    return BuildSpec(
        context=str(build["context"]),
        dockerfile=str(build.get("dockerfile") or "Dockerfile"),
        target=build.get("target"),
        args={name: "" if value is None else str(value) for name, value in (build.get("args") or {}).items()},
        timeout_seconds=compose.build_timeout_seconds,
    )


def _wait_healthy(engine: Engine, name: str, compose: ComposeSpec) -> str:
    """Wait until no service is starting; return the agent's container. SandboxError names a bad service."""
    deadline = time.monotonic() + _START_SECONDS
    while True:
        states = _states(engine, name, compose)
        for service, item in states.items():
            _check(engine, service, item, compose)
        if compose.service not in states:
            raise SandboxError(f"service {compose.service!r} of {compose.file} was not started")
        if not any("starting)" in item["Status"] for item in states.values()):
            return str(states[compose.service]["Id"])
        if time.monotonic() > deadline:
            raise SandboxError(f"the services of {compose.file} were not healthy after {_START_SECONDS:g} s")
        time.sleep(_POLL)


def _states(engine: Engine, name: str, compose: ComposeSpec) -> dict[str, dict[str, Any]]:
    with engine_errors(f"looking at the services of {compose.file}"):
        found = engine.client.containers(all=True, filters={"label": f"{_PROJECT}={name}"})
    return {item["Labels"].get(_SERVICE, ""): item for item in found}


def _check(engine: Engine, service: str, item: dict[str, Any], compose: ComposeSpec) -> None:
    status = str(item["Status"])
    stopped = item["State"] in ("exited", "dead")
    if "(unhealthy)" in status:
        problem = f"is unhealthy{_health_output(engine, item['Id'])}"
    elif stopped and (service == compose.service or not status.startswith("Exited (0)")):
        with engine_errors(f"reading the output of service {service!r}"):
            text = engine.client.logs(item["Id"], tail=20).decode("utf-8", "replace").strip()
        problem = f"ended: {status}; its last output:\n{text[-1500:]}"
    else:
        return
    raise SandboxError(f"service {service!r} of {compose.file} {problem}")


def _health_output(engine: Engine, container: str) -> str:
    with engine_errors("reading the health of a service"):
        health = engine.client.inspect_container(container)["State"].get("Health") or {}
    runs = collections.deque(health.get("Log") or [], maxlen=1)
    return f"; its check said: {runs[0].get('Output', '').strip()[-1000:]}" if runs else ""


def _project(engine: Engine, container: str, made: Rewrite, service: str, hidden: dict[str, str]) -> Project:
    with engine_errors("looking at the agent's service"):
        found = engine.client.inspect_container(container)
    config, host = found["Config"], found["HostConfig"]
    return Project(
        container=container,
        image=str(config["Image"]),
        image_id=str(found["Image"]),
        workdir=config.get("WorkingDir") or "/",
        user=config.get("User") or "",
        services=sorted(made.services),
        names=made.names,
        tmpfs=sorted(host.get("Tmpfs") or {}),
        hidden_env=hidden,
        notes=made.notes,
    )
