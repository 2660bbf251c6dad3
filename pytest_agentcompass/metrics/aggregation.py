"""From task values to one figure: over tasks, over categories, over a hierarchy of categories."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import ConfigError, nearest
from .estimators import mean

__all__ = ["HIERARCHY_MODES", "Hierarchy", "category_mean", "parse_hierarchy"]

HIERARCHY_MODES = ("unweighted", "weighted", "weighted_by_count")
_KEYS = ("aggregation", "groups", "weights")
Values = Sequence[tuple[str, float]]


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """A level of groups: each child is a category (None) or a level of its own."""

    aggregation: str
    children: Mapping[str, Hierarchy | None]
    weights: Mapping[str, float]

    def categories(self) -> set[str]:
        """Return the categories that stand somewhere in it."""
        found: set[str] = set()
        for name, child in self.children.items():
            found |= {name} if child is None else child.categories()
        return found

    def value(self, values: Values) -> float | None:
        """Return the figure of *values* (category and task value); children without tasks are left out.

        A category that stands nowhere is one more child at the top, of weight 1.
        """
        placed = self.categories()
        rest = {category: None for category, _ in values if category not in placed}
        full = Hierarchy(self.aggregation, {**self.children, **rest}, {**dict.fromkeys(rest, 1.0), **self.weights})
        return full._combine(_by_category(values))[0]

    def _combine(self, groups: Mapping[str, list[float]]) -> tuple[float | None, int]:
        parts: list[tuple[float, float, int]] = []
        for name, child in self.children.items():
            result = (
                (mean(groups.get(name, ())), len(groups.get(name, ()))) if child is None else child._combine(groups)
            )
            if result[0] is not None:
                parts.append((result[0], self._weight(name, result[1]), result[1]))
        total = math.fsum(weight for _, weight, _ in parts)
        if not total:
            return None, 0
        return math.fsum(value * weight for value, weight, _ in parts) / total, sum(count for *_, count in parts)

    def _weight(self, name: str, count: int) -> float:
        if self.aggregation == "weighted_by_count":
            return float(count)
        return self.weights[name] if self.aggregation == "weighted" else 1.0


def category_mean(values: Values) -> float | None:
    """Return the unweighted mean of the category means of *values* (category and task value)."""
    means = (mean(items) for items in _by_category(values).values())
    return mean(item for item in means if item is not None)


def parse_hierarchy(data: Mapping[str, Any], where: str = "benchmark.category_hierarchy") -> Hierarchy:
    """Return the hierarchy that *data* describes.

    Form: `{aggregation: unweighted | weighted | weighted_by_count, groups: {name: [categories] | {a level}},
    weights: {name: number}}`; a list of categories takes `weighted_by_count` from its parent, else it is
    unweighted. Raises ConfigError that names the key, also for a category that stands in two places.
    """
    level = _level(data, where)
    _refuse_doubles(level, where)
    return level


def _level(data: Any, where: str) -> Hierarchy:
    if not isinstance(data, Mapping):
        raise ConfigError(f"{where}: a mapping with the keys {', '.join(_KEYS)} is needed, not {data!r}")
    for key in data:
        if key not in _KEYS:
            raise ConfigError(f"{where}: key {key!r} is not known; {nearest(str(key), _KEYS)}")
    mode = data.get("aggregation", "unweighted")
    if mode not in HIERARCHY_MODES:
        raise ConfigError(f"{where}.aggregation: {mode!r} is not known; {nearest(str(mode), HIERARCHY_MODES)}")
    groups = data.get("groups")
    if not isinstance(groups, (Mapping, list)) or not groups:
        raise ConfigError(f"{where}.groups: a mapping of groups or a list of categories is needed, not {groups!r}")
    children = _children(groups, mode, f"{where}.groups")
    return Hierarchy(mode, children, _weights(data.get("weights"), mode, children, f"{where}.weights"))


def _children(groups: Any, mode: str, where: str) -> dict[str, Hierarchy | None]:
    if isinstance(groups, list):
        return {str(name): None for name in _distinct(groups, where)}
    below = mode if mode == "weighted_by_count" else "unweighted"
    children: dict[str, Hierarchy | None] = {}
    for name, child in groups.items():
        key = f"{where}.{name}"
        data = {"aggregation": below, "groups": child} if isinstance(child, list) else child
        children[str(name)] = None if child is None else _level(data, key)
    return children


def _distinct(names: Iterable[Any], where: str) -> list[str]:
    found: list[str] = []
    for name in names:
        if not isinstance(name, str) or name in found:
            raise ConfigError(f"{where}: {name!r} is no category name or stands there twice")
        found.append(name)
    return found


def _weights(data: Any, mode: str, children: Mapping[str, object], where: str) -> dict[str, float]:
    if mode != "weighted":
        if data is not None:
            raise ConfigError(f"{where}: weights need `aggregation: weighted`, not {mode!r}")
        return {}
    weights = data if isinstance(data, Mapping) else {}
    for name in [*children, *weights]:
        number = weights.get(name)
        if name not in children:
            raise ConfigError(f"{where}: {name!r} is no group of this level; {nearest(str(name), children)}")
        if isinstance(number, bool) or not isinstance(number, (int, float)) or not 0 < number < math.inf:
            raise ConfigError(f"{where}.{name}: a positive number is needed, not {number!r}")
    return {str(name): float(number) for name, number in weights.items()}


def _refuse_doubles(level: Hierarchy, where: str, seen: set[str] | None = None) -> None:
    seen = set() if seen is None else seen
    for name, child in level.children.items():
        if child is not None:
            _refuse_doubles(child, where, seen)
        elif name in seen:
            raise ConfigError(f"{where}: category {name!r} stands in two groups; its tasks would count twice")
        else:
            seen.add(name)


def _by_category(values: Values) -> dict[str, list[float]]:
    groups: dict[str, list[float]] = {}
    for category, value in values:
        groups.setdefault(category, []).append(value)
    return groups
