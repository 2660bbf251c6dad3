"""What calls cost: US dollars per million tokens.

The table holds public list prices (standard tier, cache writes of the shortest kind) of common models, each with
the day for which it was found stated. It is a convenience: give your own with `harness.prices`, which goes first.
A dated name (`gpt-4o-2024-08-06`) has the price of the undated one. Where no price is known the cost is unknown,
never 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date

from pydantic import BaseModel, ConfigDict, Field

from .messages import TokenUsage

__all__ = ["PRICES", "LongPrompt", "Price", "Rates", "cost", "find_price"]

_DATED = re.compile(r"-(\d{4}-?\d{2}-?\d{2}|latest)$")


class Rates(BaseModel):
    """US dollars per million tokens; *cached* and *cache_write* default to the price of input."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: float = Field(ge=0, allow_inf_nan=False)
    output: float = Field(ge=0, allow_inf_nan=False)
    cached: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    cache_write: float | None = Field(default=None, ge=0, allow_inf_nan=False)


class LongPrompt(Rates):
    """What a whole call costs whose prompt has more than *above* tokens, cached ones included."""

    above: int = Field(gt=0)


class Price(Rates):
    """The price of a model; *as_of* is the day for which it was found stated."""

    long_prompt: LongPrompt | None = None
    as_of: date | None = None


def _flat(given: float, out: float, cached: float, write: float | None = None) -> Price:
    return Price(input=given, output=out, cached=cached, cache_write=write)


def _tiered(above: int, price: Price, inputs: float, output: float) -> Price:
    """Return *price* with prompts over *above* tokens, where all kinds of input cost *inputs* times as much."""
    assert price.cached is not None
    tier = LongPrompt(
        above=above,
        input=round(price.input * inputs, 6),
        output=round(price.output * output, 6),
        cached=round(price.cached * inputs, 6),
        cache_write=None if price.cache_write is None else round(price.cache_write * inputs, 6),
    )
    return price.model_copy(update={"long_prompt": tier})


def _gpt(given: float, out: float, cached: float, write: float | None = None) -> Price:
    """Return the price of a model whose prompts over 272,000 tokens cost twice as much, and 1.5 times for output."""
    return _tiered(272_000, _flat(given, out, cached, write), 2.0, 1.5)


_STATED: dict[date, dict[str, Price]] = {
    date(2026, 10, 24): {
        "claude-fable-5": _flat(10.0, 50.0, 1.0, 12.5),
        "claude-fable-5-1": _flat(10.0, 50.0, 0.25, 12.5),
        "claude-opus-5-5": _flat(4.0, 20.0, 0.2, 5.0),
        "claude-opus-5": _flat(5.0, 25.0, 0.5, 6.25),
        "claude-opus-4-8": _flat(5.0, 25.0, 0.5, 6.25),
        "claude-opus-4-7": _flat(5.0, 25.0, 0.5, 6.25),
        "claude-opus-4-6": _flat(5.0, 25.0, 0.5, 6.25),
        "claude-opus-4-5": _flat(5.0, 25.0, 0.5, 6.25),
        "claude-opus-4-1": _flat(15.0, 75.0, 1.5, 18.75),
        "claude-sonnet-5-5": _flat(2.0, 10.0, 0.1, 2.5),
        "claude-sonnet-5": _flat(2.0, 10.0, 0.2, 2.5),
        "claude-sonnet-4-6": _flat(3.0, 15.0, 0.3, 3.75),
        "claude-sonnet-4-5": _flat(3.0, 15.0, 0.3, 3.75),
        "claude-sonnet-4": _flat(3.0, 15.0, 0.3, 3.75),
        "claude-haiku-5-5": _tiered(100_000, _flat(0.1, 0.5, 0.01, 0.125), 5.0, 5.0),
        "claude-haiku-4-5": _flat(1.0, 5.0, 0.1, 1.25),
        "claude-3-5-haiku": _flat(0.8, 4.0, 0.08, 1.0),
    },
    date(2026, 10, 26): {
        "gpt-6.1-sol": _gpt(2.0, 10.0, 0.1, 2.5),
        "gpt-6.1-terra": _gpt(1.0, 5.0, 0.05, 1.25),
        "gpt-6-astra": _gpt(10.0, 50.0, 1.0, 12.5),
        "gpt-6-sol": _gpt(2.0, 10.0, 0.2, 2.5),
        "gpt-6-luna": _gpt(0.1, 0.5, 0.01, 0.125),
        "gpt-5.6": _gpt(4.0, 20.0, 0.4, 5.0),
        "gpt-5.6-sol": _gpt(4.0, 20.0, 0.4, 5.0),
        "gpt-5.6-terra": _gpt(2.0, 12.0, 0.2, 2.5),
        "gpt-5.6-luna": _gpt(0.2, 1.2, 0.02, 0.25),
        "gpt-5.5": _gpt(5.0, 30.0, 0.5),
        "gpt-5.4": _gpt(2.5, 15.0, 0.25),
        "gpt-5.4-mini": _flat(0.75, 4.5, 0.075),
        "gpt-5.4-nano": _flat(0.2, 1.25, 0.02),
        "gpt-5.2": _flat(1.75, 14.0, 0.175),
        "gpt-5.1": _flat(1.25, 10.0, 0.125),
        "gpt-5": _flat(1.25, 10.0, 0.125),
        "gpt-5-mini": _flat(0.25, 2.0, 0.025),
        "gpt-5-nano": _flat(0.05, 0.4, 0.005),
        "gpt-4.1": _flat(2.0, 8.0, 0.5),
        "gpt-4.1-mini": _flat(0.4, 1.6, 0.1),
        "gpt-4.1-nano": _flat(0.1, 0.4, 0.025),
        "gpt-4o": _flat(2.5, 10.0, 1.25),
        "gpt-4o-mini": _flat(0.15, 0.6, 0.075),
        "o3": _flat(2.0, 8.0, 0.5),
        "o4-mini": _flat(1.1, 4.4, 0.275),
    },
    date(2026, 11, 10): {"claude-fable-5-2": _flat(8.0, 40.0, 0.2, 10.0)},
    date(2026, 11, 20): {"gpt-6.2-sol": _gpt(2.0, 10.0, 0.1, 2.5)},
}
PRICES: dict[str, Price] = {
    name: price.model_copy(update={"as_of": day}) for day, prices in _STATED.items() for name, price in prices.items()
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
    tier = price.long_prompt
    rates: Rates = price if tier is None or usage.input <= tier.above else tier
    cached, written = usage.cached or 0, usage.cache_write or 0
    fresh = max(usage.input - cached - written, 0)
    total = fresh * rates.input + usage.output * rates.output
    total += cached * (rates.input if rates.cached is None else rates.cached)
    total += written * (rates.input if rates.cache_write is None else rates.cache_write)
    return total / 1_000_000
