"""What goes to a model and what comes back, whatever the protocol."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from ..contracts.task import MediaItem

__all__ = ["ChatMessage", "ModelReply", "TokenUsage", "ToolCall", "parse_arguments", "tokens", "valid"]

_ARGUMENTS_LIMIT = 5_000_000


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool that the model wants called. *problem* says why *raw* is no JSON object; *arguments* is then empty."""

    id: str
    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    raw: str = "{}"
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message: role `system`, `user`, `assistant` or `tool` (the answer to *call_id*).

    *native* holds the protocol's own form of an assistant's turn, where it must be sent back as it came.
    """

    role: str
    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    is_error: bool = False
    media: tuple[MediaItem, ...] = ()
    native: Any = None


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens of one call. *input* counts all of the prompt; *cached* and *cache_write* are parts of it."""

    input: int | None = None
    output: int | None = None
    cached: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None


@dataclass(frozen=True, slots=True)
class ModelReply:
    """One answer. *stop_reason*: stop, tool_calls, length, content_filter, refusal, context_length or other.

    *latency* is the seconds of the call that succeeded, *tries* how many it took.
    """

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    stop_reason: str = "stop"
    usage: TokenUsage = field(default_factory=TokenUsage)
    latency: float = 0.0
    tries: int = 1
    model: str = ""
    reasoning: str = ""
    refusal: str = ""
    native: Any = None

    def message(self) -> ChatMessage:
        """Return the reply as the assistant's message of a conversation."""
        return ChatMessage("assistant", self.text, self.tool_calls, native=self.native)


def valid(value: Any) -> Any:
    """Return JSON data with lone surrogates, which no file and no process can take, replaced by `?`."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {valid(key): valid(item) for key, item in value.items()}
    return [valid(item) for item in value] if isinstance(value, list) else value


def tokens(value: Any) -> int | None:
    """Return a number of tokens; None for what is none."""
    return value if type(value) is int and value >= 0 else None


def parse_arguments(call_id: str, name: str, raw: str) -> ToolCall:
    """Return the tool call of a model's argument text; a text that is no JSON object becomes its `problem`."""
    try:
        value = json.loads(raw or "{}") if len(raw) <= _ARGUMENTS_LIMIT else None
    except (ValueError, RecursionError) as error:
        return ToolCall(call_id, name, {}, raw, f"the arguments are no JSON: {error}")
    if not isinstance(value, dict):
        return ToolCall(call_id, name, {}, raw, "the arguments must be one JSON object")
    return ToolCall(call_id, name, valid(value), raw)
