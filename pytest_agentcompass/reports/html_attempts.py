"""The attempts of report.html: a row each, those that did not pass with what a person needs to act on them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from html import escape
from itertools import islice
from urllib.parse import quote

from ..contracts.outcome import FailureMode
from ..contracts.record import AttemptRecord
from ..redaction import scrub
from ..results.records import cap
from .attempt_text import failure_text, reason
from .escape import html_block, html_text, one_line
from .html_elements import NAME, Html
from .summary import RequestResult
from .words import money

__all__ = ["Present", "RecordPath", "attempt_table"]

#: gives the path of an attempt's record, relative to the page
RecordPath = Callable[[str, str, int], str]
#: gives the names of what lies in an attempt's folder (relative to the page)
Present = Callable[[str], Collection[str]]

_COLUMNS = ("request", "task", "attempt", "outcome", "failure mode", "score", "seconds", "cost", "category", "reason")
# What a folder of an attempt may hold, and how the name ends in a link to it.
_FILES = {"logs": "/", "trajectory.jsonl": "", "panes": "/", "recording.cast": "", "artifacts": "/", "retries": "/"}
# Bytes of the failure texts of one page, shared by all attempts that did not pass; and of one of them.
_ROOM = 4_000_000
_LONGEST = 20_000
_SHORTEST = 250
_NO_NUMBERS = "<td></td><td></td><td></td>"
_LINES = 15  # of the output of agent and of verifier, as many as JUnit has, where there is room
_PLAIN = re.compile("[a-z0-9_./-]*")
_CHUNK = 100  # rows that a browser lays out together, when they come into view


def attempt_table(requests: Sequence[RequestResult], record_path: RecordPath, present: Present) -> Iterator[Html]:
    """Yield the table of all planned attempts, in parts; *present* is asked of attempts that did not pass alone."""
    head = "".join(f'<th scope="col">{name}</th>' for name in _COLUMNS)
    yield Html(f'<table aria-label="Attempts"><thead><tr>{head}</tr></thead>\n')
    rows = _rows(requests, record_path, present)
    while chunk := list(islice(rows, _CHUNK)):
        yield Html(f"<tbody>{''.join(chunk)}</tbody>\n")
    yield Html("</table>\n")


def _rows(requests: Sequence[RequestResult], record_path: RecordPath, present: Present) -> Iterator[str]:
    failing = sum(item.report["attempts"]["failed"] + item.report["attempts"]["errors"] for item in requests)
    limit = max(_SHORTEST, min(_LONGEST, _ROOM // max(1, failing)))
    cell = lru_cache(4096)(html_text)  # few values differ from row to row; not kept: secrets may be added later
    for request in requests:
        name = cell(request.name, NAME)
        for item in request.tallies:
            task, category = cell(item.task_id, 160), cell(item.category, 80)
            for number, record in item.attempts:
                if record is None:
                    head = f"<td>{name}</td><td>{task}</td><td>{number}</td>"
                    yield _row("missing", head, "", _NO_NUMBERS, category, "planned, but there is no record of it")
                    continue
                path = record_path(request.name, item.task_id, number)
                head = f'<td>{name}</td><td><a href="{_url(path)}">{task}</a></td><td>{number}</td>'
                mode = "" if record.failure_mode is FailureMode.NONE else record.failure_mode.value
                outcome = record.outcome
                why = _why(record, outcome, path, present, limit)
                yield _row(outcome, head, mode, _numbers(record), category, why)


def _row(outcome: str, head: str, mode: str, numbers: str, category: str, why: str) -> str:
    tail = f"{numbers}<td>{category}</td><td>{why}</td>"
    return f'<tr class="{outcome}">{head}<td>{outcome}</td><td>{mode}</td>{tail}</tr>\n'


def _numbers(record: AttemptRecord) -> str:
    score = "" if record.score is None else f"{record.score:.4g}"
    cost, seconds = record.usage.get("cost_usd"), record.seconds
    spent = "" if cost is None or not math.isfinite(cost) else money(cost)
    return f"<td>{score}</td><td>{seconds if math.isfinite(seconds) else 0:.1f}</td><td>{spent}</td>"


def _why(record: AttemptRecord, outcome: str, path: str, present: Present, limit: int) -> str:
    """Return why the attempt ended as it did; where it did not pass, with what lies behind it folded."""
    if outcome == "passed" and record.failure_mode is FailureMode.NONE:
        return ""
    if outcome not in ("failed", "error"):
        return html_text(reason(record))
    first, _, rest = failure_text(record, path, max(3, min(_LINES, limit // 200))).partition("\n")
    shown = one_line(first)
    whole = (rest if shown == first else f"{first}\n{rest}").rpartition("record: ")[0]  # the links tell where it is
    links = _files(path, present)
    return f"<details><summary>{escape(shown)}</summary><pre>{_fitted(whole.rstrip(), limit)}</pre>{links}</details>"


def _fitted(words: str, limit: int) -> str:
    """Return *words* for a `pre` element in about *limit* bytes: head and tail, with the cut stated."""
    block = html_block(cap(words, limit))
    size = len(block) if block.isascii() else len(block.encode())
    return block if size <= limit + 200 else html_block(cap(words, max(40, limit * limit // size)))


def _files(path: str, present: Present) -> str:
    folder = path.removesuffix("record.json")
    found, url = present(folder), _url(folder)
    names = ["record.json", *[name + end for name, end in _FILES.items() if name in found]]
    links = " ".join([f'<a href="{url}{name}">{name}</a>' for name in names])
    return f"<p>{links}</p>"


def _url(path: str) -> str:
    """Return a path as a URL relative to the page, fit for an attribute: neither scheme nor host can be in it."""
    url = path if _PLAIN.fullmatch(path) else quote(path, errors="surrogatepass")
    return escape(scrub(url.lstrip("/")))
