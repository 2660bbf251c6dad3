"""`--agentcompass-show-config`: the resolved requests, each value with where it came from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ..config.show import show_config
from ..errors import AgentCompassError
from .session import resolve

__all__ = ["show"]


def show(config: pytest.Config) -> int:
    """Print the configuration and return the exit status: 0, or 4 when a suite cannot be used."""
    resolved, _ = resolve(config)
    requests: list[Any] = [resolved.request] if resolved.request else []
    problems: list[str] = []
    for path in _suites(config):
        try:
            for entry in resolved.load_suite(path):
                requests.append(entry) if hasattr(entry, "request") else problems.append(entry.message)
        except AgentCompassError as error:
            problems.append(error.message)
    print(show_config(requests, resolved.options))
    for problem in problems:
        print(f"ERROR: {problem}")
    return int(pytest.ExitCode.USAGE_ERROR if problems else pytest.ExitCode.OK)


def _suites(config: pytest.Config) -> list[Path]:
    found: list[Path] = []
    for argument in config.args:
        path = config.invocation_params.dir / argument.partition("::")[0]
        if path.is_dir():
            found.extend(sorted(path.rglob("*.agentcompass.yaml")))
        elif path.name.endswith((".agentcompass.yaml", ".agentcompass.yml")):
            found.append(path)
    return found
