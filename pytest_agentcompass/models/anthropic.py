"""The protocol `anthropic`: POST {base}/v1/messages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from ..contracts.task import ToolDef
from .errors import ErrorKind, ModelRefusal, Refusal, classify_error_object
from .messages import ChatMessage, ModelReply, TokenUsage, ToolCall, parse_arguments, tokens
from .protocol import join_url, media_parts

__all__ = ["Anthropic"]

_VERSION = "2023-06-01"
_MAX_TOKENS = 8192  # the protocol demands a value; `model.params.max_tokens` sets another
_STOPS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "refusal": "refusal",
    "model_context_window_exceeded": "context_length",
}
_REPLAYED = ("thinking", "redacted_thinking")


class Anthropic:
    """Messages."""

    name: ClassVar[str] = "anthropic"
    default_url: ClassVar[str] = "https://api.anthropic.com"
    key_variable: ClassVar[str] = "ANTHROPIC_API_KEY"

    def url(self, base_url: str) -> str:
        """Return the address of a call."""
        return join_url(base_url, "/messages")

    def headers(self, api_key: str) -> dict[str, str]:
        """Return the headers that carry the key and the protocol's version."""
        return {"anthropic-version": _VERSION, **({"x-api-key": api_key} if api_key else {})}

    def body(
        self,
        model: str,
        messages: Sequence[ChatMessage],
        tools: Sequence[ToolDef],
        params: Mapping[str, Any],
        stream: bool,
    ) -> dict[str, Any]:
        """Return the JSON of a call."""
        system = [item.text for item in messages if item.role == "system"]
        body: dict[str, Any] = {"model": model, "max_tokens": _MAX_TOKENS, "messages": _turns(messages)}
        if system:
            body["system"] = "\n\n".join(system)
        if tools:
            body["tools"] = [
                {"name": t.name, "description": t.description, "input_schema": t.parameters} for t in tools
            ]
        if stream:
            body["stream"] = True
        return {**body, **params}

    def reply(self, data: Mapping[str, Any]) -> ModelReply:
        """Read an answer."""
        if data.get("type") == "error" or data.get("error"):
            raise ModelRefusal("the answer is an error", classify_error_object(data.get("error") or data))
        blocks = data.get("content")
        if not isinstance(blocks, list):
            raise ModelRefusal("the answer has no content", Refusal(ErrorKind.BAD_RESPONSE, "it has no list `content`"))
        calls = tuple(_call(item) for item in blocks if item.get("type") == "tool_use")
        stop = _STOPS.get(str(data.get("stop_reason")), "other")
        return ModelReply(
            text="".join(str(item.get("text") or "") for item in blocks if item.get("type") == "text"),
            tool_calls=calls,
            stop_reason=stop,
            usage=_usage(data.get("usage") or {}),
            model=str(data.get("model") or ""),
            reasoning="\n".join(str(item.get("thinking") or "") for item in blocks if item.get("type") == "thinking"),
            native=[item for item in blocks if item.get("type") in _REPLAYED],
        )

    def assemble(self, events: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        """Put the events of a stream together."""
        answer: dict[str, Any] = {}
        partial: dict[int, str] = {}
        for event in events:
            kind = event.get("type")
            if kind == "error":
                raise ModelRefusal("the stream ended with an error", classify_error_object(event.get("error")))
            if kind == "message_start":
                answer = {**event["message"], "content": []}
            elif kind == "content_block_start":
                answer["content"].append(dict(event["content_block"]))
            elif kind == "content_block_delta":
                _grow(answer["content"][-1], event["delta"], partial, len(answer["content"]))
            elif kind == "message_delta":
                answer |= event.get("delta") or {}
                answer["usage"] = {**answer.get("usage", {}), **(event.get("usage") or {})}
            elif kind == "message_stop":
                return _with_inputs(answer, partial)
        raise ModelRefusal("the stream broke off", Refusal(ErrorKind.NETWORK, "the stream broke off"))


def _grow(block: dict[str, Any], delta: Mapping[str, Any], partial: dict[int, str], number: int) -> None:
    for name in ("text", "thinking", "signature"):
        if name in delta:
            block[name] = block.get(name, "") + delta[name]
    if "partial_json" in delta:
        partial[number - 1] = partial.get(number - 1, "") + delta["partial_json"]


def _with_inputs(answer: dict[str, Any], partial: Mapping[int, str]) -> dict[str, Any]:
    for index, text in partial.items():
        answer["content"][index]["input"] = text or "{}"
    return answer


def _call(item: Mapping[str, Any]) -> ToolCall:
    given = item.get("input")
    raw = given if isinstance(given, str) else json.dumps(given if given is not None else {})
    return parse_arguments(str(item.get("id") or ""), str(item.get("name") or ""), raw)


def _turns(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """Return user and assistant turns; neighbours of one role become one turn, as the protocol wants it."""
    turns: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "system":
            continue
        role = "assistant" if message.role == "assistant" else "user"
        blocks = _blocks(message)
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"].extend(blocks)
        elif blocks:
            turns.append({"role": role, "content": blocks})
    return turns


def _blocks(message: ChatMessage) -> list[dict[str, Any]]:
    if message.role == "tool":
        block: dict[str, Any] = {"type": "tool_result", "tool_use_id": message.call_id, "content": message.text}
        return [{**block, "is_error": True}] if message.is_error else [block]
    blocks: list[dict[str, Any]] = list(message.native or ()) if message.role == "assistant" else []
    blocks += [_media(part) for part in media_parts(message.media)]
    if message.text.strip():
        blocks.append({"type": "text", "text": message.text})
    blocks += [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments} for call in message.tool_calls
    ]
    return blocks


def _media(part: tuple[Any, str, str]) -> dict[str, Any]:
    item, mime, content = part
    source = {"type": "url", "url": content} if item.url else {"type": "base64", "media_type": mime, "data": content}
    return {"type": "document" if mime == "application/pdf" else "image", "source": source}


def _usage(usage: Mapping[str, Any]) -> TokenUsage:
    fresh, cached, written = (
        tokens(usage.get(name)) for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    )
    return TokenUsage(
        input=None if fresh is None else fresh + (cached or 0) + (written or 0),
        output=tokens(usage.get("output_tokens")),
        cached=cached,
        cache_write=written,
    )
