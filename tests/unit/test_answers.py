"""Rules of comparing answers."""

from __future__ import annotations

import pytest

from pytest_agentcompass.components.answers import check_expected, matches
from pytest_agentcompass.errors import ConfigError


@pytest.mark.parametrize(
    ("answer", "expected", "match", "right"),
    [
        ("Paris\n", "Paris", "exact", True),
        ("paris", "Paris", "exact", False),
        ("Paris.", "Paris", "exact", False),
        ("", "Paris", "exact", False),
        (" \n", "Paris", "regex", False),
        ("  the  Answer ", '"The answer."', "normalized", True),
        ("\uff30aris", "paris", "normalized", True),
        ("5!", "5", "normalized", False),
        (".5", "5", "normalized", False),
        ("-5", "5", "normalized", False),
        ("[1, 2)", "(1, 2]", "normalized", False),
        ("42.0", "42", "numeric", True),
        ("1,234.5", "1234.5", "numeric", True),
        ("1,23", "123", "numeric", False),
        ("1e3", "1000", "numeric", True),
        ("+.5", "0.5", "numeric", True),
        ("nan", "0", "numeric", False),
        ("inf", "0", "numeric", False),
        ("1_000", "1000", "numeric", False),
        ("\u0661", "1", "numeric", False),
        ("the answer is 42", "42", "numeric", False),
        ("1e999", "1", "numeric", False),
        ("0.1", "0.10", "numeric", True),
        ("2004", "2004|2008", "regex", True),
        ("in 2004", "2004|2008", "regex", False),
        ("x" * 20_000, "x*", "regex", False),
    ],
)
def test_matching(answer: str, expected: str, match: str, right: bool) -> None:
    """Each kind of match takes what it says and nothing else; an empty answer is never right."""
    assert matches(answer, expected, match) is right


@pytest.mark.parametrize(("answer", "right"), [("3.14", True), ("3.15", True), ("3.1501", False), ("3.13", True)])
def test_tolerance_is_absolute_and_exact(answer: str, right: bool) -> None:
    """The tolerance is a distance in decimal numbers, its bound included."""
    assert matches(answer, "3.14", "numeric", 0.01) is right


@pytest.mark.parametrize(
    ("expected", "match", "message"),
    [
        ("x", "exakt", "did you mean 'exact'"),
        (" ", "exact", "empty"),
        ("abc", "numeric", "no number"),
        ("(", "regex", "no regular expression"),
        ("'...'", "normalized", "nothing is left"),
    ],
)
def test_useless_expected_answers_are_refused(expected: str, match: str, message: str) -> None:
    """An expected answer that nothing could ever match is found when the task is loaded."""
    with pytest.raises(ConfigError, match=message):
        check_expected(expected, match)
