"""The client: one call to a model, retried and slowed down together with everybody else on the machine."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
import random
import ssl
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import httpx

from ..components.backoff import SharedBackoff, shared_backoff
from ..contracts.request import ModelSpec
from ..contracts.task import ToolDef
from ..errors import ConfigError
from ..redaction import MASK, add_secret
from .errors import ErrorKind, ModelRefusal, Refusal, classify_answer, classify_exception
from .messages import ChatMessage, ModelReply, valid
from .protocol import choose_protocol, protocol_named
from .sse import events_of

__all__ = ["ModelClient", "client_tls", "is_loopback", "key_of"]

_ANSWER_BYTES = 50_000_000
_FIRST_PAUSE = 1.0  # seconds after a failure of the network, doubling
_LONGEST_PAUSE = 60.0
_SHARED = (ErrorKind.RATE_LIMIT, ErrorKind.OVERLOAD)
#: how often a call is repeated for these reasons: a time-out costs the whole time limit each time, and an
#: endpoint that is not there after half a minute is gone
_CAPS = {ErrorKind.TIMEOUT: 2, ErrorKind.NETWORK: 5}


def is_loopback(url: str) -> bool:
    """Whether *url* is on this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def key_of(model: ModelSpec, variable: str, environ: Mapping[str, str] | None = None) -> str:
    """Return the key of *model*, known to the scrub from now on.

    The protocol's usual *variable* counts only for the provider's own address: a key of yours must not go
    to some other `base_url` because it happens to be set.
    """
    key = model.api_key.get_secret_value() if model.api_key is not None else ""
    key = "" if key == MASK else key  # a request as a run directory holds it
    if not key and not model.base_url:
        key = (os.environ if environ is None else environ).get(variable, "")
    add_secret(key)
    return key


@lru_cache(maxsize=1)
def client_tls() -> ssl.SSLContext:
    """Return the TLS settings of all clients; slow to make, so they share them."""
    return httpx.create_ssl_context()


class ModelClient:
    """Calls one model; use it as an async context manager, or `close` it.

    *timeout* (seconds) is for one call; *retries* counts calls after the first; *headers* go with each call.
    *backoff* is the pause shared over processes (default: that of the endpoint and model).
    """

    def __init__(
        self,
        model: ModelSpec,
        *,
        protocols: Sequence[str] = (),
        timeout: float = 600.0,
        retries: int = 10,
        stream: bool = False,
        headers: Mapping[str, str] | None = None,
        backoff: SharedBackoff | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        if not model.id:
            raise ConfigError("no model is given; set model=ID (and base_url= for an endpoint of your own)")
        self.protocol = protocol_named(choose_protocol(model, protocols))
        self.base_url = (model.base_url or self.protocol.default_url).rstrip("/")
        self.model = model
        self._timeout = timeout
        self._retries = retries
        self._stream = stream
        self._backoff = backoff or shared_backoff(f"{self.base_url} {model.id}")
        self._url = self.protocol.url(self.base_url)
        key = key_of(model, self.protocol.key_variable)
        self._http = httpx.AsyncClient(
            headers={**self.protocol.headers(key), **(headers or {})},
            timeout=httpx.Timeout(timeout, connect=min(30.0, timeout)),
            limits=httpx.Limits(max_connections=None),
            verify=client_tls(),
            trust_env=not is_loopback(self.base_url),
            transport=transport,
        )

    async def __aenter__(self) -> ModelClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Let the connections go."""
        await self._http.aclose()

    async def complete(
        self,
        messages: Sequence[ChatMessage],
        tools: Sequence[ToolDef] = (),
        *,
        params: Mapping[str, Any] | None = None,
        stream: bool | None = None,
    ) -> ModelReply:
        """Return the model's answer to *messages*; *params* go over those of the request's `model.params`.

        Raises AgentFailure (`context_length`, `output_length`, `model_refused`) for what is the agent's and
        ModelUnavailable (with `kind` and `stop_run`) for what is the endpoint's, when trying again is no use.
        """
        streaming = self._stream if stream is None else stream
        merged = {**self.model.params, **(params or {})}
        content = _encode(self.protocol.body(self.model.id, messages, tools, merged, streaming))
        counts: Counter[ErrorKind] = Counter()
        for tries in range(1, self._retries + 2):
            await self._backoff.wait()
            start = time.monotonic()
            try:
                reply = await self._once(content, bool(merged.get("stream", streaming)))
            except ModelRefusal as error:
                refusal = error.refusal
            else:
                self._backoff.succeeded()
                return replace(reply, latency=time.monotonic() - start, tries=tries)
            counts[refusal.kind] += 1
            often = counts[refusal.kind] > _CAPS.get(refusal.kind, self._retries)
            if often or not refusal.again or tries > self._retries:
                break
            await self._pause(refusal, tries)
        raise refusal.error(self.base_url, tries)

    async def _pause(self, refusal: Refusal, tries: int) -> None:
        if refusal.kind in _SHARED:
            self._backoff.report(refusal.retry_after)
            return
        longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(tries - 1, 16))
        await asyncio.sleep(random.uniform(longest / 2, longest))

    async def _once(self, content: bytes, stream: bool) -> ModelReply:
        try:
            async with asyncio.timeout(self._timeout):
                status, headers, text = await self._post(content)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, OSError) as error:
            raise ModelRefusal(str(error), classify_exception(error)) from error
        if status != 200:
            raise ModelRefusal(f"HTTP {status}", classify_answer(status, text, headers))
        try:
            if stream and "event-stream" in headers.get("content-type", "event-stream"):
                return self.protocol.reply(valid(self.protocol.assemble(events_of(text.split("\n")))))
            return self.protocol.reply(valid(_json(text)))
        except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
            said = f"it is not of the protocol {self.protocol.name} ({type(error).__name__}: {error}): {text[:300]}"
            raise ModelRefusal(said, Refusal(ErrorKind.BAD_RESPONSE, said, status)) from error

    async def _post(self, content: bytes) -> tuple[int, Mapping[str, str], str]:
        headers = {"content-type": "application/json"}
        async with self._http.stream("POST", self._url, content=content, headers=headers) as answer:
            body = bytearray()
            async for chunk in answer.aiter_bytes():
                body += chunk
                if len(body) > _ANSWER_BYTES:
                    said = f"it is longer than {_ANSWER_BYTES} bytes"
                    raise ModelRefusal(said, Refusal(ErrorKind.BAD_RESPONSE, said, answer.status_code))
            return answer.status_code, answer.headers, body.decode("utf-8", "replace")


def _encode(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body).encode("utf-8")  # ASCII only: lone surrogates of tool output become escapes


def _json(text: str) -> Mapping[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        said = f"it is no JSON: {' '.join(text[:300].split())}"
        raise ModelRefusal(said, Refusal(ErrorKind.BAD_RESPONSE, said, 200)) from error
    if not isinstance(value, dict):
        raise ModelRefusal("no object", Refusal(ErrorKind.BAD_RESPONSE, f"it is no object: {text[:300]}", 200))
    return value
