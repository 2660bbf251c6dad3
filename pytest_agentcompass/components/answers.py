"""Comparing a final answer with the expected one: four kinds of match, stated in the task."""

from __future__ import annotations

import re
import unicodedata
from decimal import Decimal

from ..errors import ConfigError, nearest

__all__ = ["MATCHES", "check_expected", "matches", "number_of"]

MATCHES = ("exact", "normalized", "numeric", "regex")
_NUMBER = re.compile(r"[+-]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+)?(?:[eE][+-]?\d{1,3})?", re.ASCII)
_QUOTES = "\"'`"
_REGEX_CHARACTERS = 10_000  # an agent's text must not make a pattern search for minutes


def matches(answer: str, expected: str, match: str, tolerance: float = 0.0) -> bool:
    """Whether *answer* is *expected*; blanks around either never count.

    `exact` compares the texts; `normalized` compares them without case, width, repeated blanks, quotes
    around and a full stop, comma or colon at the end; `numeric` the values, at most *tolerance* apart;
    `regex` wants the whole answer to match. An empty answer matches nothing.
    """
    answer = answer.strip()
    if not answer:
        return False
    if match == "exact":
        return answer == expected.strip()
    if match == "normalized":
        return _normalized(answer) == _normalized(expected)
    if match == "numeric":
        value, wanted = number_of(answer), number_of(expected)
        return value is not None and wanted is not None and abs(value - wanted) <= Decimal(repr(tolerance))
    return len(answer) <= _REGEX_CHARACTERS and re.fullmatch(expected, answer) is not None


def check_expected(expected: str, match: str) -> None:
    """Raise ConfigError when *expected* cannot be compared by *match*."""
    if match not in MATCHES:
        raise ConfigError(f"match {match!r} is not known; {nearest(match, MATCHES)}")
    if not expected.strip():
        raise ConfigError("the expected answer is empty, so no answer could ever be right")
    if match == "numeric" and number_of(expected) is None:
        raise ConfigError(f"match is numeric, but the expected answer {expected!r} is no number")
    if match == "normalized" and not _normalized(expected):
        raise ConfigError(
            f"nothing is left of the expected answer {expected!r} once it is normalized; use match: exact"
        )
    if match == "regex":
        try:
            re.compile(expected)
        except re.error as error:
            raise ConfigError(f"the expected answer {expected!r} is no regular expression: {error}") from None


def _normalized(text: str) -> str:
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(folded.split()).strip(_QUOTES).rstrip(".,;: ").rstrip(_QUOTES)


def number_of(text: str) -> Decimal | None:
    """Return the number that *text* is, thousands' commas allowed; None when it is none."""
    text = text.strip()
    if not any(c.isdigit() for c in text) or len(text) > 400 or not _NUMBER.fullmatch(text):
        return None
    plain = text.replace(",", "")
    try:
        return Decimal(plain)
    except ArithmeticError:  # an exponent without digits before it
        return None
