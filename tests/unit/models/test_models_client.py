"""Rules of the model client, against the scripted server on loopback: three protocols, streamed and not."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

pytest.importorskip("httpx", reason="needs the extra models")

from pytest_agentcompass.components.backoff import SharedBackoff
from pytest_agentcompass.contracts.request import ModelSpec
from pytest_agentcompass.contracts.task import MediaItem, ToolDef
from pytest_agentcompass.errors import AgentFailure, ConfigError, ModelUnavailable
from pytest_agentcompass.models.client import ModelClient, key_of
from pytest_agentcompass.models.messages import ChatMessage, ModelReply
from pytest_agentcompass.models.protocol import choose_protocol, join_url
from pytest_agentcompass.models.scripted import Script, ScriptedServer, serve
from pytest_agentcompass.redaction import scrub

PROTOCOLS = ("openai-chat", "openai-responses", "anthropic")
EVERY = pytest.mark.parametrize("protocol", PROTOCOLS)
STREAM = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
BASH = ToolDef("bash", "run", {"type": "object", "properties": {"command": {"type": "string"}}})
ASK = (ChatMessage("system", "be brief"), ChatMessage("user", "the question"))


@contextlib.contextmanager
def scripted(*turns: dict[str, Any], **script: Any) -> Iterator[ScriptedServer]:
    """Serve one conversation."""
    with serve(Script.model_validate({"conversations": [{"turns": turns}], **script})) as server:
        yield server


def client(server: ScriptedServer, protocol: str, folder: Path, **options: Any) -> ModelClient:
    """Return a client of *server* whose pauses stand in *folder*."""
    key = SecretStr(options.pop("key", "test-key"))
    spec = ModelSpec(
        id=options.pop("model", "m"), base_url=server.base_url, api_key=key, api_protocol=protocol,
        params=options.pop("params", {}),
    )  # fmt: skip
    return ModelClient(spec, backoff=SharedBackoff(folder / "pause.json"), **options)


def ask(server: ScriptedServer, protocol: str, folder: Path, *messages: ChatMessage, **options: Any) -> ModelReply:
    """Make one call."""
    stream = options.pop("stream", False)

    async def main() -> ModelReply:
        async with client(server, protocol, folder, **options) as model:
            return await model.complete(messages or ASK, (BASH,), stream=stream)

    return asyncio.run(main())


@EVERY
@STREAM
def test_text_tools_and_tokens_come_back(tmp_path: Path, protocol: str, stream: bool) -> None:
    """An answer has the same text, calls, stop reason and tokens whatever the protocol, streamed or not."""
    call = {"name": "bash", "arguments": {"command": 'echo "hé" ;\n'}}
    turn = {"text": "I run it. ✓", "tool_calls": [call, call], "usage": {"input": 30, "output": 7, "cached": 10}}
    with scripted(turn) as server:
        reply = ask(server, protocol, tmp_path, stream=stream)
    assert reply.text == "I run it. ✓"
    assert [(c.name, c.arguments, c.problem) for c in reply.tool_calls] == [("bash", call["arguments"], "")] * 2
    assert len({c.id for c in reply.tool_calls}) == 2
    assert reply.stop_reason == "tool_calls"
    assert (reply.usage.input, reply.usage.output, reply.usage.cached) == (30, 7, 10)
    assert reply.latency > 0
    assert server.calls[0]["body"].get("stream", False) is stream


@EVERY
@pytest.mark.parametrize(
    ("stop", "wanted"),
    [("length", {"length"}), ("content_filter", {"content_filter", "refusal"}), ("refusal", {"refusal"})],
)
def test_why_an_answer_ends(tmp_path: Path, protocol: str, stop: str, wanted: set[str]) -> None:
    """Length, filter and refusal are told apart from a normal end, by one set of names."""
    for stream in (False, True):
        with scripted({"text": "no", "stop": stop}) as server:
            assert ask(server, protocol, tmp_path, stream=stream).stop_reason in wanted


@EVERY
def test_a_conversation_goes_on(tmp_path: Path, protocol: str) -> None:
    """Calls and their results are sent back in the protocol's own form, and the server sees the next turn."""
    with scripted({"tool_calls": [{"name": "bash", "arguments": {"command": "ls"}}]}, {"text": "done"}) as server:
        first = ask(server, protocol, tmp_path)
        result = ChatMessage("tool", "file.txt", call_id=first.tool_calls[0].id, is_error=True)
        second = ask(server, protocol, tmp_path, *ASK, first.message(), result)
    assert second.text == "done"
    assert "file.txt" in json.dumps(server.calls[1]["body"])
    assert first.tool_calls[0].id in json.dumps(server.calls[1]["body"])


