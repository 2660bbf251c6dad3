"""Rules of cost: what is known is computed, what is unknown is never 0."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from pydantic import ValidationError

from pytest_agentcompass.models.messages import TokenUsage
from pytest_agentcompass.models.prices import PRICES, LongPrompt, Price, cost, find_price
from pytest_agentcompass.models.protocol import protocol_named

PRICE = Price(input=2.0, output=8.0, cached=0.5, cache_write=2.5)


@pytest.mark.parametrize(
    ("usage", "dollars"),
    [
        (TokenUsage(1_000_000, 0), 2.0),
        (TokenUsage(0, 1_000_000), 8.0),
        (TokenUsage(1_000_000, 0, cached=1_000_000), 0.5),
        (TokenUsage(1_000_000, 0, cached=500_000, cache_write=250_000), 0.5 + 0.25 + 0.625),
        (TokenUsage(None, 5), None),
        (TokenUsage(5, None), None),
    ],
)
def test_cost_counts_each_kind_of_token(usage: TokenUsage, dollars: float | None) -> None:
    """Cached and written tokens have their own prices; a call that told no tokens has no known cost."""
    assert cost(usage, PRICE) == (None if dollars is None else pytest.approx(dollars))


def test_cached_tokens_cost_like_input_where_no_price_is_given() -> None:
    """Without a price for cached tokens nothing is given away."""
    assert cost(TokenUsage(1_000_000, 0, cached=1_000_000), Price(input=3, output=1)) == pytest.approx(3.0)


def test_a_long_prompt_has_its_own_prices() -> None:
    """Above the border the whole call costs the long prompt's price, cached tokens and output included."""
    price = Price(input=1.0, output=2.0, long_prompt=LongPrompt(above=1000, input=2.0, output=3.0, cached=0.5))
    assert cost(TokenUsage(1000, 10), price) == pytest.approx(1020e-6)
    assert cost(TokenUsage(1001, 10, cached=1), price) == pytest.approx((2000 + 0.5 + 30) * 1e-6)


USAGES: dict[str, dict[str, Any]] = {
    "openai-chat": {
        "choices": [{"message": {"content": "x"}, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": 100, "completion_tokens": 5,
            "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30},
        },
    },
    "openai-responses": {
        "status": "completed",
        "output": [{"type": "message", "content": [{"type": "output_text", "text": "x"}]}],
        "usage": {
            "input_tokens": 100, "output_tokens": 5,
            "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30},
        },
    },
    "anthropic": {
        "content": [{"type": "text", "text": "x"}],
        "stop_reason": "end_turn",
        "usage": {
            "input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 60, "cache_creation_input_tokens": 30,
        },
    },
}  # fmt: skip


@pytest.mark.parametrize("protocol", USAGES)
def test_protocols_tell_alike_what_the_cache_did(protocol: str) -> None:
    """Input is all of the prompt, whatever a protocol counts as such; cached and written tokens are parts of it."""
    usage = protocol_named(protocol).reply(USAGES[protocol]).usage
    assert (usage.input, usage.output, usage.cached, usage.cache_write) == (100, 5, 60, 30)


@pytest.mark.parametrize("name", sorted(PRICES))
def test_each_price_of_ours_has_its_day(name: str) -> None:
    """A list price says when it was found, and what is cached is never dearer than what is fresh."""
    price = PRICES[name]
    assert price.as_of is not None
    assert price.as_of >= date(2026, 10, 1)
    for rates in filter(None, (price, price.long_prompt)):
        assert rates.cached is not None
        assert 0 < rates.cached < rates.input < rates.output
        assert rates.cache_write is None or rates.input < rates.cache_write
    if price.long_prompt is not None:
        assert price.input < price.long_prompt.input


def test_a_price_of_a_long_prompt_is_stated_in_full() -> None:
    """A model with a border at 272,000 tokens costs twice as much above it, and 1.5 times for output."""
    tier = PRICES["gpt-6.1-sol"].long_prompt
    assert tier == LongPrompt(above=272_000, input=4.0, output=15.0, cached=0.2, cache_write=5.0)


def test_names_with_dates_and_prefixes_are_found() -> None:
    """A dated name or one behind a provider's prefix has the price of the plain name; others have none."""
    assert find_price("gpt-4o-2024-08-06") == find_price("gpt-4o")
    assert find_price("openai/gpt-4o-mini") == find_price("gpt-4o-mini")
    assert find_price("claude-haiku-4-5-20251001") == find_price("claude-haiku-4-5")
    assert find_price("gpt-4o-something-else") is None
    assert find_price("my-own") is None


def test_own_prices_go_first() -> None:
    """The user's table wins over ours and may name models that we do not know."""
    own = {"gpt-4o": PRICE, "my-own": PRICE}
    assert find_price("gpt-4o-2024-08-06", own) is PRICE
    assert find_price("my-own", own) is PRICE


def test_a_price_below_zero_is_refused() -> None:
    """Nobody is paid for a call."""
    with pytest.raises(ValidationError):
        Price(input=-1, output=0)
