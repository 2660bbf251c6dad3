"""HTML made of elements that are balanced and escaped by construction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NewType

from .escape import html_text

__all__ = [
    "NAME",
    "OUTCOMES",
    "Html",
    "chip",
    "element",
    "interval_bar",
    "joined",
    "outcome_bar",
    "share_bar",
    "spaced",
    "table",
    "text",
]

#: text that is safe to stand in a page: only `text`, `element` and those who take care make it
Html = NewType("Html", str)
#: names of counts in a report, and the outcome that each of them counts, in the order of every bar and legend
OUTCOMES = {"passed": "passed", "failed": "failed", "errors": "error", "skipped": "skipped", "missing": "missing"}
#: characters of a request's name where attempts are chosen by it
NAME = 80
_ATTRIBUTE = 4000


def text(value: object, limit: int = 300) -> Html:
    """Return *value* as text on one line, cut after *limit* characters."""
    return Html(html_text(str(value), limit))


def element(tag: str, *content: Html, **attributes: str) -> Html:
    """Return an element; `class_` gives the attribute class, `aria_label` aria-label."""
    head = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{html_text(value, _ATTRIBUTE)}"' for name, value in attributes.items()
    )
    return Html(f"<{tag}{head}>{''.join(content)}</{tag}>")


def joined(parts: Iterable[Html], separator: str = "") -> Html:
    """Return *parts* one after the other, with *separator* (HTML of ours) between them."""
    return Html(separator.join(parts))


def spaced(*parts: Html) -> Html:
    """Return *parts* as words of a line; `text` takes spaces at its ends away."""
    return joined(parts, " ")


def table(head: Sequence[str], rows: Iterable[Sequence[Html]], words: Sequence[int] = (0,)) -> Html:
    """Return a table that scrolls sideways where it is too wide; columns not among *words* hold numbers."""
    kinds = ["" if place in words else "number" for place in range(len(head))]
    titles = [_cell("th", kind, text(name), scope="col") for name, kind in zip(head, kinds, strict=True)]
    body = [element("tr", *[_cell("td", kind, cell) for cell, kind in zip(row, kinds, strict=True)]) for row in rows]
    content = element("table", element("thead", element("tr", *titles)), element("tbody", *body))
    return element("div", content, class_="wide", tabindex="0")


def _cell(tag: str, kind: str, content: Html, **attributes: str) -> Html:
    return element(tag, content, **attributes, **({"class_": kind} if kind else {}))


def chip(word: str, kind: str = "") -> Html:
    """Return a word that stands out, coloured by its *kind* (an outcome or a verdict)."""
    return element("span", text(word, 40), class_=f"chip {(kind or word).lower()}")


def outcome_bar(counts: Mapping[str, int]) -> Html:
    """Return the shares of outcomes as a stacked bar; *counts* is that of a report."""
    total = sum(counts[name] for name in OUTCOMES)
    label = ", ".join(f"{counts[name]} {name}" for name in OUTCOMES)
    parts, left = [], 0.0
    for name, outcome in OUTCOMES.items():
        width = 100 * counts[name] / total if total else 0.0
        if width:
            parts.append(_rect(left, width, outcome))
        left += width
    return _picture("bar", label, parts)


def interval_bar(value: float | None, low: float | None, high: float | None, label: str) -> Html:
    """Return a share and its interval (0 to 1 each) on a scale from 0 to 100 percent."""
    parts = []
    if low is not None and high is not None:
        parts.append(_rect(100 * low, max(0.4, 100 * (high - low)), "band"))
    if value is not None:
        parts.append(_rect(min(99.2, 100 * value - 0.4) if value else 0.0, 0.8, "point"))
    return _picture("scale", label, parts)


def share_bar(part: int, whole: int, kind: str) -> Html:
    """Return *part* of *whole* as a bar; the number itself stands beside it."""
    return _picture("share", "", [_rect(0.0, 100 * part / whole, kind)] if whole else [])


def _rect(left: float, width: float, kind: str) -> Html:
    return element("rect", x=f"{left:.2f}%", width=f"{width:.2f}%", height="100%", class_=kind)


def _picture(kind: str, label: str, parts: Iterable[Html]) -> Html:
    if not label:
        return element("svg", *parts, class_=kind, aria_hidden="true")
    return element("svg", element("title", text(label, 500)), *parts, class_=kind, role="img", aria_label=label)
