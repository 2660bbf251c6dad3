"""Numbers as people read them: shares, intervals, money, time, counts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

__all__ = ["count", "interval_text", "money", "percent", "seconds_text"]


def percent(value: float | None) -> str:
    """Return a share as a percentage with one decimal; never 100 % or 0 % when it is not quite."""
    if value is None:
        return "-"
    text = f"{value * 100:.1f}%"
    if text == "100.0%" and value < 1:
        return ">99.9%"
    return "<0.1%" if text == "0.0%" and value > 0 else text


def interval_text(figure: Mapping[str, Any]) -> str:
    """Return a figure's interval as `37.8-46.4%`, or `-`."""
    bounds = figure.get("interval")
    return f"{bounds['low'] * 100:.1f}-{bounds['high'] * 100:.1f}%" if bounds else "-"


def money(value: float | None) -> str:
    """Return US dollars: cents, and four digits where that would show nothing."""
    if value is None:
        return "-"
    return f"${value:,.2f}" if value == 0 or abs(value) >= 0.05 else f"${value:.4f}"


def seconds_text(value: float | None) -> str:
    """Return a duration in its two largest units."""
    if value is None or not math.isfinite(value):
        return "-"
    if value < 10:
        return f"{value:.1f}s"
    whole = round(value)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    return f"{whole // 3600}h {whole % 3600 // 60:02d}m"


def count(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: `1 task`, `2 tasks`."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"