@EVERY
def test_broken_arguments_are_a_problem_of_the_call(tmp_path: Path, protocol: str) -> None:
    """Arguments that are no JSON object do not end the call, and never go back as they came."""
    for stream in (False, True):
        with scripted({"tool_calls": [{"name": "bash", "raw": '{"command": "ls'}]}) as server:
            reply = ask(server, protocol, tmp_path, stream=stream)
            assert "no JSON" in reply.tool_calls[0].problem
            ask(server, protocol, tmp_path, *ASK, reply.message(), ChatMessage("tool", "bad", call_id="x"))
        assert '{\\"command\\": \\"ls"' not in json.dumps(server.calls[1]["body"])


@EVERY
@STREAM
def test_characters_that_are_none_are_replaced(tmp_path: Path, protocol: str, stream: bool) -> None:
    """A lone surrogate in text or arguments becomes a question mark, so that it can be written and run."""
    call = {"name": "bash", "arguments": {"command": "echo \udc80 \U0001f600"}}
    with scripted({"text": "a\ud800b", "tool_calls": [call]}) as server:
        reply = ask(server, protocol, tmp_path, stream=stream)
    assert reply.text == "a?b"
    assert reply.tool_calls[0].arguments == {"command": "echo ? \U0001f600"}


@pytest.mark.parametrize("count", [None, "12", -1, 1.5, True, [3]])
def test_tokens_that_are_no_numbers_are_unknown(tmp_path: Path, count: object) -> None:
    """What an endpoint tells of tokens is taken only where it is a count."""
    usage = {"prompt_tokens": count, "completion_tokens": 7}
    body = {"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}], "usage": usage}
    with scripted({"body": json.dumps(body)}) as server:
        reply = ask(server, "openai-chat", tmp_path)
    assert (reply.text, reply.usage.input, reply.usage.output) == ("x", None, 7)


@EVERY
def test_params_are_passed_through(tmp_path: Path, protocol: str) -> None:
    """What `model.params` holds is sent as it is, and wins over what we set."""
    with scripted({"text": "x"}) as server:
        ask(server, protocol, tmp_path, params={"temperature": 0, "max_tokens": 5, "odd": {"a": [1]}})
    body = server.calls[0]["body"]
    assert (body["temperature"], body["max_tokens"], body["odd"]) == (0, 5, {"a": [1]})


@EVERY
def test_media_go_with_the_prompt(tmp_path: Path, protocol: str) -> None:
    """An image of the task is sent as data in the protocol's own form."""
    picture = tmp_path / "a.png"
    picture.write_bytes(b"\x89PNG data")
    with scripted({"text": "x"}) as server:
        message = ChatMessage("user", "look", media=(MediaItem("image", path=str(picture)),))
        ask(server, protocol, tmp_path, message)
    assert base64.b64encode(picture.read_bytes()).decode() in json.dumps(server.calls[0]["body"])


@EVERY
def test_refusals_that_pass_are_waited_out(tmp_path: Path, protocol: str) -> None:
    """429 with a time, 529 with a time and a cut connection are tried again until an answer comes."""
    for error in ({"status": 429, "retry_after": 0.01}, {"status": 529, "retry_after": 0.01}):
        with scripted({"text": "here", "error": {**error, "times": 2}}) as server:
            reply = ask(server, protocol, tmp_path)
            assert (reply.text, reply.tries) == ("here", 3)
            assert len(server.calls) == 3


def test_a_cut_connection_is_tried_again(tmp_path: Path) -> None:
    """A connection that is reset before an answer is worth another call."""
    with scripted({"text": "here", "error": {"reset": True, "times": 1}}) as server:
        assert ask(server, "openai-chat", tmp_path).tries == 2


@EVERY
def test_a_time_to_come_back_is_obeyed(tmp_path: Path, protocol: str) -> None:
    """After `retry-after: 2` the next call of anybody is at least that far away."""
    now = [100.0]
    backoff = SharedBackoff(tmp_path / "pause.json", clock=lambda: now[0])
    backoff.report(2.0)
    assert backoff.remaining() == 2.0
    with scripted({"error": {"status": 429, "retry_after": 2}}) as server, pytest.raises(ModelUnavailable) as caught:
        ask(server, protocol, tmp_path / "other", retries=0)
    assert caught.value.kind == "rate_limit"  # type: ignore[attr-defined]


@EVERY
@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"status": 401}, "authentication"),
        ({"status": 404}, "not_found"),
        ({"status": 429, "code": "insufficient_quota", "message": "You exceeded your current quota"}, "quota"),
        ({"status": 400, "message": "unknown parameter"}, "bad_request"),
    ],
)
def test_refusals_that_stay_are_not_repeated(tmp_path: Path, protocol: str, error: dict[str, Any], kind: str) -> None:
    """Key, model, quota and wrong requests are refused once, with the reason as an attribute."""
    with scripted({"error": error}) as server, pytest.raises(ModelUnavailable) as caught:
        ask(server, protocol, tmp_path)
    assert len(server.calls) == 1
    assert caught.value.kind == kind  # type: ignore[attr-defined]
    assert server.base_url in caught.value.message


