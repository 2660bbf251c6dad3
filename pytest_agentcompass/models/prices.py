"""What calls cost: US dollars per million tokens.

The table holds list prices of November 2025 of a few common models. It is a convenience: give your own with
`harness.prices`, which goes first. A dated name (`gpt-4o-2024-08-06`) has the price of the undated one. Where
no price is known the cost is unknown, never 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, Field

from .messages import TokenUsage

__all__ = ["PRICES", "Price", "cost", "find_price"]

_DATED = re.compile(r"-(\d{4}-?\d{2}-?\d{2}|latest)$")


class Price(BaseModel):
    """US dollars per million tokens; *cached* and *cache_write* default to the price of input."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: float = Field(ge=0, allow_inf_nan=False)
    output: float = Field(ge=0, allow_inf_nan=False)
    cached: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    cache_write: float | None = Field(default=None, ge=0, allow_inf_nan=False)


def _price(given: float, out: float, cached: float | None = None, write: float | None = None) -> Price:
    return Price(input=given, output=out, cached=cached, cache_write=write)


PRICES: dict[str, Price] = {
    "gpt-5": _price(1.25, 10.0, 0.125),
    "gpt-5-mini": _price(0.25, 2.0, 0.025),
    "gpt-5-nano": _price(0.05, 0.4, 0.005),
    "gpt-4.1": _price(2.0, 8.0, 0.5),
    "gpt-4.1-mini": _price(0.4, 1.6, 0.1),
    "gpt-4.1-nano": _price(0.1, 0.4, 0.025),
    "gpt-4o": _price(2.5, 10.0, 1.25),
    "gpt-4o-mini": _price(0.15, 0.6, 0.075),
    "o3": _price(2.0, 8.0, 0.5),
    "o4-mini": _price(1.1, 4.4, 0.275),
    "claude-opus-4-5": _price(5.0, 25.0, 0.5, 6.25),
    "claude-opus-4-1": _price(15.0, 75.0, 1.5, 18.75),
    "claude-sonnet-4-5": _price(3.0, 15.0, 0.3, 3.75),
    "claude-sonnet-4": _price(3.0, 15.0, 0.3, 3.75),
    "claude-haiku-4-5": _price(1.0, 5.0, 0.1, 1.25),
    "claude-3-5-haiku": _price(0.8, 4.0, 0.08, 1.0),
}


def find_price(model: str, own: Mapping[str, Price] | None = None) -> Price | None:
    """Return the price of *model*: the user's own first, then the table's; None when nobody knows it."""
    names = [model, model.rpartition("/")[2]]
    names += [_DATED.sub("", name) for name in names]
    for table in (own or {}, PRICES):
        for name in names:
            if name in table:
                return table[name]
    return None


def cost(usage: TokenUsage, price: Price) -> float | None:
    """Return the US dollars of one call; None when the endpoint told no tokens."""
    if usage.input is None or usage.output is None:
        return None
    cached, written = usage.cached or 0, usage.cache_write or 0
    fresh = max(usage.input - cached - written, 0)
    total = fresh * price.input + usage.output * price.output
    total += cached * (price.input if price.cached is None else price.cached)
    total += written * (price.input if price.cache_write is None else price.cache_write)
    return total / 1_000_000
