"""A run request: what a person asked for, resolved and validated."""

from __future__ import annotations

import math
from typing import Any, Literal

from pydantic import Field, SecretStr, field_validator

from .environment import EnvironmentSpec, Strict

__all__ = [
    "AggregationMode",
    "AttemptsSpec",
    "BenchmarkSpec",
    "ExecutionSpec",
    "HarnessSpec",
    "ModelSpec",
    "OutputSpec",
    "RunMetadata",
    "RunRequest",
    "RunRuntimeSpec",
]

AggregationMode = Literal["micro_weighted", "category_mean"]
Protocol = Literal["openai-chat", "openai-responses", "anthropic", "auto"]


class ModelSpec(Strict):
    """The model under test: a value, not a component. `api_key` never appears in a dump."""

    id: str = ""
    base_url: str | None = None
    api_key: SecretStr | None = Field(default=None, exclude=True)
    api_protocol: Protocol | tuple[Protocol, ...] = "auto"
    params: dict[str, Any] = Field(default_factory=dict)
    wrap_api_key: bool = False


class BenchmarkSpec(Strict):
    """Which tasks, and how their scores are put together."""

    id: str
    params: dict[str, Any] = Field(default_factory=dict)
    sample_ids: tuple[str, ...] | None = None
    limit: int | None = Field(default=None, ge=1)
    aggregation_mode: AggregationMode = "micro_weighted"
    category_hierarchy: dict[str, Any] | None = None


class HarnessSpec(Strict):
    """Which agent; `none` selects a harness-free benchmark."""

    id: str = "none"
    params: dict[str, Any] = Field(default_factory=dict)
    inject_network_restriction_notice: bool = True


class AttemptsSpec(Strict):
    """Attempts per task and the strategy that decides which of them run."""

    k: int = Field(default=1, ge=1)
    strategy: str = "avg"


class ExecutionSpec(Strict):
    """How attempts run. Times are seconds; `None` takes the task's own value."""

    task_concurrency: int | None = Field(default=None, ge=0)
    attempts: AttemptsSpec = Field(default_factory=AttemptsSpec)
    enabled_recipes: tuple[str, ...] = ()
    enable_analysis: bool = True
    analysis_params: dict[str, Any] = Field(default_factory=dict)
    keep_environment: bool = False
    max_retries: int = Field(default=0, ge=0)
    retry_pattern_list: tuple[str, ...] | None = None
    retry_min_delay_seconds: float = Field(default=5.0, ge=0)
    retry_max_delay_seconds: float = Field(default=60.0, ge=0)
    run_timeout_seconds: float | None = Field(default=None, gt=0)
    evaluation_timeout_seconds: float | None = Field(default=None, gt=0)
    timeout_multiplier: float = Field(default=1.0, gt=0)
    pass_threshold: float | None = None
    output_limit_bytes: int = Field(default=1_000_000, ge=1_000)
    artifact_limit_bytes: int = Field(default=100_000_000, ge=0)
    artifact_limit_files: int = Field(default=10_000, ge=0)

    @field_validator(
        "run_timeout_seconds",
        "evaluation_timeout_seconds",
        "timeout_multiplier",
        "retry_min_delay_seconds",
        "retry_max_delay_seconds",
        "pass_threshold",
    )
    @classmethod
    def _finite(cls, value: float | None) -> float | None:
        if value is not None and not math.isfinite(value):
            raise ValueError("must be a finite number")
        return value

    @field_validator("retry_pattern_list")
    @classmethod
    def _patterns(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        import re

        for pattern in value or ():
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} is no regular expression: {error}") from None
        return value


class RunRuntimeSpec(Strict):
    """Reuse of an older run's records."""

    reuse: bool = False
    reuse_run_id: str | None = None


class OutputSpec(Strict):
    """Where the run's directory stands under the results directory."""

    run_name: str | None = None
    run_id: str | None = None


class RunMetadata(Strict):
    """Where the request came from."""

    name: str = "main"
    source: str = "command line"
    config_paths: tuple[str, ...] = ()
    recipe_dirs: tuple[str, ...] = ()


class RunRequest(Strict):
    """One ordered, named request of a run."""

    model: ModelSpec = Field(default_factory=ModelSpec)
    benchmark: BenchmarkSpec
    harness: HarnessSpec = Field(default_factory=HarnessSpec)
    environment: EnvironmentSpec = Field(default_factory=EnvironmentSpec)
    execution: ExecutionSpec = Field(default_factory=ExecutionSpec)
    runtime: RunRuntimeSpec = Field(default_factory=RunRuntimeSpec)
    output: OutputSpec = Field(default_factory=OutputSpec)
    metadata: RunMetadata = Field(default_factory=RunMetadata)

    @property
    def name(self) -> str:
        """The request's name, unique in its source."""
        return self.metadata.name
