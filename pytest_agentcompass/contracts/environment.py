"""What a sandbox should be: the environment section of a request and of a task's hints."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from .network import NetworkPolicy

__all__ = [
    "BuildSpec",
    "ComposeSpec",
    "EnvironmentSpec",
    "EvaluationMode",
    "Healthcheck",
    "Mount",
    "Resources",
]

EvaluationMode = Literal["reuse", "none", "fresh"]


class Strict(BaseModel):
    """Base of everything that is read from a file: frozen, no unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Resources(Strict):
    """Limits of one sandbox; `None` leaves the provider's default."""

    cpus: float | None = Field(default=None, gt=0)
    memory_mb: int | None = Field(default=None, gt=0)
    storage_mb: int | None = Field(default=None, gt=0)
    gpu: int | None = Field(default=None, ge=0)
    pids: int | None = Field(default=None, gt=0)


class BuildSpec(Strict):
    """An image to build: a context folder and what `docker build` takes with it."""

    context: str
    dockerfile: str = "Dockerfile"
    target: str | None = None
    args: dict[str, str] = Field(default_factory=dict)
    timeout_seconds: float = 600.0


class ComposeSpec(Strict):
    """Several services: a compose file, the service the agent lives in, and variables."""

    file: str
    service: str
    variables: dict[str, str] = Field(default_factory=dict)
    build_timeout_seconds: float = 600.0


class Healthcheck(Strict):
    """A command that must exit 0 in the sandbox before the agent starts (seconds)."""

    command: str
    interval: float = 5.0
    timeout: float = 30.0
    start_period: float = 0.0
    start_interval: float = 5.0
    retries: int = 3


class Mount(Strict):
    """A host folder in the sandbox; `copy_first` mounts a private copy of it."""

    source: str
    target: str
    read_only: bool = False
    copy_first: bool = True


class EnvironmentSpec(Strict):
    """The environment section: provider, what it opens, and what holds in each phase.

    The same fields are a task's hints (`TaskSpec.environment`); what the request sets wins.
    `setup` commands run in the sandbox, as its user, right after it is open.
    """

    id: str = ""
    params: dict[str, Any] = Field(default_factory=dict)
    image: str | None = None
    build: BuildSpec | None = None
    compose: ComposeSpec | None = None
    workdir: str | None = None
    user: str | None = None
    command: tuple[str, ...] | None = None
    setup: tuple[str, ...] = ()
    mounts: tuple[Mount, ...] = ()
    tmpfs: tuple[str, ...] = ()
    shm_size_mb: int | None = None
    platform: str | None = None
    hostname: str | None = None
    extra_hosts: dict[str, str] = Field(default_factory=dict)
    healthcheck: Healthcheck | None = None
    resources: Resources = Field(default_factory=Resources)
    baseline_network_policy: NetworkPolicy | None = None
    run_network_policy: NetworkPolicy | None = None
    evaluation_network_policy: NetworkPolicy | None = None
    evaluation_environment_mode: EvaluationMode | None = None
    env_variables: dict[str, str] = Field(default_factory=dict)
    run_env_variables: dict[str, str] = Field(default_factory=dict)
    evaluation_env_variables: dict[str, str] = Field(default_factory=dict)

    @field_validator("env_variables", "run_env_variables", "evaluation_env_variables")
    @classmethod
    def _env_names(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            if not name or "=" in name or "\0" in name + text:
                raise ValueError(f"environment variable {name!r} has a name or value that no process can take")
        return value
