"""pytest-agentcompass: agent benchmarks as pytest items.

What an extension author or a script imports; everything is loaded on first use, so that the
installed but unused plugin costs nothing.
"""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"

_EXPORTS = {
    "contracts.environment": ["BuildSpec", "ComposeSpec", "EnvironmentSpec", "Healthcheck", "Mount", "Resources"],
    "contracts.metrics": ["MetricContract", "MetricSpec"],
    "contracts.network": ["NetworkMode", "NetworkPolicy"],
    "contracts.outcome": ["ExecResult", "FailureMode", "Issue", "RunResult", "Status", "Usage"],
    "contracts.plan": ["BenchmarkPlan", "ExecutionPlan", "HarnessPlan"],
    "contracts.record": ["AttemptRecord", "OrchestrationResult", "RequestOutcome"],
    "contracts.request": ["ModelSpec", "RunRequest"],
    "contracts.task": [
        "Artifact",
        "FileRef",
        "Message",
        "OutputFileSpec",
        "PreparedTask",
        "ReferenceSolution",
        "TaskInput",
        "TaskOutput",
        "TaskProblem",
        "TaskSpec",
    ],
    "components.benchmark": ["BaseBenchmark", "HarnessFreeBenchmark"],
    "components.context": ["AttemptContext", "current_attempt", "keep_partial"],
    "components.environment": ["BaseEnvironment", "EnvironmentSession"],
    "components.harness": ["BaseHarness"],
    "components.recipe": ["BaseAnalyzer", "BaseRecipe"],
    "components.registry": ["Registry", "register"],
    "errors": [
        "AgentCompassError",
        "AgentFailure",
        "ConfigError",
        "EnvironmentGone",
        "EvaluationError",
        "HarnessError",
        "InfrastructureError",
        "ModelUnavailable",
        "SandboxError",
        "SetupError",
        "TaskLoadError",
    ],
    "scripts": ["build_run_request", "run_evaluation"],
}
_WHERE = {name: module for module, names in _EXPORTS.items() for name in names}

__all__ = ["__version__", *sorted(_WHERE)]


def __getattr__(name: str) -> Any:
    module = _WHERE.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
