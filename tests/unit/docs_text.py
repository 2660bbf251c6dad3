"""Reading the documentation's Markdown: code blocks, tables, links, and how shown output is compared."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["HERE", "Block", "Command", "blocks", "commands", "first_column", "links", "pattern", "plain_output"]

#: where the commands of the documentation are said to be run
HERE = "/home/you/pytest-agentcompass"

_FENCE = re.compile(r"(?P<indent> *)```(?P<info>[^`]*)")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_RUN = re.compile(r"\d{8}t\d{6}z-[0-9a-f]{8}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00")
_SECONDS = re.compile(r"\d+\.\d+s\b")
_ANY = re.compile(r"(?<!\.)\.\.\.(?!\.)")
_RULE = re.compile(r"(?<=[=_])[=_]+")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced code block: its language, the words behind it (`title="conftest.py"`), its text and its line."""

    language: str
    words: dict[str, str]
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Command:
    """A command of a console block, the output shown below it, and the exit status that the block states."""

    text: str
    output: str
    status: int
    line: int


def blocks(page: Path) -> Iterator[Block]:
    """Yield the code blocks of a page, in order."""
    language, words, start, indent = "", {}, 0, 0
    body: list[str] | None = None
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        fence = _FENCE.fullmatch(line)
        if fence is None:
            if body is not None:
                body.append(line[indent:])
        elif body is None:
            language, _, rest = fence["info"].partition(" ")
            words = dict(re.findall(r'(\w+)="?([^"\s]+)"?', rest))
            body, start, indent = [], number, len(fence["indent"])
        else:
            yield Block(language, words, "\n".join(body) + "\n", start)
            body = None
    assert body is None, f"{page.name}:{start}: the code block is not closed"


def commands(block: Block) -> Iterator[Command]:
    """Yield the commands of a console block: lines that start with `$ `, each with the output up to the next."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        text, _, output = part.partition("\n")
        yield Command(text, output, int(block.words.get("status", "0")), block.line)


def links(page: Path) -> list[str]:
    """Return the targets of a page's links."""
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return _LINK.findall(text)


def first_column(page: Path, header: str) -> list[str]:
    """Return what stands in backticks in the first column of the table whose first heading is *header*."""
    lines = page.read_text(encoding="utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(f"| {header} |"))
    found: list[str] = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        found += re.findall(r"`([^`]+)`", line.split("|")[1])
    return found


def plain_output(text: str, here: Path | None = None) -> list[str]:
    """Return the lines of an output without what differs from run to run; blank lines do not count."""
    if here is not None:
        text = text.replace(str(here), HERE)
    text = _RUN.sub("RUN", _TIME.sub("TIME", text))
    text = _SECONDS.sub("SECONDS", _RULE.sub("", text))
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def pattern(shown: str) -> re.Pattern[str]:
    """Return what an output must match: a line `...` stands for any lines, `...` in a line for any text."""
    parts = []
    for line in plain_output(shown):
        texts = (re.escape(text) for text in _ANY.split(line))
        parts.append(r"(?:.*\n)*" if line == "..." else ".*".join(texts) + r"\n")
    return re.compile("".join(parts))
