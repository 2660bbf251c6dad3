"""Rules of the gateway: only the attempt's token opens it, only model calls get through, and all are counted."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

pytest.importorskip("httpx", reason="needs the extra models")

import httpx

from pytest_agentcompass.components.backoff import SharedBackoff
from pytest_agentcompass.contracts.request import ModelSpec
from pytest_agentcompass.models.gateway import Gateway
from pytest_agentcompass.models.scripted import Script, ScriptedServer, serve
from pytest_agentcompass.redaction import scrub

KEY = "sk-the-real-key"
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "openai-chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
    "openai-responses": ("/v1/responses", {"input": "hi"}),
    "anthropic": ("/v1/messages", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}),
}
EVERY = pytest.mark.parametrize("protocol", CALLS)


@contextlib.contextmanager
def gateway(
    tmp_path: Path, protocol: str, turn: dict[str, Any], **more: Any
) -> Iterator[tuple[Gateway, ScriptedServer]]:
    """Open a gateway to a scripted model."""
    script = {"conversations": [{"turns": [turn]}], "api_key": KEY, **more.pop("script", {})}
    with serve(Script.model_validate(script)) as server:
        spec = ModelSpec(
            id="real-model", base_url=server.base_url, api_key=SecretStr(KEY), params=more.pop("params", {})
        )
        opened = Gateway(spec, protocol, backoff=SharedBackoff(tmp_path / "pause.json"), **more)
        try:
            yield opened, server
        finally:
            opened.close()


def post(opened: Gateway, protocol: str, *, token: str | None = None, path: str = "", **body: Any) -> Any:
    """Make one call as a program in a sandbox would."""
    where, content = CALLS[protocol]
    key = opened.token if token is None else token
    headers = {"x-api-key": key} if protocol == "anthropic" else {"authorization": f"Bearer {key}"}
    answer = httpx.post(
        opened.url + (path or where), json={"model": "asked-for", **content, **body}, headers=headers, trust_env=False,
        timeout=30,
    )  # fmt: skip
    opened.settle(5.0)
    return answer


@EVERY
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_calls_get_through_and_are_counted(tmp_path: Path, protocol: str, stream: bool) -> None:
    """The real key, model and params are put in; the answer comes back as it is; tokens are counted."""
    turn = {"text": "hello", "usage": {"input": 70, "output": 5}}
    with gateway(tmp_path, protocol, turn, params={"temperature": 0}) as (opened, server):
        answer = post(opened, protocol, stream=stream, temperature=2)
        assert answer.status_code == 200
        assert ("hello" in answer.text) or stream
        body = server.calls[0]["body"]
        assert (body["model"], body["temperature"]) == ("real-model", 0)
        (call,) = opened.calls
    assert call.reply is not None
    assert (call.reply.text, call.reply.usage.input, call.reply.usage.output) == ("hello", 70, 5)


@EVERY
def test_only_the_token_opens_it(tmp_path: Path, protocol: str) -> None:
    """No token, another one, or the real key: refused, not passed on, and counted as denied."""
    with gateway(tmp_path, protocol, {"text": "x"}) as (opened, server):
        for token in ("none", "wrong", KEY, opened.token + "x"):
            assert post(opened, protocol, token=token).status_code == 401
        assert server.calls == []
        assert opened.denied == 4
        assert opened.calls == []


@EVERY
def test_only_model_calls_get_through(tmp_path: Path, protocol: str) -> None:
    """Files, other protocols and other paths of the provider are out of reach."""
    others = [path for name, (path, _) in CALLS.items() if name != protocol]
    with gateway(tmp_path, protocol, {"text": "x"}) as (opened, server):
        for path in (*others, "/v1/files", "/v1/models", "/"):
            assert post(opened, protocol, path=path).status_code == 404
        assert server.calls == []
        assert post(opened, protocol, path=CALLS[protocol][0] + "?beta=true").status_code == 200


def test_a_broken_call_is_refused(tmp_path: Path) -> None:
    """What is no JSON object is refused here."""
    with gateway(tmp_path, "openai-chat", {"text": "x"}) as (opened, server):
        headers = {"authorization": f"Bearer {opened.token}"}
        url = opened.url + "/v1/chat/completions"
        for content in (b"{", b"[]", b""):
            assert httpx.post(url, content=content, headers=headers, trust_env=False).status_code == 404
        assert server.calls == []


@EVERY
def test_what_may_succeed_later_is_repeated(tmp_path: Path, protocol: str) -> None:
    """429 and 529 are waited out; the program sees one answer."""
    for status in (429, 529):
        turn = {"text": "late", "error": {"status": status, "retry_after": 0.01, "times": 2}}
        with gateway(tmp_path, protocol, turn) as (opened, server):
            assert post(opened, protocol).status_code == 200
            assert len(server.calls) == 3
            assert len(opened.calls) == 1


@EVERY
@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        ({"status": 400, "message": "maximum context length"}, 400, "context_length"),
        ({"status": 401}, 400, "authentication"),
        ({"status": 429, "message": "You exceeded your current quota"}, 400, "quota"),
    ],
)
def test_refusals_reach_program_and_harness(
    tmp_path: Path, protocol: str, error: dict[str, Any], status: int, kind: str
) -> None:
    """The program is told in a way that it does not repeat; the harness learns what it was."""
    with gateway(tmp_path, protocol, {"error": error}) as (opened, server):
        assert post(opened, protocol).status_code == status
        (call,) = opened.calls
        assert len(server.calls) == 1
    assert call.refusal is not None
    assert call.refusal.kind.value == kind


def test_the_budget_of_tokens(tmp_path: Path) -> None:
    """When the budget is spent no further call gets through."""
    turn = {"text": "x", "usage": {"input": 60, "output": 50}}
    with gateway(tmp_path, "openai-chat", turn, budget_tokens=200) as (opened, server):
        assert [post(opened, "openai-chat").status_code for _ in range(3)] == [200, 200, 400]
        assert opened.budget_is_spent
        assert len(server.calls) == 2


def test_a_closed_gateway_is_gone_and_its_token_masked(tmp_path: Path) -> None:
    """After the attempt nobody listens; the token never stands in a file."""
    with gateway(tmp_path, "openai-chat", {"text": "x"}) as (opened, _):
        assert opened.token not in scrub(f"token {opened.token}")
    opened.close()
    with pytest.raises(httpx.ConnectError):
        post(opened, "openai-chat")


def test_models_are_listed_and_tokens_estimated(tmp_path: Path) -> None:
    """What programs ask at their start is answered here, for the one model that there is."""
    with gateway(tmp_path, "anthropic", {"text": "x"}) as (opened, server):
        headers = {"x-api-key": opened.token}
        listed = httpx.get(opened.url + "/v1/models", headers=headers, trust_env=False).json()
        assert [item["id"] for item in listed["data"]] == ["real-model"]
        counted = post(opened, "anthropic", path="/v1/messages/count_tokens").json()
        assert counted["input_tokens"] > 0
        assert httpx.get(opened.url + "/v1/models", trust_env=False).status_code == 401
        assert server.calls == []
        assert json.dumps(listed).count(KEY) == 0
