"""The plan of one attempt: pure data, made before anything opens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .environment import EnvironmentSpec, EvaluationMode
from .network import NetworkPolicy
from .request import ExecutionSpec
from .task import Artifact

__all__ = ["BenchmarkPlan", "ExecutionPlan", "HarnessPlan"]


@dataclass(slots=True)
class BenchmarkPlan:
    """What a benchmark decided for a task; subclass it to carry more."""

    run_timeout_seconds: float | None = field(default=None, kw_only=True)
    evaluation_timeout_seconds: float | None = field(default=None, kw_only=True)
    data: dict[str, Any] = field(default_factory=dict, kw_only=True)


@dataclass(slots=True)
class HarnessPlan:
    """What a harness decided for a task; subclass it to carry more."""

    inject_network_restriction_notice: bool = field(default=True, kw_only=True)
    params: dict[str, Any] = field(default_factory=dict, kw_only=True)


@dataclass(slots=True)
class ExecutionPlan:
    """Everything that one logical attempt needs to know; a retry reuses it.

    Timeouts are seconds, multiplied already; `None` is no limit.
    """

    environment: EnvironmentSpec
    evaluation_environment: EnvironmentSpec | None = None
    baseline_network_policy: NetworkPolicy | None = None
    run_network_policy: NetworkPolicy | None = None
    evaluation_network_policy: NetworkPolicy | None = None
    benchmark_plan: BenchmarkPlan = field(default_factory=BenchmarkPlan)
    harness_plan: HarnessPlan = field(default_factory=HarnessPlan)
    execution: ExecutionSpec = field(default_factory=ExecutionSpec)
    applied_recipes: list[str] = field(default_factory=list)
    evaluation_environment_mode: EvaluationMode = "none"
    task_id: str = ""
    artifacts: list[Artifact] = field(default_factory=list)
    run_timeout_seconds: float | None = None
    evaluation_timeout_seconds: float | None = None
    notes: list[str] = field(default_factory=list)

    def audit(self) -> dict[str, Any]:
        """Return the redacted view that is stored: ids, policies, mode, limits; no values of users."""
        return {
            "environment": self.environment.id,
            "baseline_network_policy": str(self.baseline_network_policy or "public"),
            "run_network_policy": str(self.run_network_policy or "public"),
            "evaluation_network_policy": str(self.evaluation_network_policy or "public"),
            "evaluation_environment_mode": self.evaluation_environment_mode,
            "applied_recipes": list(self.applied_recipes),
            "run_timeout_seconds": self.run_timeout_seconds,
            "evaluation_timeout_seconds": self.evaluation_timeout_seconds,
            "notes": list(self.notes),
        }
