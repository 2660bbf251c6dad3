"""Recipes of one's own, from trusted folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_agentcompass.components.registry import Registry
from pytest_agentcompass.errors import ConfigError
from pytest_agentcompass.planning.recipes import load_recipes

RECIPE = """
from pytest_agentcompass.components.recipe import BaseRecipe

class Base(BaseRecipe):
    def matches(self, req, task, plan):
        return True

class {name}(Base):
    id = "{id}"
    def apply(self, plan, req, task):
        return plan
"""


def test_modules_in_order_of_their_names(tmp_path: Path) -> None:
    """Each module's concrete recipes are registered, in a fixed order; private modules are left out."""
    (tmp_path / "b.py").write_text(RECIPE.format(name="B", id="b"))
    (tmp_path / "a.py").write_text(RECIPE.format(name="A", id="a"))
    (tmp_path / "_c.py").write_text("raise SystemError")
    registry = Registry()
    known = registry.ids("recipe")
    assert load_recipes([tmp_path], registry) == ["a", "b"]
    assert registry.ids("recipe") == [*known, "a", "b"]
    assert load_recipes([tmp_path], registry) == ["a", "b"]


@pytest.mark.parametrize(
    ("content", "message"),
    [("x = 1\nraise KeyError('k')", "r.py:2: KeyError: 'k'"), ("x = = 1", "r.py:1: SyntaxError: invalid syntax")],
)
def test_broken_modules(tmp_path: Path, content: str, message: str) -> None:
    """A module that cannot be imported is named with its line."""
    (tmp_path / "r.py").write_text(content)
    with pytest.raises(ConfigError) as caught:
        load_recipes([tmp_path], Registry())
    assert message in str(caught.value)


def test_missing_folder_and_doubled_id(tmp_path: Path) -> None:
    """A folder that does not exist and an id that is taken are errors."""
    with pytest.raises(ConfigError, match="is no folder"):
        load_recipes([tmp_path / "none"], Registry())
    (tmp_path / "a.py").write_text(RECIPE.format(name="A", id="same"))
    (tmp_path / "b.py").write_text(RECIPE.format(name="B", id="same"))
    with pytest.raises(
        ConfigError, match=r"two components are called recipe 'same': one from .*a\.py, one from .*b\.py"
    ):
        load_recipes([tmp_path], Registry())
