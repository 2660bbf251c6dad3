"""Rules of the graders of qa: where an answer stands, and when it is right."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from pytest_agentcompass.benchmarks.qa.extracting import code_block, extract, last_json, letter
from pytest_agentcompass.benchmarks.qa.graders import grade, quasi_exact, same_json
from pytest_agentcompass.benchmarks.qa.params import GraderParams


@pytest.mark.parametrize(
    ("text", "way", "found"),
    [
        (r"so \boxed{42}", "boxed", "42"),
        (r"first \boxed{1}, then \boxed{\frac{1}{2}}", "boxed", r"\frac{1}{2}"),
        (r"broken \boxed{42", "boxed", r"broken \boxed{42"),
        ("a\n\n  b  \n\n", "last_line", "b"),
        ("from 12 to 1,234.5 people", "last_number", "1,234.5"),
        ("version v2 of 3rd", "last_number", "version v2 of 3rd"),
        ("it is -5.", "last_number", "-5"),
        ("FINAL ANSWER: Paris", "final_answer", "Paris"),
        ("thinking\n**Final answer:** *Rome*\n", "final_answer", "Rome"),
        ("Answer: 1\nmore\nAnswer: 2", "final_answer", "2"),
        ("nothing of the kind", "final_answer", "nothing of the kind"),
        ("  whole  ", "whole", "whole"),
    ],
)
def test_where_the_answer_stands(text: str, way: str, found: str) -> None:
    """Each way finds the last thing of its kind; where it finds nothing the whole text counts."""
    assert extract(text, (way,)) == found


def test_ways_are_tried_in_order() -> None:
    """The first way that finds something decides."""
    assert extract(r"\boxed{7} and 8", ("boxed", "last_number")) == "7"
    assert extract("only 8", ("boxed", "last_number")) == "8"


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("B", "B"),
        ("b", "B"),
        ("(C).", "C"),
        ("**D**", "D"),
        (r"\boxed{B}", "B"),
        ("The answer is (B) because A is wrong", "B"),
        ("Answer: A\nNo, wait.\nAnswer: C", "C"),
        ("I thought of option A.\nAnswer: **B**", "B"),
        ("B) Paris", "B"),
        ("reasoning...\nC. Rome", "C"),
        ("paris", "B"),
        ("A good question. I cannot say.", ""),
        ("It could be A or B", ""),
        ("Z", ""),
        ("", ""),
    ],
)
def test_the_letter_that_is_chosen(text: str, chosen: str) -> None:
    """Only what names one option counts; an article or a hesitation is no choice."""
    assert letter(text, ["London", "Paris", "Rome", "Bern"], 4) == chosen


@pytest.mark.parametrize(
    ("kind", "options", "expected", "answer", "right"),
    [
        ("exact", {}, "Paris", " Paris\n", True),
        ("exact", {}, "Paris", "paris", False),
        ("normalized", {}, "Paris", "PARIS.", True),
        ("normalized", {}, ["Paris", "City of Light"], "city of light", True),
        ("numeric", {}, "1000", "$1,000", True),
        ("numeric", {"tolerance": 0.5}, "10", "10.4", True),
        ("numeric", {"relative_tolerance": 0.01}, "200", "201.9", True),
        ("numeric", {"relative_tolerance": 0.01}, "200", "203", False),
        ("numeric", {"extract": "last_number"}, "42", "I count 42 of them", True),
        ("numeric", {}, "42", "forty-two", False),
        ("regex", {}, "[Pp]aris|Rome", "paris", True),
        ("regex", {}, "[Pp]aris", "in Paris", False),
        ("choice", {}, "B", "The answer is B", True),
        ("choice", {}, "B", "no idea", False),
        ("json", {}, {"a": [1, 2.0], "b": None}, 'Here: {"b": null, "a": [1, 2]}', True),
        ("json", {}, {"a": 1}, '{"a": 1, "more": 2}', False),
        ("json", {"subset": True}, {"a": 1}, '{"a": 1, "more": 2}', True),
        ("json", {}, {"a": 1}, "none at all", False),
        ("json", {}, True, "1", False),
        ("quasi_exact", {"extract": "final_answer"}, "3, apple", "FINAL ANSWER: 3,Apple", True),
        ("exact", {}, "x", "", False),
        ("exact", {}, "x", "  \n", False),
    ],
)
def test_when_an_answer_is_right(kind: str, options: dict[str, Any], expected: Any, answer: str, right: bool) -> None:
    """Each kind has its rule; an empty answer is never right."""
    grader = GraderParams.model_validate({"kind": kind, **options})
    verdict, said = grade(answer, expected, grader)
    assert verdict is right
    assert said


@pytest.mark.parametrize(
    ("found", "wanted", "same"),
    [
        ("17", "17", True),
        ("$17,000", "17000", True),
        ("17.0", "17", True),
        ("18", "17", False),
        ("Saint Petersburg", "St. Petersburg", False),
        ("the-sea gull!", "The Sea Gull", True),
        ("a, b; c", "A;B,C", True),
        ("a, b", "a, b, c", False),
        ("12%", "12", True),
        ("!", "?", False),
    ],
)
def test_the_quasi_exact_rule(found: str, wanted: str, same: bool) -> None:
    """Numbers by value, lists item by item, texts by letters and digits."""
    assert quasi_exact(found, wanted) is same


def test_numbers_and_booleans_of_json_are_apart() -> None:
    """True is not 1, null is not false, and numbers may differ by the tolerance."""
    assert not same_json(1, True)
    assert not same_json(True, 1)
    assert not same_json(None, False)
    assert same_json({"x": 1.004}, {"x": 1}, 0.01)
    assert not same_json([1, 2], [2, 1])


def test_the_last_json_counts() -> None:
    """Of several values in a text the last one is the answer; broken ones are skipped."""
    assert last_json('{"a": 1} or rather {"a": 2}.') == {"a": 2}
    assert last_json('{"a": {bad} and then [1, 2]') == [1, 2]
    assert last_json("7") == 7
    with pytest.raises(ValueError, match="no JSON"):
        last_json("{{{{")


def test_the_last_code_block_counts() -> None:
    """The program is the last fenced block, or all of the text."""
    assert code_block("a\n```python\none\n```\nb\n```\ntwo\n```\n") == "two\n"
    assert code_block("print(1)") == "print(1)"


def test_huge_answers_do_not_take_for_ever() -> None:
    """A hostile answer is searched in bounded time (a test that would hang otherwise)."""
    for text in (
        "{" * 300_000,
        "answer " * 100_000,
        "1" * 300_000,
        r"\boxed{" * 50_000,
        "(" * 300_000 + "A",
        "`" * 200_000,
    ):
        for kind in ("choice", "json", "numeric", "quasi_exact"):
            grader = GraderParams.model_validate({"kind": kind, "extract": ["boxed", "final_answer", "last_number"]})
            assert grade(text, "B" if kind == "choice" else "2", grader)[0] is False


def test_a_judge_needs_its_model() -> None:
    """The kind judge without a model is refused."""
    with pytest.raises(ValidationError, match="judge"):
        GraderParams(kind="judge")
