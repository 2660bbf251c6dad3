"""Where in a model's text the final answer stands. Pure; every search is bounded, for the text is anybody's."""

from __future__ import annotations

import json
import re
from typing import Any

__all__ = ["code_block", "extract", "last_json", "letter"]

_SEARCHED = 100_000  # characters from the end in which an answer is looked for
_NUMBER = re.compile(r"(?<![\w.])[+-]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+)?(?:[eE][+-]?\d{1,3})?(?!\w)")
_FINAL = re.compile(r"(?:^|\n)[^\n]{0,40}?(?i:(?:final |exact )?answer)\W{0,5}?[:=][ \t*]*([^\n]+)")
_LABELLED = re.compile(r"(?i:\b(?:answer|choice|option)\b)(?i:\s+is)?[\s:=*_`\"'(\[]{0,12}([A-Z])\b(?!['’])")
_ALONE = re.compile(r"[\s*_`\"'(\[]{0,10}([A-Za-z])[\s*_`\"').\]:]{0,10}")
_LEADING = re.compile(r"[*_`(\[]{0,3}([A-Z])[).\]:][\s*]")
_FENCE = re.compile(r"^```[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)


def extract(text: str, ways: tuple[str, ...]) -> str:
    """Return what the first of *ways* finds; the whole text where none finds anything."""
    text = text[-_SEARCHED:].strip()
    for way in ways:
        found = text if way == "whole" else _WAYS[way](text)
        if found:
            return found
    return text


def boxed(text: str) -> str:
    """Return the content of the last `\\boxed{...}`, braces inside counted."""
    start = text.rfind("\\boxed{")
    if start < 0:
        return ""
    depth, begin = 0, start + len("\\boxed{")
    for at in range(begin, len(text)):
        if text[at] == "}" and depth == 0:
            return text[begin:at].strip().strip("$")
        depth += (text[at] == "{") - (text[at] == "}")
    return ""


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def _last_number(text: str) -> str:
    found = [item.group() for item in _NUMBER.finditer(text) if any(char.isdigit() for char in item.group())]
    return found[-1] if found else ""


def _final_answer(text: str) -> str:
    found = _FINAL.findall(text)
    return found[-1].strip().strip("*_`").strip() if found else ""


_WAYS = {"boxed": boxed, "last_line": _last_line, "last_number": _last_number, "final_answer": _final_answer}


def letter(text: str, choices: list[str], count: int = 26) -> str:
    """Return the letter of the option that *text* chooses; empty when it says none, or more than one."""
    text = text[-_SEARCHED:].strip()
    known = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[:count]
    inside = boxed(text)
    for candidate in filter(None, (inside, text)):
        alone = _ALONE.fullmatch(candidate)
        if alone and alone[1].upper() in known:
            return alone[1].upper()
        by_text = [known[at] for at, choice in enumerate(choices) if choice.casefold() == candidate.casefold()]
        if by_text:
            return by_text[0]
    labelled = [item for item in _LABELLED.findall(text) if item in known]
    if labelled:
        return str(labelled[-1])
    leading = _LEADING.match(_last_line(text)) or _LEADING.match(text)
    return leading[1] if leading and leading[1] in known else ""


def last_json(text: str) -> Any:
    """Return the last JSON value (object or list, else the whole text) in *text*; ValueError when there is none."""
    text = text[-_SEARCHED:].strip()
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    decoder, at, found = json.JSONDecoder(), 0, []
    tries = 0
    while tries < 2_000 and (match := re.compile(r"[\[{]").search(text, at)):
        tries += 1
        try:
            value, at = decoder.raw_decode(text, match.start())
            found.append(value)
        except (ValueError, RecursionError):
            at = match.start() + 1
    if not found:
        raise ValueError("there is no JSON in the answer")
    return found[-1]


def code_block(text: str) -> str:
    """Return the last fenced code block of *text*, or the whole text where there is none."""
    blocks = _FENCE.findall(text[-_SEARCHED:])
    return str(blocks[-1]) if blocks else text
