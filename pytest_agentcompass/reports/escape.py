"""Texts of agents and verifiers made fit for XML, HTML, terminals and Markdown."""

from __future__ import annotations

import re
from html import escape

from ..redaction import scrub

__all__ = ["html_block", "html_text", "markdown_text", "one_line", "tail", "terminal_text", "xml_name", "xml_text"]

# Not allowed in XML 1.0, or allowed but a control character that no one can see (DEL, C1).
_NOT_XML = re.compile("[^\t\n\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# A terminal must not obey these either: direction overrides reorder what a person reads.
_NOT_TERMINAL = re.compile(
    "[^\t\n\x20-\x7e\xa0-\u200d\u2010-\u2027\u2030-\u2065\u206a-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
)
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[ -/]*[0-~])")
_MARKDOWN = re.compile(r"([\\`*_\[\]|~#])")
_LINE_WIDTH = 400


def _code(hit: re.Match[str]) -> str:
    number = ord(hit[0])
    return f"#x{number:02X}" if number <= 0xFF else f"#x{number:04X}"


def xml_text(text: str) -> str:
    """Return *text* scrubbed and with `#xNN` in place of every character that XML 1.0 cannot hold.

    Line ends become newlines, as an XML reader would make them.
    """
    return _NOT_XML.sub(_code, re.sub("\r\n?", "\n", scrub(text)))


def xml_name(text: str) -> str:
    """Return *text* for an attribute: like `xml_text`, but never masked and on one line."""
    return re.sub("[\t\n\r]", _code, _NOT_XML.sub(_code, text))


def terminal_text(text: str) -> str:
    """Return *text* scrubbed, without terminal sequences; other control characters become `#xNN`.

    Of a line that was overwritten by carriage returns only the last state stays.
    """
    text = scrub(text)
    if text.isascii() and text.isprintable():
        return text  # as most are
    plain = _ANSI.sub("", text).replace("\r\n", "\n")
    if "\r" in plain:
        plain = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in plain.split("\n"))
    return _NOT_TERMINAL.sub(_code, plain)


def one_line(text: str, limit: int = 200) -> str:
    """Return *text* for a terminal on one line, cut after *limit* characters."""
    line = " ".join(terminal_text(text[: limit * 20]).split())
    return line if len(line) <= limit else line[: max(0, limit - 3)].rstrip() + "..."


def tail(text: str, lines: int) -> tuple[list[str], bool]:
    """Return the last *lines* lines that say something, for a terminal, and whether there were more."""
    window = text[-lines * _LINE_WIDTH * 4 :] if lines > 0 else ""
    found = terminal_text(window).split("\n")
    while found and not found[-1].rstrip():
        found.pop()
    while found and not found[0].rstrip():
        found.pop(0)
    kept = [_narrow(line.rstrip()) for line in found[-lines:]] if lines > 0 else []
    return kept, len(found) > len(kept) or len(window) < len(text)


def markdown_text(text: str, limit: int = 200) -> str:
    """Return *text* for a Markdown table cell: one line, nothing in it is markup."""
    line = one_line(text, limit).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _MARKDOWN.sub(r"\\\1", line) or "&nbsp;"


def html_text(text: str, limit: int = 300) -> str:
    """Return *text* for HTML, in an element or in a quoted attribute: one line, nothing in it is markup."""
    return escape(one_line(text, limit))


def html_block(text: str) -> str:
    """Return *text* for an HTML `pre`: lines stay, nothing in it is markup."""
    return escape(terminal_text(text))


def _narrow(line: str) -> str:
    return line if len(line) <= _LINE_WIDTH else f"{line[: _LINE_WIDTH - 3]}..."
