"""Rules of cost: what is known is computed, what is unknown is never 0."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from pytest_agentcompass.models.messages import TokenUsage
from pytest_agentcompass.models.prices import Price, cost, find_price

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
