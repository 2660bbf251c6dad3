"""The provider: opens containers and compose projects, and removes what a failed opening half made."""

from __future__ import annotations

import os
import secrets
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from docker.errors import APIError, ImageNotFound
from pydantic import BaseModel, ValidationError

from ...components.calls import in_thread
from ...components.context import AttemptContext, current_attempt
from ...components.environment import BaseEnvironment
from ...contracts.environment import EnvironmentSpec
from ...contracts.network import NetworkMode, NetworkPolicy
from ...errors import AgentCompassError, ConfigError, PlanningError, SandboxError
from ..archive import Limits
from .build import build_image
from .compose import Project, open_project
from .egress import EgressSettings, listed
from .engine import Engine, answering_engine, engine, engine_errors, with_retries
from .exec import finish
from .images import Image, find_image
from .network import Network
from .owner import labels, private_folder
from .release import Opened, release
from .session import DockerSession
from .settings import DockerParams, container_settings, limits, split_secrets
from .sweep import remove_container, remove_run, sweep

if TYPE_CHECKING:
    from ...contracts.plan import ExecutionPlan
    from ...contracts.request import RunRequest

__all__ = ["DockerEnvironment"]


@dataclass(slots=True)
class _Opening:
    """An opening under way: what it needs, and what it has made so far."""

    engine: Engine
    spec: EnvironmentSpec
    params: DockerParams
    policy: NetworkPolicy
    attempt: AttemptContext
    plan: ExecutionPlan
    opened: Opened = field(default_factory=Opened)
    network: Network | None = None
    retries: int = 0

    @property
    def keep(self) -> bool:
        """Whether the sandbox is to outlive the run."""
        return self.plan.execution.keep_environment

    @property
    def name(self) -> str:
        """A name that is this opening's alone: a retry and a resumed run get other ones."""
        return f"agentcompass-{self.attempt.slug}-{os.getpid()}-{secrets.token_hex(3)}"


class DockerEnvironment(BaseEnvironment):
    """Sandboxes as containers of the local (or `DOCKER_HOST`'s) engine."""

    id: ClassVar[str] = "docker"
    params_model: ClassVar[type[BaseModel] | None] = DockerParams
    supported_network_modes: ClassVar[frozenset[NetworkMode]] = frozenset(NetworkMode)
    supports_network_switch: ClassVar[bool] = True
    supported_resources: ClassVar[frozenset[str]] = frozenset({"cpus", "memory_mb", "pids"})
    supports_images: ClassVar[bool] = True

    def check(self, environment: EnvironmentSpec) -> list[str]:
        """Return what cannot be done of *environment*; of compose, image and build the first that is set counts."""
        problems = super().check(environment)
        if not (environment.compose or environment.image or environment.build):
            problems.append("environment 'docker' needs an image, a build or a compose file; the task has none")
        policies = [policy or NetworkPolicy() for policy in _policies(environment)]
        if environment.compose and len({policy.restricted for policy in policies}) > 1:
            baseline, run, evaluation = policies
            problems.append(
                f"the services of a compose file cannot change between a public and a restricted network: baseline "
                f"{baseline}, run {run}, evaluation {evaluation}; set all three to one kind "
                "(environment.baseline_network_policy, ...)"
            )
        return problems

    async def preflight(self, req: RunRequest) -> str | None:
        """Return why no container could be opened now, or None."""
        try:
            found = await in_thread(answering_engine)
            if _listed(req.environment):
                await in_thread(_egress_image, found, _params(req.environment))
        except (SandboxError, ConfigError) as error:
            return error.message
        return None

    def sweep(self) -> list[str]:
        """Remove what dead owners left in the engine; where none answers there is nothing to look at."""
        try:
            return [f"removed {line}" for line in sweep()]
        except SandboxError:
            return []

    def remove_run(self, run_id: str, owner: int | None = None) -> None:
        """Remove every container, network and volume of a run (of the process *owner*) at once."""
        remove_run(run_id, owner=owner)

    async def open(self, req: RunRequest, plan: ExecutionPlan) -> DockerSession:
        """Open a container (or a compose project) as *plan.environment* says."""
        opening = _Opening(
            engine=await in_thread(engine),
            spec=plan.environment,
            params=_params(plan.environment),
            policy=plan.baseline_network_policy or NetworkPolicy(),
            attempt=current_attempt(),
            plan=plan,
        )
        problems = self.check(plan.environment)
        if problems:
            raise PlanningError("; ".join(problems))
        try:
            session = await _open(opening)
            await session.run_setup(plan.environment.setup)
            if plan.environment.healthcheck is not None:
                await session.wait_healthy(plan.environment.healthcheck)
            await session.settled(measure=bool(opening.opened.project))
        except BaseException as error:
            try:
                await finish(release(opening.engine, opening.opened))
            except SandboxError as problem:  # what went wrong first is the reason
                error.add_note(problem.message)
                if isinstance(error, AgentCompassError):
                    error.message = f"{error.message}; besides, {problem.message}"
            raise
        return session


