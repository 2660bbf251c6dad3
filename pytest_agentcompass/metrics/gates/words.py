"""Figures of gates as people read them."""

from __future__ import annotations

from collections.abc import Sequence

from ..intervals import Interval
from .names import MetricKind

__all__ = ["amount_text", "names_text", "points", "range_text", "share"]

_NAMED = 5


def amount_text(value: float, kind: MetricKind) -> str:
    """Return a metric's value with its unit."""
    if kind in (MetricKind.RATE, MetricKind.SCORE, MetricKind.SHARE):
        return share(value)
    if kind is MetricKind.MONEY:
        return f"${value:,.2f}" if value == 0 or abs(value) >= 0.05 else f"${value:.4f}"
    if kind is MetricKind.SECONDS:
        return f"{value:,.1f} s" if value < 600 else f"{value:,.0f} s"
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:.6g}"


def share(value: float) -> str:
    """Return a share as a percentage, never rounded to 0 % or 100 % when it is not quite."""
    text = f"{value * 100:.1f}%"
    if text == "100.0%" and value < 1:
        return ">99.9%"
    return "<0.1%" if text == "0.0%" and value > 0 else text


def points(value: float) -> str:
    """Return a difference of shares in percentage points, with its sign."""
    return f"{value * 100:+.1f} pt"


def range_text(interval: Interval, kind: MetricKind) -> str:
    """Return an interval: `95% interval 9.7% to 70.0%`."""
    low, high = (amount_text(bound, kind) for bound in (interval.low, interval.high))
    return f"{interval.confidence * 100:.4g}% interval {low} to {high}"


def names_text(names: Sequence[tuple[str, str]], several_requests: bool = False) -> str:
    """Return task names, the first few, and how many more there are."""
    shown = [f"{request}::{task}" if several_requests else task for request, task in names[:_NAMED]]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(shown) + more
