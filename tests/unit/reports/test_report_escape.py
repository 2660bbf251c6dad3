"""Hostile text in XML, on terminals and in Markdown."""

from __future__ import annotations

import re
from xml.parsers import expat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_agentcompass import redaction
from pytest_agentcompass.reports.escape import (
    html_block,
    html_text,
    markdown_text,
    one_line,
    tail,
    terminal_text,
    xml_name,
    xml_text,
)

ANY_TEXT = st.text(st.characters(codec=None, categories=None), max_size=200)  # lone surrogates included


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("\x00\x01\x08\x0b\x1b", "#x00#x01#x08#x0B#x1B"),
        ("\x7f\x85", "#x7F#x85"),
        ("\ufffe\uffff", "#xFFFE#xFFFF"),
        ("\ud800 \udcff", "#xD800 #xDCFF"),
        ("tab\tline\n", "tab\tline\n"),
        ("a\r\nb\rc", "a\nb\nc"),
        ("\ufffd é 漢 \U0001f600", "\ufffd é 漢 \U0001f600"),
        ("<&>]]>", "<&>]]>"),
    ],
)
def test_xml_text_keeps_a_readable_escape(raw: str, shown: str) -> None:
    """What XML cannot hold is shown as #xNN; everything else stays."""
    assert xml_text(raw) == shown


def test_xml_names_stay_on_one_line() -> None:
    """A newline in an attribute would be normalised away by a reader; it is shown instead."""
    assert xml_name("a\nb\tc\rd") == "a#x0Ab#x09c#x0Dd"


@given(ANY_TEXT)
def test_xml_text_is_accepted_by_a_strict_parser(text: str) -> None:
    """Any text at all, once markup is escaped, is well-formed XML and valid UTF-8."""
    body = xml_text(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    found: list[str] = []
    parser = expat.ParserCreate()
    parser.CharacterDataHandler = found.append
    parser.Parse(f"<a>{body}</a>".encode(), True)
    assert "".join(found) == xml_text(text)


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b[2J\x1b[1;1Hgone", "gone"),
        ("\x1bPq#0\x1b\\image", "image"),
        ("10%\r50%\r100%\ndone\r\n", "100%\ndone\n"),
        ("bell\x07 back\x08", "bell#x07 back#x08"),
        ("abc\u202ecba\u2066", "abc#x202Ecba#x2066"),
        ("\udcff", "#xDCFF"),
    ],
)
def test_terminal_text_is_not_obeyed(raw: str, shown: str) -> None:
    """An agent's output cannot move the cursor, set titles, ring, or reorder what is read."""
    assert terminal_text(raw) == shown


@given(ANY_TEXT)
def test_terminal_text_is_encodable_and_without_controls(text: str) -> None:
    """Nothing but newline and tab is left of the control characters, and it encodes."""
    shown = terminal_text(text)
    shown.encode()
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", shown)


@given(ANY_TEXT, st.integers(4, 50))
def test_one_line_is_one_short_line(text: str, limit: int) -> None:
    """Whatever comes, one line within its limit goes out."""
    line = one_line(text, limit)
    assert len(line) <= limit
    assert "\n" not in line


def test_tail_keeps_the_last_lines_that_say_something() -> None:
    """Blank lines at both ends go; whether something was left out is said."""
    assert tail("\n\na\nb\n\n\n", 5) == (["a", "b"], False)
    assert tail("a\nb\nc\n", 2) == (["b", "c"], True)
    assert tail("", 3) == ([], False)
    assert tail("a", 0) == ([], True)


def test_tail_of_a_huge_text_is_small() -> None:
    """A 50 MB line does not end up on the terminal."""
    kept, more = tail("x" * 50_000_000, 15)
    assert more
    assert sum(map(len, kept)) <= 15 * 400


@pytest.mark.parametrize("raw", ["a|b", "`code`", "*bold* _it_", "[x](http://y)", "<img src=x>", "a\nb", "~~s~~", "\\"])
def test_markdown_text_has_no_markup(raw: str) -> None:
    """Every character that Markdown or HTML would read as markup is escaped, and lines stay in the cell."""
    shown = markdown_text(raw)
    assert not re.search(r"(?<!\\)[`*_\[\]|~#]", shown.replace("\\\\", ""))
    assert not re.search("[<>\n]", shown)


def test_an_empty_cell_is_still_a_cell() -> None:
    """An empty id does not collapse the table."""
    assert markdown_text("") == "&nbsp;"


def test_secrets_are_masked_in_texts_but_not_in_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that an agent printed is masked; an id that happens to hold it is left, or ids would clash."""
    monkeypatch.setattr(redaction, "_values", set())
    monkeypatch.setattr(redaction, "_pattern", None)
    redaction.add_secret("sk-very-secret")
    for shown in (xml_text, terminal_text, one_line, markdown_text, html_text, html_block):
        assert "sk-very-secret" not in shown("key sk-very-secret end")
    assert xml_name("task sk-very-secret") == "task sk-very-secret"
