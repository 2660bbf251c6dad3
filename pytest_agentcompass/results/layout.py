"""Names on disk and in node ids: readable, safe on every file system, never ambiguous."""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache

from ..errors import ResultsError

__all__ = ["attempt_path", "escape_id", "request_dirname", "task_dirname", "unescape_id"]

_MAX = 80  # characters of a directory name
_HASH = 16  # hexadecimal digits of SHA-256 that make a changed name unique
_PLAIN = re.compile(r"[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_-])?")
_HASHED = re.compile(rf".*--[0-9a-f]{{{_HASH}}}")
_RESERVED = re.compile(r"(?:con|prn|aux|nul|conin|conout|clock|com[0-9]|lpt[0-9])(?:\..*)?")
_UNSAFE = re.compile(r"[^a-z0-9_]+")


def task_dirname(task_id: str) -> str:
    """Return the directory name of a task: its id where that is safe, else a readable prefix and a hash.

    At most 80 characters of lower-case ASCII. A name is taken as it is only when no file system could
    confuse it with another (case folding, Unicode normal forms, reserved names, trailing dots) and it
    does not look like a hashed one; the hash is over the exact id, lone surrogates included.
    """
    return _dirname(task_id, "task")


def request_dirname(name: str) -> str:
    """Return the directory name of a request, a run name or a run id (see `task_dirname`)."""
    return _dirname(name, "request")


def attempt_path(request: str, task_id: str, attempt: int) -> str:
    """Return the path of an attempt's folder, relative to the run directory."""
    return f"attempts/{request_dirname(request)}/{task_dirname(task_id)}/{int(attempt)}"


@lru_cache(1024)
def _dirname(text: str, fallback: str) -> str:
    if len(text) <= _MAX and _PLAIN.fullmatch(text) and not _RESERVED.fullmatch(text) and not _HASHED.fullmatch(text):
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH]
    readable = _UNSAFE.sub("-", text[:400].lower()).strip("-")[: _MAX - _HASH - 2].strip("-")
    return f"{readable or fallback}--{digest}"


# pytest's `-k` and pasted node ids can carry word characters and `- . /`, and a single `:` inside a name;
# `::` separates nodes, so a `:` beside another one or at an end is escaped.
_ESCAPED = re.compile(r"[^\w\-./:]|(?<=:):|:(?=:)|\A:|:\Z")
_CODE = re.compile(rb"\+([0-9a-f]{2})")


def escape_id(text: str) -> str:
    """Return *text* as one part of a pytest node id; `unescape_id` gives it back exactly.

    Kept: word characters of any script, `- . /` and a single `:` inside; all else becomes `+hh` for
    each UTF-8 byte (lone surrogates included).
    """
    return _ESCAPED.sub(lambda hit: "".join(f"+{byte:02x}" for byte in hit[0].encode("utf-8", "surrogatepass")), text)


def unescape_id(escaped: str) -> str:
    """Return the text that `escape_id` made *escaped* of; ResultsError when it did not make it."""
    raw = _CODE.sub(lambda hit: bytes([int(hit[1], 16)]), escaped.encode("utf-8", "surrogatepass"))
    try:
        text = raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        text = ""
    if escape_id(text) != escaped:
        raise ResultsError(
            f"{escaped!r} is not an escaped id: characters other than letters, digits, `_ - . /` and a single `:` "
            "inside are written as `+` and two lower-case hexadecimal digits for each UTF-8 byte"
        )
    return text
