"""Rules of the registry: what may be added."""

from __future__ import annotations

import pytest

from pytest_agentcompass.components.benchmark import BaseBenchmark
from pytest_agentcompass.components.registry import Registry
from pytest_agentcompass.errors import ConfigError


class _Half(BaseBenchmark):
    id = "half"

    def evaluate(self) -> None:  # type: ignore[override]
        """Grade nothing."""


def test_a_class_without_a_method_is_refused_by_name() -> None:
    """A component that could not be made is told when it is added, with the methods that it lacks."""
    with pytest.raises(ConfigError, match=r"benchmark 'half' \(_Half\) lacks the method load_tasks, prepare_task"):
        Registry().add("benchmark", _Half)


def test_one_id_one_component() -> None:
    """A taken id names both; the same class twice is harmless; an unknown kind lists the kinds."""
    registry = Registry()
    strategy = type("Mine", (), {"id": "mine"})
    registry.add("strategy", strategy)
    registry.add("strategy", strategy)
    with pytest.raises(ConfigError, match="two components are called strategy 'mine'"):
        registry.add("strategy", type("Other", (), {"id": "mine"}))
    with pytest.raises(ConfigError, match="did you mean 'benchmark'"):
        registry.add("benchmarks", strategy)
    with pytest.raises(ConfigError, match="has no id"):
        registry.add("strategy", object())
