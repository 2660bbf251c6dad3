"""The registry of components: built-ins, entry points, conftest hooks and named modules."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..errors import ConfigError, nearest

__all__ = ["KINDS", "Registry", "register"]

KINDS = ("benchmark", "harness", "environment", "recipe", "analyzer", "strategy", "reducer")
ENTRY_POINT_GROUP = "pytest_agentcompass.components"

_BUILTINS: dict[str, dict[str, str]] = {
    "benchmark": {
        "terminal_bench": "pytest_agentcompass.benchmarks.terminal_bench:TerminalBench",
        "swebench": "pytest_agentcompass.benchmarks.swebench:SwebenchBenchmark",
        "tasks": "pytest_agentcompass.benchmarks.tasks:TasksBenchmark",
        "qa": "pytest_agentcompass.benchmarks.qa:QaBenchmark",
    },
    "harness": {
        "oracle": "pytest_agentcompass.harnesses.oracle:OracleHarness",
        "nop": "pytest_agentcompass.harnesses.nop:NopHarness",
        "command": "pytest_agentcompass.harnesses.command:CommandHarness",
        "scripted": "pytest_agentcompass.harnesses.scripted:ScriptedHarness",
        "predictions": "pytest_agentcompass.harnesses.predictions:PredictionsHarness",
        "openai_chat": "pytest_agentcompass.harnesses.openai_chat:OpenAIChatHarness",
        "claude_code": "pytest_agentcompass.harnesses.claude_code:ClaudeCodeHarness",
        "codex": "pytest_agentcompass.harnesses.codex:CodexHarness",
        "mini_swe_agent": "pytest_agentcompass.harnesses.mini_swe_agent:MiniSweAgentHarness",
        "terminus": "pytest_agentcompass.harnesses.terminus:TerminusHarness",
        "tool_loop": "pytest_agentcompass.harnesses.tool_loop:ToolLoopHarness",
    },
    "environment": {
        "host_process": "pytest_agentcompass.environments.host_process:HostProcessEnvironment",
        "docker": "pytest_agentcompass.environments.docker:DockerEnvironment",
    },
    "recipe": {
        "swebench_docker": "pytest_agentcompass.recipes.swebench_docker:SwebenchDocker",
        "swebench_host_process": "pytest_agentcompass.recipes.swebench_host_process:SwebenchHostProcess",
    },
    "analyzer": {
        "statistics": "pytest_agentcompass.analyzers.trajectory:StatisticsAnalyzer",
        "truncation": "pytest_agentcompass.analyzers.trajectory:TruncationAnalyzer",
        "output_quality": "pytest_agentcompass.analyzers.trajectory:OutputQualityAnalyzer",
        "tool_calls": "pytest_agentcompass.analyzers.trajectory:ToolCallAnalyzer",
        "integrity": "pytest_agentcompass.analyzers.integrity:IntegrityAnalyzer",
        "failure_fingerprint": "pytest_agentcompass.analyzers.failures:FailureFingerprintAnalyzer",
    },
    "strategy": {
        "avg": "pytest_agentcompass.metrics.strategies:AvgStrategy",
        "pass": "pytest_agentcompass.metrics.strategies:PassStrategy",
    },
    "reducer": {},
}
_EXTRAS: dict[str, str] = {
    f"harness:{name}": "models"
    for name in ("openai_chat", "tool_loop", "claude_code", "codex", "terminus", "mini_swe_agent")
}
_pending: list[tuple[str, str, Any, str]] = []


def register(kind: str, id: str | None = None) -> Callable[[Any], Any]:
    """Register a component class from a module that `plugins:` names: `@register("harness")`.

    The id is the class's own `id` unless one is given.
    """

    def decorate(component: Any) -> Any:
        _pending.append((kind, id or component.id, component, component.__module__))
        return component

    return decorate


class Registry:
    """Components by kind and id; classes are loaded when they are first asked for."""

    def __init__(self) -> None:
        self._entries: dict[str, dict[str, tuple[Any, str]]] = {
            kind: {id: (target, "pytest-agentcompass") for id, target in items.items()}
            for kind, items in _BUILTINS.items()
        }
        self._instances: dict[tuple[str, str], Any] = {}

    def add(self, kind: str, component: Any, *, id: str | None = None, origin: str = "") -> None:
        """Add a component class (or a `module:Class` text).

        Raises ConfigError for an unknown kind, a missing id, and an id that is taken (naming both), and a class
        without a method that its base wants.
        """
        if kind not in KINDS:
            raise ConfigError(f"component kind {kind!r} is not known; {nearest(kind, KINDS)}")
        name = id or getattr(component, "id", "")
        if not name or not isinstance(name, str):
            raise ConfigError(f"{component!r} has no id; set the class attribute `id`")
        missing = sorted(getattr(component, "__abstractmethods__", ()))
        if missing:
            raise ConfigError(f"{kind} {name!r} ({component.__qualname__}) lacks the method {', '.join(missing)}")
        origin = origin or getattr(component, "__module__", str(component))
        if name in self._entries[kind]:
            known, where = self._entries[kind][name]
            if known is component:
                return
            raise ConfigError(f"two components are called {kind} {name!r}: one from {where}, one from {origin}")
        self._entries[kind][name] = (component, origin)

    def ids(self, kind: str) -> list[str]:
        """Return the known ids of *kind*, in registry order."""
        return list(self._entries[kind])

    def get(self, kind: str, id: str) -> Any:
        """Return the class of a component; ConfigError names the nearest ids, or the extra to install."""
        entry = self._entries[kind].get(id)
        if entry is None:
            raise ConfigError(f"{kind} {id!r} is not known; {nearest(id, self._entries[kind])}")
        target, origin = entry
        if not isinstance(target, str):
            return target
        module, _, attribute = target.partition(":")
        try:
            component = getattr(importlib.import_module(module), attribute)
        except ImportError as error:
            extra = _EXTRAS.get(f"{kind}:{id}")
            hint = f"; install it with: pip install 'pytest-agentcompass[{extra}]'" if extra else ""
            raise ConfigError(f"{kind} {id!r} (from {origin}) cannot be imported: {error}{hint}") from error
        self._entries[kind][id] = (component, origin)
        return component

    def make(self, kind: str, id: str) -> Any:
        """Return the shared instance of a component."""
        key = (kind, id)
        if key not in self._instances:
            self._instances[key] = self.get(kind, id)()
        return self._instances[key]

    def is_loaded(self, kind: str, id: str) -> bool:
        """Whether the component was made in this process."""
        return (kind, id) in self._instances

    def all(self, kind: str) -> Iterator[tuple[str, Any]]:
        """Yield id and instance of every component of *kind*, in registry order."""
        for id in self.ids(kind):
            yield id, self.make(kind, id)

    def load_entry_points(self) -> None:
        """Add what installed packages declare in the group `pytest_agentcompass.components`.

        An entry point is named `kind.id` and points at the class.
        """
        from importlib.metadata import entry_points

        for point in entry_points(group=ENTRY_POINT_GROUP):
            kind, _, id = point.name.partition(".")
            self.add(kind, point.value, id=id, origin=f"entry point {point.name} = {point.value}")

    def load_conftest(self, path: Path) -> None:
        """Add what the `pytest_agentcompass_register` hook of a conftest.py adds, for verbs that run without pytest."""
        import importlib.util

        spec = importlib.util.spec_from_file_location("agentcompass_conftest", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except Exception as error:  # the user's file may raise anything
            raise ConfigError(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
        hook = getattr(module, "pytest_agentcompass_register", None)
        if hook is not None:
            hook(registry=self)

    def load_modules(self, modules: list[str]) -> None:
        """Import the modules of `plugins:`; what they registered with the decorator is added."""
        for name in modules:
            try:
                module = importlib.import_module(name)
            except Exception as error:  # the user's module may raise anything
                why = f"{type(error).__name__}: {error}"
                raise ConfigError(f"plugins: module {name!r} cannot be imported: {why}") from error
            for kind, id, component, origin in _pending:
                if origin == module.__name__ or origin.startswith(module.__name__ + "."):
                    self.add(kind, component, id=id, origin=f"plugins: {origin}")
