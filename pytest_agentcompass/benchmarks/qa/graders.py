"""Graders that need nothing but the answer: each returns whether it is right, and what is to be said."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from ...components.answers import matches, number_of
from .extracting import extract, last_json, letter
from .params import GraderParams

__all__ = ["grade", "quasi_exact", "same_json"]

_SHOWN = 200


def grade(answer: str, expected: Any, grader: GraderParams, choices: list[str] | None = None) -> tuple[bool, str]:
    """Return whether *answer* is right, and a sentence for the record; an empty answer never is."""
    if not answer.strip():
        return False, "no answer was given"
    if grader.kind == "choice":
        found = letter(answer, choices or [], len(choices) if choices else 26)
        said = f"chose {found}" if found else f"no option can be read from {_short(answer)}"
        return found == expected, f"expected {expected}, {said}"
    if grader.kind == "json":
        return _json(answer, expected, grader)
    found = extract(answer, grader.extract)
    wanted = expected if isinstance(expected, list) else [expected]
    right = any(_same(found, str(item), grader) for item in wanted)
    return right, f"expected {' or '.join(_short(str(item)) for item in wanted)} ({grader.kind}), got {_short(found)}"


def _short(text: str) -> str:
    text = " ".join(text.split())
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")


def _same(found: str, wanted: str, grader: GraderParams) -> bool:
    if grader.kind == "quasi_exact":
        return quasi_exact(found, wanted)
    if grader.kind != "numeric":
        return matches(found, wanted, grader.kind)
    value, goal = number_of(_bare(found)), number_of(_bare(wanted))
    if value is None or goal is None:
        return False
    allowed = max(Decimal(repr(grader.tolerance)), Decimal(repr(grader.relative_tolerance)) * abs(goal))
    return abs(value - goal) <= allowed


def _bare(text: str) -> str:
    """Return a number without what people write around it."""
    return text.strip().strip("$€£*_` ").rstrip(".% ").strip()


def quasi_exact(found: str, wanted: str) -> bool:
    """Compare as a number where *wanted* is one, item by item where it is a list, else letters and digits alone.

    The rule that GAIA describes: `$`, `%` and thousands' commas do not count in numbers; lists are separated by
    commas or semicolons; in texts case, blanks and punctuation do not count.
    """
    if number_of(_bare(wanted)) is not None:
        value = number_of(_bare(found))
        return value is not None and value == number_of(_bare(wanted))
    if re.search(r"[,;]", wanted):
        mine, theirs = re.split(r"[,;]", found), re.split(r"[,;]", wanted)
        return len(mine) == len(theirs) and all(_one(one, other) for one, other in zip(mine, theirs, strict=True))
    return bool(_plain(wanted)) and _plain(found) == _plain(wanted)


def _one(found: str, wanted: str) -> bool:
    goal = number_of(_bare(wanted))
    if goal is not None:
        return number_of(_bare(found)) == goal
    return "".join(found.split()).casefold() == "".join(wanted.split()).casefold()


def _plain(text: str) -> str:
    kept = "".join(char for char in text.casefold() if not char.isspace() and char not in string.punctuation)
    return kept or "".join(text.split())


def _json(answer: str, expected: Any, grader: GraderParams) -> tuple[bool, str]:
    try:
        value = last_json(answer)
    except ValueError as error:
        return False, str(error)
    right = same_json(value, expected, grader.tolerance, subset=grader.subset)
    return right, f"expected {_short(str(expected))} (json), got {_short(str(value))}"


def same_json(found: Any, wanted: Any, tolerance: float = 0.0, *, subset: bool = False) -> bool:
    """Whether two JSON values are equal: numbers within *tolerance*, true and 1 apart; see `GraderParams.subset`."""
    if isinstance(wanted, bool) or isinstance(found, bool) or wanted is None:
        return type(found) is type(wanted) and found == wanted
    if isinstance(wanted, (int, float)):
        return isinstance(found, (int, float)) and abs(found - wanted) <= tolerance
    if isinstance(wanted, Mapping):
        if not isinstance(found, Mapping) or not (set(wanted) <= set(found) if subset else set(wanted) == set(found)):
            return False
        return all(same_json(found[key], value, tolerance, subset=subset) for key, value in wanted.items())
    if isinstance(wanted, list):
        return (
            isinstance(found, list)
            and len(found) == len(wanted)
            and all(same_json(one, other, tolerance, subset=subset) for one, other in zip(found, wanted, strict=True))
        )
    return bool(found == wanted)
