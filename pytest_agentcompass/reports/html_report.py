"""report.html: one self-contained page for people; opens from disk and as an artifact of CI."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from typing import Any

from .html_attempts import Present, RecordPath, attempt_table
from .html_causes import causes, request_details
from .html_elements import Html, element, joined, text
from .html_overview import overview, page_title
from .summary import RequestResult

__all__ = ["html_opening", "html_report"]

_BESIDE = ("summary.json", "summary.md", "junit.xml", "run.json")


def html_opening(summary: Mapping[str, Any], requests: Sequence[RequestResult]) -> bytes:
    """Return the page up to its attempts (UTF-8); *summary* is that of *requests* (`build_summary`).

    The page loads nothing and runs nothing but its own script, whatever a text in it holds: its policy names
    style and script by their hashes.
    """
    style, script = _asset("report.css"), _asset("report.js")
    policy = (
        f"default-src 'none'; style-src 'sha256-{_hash(style)}'; script-src 'sha256-{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    folded = joined((request_details(request) for request in requests), "\n")
    parts = [
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n'
        f"<title>{text(page_title(summary))}</title>\n<style>{style}</style>\n</head>\n<body>",
        overview(summary),
        causes(requests),
        f'<section class="folded">{folded}</section>',
    ]
    return "\n".join(parts).encode()


def html_report(
    opening: bytes, requests: Sequence[RequestResult], record_path: RecordPath, present: Present
) -> Iterator[bytes]:
    """Yield the whole page in parts; *opening* is that of `html_opening`.

    *record_path* gives the path of an attempt's record, relative to the page; *present* the names of what lies
    in the folder of an attempt that did not pass.
    """
    yield opening
    planned = sum(request.report["attempts"]["planned"] for request in requests)
    yield f'\n<section id="attempts"><h2>Attempts <small>{planned:,}</small></h2>\n{_CONTROLS}'.encode()
    for part in attempt_table(requests, record_path, present):
        yield part.encode()
    links = [element("a", text(name), href=name) for name in _BESIDE]
    yield f"</section>\n<footer><p>Beside this page: {joined(links, ', ')}</p></footer>\n".encode()
    yield f"<script>{_asset('report.js')}</script>\n</body>\n</html>\n".encode()


# Hidden until the script runs: without it all rows are there to be read.
_CONTROLS = Html(
    '<form id="controls" role="search" hidden="hidden">'
    '<input type="search" name="q" placeholder="Filter: task, reason, output" aria-label="Filter by text">'
    '<span id="outcomes" role="group" aria-label="Filter by outcome"></span><span id="choices"></span>'
    '<button type="button" id="unfold">Unfold</button><button type="reset">Reset</button>'
    '<output aria-live="polite"></output></form>\n'
)


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    return base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
