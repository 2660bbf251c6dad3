"""The gateway: how an agent inside a sandbox reaches the model without ever holding the key.

One small HTTP server per attempt, on an address of this machine that the sandbox can reach. It takes calls that
carry the attempt's token, puts in the real key, the request's model and params, passes them on, and counts. Only
the calls of the three protocols get through, and only to the one model of the request.
"""

from __future__ import annotations

import json
import random
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import httpx

from ..components.backoff import SharedBackoff, shared_backoff
from ..contracts.request import ModelSpec
from ..redaction import add_secret
from .client import client_tls, is_loopback, key_of
from .errors import ErrorKind, ModelRefusal, Refusal, classify_answer, classify_exception
from .messages import ModelReply
from .protocol import WireProtocol, protocol_named
from .sse import events_of

__all__ = ["Gateway", "GatewayCall"]

_BODY_LIMIT = 200_000_000
_KEPT_HEADERS = ("accept", "content-type", "user-agent")
_KEPT_PREFIXES = ("anthropic-", "openai-")
_RETRIES = 10
_NETWORK_RETRIES = 5


@dataclass(slots=True)
class GatewayCall:
    """One call that got through: its answer, or why there is none. *seconds* is the time it took."""

    reply: ModelReply | None = None
    refusal: Refusal | None = None
    seconds: float = 0.0


@dataclass(slots=True)
class _Counters:
    calls: list[GatewayCall] = field(default_factory=list)
    denied: int = 0
    tokens: int = 0
    open: int = 0