@EVERY
def test_a_context_that_is_full_is_the_agents(tmp_path: Path, protocol: str) -> None:
    """A prompt that is too long is a failure of the agent, once, whatever the status."""
    for status in (400, 500):
        message = "This model's maximum context length is 10 tokens"
        with (
            scripted({"error": {"status": status, "message": message}}) as server,
            pytest.raises(AgentFailure) as caught,
        ):
            ask(server, protocol, tmp_path)
        assert caught.value.failure_mode == "context_length"
        assert len(server.calls) == 1


@EVERY
@STREAM
@pytest.mark.parametrize("body", ["<html>proxy login</html>", "[]", '{"choices": 7}', '{"output": 3}', "null", ""])
def test_an_answer_that_is_none_is_an_error(tmp_path: Path, protocol: str, stream: bool, body: str) -> None:
    """A page or foreign JSON with status 200 is no answer, is not repeated, and is shown."""
    with scripted({"body": body}) as server, pytest.raises(ModelUnavailable) as caught:
        ask(server, protocol, tmp_path, stream=stream)
    assert caught.value.kind == "bad_response"  # type: ignore[attr-defined]
    assert len(server.calls) == 1


def test_no_answer_in_time_is_repeated_twice_at_most(tmp_path: Path) -> None:
    """A call without an answer costs its whole time limit, so it is not repeated for ever."""

    async def main() -> None:
        with scripted({"delay": 1.0, "text": "late"}) as server:
            async with client(server, "openai-chat", tmp_path, timeout=0.05) as model:
                model._pause = _no_pause  # type: ignore[method-assign]
                await model.complete(ASK)

    with pytest.raises(ModelUnavailable, match="timeout") as caught:
        asyncio.run(main())
    assert "after 3 tries" in caught.value.message


async def _no_pause(refusal: object, tries: int) -> None:
    """Go on at once."""


def test_nobody_there_is_the_networks_fault(tmp_path: Path) -> None:
    """A refused connection names the address and what to check."""
    with scripted({"text": "x"}) as server:
        pass
    with pytest.raises(ModelUnavailable, match="check base_url") as caught:
        ask(server, "openai-chat", tmp_path, retries=0)
    assert caught.value.kind == "network"  # type: ignore[attr-defined]


