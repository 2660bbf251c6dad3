"""Server-sent events: the form in which all three protocols stream."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from .errors import ErrorKind, ModelRefusal, Refusal

__all__ = ["events_of", "write_event"]


def events_of(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield the JSON object of each event of *lines*; `[DONE]` ends the stream. ModelRefusal for what is no JSON."""
    data: list[str] = []
    for line in lines:
        text = line.rstrip("\r\n")
        if text.startswith("data:"):
            data.append(text[5:].removeprefix(" "))
        elif not text and data:
            content, data = "\n".join(data), []
            if content.strip() == "[DONE]":
                return
            yield _object(content)
    if data and "\n".join(data).strip() != "[DONE]":
        yield _object("\n".join(data))


def _object(content: str) -> dict[str, Any]:
    try:
        value = json.loads(content)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ModelRefusal("broken stream", Refusal(ErrorKind.BAD_RESPONSE, f"an event is no JSON: {content[:200]!r}"))
    return value


def write_event(data: dict[str, Any] | str, name: str = "") -> bytes:
    """Return one event as it goes over the wire."""
    content = data if isinstance(data, str) else json.dumps(data)
    return (f"event: {name}\n" if name else "").encode() + f"data: {content}\n\n".encode()
