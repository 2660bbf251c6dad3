"""Metric contracts: what a benchmark's evaluation may observe."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from ..errors import ConfigError, MetricError

__all__ = ["MetricContract", "MetricSpec"]


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """One observation of an attempt.

    *kind*: `binary` is a strict bool, `scalar` a finite number. *direction*: `higher` or `lower`
    is better. *unit* is shown behind the figure.
    """

    kind: Literal["binary", "scalar"]
    primary: bool = False
    direction: Literal["higher", "lower"] = "higher"
    unit: str = ""
    display: str = ""


@dataclass(frozen=True)
class MetricContract:
    """The observations a benchmark declares; exactly one is primary. Extra scalars need `open_scalars`.

    Raises ConfigError when no metric or more than one is primary.
    """

    metrics: dict[str, MetricSpec] = field(default_factory=lambda: {"correct": MetricSpec("binary", primary=True)})
    open_scalars: bool = False

    def __post_init__(self) -> None:
        primary = [name for name, spec in self.metrics.items() if spec.primary]
        if len(primary) != 1:
            raise ConfigError(f"a metric contract needs exactly one primary metric, not {primary or 'none'}")

    @property
    def primary(self) -> str:
        """The id of the primary metric."""
        return next(name for name, spec in self.metrics.items() if spec.primary)

    def check(self, observations: dict[str, bool | int | float]) -> None:
        """Raise MetricError unless *observations* are declared, of their kind, and hold the primary one."""
        for name, value in observations.items():
            spec = self.metrics.get(name)
            if spec is None and not (self.open_scalars and type(value) in (int, float)):
                raise MetricError(f"metric {name!r} is not declared; declared: {', '.join(sorted(self.metrics))}")
            if spec is not None and spec.kind == "binary" and type(value) is not bool:
                raise MetricError(f"metric {name!r} is binary and must be true or false, not {value!r}")
            if (spec is None or spec.kind == "scalar") and (
                type(value) not in (int, float) or not math.isfinite(value)
            ):
                raise MetricError(f"metric {name!r} is a scalar and must be a finite number, not {value!r}")
        if self.primary not in observations:
            raise MetricError(f"the primary metric {self.primary!r} was not observed")
