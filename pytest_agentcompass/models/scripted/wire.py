"""The server's side of the three protocols: reading calls, writing answers and streams."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from ..sse import write_event
from .script import Call, ScriptedCall, ScriptedError, Turn

__all__ = ["PATHS", "answer", "error_body", "read_call", "stream"]

#: the end of a request's path -> protocol
PATHS = {"/chat/completions": "openai-chat", "/responses": "openai-responses", "/messages": "anthropic"}
_CHAT_STOPS = {"refusal": "stop"}
_ANTHROPIC_STOPS = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
    "refusal": "refusal",
}


def read_call(protocol: str, body: Mapping[str, Any], task: str = "") -> Call:
    """Return what counts of a call."""
    given = body.get("input") if protocol == "openai-responses" else body.get("messages")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else list(given or ())
    heads = [body.get("system"), body.get("instructions")]
    texts = [_text(part) for part in heads] + [_text(item.get("content")) for item in items if not _own(item)]
    return Call(
        model=str(body.get("model") or ""),
        text="\n".join(texts),
        turn=sum(own for own, _ in groupby(items, _own)),
        task=task,
        stream=bool(body.get("stream")),
    )


def _own(item: Mapping[str, Any]) -> bool:
    """Whether *item* is (part of) a turn of the assistant."""
    return item.get("role") == "assistant" or item.get("type") in ("function_call", "reasoning", "custom_tool_call")


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(_text(part.get("text") or part.get("content")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _raw(call: ScriptedCall) -> str:
    return call.raw if call.raw is not None else json.dumps(call.arguments)


def error_body(protocol: str, error: ScriptedError) -> dict[str, Any]:
    """Return the JSON of a refusal."""
    kinds = {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error"}
    kinds |= {429: "rate_limit_error", 529: "overloaded_error"}
    content = {"type": error.type or kinds.get(error.status, "api_error"), "message": error.message}
    if protocol == "anthropic":
        return {"type": "error", "error": content}
    return {"error": {**content, "code": error.code, "param": None}}


def answer(protocol: str, turn: Turn, model: str, number: int) -> dict[str, Any]:
    """Return the JSON of an answer; *number* makes ids unique."""
    makers = {"openai-chat": _chat, "openai-responses": _response, "anthropic": _message}
    return makers[protocol](turn, model, number)


def _chat(turn: Turn, model: str, number: int) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": turn.text or None}
    if turn.reason == "refusal":
        message |= {"content": None, "refusal": turn.text or "no"}
    if turn.tool_calls:
        message["tool_calls"] = [
            {"id": f"call_{number}_{at}", "type": "function", "function": {"name": call.name, "arguments": _raw(call)}}
            for at, call in enumerate(turn.tool_calls)
        ]
    usage = turn.usage
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": model,
        "choices": [
            {"index": 0, "message": message, "finish_reason": _CHAT_STOPS.get(turn.reason, turn.reason)}
        ],
        "usage": {
            "prompt_tokens": usage.input,
            "completion_tokens": usage.output,
            "total_tokens": usage.input + usage.output,
            "prompt_tokens_details": {"cached_tokens": usage.cached},
        },
    }  # fmt: skip


def _response(turn: Turn, model: str, number: int) -> dict[str, Any]:
    output: list[dict[str, Any]] = []
    if turn.text:
        part: dict[str, Any] = {"type": "output_text", "text": turn.text, "annotations": []}
        if turn.reason == "refusal":
            part = {"type": "refusal", "refusal": turn.text}
        head = {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed"}
        output.append({**head, "content": [part]})
    for at, call in enumerate(turn.tool_calls):
        output.append(
            {
                "type": "function_call",
                "id": f"fc_{number}_{at}",
                "call_id": f"call_{number}_{at}",
                "name": call.name,
                "arguments": _raw(call),
                "status": "completed",
            }
        )
    cut = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(turn.reason)
    usage = turn.usage
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1_700_000_000,
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": cut} if cut else None,
        "error": None,
        "model": model,
        "output": output,
        "usage": {
            "input_tokens": usage.input,
            "input_tokens_details": {"cached_tokens": usage.cached},
            "output_tokens": usage.output,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage.input + usage.output,
        },
    }


def _message(turn: Turn, model: str, number: int) -> dict[str, Any]:
    blocks: list[dict[str, Any]] = [{"type": "text", "text": turn.text}] if turn.text else []
    for at, call in enumerate(turn.tool_calls):
        head = {"type": "tool_use", "id": f"toolu_{number}_{at}", "name": call.name}
        blocks.append({**head, "input": call.raw or call.arguments})
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": blocks,
        "stop_reason": _ANTHROPIC_STOPS[turn.reason],
        "stop_sequence": None,
        "usage": {
            "input_tokens": turn.usage.input - turn.usage.cached,
            "cache_read_input_tokens": turn.usage.cached,
            "cache_creation_input_tokens": 0,
            "output_tokens": turn.usage.output,
        },
    }


def stream(protocol: str, turn: Turn, model: str, number: int) -> Iterable[bytes]:
    """Yield the events of a streamed answer."""
    whole = answer(protocol, turn, model, number)
    if protocol == "openai-chat":
        return _chat_events(whole)
    if protocol == "openai-responses":
        return _response_events(whole)
    return _message_events(whole, turn)


def _halves(text: str) -> Sequence[str]:
    middle = len(text) // 2
    return [part for part in (text[:middle], text[middle:]) if part]


def _chat_events(whole: dict[str, Any]) -> Iterable[bytes]:
    base = {"id": whole["id"], "object": "chat.completion.chunk", "created": whole["created"], "model": whole["model"]}
    choice = whole["choices"][0]

    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        return write_event({**base, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    yield chunk({"role": "assistant", "content": ""})
    for name in ("content", "refusal"):
        for part in _halves(choice["message"].get(name) or ""):
            yield chunk({name: part})
    for index, call in enumerate(choice["message"].get("tool_calls") or ()):
        head = {**call, "function": {"name": call["function"]["name"], "arguments": ""}}
        yield chunk({"tool_calls": [{"index": index, **head}]})
        for part in _halves(call["function"]["arguments"]):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": part}}]})
    yield chunk({}, choice["finish_reason"])
    yield write_event({**base, "choices": [], "usage": whole["usage"]})
    yield write_event("[DONE]")


def _response_events(whole: dict[str, Any]) -> Iterable[bytes]:
    events: list[dict[str, Any]] = []
    begun = {**whole, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    events.append({"type": "response.created", "response": begun})
    events.append({"type": "response.in_progress", "response": begun})
    for index, item in enumerate(whole["output"]):
        place = {"output_index": index, "item_id": item["id"]}
        empty: dict[str, Any] = {"content": []} if item["type"] == "message" else {"arguments": ""}
        begun_item = {**item, "status": "in_progress", **empty}
        events.append({"type": "response.output_item.added", "output_index": index, "item": begun_item})
        events += _item_events(item, place)
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    events.append({"type": f"response.{whole['status']}", "response": whole})
    for number, event in enumerate(events):
        yield write_event({**event, "sequence_number": number}, event["type"])


def _item_events(item: dict[str, Any], place: dict[str, Any]) -> list[dict[str, Any]]:
    if item["type"] == "function_call":
        kind, text = "response.function_call_arguments", item["arguments"]
        deltas = [{"type": f"{kind}.delta", **place, "delta": part} for part in _halves(text)]
        return [*deltas, {"type": f"{kind}.done", **place, "name": item["name"], "arguments": text}]
    part = item["content"][0]
    place = {**place, "content_index": 0}
    if part["type"] == "refusal":
        return [{"type": "response.refusal.done", **place, "refusal": part["refusal"]}]
    deltas = [{"type": "response.output_text.delta", **place, "delta": text} for text in _halves(part["text"])]
    return [
        {"type": "response.content_part.added", **place, "part": {**part, "text": ""}},
        *deltas,
        {"type": "response.output_text.done", **place, "text": part["text"]},
        {"type": "response.content_part.done", **place, "part": part},
    ]


def _message_events(whole: dict[str, Any], turn: Turn) -> Iterable[bytes]:
    def event(kind: str, **data: Any) -> bytes:
        return write_event({"type": kind, **data}, kind)

    usage = {**whole["usage"], "output_tokens": 1}
    yield event("message_start", message={**whole, "content": [], "stop_reason": None, "usage": usage})
    yield event("ping")
    raws = [_raw(call) for call in turn.tool_calls]
    for index, block in enumerate(whole["content"]):
        if block["type"] == "text":
            yield event("content_block_start", index=index, content_block={"type": "text", "text": ""})
            deltas = [{"type": "text_delta", "text": part} for part in _halves(block["text"])]
        else:
            yield event("content_block_start", index=index, content_block={**block, "input": {}})
            deltas = [{"type": "input_json_delta", "partial_json": part} for part in _halves(raws.pop(0))]
        for delta in deltas:
            yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
    end = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    yield event("message_delta", delta=end, usage={"output_tokens": whole["usage"]["output_tokens"]})
    yield event("message_stop")