def _params(spec: EnvironmentSpec) -> DockerParams:
    try:
        return DockerParams.model_validate(spec.params)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        known = ", ".join(sorted(DockerParams.model_fields))
        raise ConfigError(f"environment.params.{where}: {first['msg']} (known: {known})") from error


async def _open(opening: _Opening) -> DockerSession:
    if _listed(opening.plan):  # better now than when the agent is to start
        await in_thread(_egress_image, opening.engine, opening.params)
    if opening.spec.compose is not None:
        project: Project = await finish(in_thread(_open_project, opening))
        return _project_session(opening, project)
    image: Image = await in_thread(_image, opening)
    hidden: dict[str, str] = await finish(in_thread(_start, opening, image))
    return _session(opening, image, hidden)


def _image(opening: _Opening) -> Image:
    spec = opening.spec
    if spec.build is not None and not spec.image:
        return build_image(opening.engine, spec.build, platform=spec.platform)
    pull = opening.params.pull == "missing"
    return find_image(opening.engine, spec.image or "", pull=pull, platform=spec.platform)


def _policies(phases: EnvironmentSpec | ExecutionPlan) -> tuple[NetworkPolicy | None, ...]:
    return phases.baseline_network_policy, phases.run_network_policy, phases.evaluation_network_policy


def _listed(phases: EnvironmentSpec | ExecutionPlan) -> bool:
    return any(listed(policy) for policy in _policies(phases))


def _egress_image(engine: Engine, params: DockerParams) -> None:
    try:
        find_image(engine, params.egress_image, pull=params.pull == "missing")
    except SandboxError as error:
        raise SandboxError(
            f"allow lists and deny lists need an image with python3 for their proxy "
            f"(environment.params.egress_image): {error.message}",
            image=params.egress_image,
        ) from error


def _network(opening: _Opening, project: Project | None = None) -> Network:
    settings = EgressSettings(
        name=opening.name,
        image=opening.params.egress_image,
        labels=labels(keep=opening.keep),
        pull=opening.params.pull == "missing",
        hosts=opening.spec.extra_hosts,
        direct=_own_names(opening.spec, project),
    )
    made = opening.opened.egresses
    return Network(opening.engine, opening.policy, settings, made, project=project is not None)


def _own_names(spec: EnvironmentSpec, project: Project | None) -> tuple[str, ...]:
    """Return the names of the sandbox itself and of the services beside it."""
    local = [name for name, address in spec.extra_hosts.items() if address.startswith("127.") or address == "::1"]
    return (*local, *([spec.hostname] if spec.hostname else []), *(project.names if project is not None else ()))


