"""What goes through the egress proxy once it is allowed: bodies, heads, ends, and silence."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pytest_agentcompass.environments.docker.egress_proxy import flow
from pytest_agentcompass.environments.docker.egress_proxy.__main__ import Proxy
from pytest_agentcompass.environments.docker.egress_proxy.policy import Policy

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class _Anything(Policy):
    """Lets everything through, loopback too."""

    def may_look_up(self, host: str, port: int) -> bool:
        return True

    def permitted(self, host: str, port: int, addresses: list[Any], denied: set[Any]) -> list[Any]:
        return addresses


def _through(origin: Handler, client: Callable[[int, int], Awaitable[Any]]) -> Any:
    """Return what *client*, given the ports of a proxy and of an *origin*, returns."""

    async def work() -> Any:
        proxy = Proxy(_Anything("allowlist", [], []), "")
        servers = [await asyncio.start_server(handler, "127.0.0.1", 0) for handler in (proxy.serve, origin)]
        ports = [server.sockets[0].getsockname()[1] for server in servers]
        try:
            return await asyncio.wait_for(client(*ports), 30)
        finally:
            for server in servers:
                server.close()
            for _ in range(250):  # both ends of all connections
                await asyncio.sleep(0.02)
                if not proxy.connections:
                    break
            await asyncio.sleep(0.05)

    return asyncio.run(work())


async def _say(port: int, data: bytes, *, end: bool = False) -> bytes:
    """Send *data* (and with *end* the end of sending) and return all that comes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    if end:
        writer.write_eof()
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


class _Origin:
    """An origin that answers each request with its body and never closes by itself; *seen* has the request lines."""

    def __init__(self, head: str = "") -> None:
        self.seen: list[str] = []
        self.head = head

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
            except asyncio.IncompleteReadError:
                writer.close()
                return
            self.seen.append(head.splitlines()[0])
            if "100-continue" in head:
                writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            body = b""
            if "chunked" in head:
                body = await reader.readuntil(b"\r\n\r\n")
            for line in head.splitlines():
                if line.lower().startswith("content-length:"):
                    body = await reader.readexactly(int(line.split(":")[1]))
            writer.write(f"HTTP/1.1 200 OK\r\n{self.head}Content-Length: {len(body)}\r\n\r\n".encode() + body)


def _ask(origin: _Origin, fields: str, body: bytes = b"", *, end: bool = False) -> bytes:
    async def client(proxy: int, port: int) -> bytes:
        head = f"POST http://127.0.0.1:{port}/x HTTP/1.1\r\nHost: other\r\n{fields}\r\n"
        return await _say(proxy, head.encode() + body, end=end)

    answer: bytes = _through(origin, client)
    return answer


def test_one_request_for_each_connection() -> None:
    """What a client says after its request is not for this origin, and the answer tells that the connection ends."""
    origin = _Origin("Connection: keep-alive\r\nKeep-Alive: timeout=5\r\n")
    second = b"GET http://two.test/ HTTP/1.1\r\nHost: two.test\r\nAuthorization: secret\r\n\r\n"
    answer = _ask(origin, "Content-Length: 3\r\nProxy-Authorization: x\r\n", b"abc" + second, end=True)
    assert origin.seen == ["POST /x HTTP/1.1"]
    head, _, body = answer.partition(b"\r\n\r\n")
    assert body == b"abc"
    assert b"Connection: close" in head
    assert b"eep-alive" not in head.lower()


@pytest.mark.parametrize(
    ("fields", "body", "passed"),
    [
        pytest.param("Content-Length: 1000000\r\n", b"x" * 1_000_000, b"x" * 1_000_000, id="large"),
        ("Content-Length: 0\r\n", b"", b""),
        ("", b"", b""),
        (
            "Transfer-Encoding: chunked\r\n",
            b"5;q=1\r\nhello\r\n0\r\nTrailer: yes\r\n\r\nGET",
            b"5;q=1\r\nhello\r\n0\r\nTrailer: yes\r\n\r\n",
        ),
    ],
)
def test_bodies(fields: str, body: bytes, passed: bytes) -> None:
    """A request's own body is passed on, by its length or by its chunks."""
    assert _ask(_Origin(), fields, body, end=True).endswith(
        b"\r\n\r\n" + passed if b"\r\n\r\n" not in passed else passed
    )


@pytest.mark.parametrize(
    "body", [b"zz\r\nhello\r\n", b"5\r\nhel", b"-5\r\nhello\r\n", pytest.param(b"5" * 100_000, id="long")]
)
def test_chunks_that_cannot_be_read(body: bytes) -> None:
    """The connection ends."""
    assert _ask(_Origin(), "Transfer-Encoding: chunked\r\n", body, end=True) == b""


def test_interim_answers() -> None:
    """`100 Continue` is passed on before the answer."""
    answer = _ask(_Origin(), "Content-Length: 2\r\nExpect: 100-continue\r\n", b"ok", end=True)
    assert answer.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\nok")


@pytest.mark.parametrize("raw", [b"no head at all", b"", pytest.param(b"x" * 200_000 + b"\r\n\r\n", id="large")])
def test_answers_without_a_head(raw: bytes) -> None:
    """They are passed on as they are."""

    async def origin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(raw)
        await writer.drain()
        writer.close()

    async def client(proxy: int, port: int) -> bytes:
        return await _say(proxy, f"GET http://127.0.0.1:{port}?q HTTP/1.1\r\n\r\n".encode())

    assert _through(origin, client) == raw


def test_a_late_answer_to_half_a_connection() -> None:
    """An answer that comes after the client has ended its side arrives, also when memory is tidied up meanwhile."""

    async def origin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        data = await reader.read()
        gc.collect()
        await asyncio.sleep(0.3)
        gc.collect()
        writer.write(data[::-1])
        writer.close()

    async def client(proxy: int, port: int) -> list[bytes]:
        head = f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n".encode()
        return await asyncio.gather(*(_say(proxy, head + b"abc", end=True) for _ in range(50)))

    answers = _through(origin, client)
    assert answers == [b"HTTP/1.1 200 Connection established\r\n\r\ncba"] * 50


def test_silence_after_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """When one side has ended and the other is silent for long, the connection ends; what still moves goes on."""
    monkeypatch.setattr(flow, "_IDLE_SECONDS", 0.4)
    silent: list[asyncio.StreamWriter] = []

    async def origin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(8):
            writer.write(b".")
            await asyncio.sleep(0.1)
        silent.append(writer)

    async def client(proxy: int, port: int) -> bytes:
        answer = await _say(proxy, f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n".encode(), end=True)
        silent.pop().close()
        return answer

    assert _through(origin, client).endswith(b"\r\n\r\n........")


def test_an_origin_that_is_not_there() -> None:
    """The client is told."""

    async def client(proxy: int, port: int) -> bytes:
        return await _say(proxy, b"CONNECT 127.0.0.1:1 HTTP/1.1\r\n\r\n")

    assert _through(_Origin(), client).startswith(b"HTTP/1.1 502 Bad Gateway")
