"""The protocol `openai-responses`: POST {base}/responses, without storage at the provider."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from ..contracts.task import ToolDef
from .errors import ErrorKind, ModelRefusal, Refusal, classify_error_object
from .messages import ChatMessage, ModelReply, TokenUsage, parse_arguments, tokens
from .protocol import join_url, media_parts

__all__ = ["OpenAIResponses"]

_ENDS = ("response.completed", "response.incomplete", "response.failed")


class OpenAIResponses:
    """Responses; the whole conversation is sent with each call."""

    name: ClassVar[str] = "openai-responses"
    default_url: ClassVar[str] = "https://api.openai.com/v1"
    key_variable: ClassVar[str] = "OPENAI_API_KEY"

    def url(self, base_url: str) -> str:
        """Return the address of a call."""
        return join_url(base_url, "/responses", version="")

    def headers(self, api_key: str) -> dict[str, str]:
        """Return the header that carries the key."""
        return {"authorization": f"Bearer {api_key}"} if api_key else {}

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
        items = [part for message in messages if message.role != "system" for part in _items(message)]
        body: dict[str, Any] = {"model": model, "input": items, "store": False}
        if system:
            body["instructions"] = "\n\n".join(system)
        if tools:
            body["tools"] = [
                {"type": "function", "name": t.name, "description": t.description, "parameters": t.parameters}
                for t in tools
            ]
        if stream:
            body["stream"] = True
        return {**body, **params}

    def reply(self, data: Mapping[str, Any]) -> ModelReply:
        """Read an answer."""
        if data.get("error"):
            raise ModelRefusal("the answer is an error", classify_error_object(data["error"]))
        output = data.get("output")
        if not isinstance(output, list):
            raise ModelRefusal("the answer has no output", Refusal(ErrorKind.BAD_RESPONSE, "it has no list `output`"))
        parts = [part for item in output if item.get("type") == "message" for part in item.get("content") or ()]
        refusal = "".join(str(part.get("refusal") or "") for part in parts if part.get("type") == "refusal")
        calls = tuple(
            parse_arguments(
                str(item.get("call_id") or item.get("id")), str(item.get("name")), str(item.get("arguments") or "{}")
            )
            for item in output
            if item.get("type") == "function_call"
        )
        return ModelReply(
            text="".join(str(part.get("text") or "") for part in parts if part.get("type") == "output_text"),
            tool_calls=calls,
            stop_reason="refusal" if refusal else _stop(data, bool(calls)),
            usage=_usage(data.get("usage") or {}),
            model=str(data.get("model") or ""),
            reasoning="\n".join(_summary(item) for item in output if item.get("type") == "reasoning"),
            refusal=refusal,
            native=[item for item in output if item.get("type") == "reasoning" and item.get("encrypted_content")],
        )

    def assemble(self, events: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the response with which a stream ends."""
        for event in events:
            if event.get("type") in _ENDS:
                return dict(event.get("response") or {})
            if event.get("type") == "error":
                raise ModelRefusal("the stream ended with an error", classify_error_object(event.get("error") or event))
        raise ModelRefusal("the stream broke off", Refusal(ErrorKind.NETWORK, "the stream broke off"))


def _stop(data: Mapping[str, Any], calls: bool) -> str:
    if data.get("status") == "incomplete":
        reason = (data.get("incomplete_details") or {}).get("reason")
        return {"max_output_tokens": "length", "content_filter": "content_filter"}.get(str(reason), "other")
    return "tool_calls" if calls else "stop"


def _summary(item: Mapping[str, Any]) -> str:
    return "".join(str(part.get("text") or "") for part in item.get("summary") or ())


def _items(message: ChatMessage) -> list[dict[str, Any]]:
    if message.role == "tool":
        return [{"type": "function_call_output", "call_id": message.call_id, "output": message.text}]
    if message.role == "user":
        parts = [{"type": "input_text", "text": message.text}, *map(_media, media_parts(message.media))]
        return [{"type": "message", "role": "user", "content": parts}]
    items: list[dict[str, Any]] = list(message.native or ())
    if message.text:
        content = [{"type": "output_text", "text": message.text}]
        items.append({"type": "message", "role": "assistant", "content": content})
    for call in message.tool_calls:
        raw = "{}" if call.problem else call.raw
        items.append({"type": "function_call", "call_id": call.id, "name": call.name, "arguments": raw})
    return items


def _media(part: tuple[Any, str, str]) -> dict[str, Any]:
    item, mime, content = part
    if item.type == "image":
        return {"type": "input_image", "image_url": content if item.url else f"data:{mime};base64,{content}"}
    if item.url:
        return {"type": "input_file", "file_url": content}
    return {"type": "input_file", "filename": item.label or "media", "file_data": f"data:{mime};base64,{content}"}


def _usage(usage: Mapping[str, Any]) -> TokenUsage:
    details = usage.get("input_tokens_details") or {}
    return TokenUsage(
        input=tokens(usage.get("input_tokens")),
        output=tokens(usage.get("output_tokens")),
        cached=tokens(details.get("cached_tokens")),
        cache_write=tokens(details.get("cache_write_tokens")),
        reasoning=tokens((usage.get("output_tokens_details") or {}).get("reasoning_tokens")),
    )
