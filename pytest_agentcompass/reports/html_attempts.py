"""The attempts of report.html: a row each, those that did not pass with what a person needs to act on them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from urllib.parse import quote

from ..contracts.record import AttemptRecord
from ..results.records import cap
from .attempt_text import failure_text, reason
from .escape import html_block, html_text, one_line
from .html_elements import Html
from .summary import RequestResult
from .words import money

__all__ = ["Present", "RecordPath", "attempt_table"]

#: gives the path of an attempt's record, relative to the page
RecordPath = Callable[[str, str, int], str]
#: gives the names of what lies in an attempt's folder (relative to the page)
Present = Callable[[str], Collection[str]]

_COLUMNS = ("request", "task", "attempt", "outcome", "failure mode", "score", "seconds", "cost", "category", "reason")
_FILES = ("logs", "trajectory.jsonl", "panes", "recording.cast", "artifacts", "retries")
_FOLDERS = frozenset({"logs", "panes", "artifacts", "retries"})
# Bytes of the failure texts of one page, shared by all attempts that did not pass; and of one of them.
_ROOM = 4_000_000
_LONGEST = 20_000
_SHORTEST = 250
_CHUNK = 100  # rows that a browser lays out together, when they come into view


def attempt_table(requests: Sequence[RequestResult], record_path: RecordPath, present: Present) -> Iterator[Html]:
    """Yield the table of all planned attempts, in parts; *present* is asked of attempts that did not pass alone."""
    head = "".join(f'<th scope="col">{name}</th>' for name in _COLUMNS)
    yield Html(f"<table><thead><tr>{head}</tr></thead>\n")
    rows = _rows(requests, record_path, present)
    while chunk := list(islice(rows, _CHUNK)):
        yield Html(f"<tbody>{''.join(chunk)}</tbody>\n")
    yield Html("</table>\n")


def _rows(requests: Sequence[RequestResult], record_path: RecordPath, present: Present) -> Iterator[str]:
    failing = sum(item.report["attempts"]["failed"] + item.report["attempts"]["errors"] for item in requests)
    limit = max(_SHORTEST, min(_LONGEST, _ROOM // max(1, failing)))
    cell = lru_cache(4096)(html_text)  # few values differ from row to row; not kept: secrets may be added later
    for request in requests:
        name = cell(request.name, 80)
        for item in request.tallies:
            task, category = cell(item.task_id, 160), cell(item.category, 80)
            for number, record in item.attempts:
                path = record_path(request.name, item.task_id, number)
                head = f"<td>{name}</td><td>{_link(path, task) if record else task}</td><td>{number}</td>"
                if record is None:
                    yield _row("missing", head, "", "", category, "planned, but there is no record of it")
                    continue
                mode = "" if record.failure_mode.value == "none" else record.failure_mode.value
                yield _row(record.outcome, head, mode, _numbers(record), category, _why(record, path, present, limit))


def _row(outcome: str, head: str, mode: str, numbers: str, category: str, why: str) -> str:
    numbers = numbers or "<td></td><td></td><td></td>"
    tail = f"{numbers}<td>{category}</td><td>{why}</td>"
    return f'<tr class="{outcome}">{head}<td>{outcome}</td><td>{mode}</td>{tail}</tr>\n'


def _numbers(record: AttemptRecord) -> str:
    score = "" if record.score is None else f"{record.score:.4g}"
    cost = record.usage.get("cost_usd")
    money_text = "" if cost is None or not math.isfinite(cost) else money(cost)
    seconds = record.seconds
    return f"<td>{score}</td><td>{seconds if math.isfinite(seconds) else 0:.1f}</td><td>{money_text}</td>"


def _why(record: AttemptRecord, path: str, present: Present, limit: int) -> str:
    """Return why the attempt ended as it did; where it did not pass, with what lies behind it folded."""
    outcome = record.outcome
    if outcome == "passed" and record.failure_mode.value == "none":
        return ""
    if outcome not in ("failed", "error"):
        return html_text(reason(record))
    first, _, rest = failure_text(record, path).partition("\n")
    shown = one_line(first)
    whole = rest if shown == first else f"{first}\n{rest}"
    block = _fitted(whole.rpartition("record: ")[0].rstrip("\n"), limit)
    return f"<details><summary>{html_text(shown)}</summary><pre>{block}</pre><p>{_files(path, present)}</p></details>"


def _fitted(words: str, limit: int) -> str:
    """Return *words* for a `pre` element in about *limit* bytes: head and tail, with the cut stated."""
    block = html_block(cap(words, limit))
    size = len(block.encode())
    return block if size <= limit + 200 else html_block(cap(words, max(40, limit * limit // size)))


def _files(path: str, present: Present) -> str:
    folder = path.removesuffix("record.json")
    found = present(folder)
    links = [_link(path, "record.json")]
    for name in _FILES:
        if name in found:
            shown = f"{name}/" if name in _FOLDERS else name
            links.append(_link(folder + shown, shown))
    return " ".join(links)


def _link(path: str, words: str) -> str:
    return f'<a href="{html_text(_url(path), 4000)}">{words}</a>'


def _url(path: str) -> str:
    """Return a path as a URL relative to the page: neither a scheme nor a host can be in it."""
    return quote(path.lstrip("/"), errors="surrogatepass")