def test_the_scripts_door(tmp_path: Path) -> None:
    """The scripted server refuses another key with 401 and another model with 404, as real ones do."""
    with scripted({"text": "in"}, api_key="test-key", models=["m"]) as server:
        assert ask(server, "anthropic", tmp_path).text == "in"
        for options, kind in (({"key": "wrong-key"}, "authentication"), ({"model": "other"}, "not_found")):
            with pytest.raises(ModelUnavailable) as caught:
                ask(server, "openai-chat", tmp_path, **options)
            assert caught.value.kind == kind  # type: ignore[attr-defined]


def test_every_third_call_is_refused_and_all_is_well(tmp_path: Path) -> None:
    """With a third of the calls refused by 429, many clients at once all get their answers."""

    async def one(server: ScriptedServer) -> int:
        async with client(server, "openai-chat", tmp_path, retries=50) as model:
            return sum([(await model.complete(ASK)).text == "x" for _ in range(3)])

    async def main() -> tuple[list[int], int]:
        with scripted({"text": "x"}, rate_limit={"every": 3, "retry_after": 0.01}) as server:
            return await asyncio.gather(*(one(server) for _ in range(16))), len(server.calls)

    answers, calls = asyncio.run(main())
    assert answers == [3] * 16
    assert calls - calls // 3 == 48


def test_the_key_is_scrubbed_and_stays_at_home() -> None:
    """A key is masked from then on; that of the environment never goes to an address of one's own."""
    spec = ModelSpec(id="m", api_key=SecretStr("sk-very-secret-1"))
    assert key_of(spec, "OPENAI_API_KEY", {}) == "sk-very-secret-1"
    assert "sk-very-secret-1" not in scrub("key sk-very-secret-1")
    environ = {"OPENAI_API_KEY": "sk-very-secret-2"}
    assert key_of(ModelSpec(id="m"), "OPENAI_API_KEY", environ) == "sk-very-secret-2"
    assert key_of(ModelSpec(id="m", base_url="http://elsewhere/v1"), "OPENAI_API_KEY", environ) == ""
    assert key_of(ModelSpec(id="m", api_key=SecretStr("[redacted]")), "OPENAI_API_KEY", {}) == ""


@pytest.mark.parametrize(
    ("spec", "supported", "wanted"),
    [
        ({}, (), "openai-chat"),
        ({"id": "claude-sonnet-4-5"}, (), "anthropic"),
        ({"id": "claude-sonnet-4-5", "base_url": "http://router/v1"}, (), "openai-chat"),
        ({"base_url": "https://api.anthropic.com"}, (), "anthropic"),
        ({"api_protocol": ["openai-responses", "anthropic"]}, ("anthropic",), "anthropic"),
        ({"api_protocol": "auto"}, ("openai-responses",), "openai-responses"),
    ],
)
def test_the_protocol_is_chosen(spec: dict[str, Any], supported: tuple[str, ...], wanted: str) -> None:
    """The first wanted protocol that the agent can use; `auto` goes by address and model."""
    assert choose_protocol(ModelSpec.model_validate(spec), supported) == wanted


def test_a_protocol_that_does_not_fit_is_refused() -> None:
    """Where the agent speaks none of the wanted protocols the message lists what it can."""
    with pytest.raises(ConfigError, match="it can be: anthropic"):
        choose_protocol(ModelSpec(api_protocol="openai-chat"), ("anthropic",))
    with pytest.raises(ConfigError, match="set model=ID"):
        ModelClient(ModelSpec())


@pytest.mark.parametrize(
    ("base", "path", "wanted"),
    [
        ("http://h", "/messages", "http://h/v1/messages"),
        ("http://h/v1/", "/messages", "http://h/v1/messages"),
        ("http://h/v1/messages", "/messages", "http://h/v1/messages"),
    ],
)
def test_addresses_are_joined(base: str, path: str, wanted: str) -> None:
    """A base with or without version, slash or the path itself leads to the same address."""
    assert join_url(base, path) == wanted
