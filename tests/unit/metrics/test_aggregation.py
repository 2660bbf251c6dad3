"""Averages over categories and hierarchies, and what a hierarchy must look like."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_agentcompass.errors import ConfigError
from pytest_agentcompass.metrics.aggregation import category_mean, parse_hierarchy

# math: mean 0.75 of 4 tasks; logic: 0 of 1; code: 1 of 1
VALUES = [("math", 1.0), ("math", 1.0), ("math", 1.0), ("math", 0.0), ("logic", 0.0), ("code", 1.0)]
GROUPS = {"reasoning": ["math", "logic"], "coding": ["code"]}


def test_category_mean_gives_each_category_the_same_weight() -> None:
    """The mean of 0.75, 0 and 1, not of six tasks."""
    assert category_mean(VALUES) == pytest.approx((0.75 + 0 + 1) / 3)
    assert category_mean([]) is None


@pytest.mark.parametrize(
    ("level", "value"),
    [
        ({"groups": GROUPS}, (0.375 + 1) / 2),
        ({"aggregation": "unweighted", "groups": ["math", "logic", "code"]}, (0.75 + 0 + 1) / 3),
        ({"aggregation": "weighted_by_count", "groups": GROUPS}, 4 / 6),
        ({"aggregation": "weighted", "groups": GROUPS, "weights": {"reasoning": 3, "coding": 1}}, (3 * 0.375 + 1) / 4),
        (
            {"groups": {"reasoning": {"aggregation": "weighted_by_count", "groups": ["math", "logic"]}, "code": None}},
            (0.6 + 1) / 2,
        ),
    ],
)
def test_hierarchies(level: dict[str, Any], value: float) -> None:
    """Each level averages its children by its own rule."""
    assert parse_hierarchy(level).value(VALUES) == pytest.approx(value)


def test_children_without_tasks_are_left_out() -> None:
    """A group that no selected task belongs to neither counts as 0 nor takes weight."""
    level = {
        "aggregation": "weighted",
        "groups": {**GROUPS, "web": ["forms"]},
        "weights": {"reasoning": 1, "coding": 1, "web": 98},
    }
    assert parse_hierarchy(level).value(VALUES) == pytest.approx((0.375 + 1) / 2)
    assert parse_hierarchy(level).value([]) is None


@pytest.mark.parametrize("mode", ["unweighted", "weighted_by_count"])
def test_a_category_outside_the_hierarchy_is_not_dropped(mode: str) -> None:
    """Tasks of an unplaced category count as a group of their own."""
    found = parse_hierarchy({"aggregation": mode, "groups": ["math"]}).value([("math", 1.0), ("odd", 0.0)])
    assert found == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("level", "message"),
    [
        ([], "category_hierarchy: a mapping"),
        ({"groups": GROUPS, "wieghts": {}}, "did you mean 'weights'"),
        ({"groups": GROUPS, "aggregation": "weigthed"}, "did you mean 'weighted'"),
        ({"groups": {}}, r"category_hierarchy\.groups: "),
        ({"groups": {"a": {"groups": 3}}}, r"groups\.a\.groups"),
        ({"groups": ["math", "math"]}, "'math' is no category name or stands there twice"),
        ({"groups": ["math", 7]}, "7 is no category name"),
        ({"groups": {"a": ["math"], "b": ["math"]}}, "'math' stands in two groups"),
        ({"groups": GROUPS, "weights": {"coding": 1}}, "weights need"),
        ({"groups": GROUPS, "aggregation": "weighted"}, r"weights\.reasoning: a positive number"),
        ({"groups": GROUPS, "aggregation": "weighted", "weights": {"reasoning": True, "coding": 1}}, "not True"),
        ({"groups": GROUPS, "aggregation": "weighted", "weights": {"reasoning": float("nan"), "coding": 1}}, "not nan"),
        (
            {"groups": GROUPS, "aggregation": "weighted", "weights": {"reasoning": 1, "coding": 1, "codign": 1}},
            "'coding'",
        ),
    ],
)
def test_unusable_hierarchies_are_refused(level: Any, message: str) -> None:
    """The error names the key, what came, and what is allowed."""
    with pytest.raises(ConfigError, match=message):
        parse_hierarchy(level)
