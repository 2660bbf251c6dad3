"""Fixtures of the tests of the pytest layer."""

from __future__ import annotations

from pathlib import Path

import pytest

from .helpers import Suite


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    """Return an empty folder in which pytest can be run with the plugin."""
    folder = tmp_path / "suite"
    folder.mkdir()
    return Suite(folder)
