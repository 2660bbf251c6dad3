"""Names on disk and in node ids."""

from __future__ import annotations

import json
import re
import unicodedata
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_agentcompass.errors import ResultsError
from pytest_agentcompass.results.layout import escape_id, request_dirname, task_dirname, unescape_id

CASES = Path(__file__).parents[4] / "shared" / "cases"
ANY_TEXT = st.text(st.characters(), max_size=200)
SAFE = re.compile(r"[a-z0-9_][a-z0-9_.-]*")
RESERVED = {"con", "prn", "aux", "nul", *(f"com{n}" for n in range(10)), *(f"lpt{n}" for n in range(10))}

ODD_IDS = [
    "django/django-1",
    "/abs/id",
    "-rf",
    "a b",
    "con",
    "x:y",
    "a\\b",
    "trail.",
    "trail ",
    "../../escape",
    "..",
    ".",
    "",
    " ",
    "nul.txt",
    "COM1",
    "lone\udcffsurrogate",
    "nul\0x",
    "caf\u00e9",
    "cafe\u0301",
    "Task",
    "task",
    "TASK",
    "a" * 300,
    "a" * 301,
    "\u0130",
    "\u2028",
    "$(touch pwned)",
    "~",
    "*",
]


@pytest.mark.parametrize("task_id", ["hello-world", "django__django-11099", "a.b_c-1", "__init__", "x" * 80, "0"])
def test_plain_names_stay(task_id: str) -> None:
    """A name that every file system can hold is the directory's name."""
    assert task_dirname(task_id) == task_id == request_dirname(task_id)


def test_odd_names_stay_apart() -> None:
    """No two ids share a directory, also where the file system folds case or Unicode normal forms."""
    names = [unicodedata.normalize("NFC", task_dirname(task_id)).casefold() for task_id in ODD_IDS]
    assert len(set(names)) == len(ODD_IDS)


@given(ANY_TEXT)
@example("..")
@example("con.tar.gz")
def test_names_are_safe(text: str) -> None:
    """A directory name is short lower-case ASCII, never reserved, hidden, or ending in a dot."""
    name = task_dirname(text)
    assert SAFE.fullmatch(name)
    assert len(name) <= 80
    assert not name.endswith((".", " "))
    assert name.partition(".")[0] not in RESERVED


@given(ANY_TEXT)
def test_a_hashed_name_is_nobodys_plain_name(text: str) -> None:
    """An id that reads like another id's directory name gets a directory of its own."""
    name = task_dirname(text)
    assert name == text or task_dirname(name) != name


@given(ANY_TEXT, ANY_TEXT)
def test_names_are_injective(one: str, other: str) -> None:
    """Different ids have different names."""
    assert (task_dirname(one) == task_dirname(other)) == (one == other)


@given(ANY_TEXT)
@example("a::b")
@example(":")
@example("+2b")
@example("a+b")
@example("lone\udcff")
def test_escape_round_trips(text: str) -> None:
    """Every id comes back exactly from its escaped form."""
    assert unescape_id(escape_id(text)) == text


@given(st.text(st.sampled_from("a:+/-. []\u00e9\udcff\0\n"), max_size=12))
def test_escaped_ids_hold_nothing_that_pytest_cannot_carry(text: str) -> None:
    """Only word characters, `- . / : +` remain, and never `::` or a `:` at an end."""
    escaped = escape_id(text)
    assert re.fullmatch(r"[\w\-./:+]*", escaped)
    assert "::" not in escaped
    assert not escaped.startswith(":")
    assert not escaped.endswith(":")
    escaped.encode("utf-8")


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("a b", "a+20b"),
        ("a:b", "a:b"),
        ("a::b", "a+3a+3ab"),
        (":a", "+3aa"),
        ("a+b", "a+2bb"),
        ("t[x]", "t+5bx+5d"),
        ("\u65e5\u672c", "\u65e5\u672c"),
        ("\udcff", "+ed+b3+bf"),
        ("", ""),
    ],
)
def test_escaped_forms(text: str, escaped: str) -> None:
    """The escape is the documented one: node ids are stable between versions."""
    assert escape_id(text) == escaped


@pytest.mark.parametrize("text", ["a b", "+zz", "+", "+2B", "+61", "a::b", "+ff", ":", "[x]"])
def test_unescape_refuses_what_escape_never_makes(text: str) -> None:
    """An id that was not escaped by us is an error that says how one looks."""
    with pytest.raises(ResultsError, match="hexadecimal"):
        unescape_id(text)


@pytest.mark.skipif(not CASES.exists(), reason="the handed cases are not there")
def test_the_odd_ids_of_case_03_round_trip() -> None:
    """24 rows give 24 node ids and 24 directories."""
    lines = (CASES / "03-odd-characters" / "odd.jsonl").read_bytes().split(b"\n")
    ids = [json.loads(line)["id"] for line in lines if line]
    assert len(ids) == 24
    assert [unescape_id(escape_id(text)) for text in ids] == ids
    assert len({escape_id(text) for text in ids}) == len({task_dirname(text) for text in ids}) == 24
