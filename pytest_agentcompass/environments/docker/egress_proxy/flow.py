"""What goes between a client and an origin."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Coroutine

__all__ = ["CHUNK", "FAILURES", "Flow", "keep_alive", "origin_form"]

CHUNK = 65536
_IDLE_SECONDS = 300  # how long one direction may be silent when the other has ended
FAILURES = (OSError, EOFError, asyncio.TimeoutError)  # not the built-in one before Python 3.11


class Flow:
    """What goes between a client and an origin, both ways at once."""

    def __init__(self) -> None:
        self.moved = time.monotonic()

    async def both(self, there: Coroutine[Any, Any, None], back: Coroutine[Any, Any, None]) -> None:
        """Let both directions come to their end; when one has, the other ends after a long silence."""
        tasks = {asyncio.ensure_future(there), asyncio.ensure_future(back)}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            self.moved = time.monotonic()
            while time.monotonic() - self.moved < _IDLE_SECONDS:
                _, rest = await asyncio.wait(tasks, timeout=_IDLE_SECONDS)
                if not rest:
                    break
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def copy(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        """Pass on all that comes, and its end."""
        try:
            while await self._pass(source, target, CHUNK):
                pass
            target.write_eof()
        except OSError:
            target.close()

    async def _pass(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, most: int) -> int:
        data = await source.read(min(most, CHUNK))
        self.moved = time.monotonic()
        target.write(data)
        await target.drain()
        return len(data)

    async def request(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, fields: bytes) -> None:
        """Pass on the body of one request; what else the client says is not for this origin."""
        try:
            if re.search(rb"(?im)^transfer-encoding:.*chunked", fields):
                await self._chunks(source, target)
            else:
                length = re.search(rb"(?im)^content-length:[ \t]*(\d{1,18})[ \t]*\r?$", fields)
                left = int(length[1]) if length else 0
                while left:
                    passed = await self._pass(source, target, left)
                    if not passed:
                        break
                    left -= passed
            while await source.read(CHUNK):
                pass
            target.write_eof()
        except (*FAILURES, ValueError, asyncio.LimitOverrunError):
            target.close()

    async def _chunks(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        """Pass on a chunked body (RFC 9112, 7.1) up to its last line."""
        while True:
            line = await source.readuntil(b"\n")
            target.write(line)
            left = int(line.partition(b";")[0], 16)
            if not left:
                break
            left += 2
            while left > 0:
                passed = await self._pass(source, target, left)
                if not passed:
                    raise EOFError
                left -= passed
        while True:
            line = await source.readuntil(b"\n")
            target.write(line)
            if not line.strip():
                break
        await target.drain()

    async def answer(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        """Pass on the answer to one request; its head tells the client that there is no second."""
        try:
            while True:
                head = await source.readuntil(b"\r\n\r\n")
                interim = re.match(rb"HTTP/1\.\d 1(?!01)\d\d ", head)
                target.write(head if interim or not head.startswith(b"HTTP/1.") else _last(head))
                await target.drain()
                if not interim:
                    break
        except asyncio.IncompleteReadError as error:
            target.write(error.partial)
        except asyncio.LimitOverrunError:
            pass  # no head that anybody can read: passed on as it is
        except OSError:
            target.close()
            return
        await self.copy(source, target)


def origin_form(method: str, path: str, version: str, authority: str, fields: bytes) -> bytes:
    """Return the head of a request as its origin takes it: path alone, no words for the proxy, one request."""
    kept = []
    for field in fields.split(b"\r\n"):
        name = field.partition(b":")[0].strip().lower()
        if field and name not in (b"host", b"connection", b"keep-alive") and not name.startswith(b"proxy-"):
            kept.append(field)
    host = authority.rpartition("@")[2]
    lines = [f"{method} {path} {version}", "Host: " + host, "Connection: close"]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n" + b"".join(field + b"\r\n" for field in kept) + b"\r\n"


def keep_alive(writer: asyncio.StreamWriter) -> None:
    """Let the kernel notice a peer that vanished."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def _last(head: bytes) -> bytes:
    """Return the head of an answer with the word that the connection ends after it."""
    line, *fields = head[:-4].split(b"\r\n")
    kept = [f for f in fields if f.partition(b":")[0].strip().lower() not in (b"connection", b"keep-alive")]
    return b"\r\n".join([line, *kept, b"Connection: close"]) + b"\r\n\r\n"
