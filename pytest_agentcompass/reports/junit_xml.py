"""JUnit XML as text, written case by case: a tree of ten thousand attempts would take 100 MB and seconds.

The format is that of the Jenkins and Surefire readers: testsuites > testsuite > testcase, with properties,
one of failure, error and skipped, and system-out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from xml.sax.saxutils import escape, quoteattr

from .escape import xml_name

__all__ = ["Case", "Result", "Suite", "document", "make_case", "make_suite"]

_COUNTED = {"failure": "failures", "error": "errors", "skipped": "skipped"}


@dataclass(frozen=True, slots=True)
class Result:
    """Why a case is not passed; *kind* is failure, error or skipped, *text* is fit for XML already."""

    kind: str
    code: str
    message: str
    text: str


@dataclass(frozen=True, slots=True)
class Case:
    """One testcase as text, and what its suite counts of it."""

    xml: str
    kind: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Suite:
    """One testsuite as parts of a text, and its counts by attribute name."""

    parts: Sequence[str]
    counts: Mapping[str, float]


@lru_cache(4096)
def _quoted(text: str) -> str:
    """Return *text* as the quoted value of an attribute; few values differ from case to case."""
    return quoteattr(xml_name(text))


def _attributes(values: Mapping[str, object]) -> str:
    return "".join(f" {name}={_quoted(str(value))}" for name, value in values.items())


def _properties(values: Mapping[str, object]) -> str:
    rows = [f"<property name={_quoted(name)} value={_quoted(str(value))} />" for name, value in values.items()]
    return f"<properties>{''.join(rows)}</properties>" if rows else ""


def make_case(
    classname: str,
    name: str,
    seconds: float = 0.0,
    properties: Mapping[str, object] | None = None,
    result: Result | None = None,
    output: str = "",
) -> Case:
    """Return a testcase; *output* is fit for XML already, everything else is made so."""
    seconds = round(seconds, 3) if math.isfinite(seconds) else 0.0
    content = _properties(properties or {})
    if result is not None:
        head = _attributes({"message": result.message, "type": result.code})
        content += f"<{result.kind}{head}>{escape(result.text)}</{result.kind}>"
    if output:
        content += f"<system-out>{escape(output)}</system-out>"
    head = _attributes({"name": name, "classname": classname, "time": seconds})
    return Case(f"<testcase{head}>{content}</testcase>\n", result.kind if result else "", seconds)


def make_suite(
    name: str, cases: Iterable[Case], properties: Mapping[str, object] | None = None, timestamp: str = ""
) -> Suite:
    """Return a testsuite with its counts."""
    counts: dict[str, float] = {"tests": 0, "errors": 0, "failures": 0, "skipped": 0, "time": 0.0}
    parts = [""]
    for case in cases:
        parts.append(case.xml)
        counts["tests"] += 1
        counts["time"] += case.seconds
        if case.kind:
            counts[_COUNTED[case.kind]] += 1
    counts["time"] = round(counts["time"], 3)
    head = _attributes({"name": name, **({"timestamp": timestamp} if timestamp else {}), **counts})
    parts[0] = f"<testsuite{head}>{_properties(properties or {})}\n"
    parts.append("</testsuite>\n")
    return Suite(parts, counts)


def document(name: str, suites: Sequence[Suite]) -> Iterator[bytes]:
    """Yield the whole document (UTF-8) in parts."""
    names = ("tests", "failures", "errors", "skipped", "time")
    totals = {key: round(sum(suite.counts[key] for suite in suites), 3) for key in names}
    yield b'<?xml version="1.0" encoding="utf-8"?>\n'
    yield f"<testsuites{_attributes({'name': name, **totals})}>\n".encode()
    for suite in suites:
        yield from (part.encode() for part in suite.parts)
    yield b"</testsuites>\n"
