"""The protocol `openai-chat`: POST {base}/chat/completions, spoken by most endpoints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from ..contracts.task import ToolDef
from .errors import ErrorKind, ModelRefusal, Refusal, classify_error_object
from .messages import ChatMessage, ModelReply, TokenUsage, ToolCall, parse_arguments, tokens
from .protocol import join_url, media_parts

__all__ = ["OpenAIChat"]

_STOPS = {
    "stop": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "content_filter": "content_filter",
}


class OpenAIChat:
    """Chat Completions."""

    name: ClassVar[str] = "openai-chat"
    default_url: ClassVar[str] = "https://api.openai.com/v1"
    key_variable: ClassVar[str] = "OPENAI_API_KEY"

    def url(self, base_url: str) -> str:
        """Return the address of a call; a base without a version is taken as it is."""
        return join_url(base_url, "/chat/completions", version="")

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
        body: dict[str, Any] = {"model": model, "messages": [_message(item) for item in messages]}
        if tools:
            body["tools"] = [{"type": "function", "function": _tool(tool)} for tool in tools]
        if stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return {**body, **params}

    def reply(self, data: Mapping[str, Any]) -> ModelReply:
        """Read an answer."""
        if data.get("error"):
            raise ModelRefusal("the answer is an error", classify_error_object(data["error"]))
        choices = data.get("choices") or [{}]
        message = choices[0].get("message")
        if not isinstance(message, Mapping):
            raise ModelRefusal("the answer has no choices", Refusal(ErrorKind.BAD_RESPONSE, "it has no choices[0]"))
        calls = tuple(_call(item, at) for at, item in enumerate(message.get("tool_calls") or ()))
        refusal = str(message.get("refusal") or "")
        stop = _STOPS.get(str(choices[0].get("finish_reason")), "other")
        return ModelReply(
            text=_text(message.get("content")),
            tool_calls=calls,
            stop_reason="refusal" if refusal else "tool_calls" if calls and stop in ("stop", "other") else stop,
            usage=_usage(data.get("usage") or {}),
            model=str(data.get("model") or ""),
            reasoning=str(message.get("reasoning_content") or message.get("reasoning") or ""),
            refusal=refusal,
        )

    def assemble(self, events: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        """Put the chunks of a stream together."""
        joined = _Joined()
        for event in events:
            joined.add(event)
        return joined.answer()


class _Joined:
    def __init__(self) -> None:
        self.message: dict[str, Any] = {"content": "", "tool_calls": []}
        self.finish: str | None = None
        self.usage: Any = None
        self.model = ""

    def add(self, event: Mapping[str, Any]) -> None:
        if event.get("error"):
            raise ModelRefusal("the stream ended with an error", classify_error_object(event["error"]))
        self.usage = event.get("usage") or self.usage
        self.model = event.get("model") or self.model
        for choice in event.get("choices") or ():
            self.finish = choice.get("finish_reason") or self.finish
            self._delta(choice.get("delta") or {})

    def _delta(self, delta: Mapping[str, Any]) -> None:
        for name in ("content", "refusal", "reasoning_content"):
            if delta.get(name):
                self.message[name] = self.message.get(name, "") + delta[name]
        calls = self.message["tool_calls"]
        for part in delta.get("tool_calls") or ():
            index = part.get("index", len(calls))
            while len(calls) <= min(index, 1000):
                calls.append({"id": "", "function": {"name": "", "arguments": ""}})
            call, function = calls[index], part.get("function") or {}
            call["id"] = part.get("id") or call["id"]
            call["function"]["name"] += function.get("name") or ""
            call["function"]["arguments"] += function.get("arguments") or ""

    def answer(self) -> dict[str, Any]:
        if self.finish is None:
            raise ModelRefusal("the stream broke off", Refusal(ErrorKind.NETWORK, "the stream broke off"))
        choice = {"message": self.message, "finish_reason": self.finish}
        return {"choices": [choice], "usage": self.usage, "model": self.model}


def _message(message: ChatMessage) -> dict[str, Any]:
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.call_id, "content": message.text}
    written: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.media:
        written["content"] = [{"type": "text", "text": message.text}, *map(_media, media_parts(message.media))]
    if message.tool_calls:
        written["content"] = message.text or None
        written["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": _raw(call)}}
            for call in message.tool_calls
        ]
    return written


def _raw(call: ToolCall) -> str:
    return "{}" if call.problem else call.raw  # endpoints refuse a history whose arguments are no JSON


def _media(part: tuple[Any, str, str]) -> dict[str, Any]:
    item, mime, content = part
    if item.type == "audio":
        return {"type": "input_audio", "input_audio": {"data": content, "format": mime.rpartition("/")[2]}}
    url = content if item.url else f"data:{mime};base64,{content}"
    kind = "video_url" if item.type == "video" else "image_url"
    return {"type": kind, kind: {"url": url}}


def _tool(tool: ToolDef) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "parameters": tool.parameters}


def _call(item: Mapping[str, Any], at: int) -> ToolCall:
    function = item.get("function") or {}
    raw = function.get("arguments")
    return parse_arguments(
        str(item.get("id") or f"call_{at}"), str(function.get("name") or ""), raw if isinstance(raw, str) else "{}"
    )


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, Mapping))
    return "" if content is None else str(content)


def _usage(usage: Mapping[str, Any]) -> TokenUsage:
    details = usage.get("prompt_tokens_details") or {}
    written = usage.get("completion_tokens_details") or {}
    return TokenUsage(
        input=tokens(usage.get("prompt_tokens")),
        output=tokens(usage.get("completion_tokens")),
        cached=tokens(details.get("cached_tokens")),
        cache_write=tokens(details.get("cache_write_tokens")),
        reasoning=tokens(written.get("reasoning_tokens")),
    )