class Gateway:
    """Serves the model of one attempt on *address*; the token that opens it is `token`.

    *budget_tokens*: once so many tokens are spent, calls are refused. `calls` holds what got through.
    """

    def __init__(
        self,
        model: ModelSpec,
        protocol: str,
        *,
        address: str = "127.0.0.1",
        timeout: float = 600.0,
        budget_tokens: int | None = None,
        headers: Mapping[str, str] | None = None,
        backoff: SharedBackoff | None = None,
    ) -> None:
        self.token = f"agentcompass-{secrets.token_urlsafe(24)}"
        add_secret(self.token)
        self.budget_tokens = budget_tokens
        self.model = model
        self.protocol: WireProtocol = protocol_named(protocol)
        self.endpoint = (model.base_url or self.protocol.default_url).rstrip("/")
        self.backoff = backoff or shared_backoff(f"{self.endpoint} {model.id}")
        self.upstream = httpx.Client(
            headers={**self.protocol.headers(key_of(model, self.protocol.key_variable)), **(headers or {})},
            timeout=httpx.Timeout(timeout, connect=min(30.0, timeout)),
            limits=httpx.Limits(max_connections=None),
            verify=client_tls(),
            trust_env=not is_loopback(self.endpoint),
        )
        self._counters = _Counters()
        self._lock = threading.Condition()
        self._closing = threading.Event()
        gateway = self

        class Handler(_Handler):
            owner = gateway

        self._http = _Server((address, 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The address for the agent, without a version (`/v1`)."""
        host, port = self._http.server_address[:2]
        return f"http://{host!s}:{port}"

    @property
    def calls(self) -> list[GatewayCall]:
        """The calls so far."""
        with self._lock:
            return list(self._counters.calls)

    def settle(self, seconds: float) -> None:
        """Wait until no call is under way, at most *seconds*: a program may end before its last call is counted."""
        with self._lock:
            self._lock.wait_for(lambda: self._counters.open == 0, timeout=seconds)

    @property
    def denied(self) -> int:
        """How many calls came with a wrong token, or to something that is no model call."""
        return self._counters.denied

    @property
    def budget_is_spent(self) -> bool:
        """Whether no further call gets through."""
        return self.budget_tokens is not None and self._counters.tokens >= self.budget_tokens

    def close(self) -> None:
        """Stop; waits for nobody."""
        if self._closing.is_set():
            return
        self._closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()
        self.upstream.close()

    # -- used by the handler's threads ----------------------------------------------------------

    def deny(self) -> None:
        """Count a call that is none of ours."""
        with self._lock:
            self._counters.denied += 1

    def begin(self) -> None:
        """Say that a call is under way."""
        with self._lock:
            self._counters.open += 1

    def note(self, call: GatewayCall) -> None:
        """Count a call that is over."""
        with self._lock:
            self._counters.open -= 1
            self._lock.notify_all()
            self._counters.calls.append(call)
            if call.reply is not None:
                self._counters.tokens += (call.reply.usage.input or 0) + (call.reply.usage.output or 0)

    def rewritten(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the call with the request's model and params, whatever the agent asked for."""
        return {**body, "model": self.model.id, **self.model.params}

    def send(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> Iterator[httpx.Response]:
        """Yield the one answer that counts: what may succeed later is repeated first, together with all others."""
        request = self.upstream.build_request(
            "POST", self.protocol.url(self.endpoint), content=json.dumps(body).encode(), headers=headers
        )
        for tries in range(1, _RETRIES + 2):
            self._sleep(self.backoff.remaining())
            try:
                answer = self.upstream.send(request, stream=True)
            except (httpx.HTTPError, OSError) as error:
                refusal = classify_exception(error)
                if tries > _NETWORK_RETRIES or refusal.kind is ErrorKind.TIMEOUT or self._closing.is_set():
                    raise ModelRefusal(refusal.message, refusal) from error
                self._sleep(min(30.0, 2.0 ** (tries - 1)))
                continue
            if answer.status_code == 200:
                self.backoff.succeeded()
            elif tries <= _RETRIES and not self._closing.is_set() and self._again(answer):
                answer.close()
                continue
            try:
                yield answer
            finally:
                answer.close()
            return

    def _again(self, answer: httpx.Response) -> bool:
        refusal = classify_answer(answer.status_code, _text(answer), answer.headers)
        if refusal.again:
            self.backoff.report(refusal.retry_after)
        return refusal.again

    def _sleep(self, seconds: float) -> None:
        if seconds > 0:
            self._closing.wait(seconds + random.uniform(0.0, 0.5 * seconds))

    def read(self, content: bytes, kind: str) -> ModelReply:
        """Read a whole answer, streamed or not."""
        text = content.decode("utf-8", "replace")
        if "event-stream" in kind:
            return self.protocol.reply(self.protocol.assemble(events_of(text.split("\n"))))
        return self.protocol.reply(json.loads(text))


def _text(answer: httpx.Response) -> str:
    try:
        return answer.read()[:100_000].decode("utf-8", "replace")
    except httpx.HTTPError:
        return ""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: an agent that hangs up is no fault of ours."""


class _Handler(BaseHTTPRequestHandler):
    owner: Gateway
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""

    def do_HEAD(self) -> None:
        """Say that somebody is here."""
        self._reply(200, {})

    def do_GET(self) -> None:
        """Tell the one model that there is."""
        if self._allowed():
            model = {"id": self.owner.model.id, "object": "model", "type": "model"}
            self._reply(200, {"object": "list", "data": [model], "models": []})

    def do_POST(self) -> None:
        """Pass a model call on."""
        size = int(self.headers.get("content-length") or 0)
        if not 0 <= size <= _BODY_LIMIT:
            self.close_connection = True
            self._refuse(413, "the call is too large")
            return
        raw = self.rfile.read(size)
        if not self._allowed():
            return
        path = urlsplit(self.path).path
        if path.endswith("/count_tokens"):
            self._reply(200, {"input_tokens": max(1, len(raw) // 4)})
            return
        try:
            body = json.loads(raw)
        except ValueError:
            body = None
        wanted = urlsplit(self.owner.protocol.url("http://x")).path.removeprefix("/v1")
        if not path.endswith(wanted) or not isinstance(body, dict):
            self.owner.deny()
            self._refuse(404, f"the gateway passes on calls to {wanted} only")
        elif self.owner.budget_is_spent:
            self._refuse(400, "the attempt's budget of tokens is spent", "budget_spent")
        else:
            self._forward(self.owner.rewritten(body))

    def _allowed(self) -> bool:
        given = self.headers.get("x-api-key") or self.headers.get("authorization", "").removeprefix("Bearer ").strip()
        if secrets.compare_digest(given.encode(), self.owner.token.encode()):
            return True
        self.owner.deny()
        self._refuse(401, "the token is not that of this attempt", "authentication_error")
        return False

    def _forward(self, body: dict[str, Any]) -> None:
        start = time.monotonic()
        call = GatewayCall()
        self.owner.begin()
        try:
            for answer in self.owner.send(body, self._passed_on()):
                self._answer(answer, call)
        except ModelRefusal as error:
            call.refusal = error.refusal
            self._refuse(502, error.refusal.message, "api_error")
        finally:
            call.seconds = time.monotonic() - start
            self.owner.note(call)

    def _passed_on(self) -> dict[str, str]:
        kept = {
            name.lower(): value
            for name, value in self.headers.items()
            if name.lower() in _KEPT_HEADERS or name.lower().startswith(_KEPT_PREFIXES)
        }
        return {**kept, "content-type": "application/json", "accept-encoding": "identity"}

    def _answer(self, answer: httpx.Response, call: GatewayCall) -> None:
        kind = answer.headers.get("content-type", "application/json")
        if answer.status_code != 200:
            text = _text(answer)
            call.refusal = classify_answer(answer.status_code, text, answer.headers)
            if call.refusal.stops_run:  # programs try again for minutes on 401 and 429; nothing repeats 400
                self._refuse(400, call.refusal.message)
            else:
                self._send(answer.status_code, kind, text.encode())
            return
        content = self._relay(answer, kind)
        try:
            call.reply = self.owner.read(content, kind)
        except ModelRefusal as error:
            call.refusal = error.refusal
        except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
            call.refusal = Refusal(ErrorKind.BAD_RESPONSE, f"{type(error).__name__}: {error}", 200)

    def _relay(self, answer: httpx.Response, kind: str) -> bytes:
        """Pass the answer on piece by piece and return all of it."""
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        content = bytearray()
        try:
            for chunk in answer.iter_raw():
                content += chunk
                if chunk:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            self.wfile.write(b"0\r\n\r\n")
        except (httpx.HTTPError, OSError):
            self.close_connection = True  # the agent sees a broken stream, as it would without us
        return bytes(content)

    def _refuse(self, status: int, message: str, kind: str = "invalid_request_error") -> None:
        self._reply(status, {"type": "error", "error": {"type": kind, "message": message}})

    def _reply(self, status: int, data: Mapping[str, Any]) -> None:
        self._send(status, "application/json", json.dumps(data).encode())

    def _send(self, status: int, kind: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