def _start(opening: _Opening, image: Image) -> dict[str, str]:
    """Create and start the container; return the variables that must not stand in its configuration."""
    client, spec = opening.engine.client, opening.spec
    variables, hidden = split_secrets(dict(spec.env_variables))
    mounts = _mounts(opening)
    opening.network = network_of = _network(opening)
    network = network_of.open()

    def create() -> str:
        opening.opened.container = name = opening.name
        settings = container_settings(
            client,
            spec,
            opening.params,
            image=image.id,
            name=name,
            labels=labels(keep=opening.keep),
            variables=variables,
            network=network,
            mounts=mounts,
            restricted=any(policy is not None and policy.restricted for policy in _policies(opening.plan)),
        )
        return str(client.create_container(**settings)["Id"])

    def count() -> None:
        opening.retries += 1

    with engine_errors(f"creating a container of image {image.name!r}"):
        try:
            opening.opened.container = with_retries(create, count, lambda: _drop(opening))
        except ImageNotFound as error:
            raise SandboxError(f"image {image.name!r} is not there any more", image=image.name) from error
    network_of.container = opening.opened.container
    with engine_errors(f"starting a container of image {image.name!r}"):
        client.start(opening.opened.container)
    return hidden


def _drop(opening: _Opening) -> None:
    """Remove what a failed create may have left under its name."""
    try:
        remove_container(opening.engine.client, opening.opened.container)
    except APIError:
        pass  # the engine is in trouble: close() tries again


def _mounts(opening: _Opening) -> list[tuple[Path, str, bool]]:
    found = []
    for index, mount in enumerate(opening.spec.mounts):
        source = Path(mount.source).absolute()
        if not source.exists():
            raise SandboxError(f"mount {mount.source}: there is no such folder")
        if mount.copy_first:
            source = _private_copy(opening, source, str(index))
            opening.opened.copied_mounts.append(mount.target)
        found.append((source, mount.target, mount.read_only))
    return found


def _private_copy(opening: _Opening, source: Path, name: str) -> Path:
    if not opening.opened.folders:
        opening.opened.folders.append(private_folder(opening.attempt.slug, opening.attempt.run_id, keep=opening.keep))
    target = opening.opened.folders[0] / f"mount-{name}"
    try:
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True)
        else:
            shutil.copy2(source, target)
    except (OSError, shutil.Error) as error:
        raise SandboxError(f"{source} cannot be copied for the sandbox: {error}") from error
    return target


def _session(opening: _Opening, image: Image, hidden: dict[str, str]) -> DockerSession:
    spec = opening.spec
    return _made(
        opening,
        image={"image": image.name, "image_id": image.id},
        workdir=spec.workdir or image.workdir or "/",
        user=spec.user or image.user,
        hidden=hidden,
        tmpfs=[entry.partition(":")[0] for entry in spec.tmpfs],
    )


def _open_project(opening: _Opening) -> Project:
    mounts = [(source, target, ro) for source, target, ro in _mounts(opening)]
    folder = private_folder(opening.attempt.slug, opening.attempt.run_id, keep=opening.keep)
    opening.opened.folders.append(folder)
    project = open_project(
        opening.engine,
        opening.spec,
        opening.params,
        opening.policy,
        opening.opened,
        name=opening.name,
        folder=folder,
        labels=labels(keep=opening.keep),
        mounts=mounts,
    )
    opening.opened.container = project.container
    opening.network = _network(opening, project)
    opening.network.join(project.container)
    return project


def _project_session(opening: _Opening, project: Project) -> DockerSession:
    session = _made(
        opening,
        image={"image": project.image, "image_id": project.image_id, "services": project.services},
        workdir=project.workdir,
        user=project.user,
        hidden=project.hidden_env,
        tmpfs=project.tmpfs,
    )
    if project.notes:
        session.info["notes"] = project.notes
    return session


def _made(
    opening: _Opening, *, image: dict[str, Any], workdir: str, user: str, hidden: dict[str, str], tmpfs: list[str]
) -> DockerSession:
    execution = opening.plan.execution
    assert opening.network is not None
    session = DockerSession(
        opening.engine,
        opening.opened,
        workdir=workdir,
        user=user,
        network=opening.network,
        hidden_env=hidden,
        output_limit=opening.attempt.output_limit_bytes,
        limits=Limits(execution.artifact_limit_bytes, execution.artifact_limit_files),
        tmpfs=tmpfs,
    )
    session.info = {
        **image,
        "container": opening.opened.container[:12],
        "limits": limits(opening.spec, opening.params),
        "user": user or "root",
        "workdir": workdir,
    }
    if opening.retries:
        session.info["engine_retries"] = opening.retries
    return session
