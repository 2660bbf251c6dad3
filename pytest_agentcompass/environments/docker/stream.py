"""The output of a running exec: the engine's hijacked connection, read without a thread.

The SDK would hold one thread for each running command. The request is one plain HTTP/1.1 POST
(Docker Engine API, "Exec start"): after the response's head the connection carries frames of
`[stream, 0, 0, 0, length as 4 bytes]` and content until the engine closes it.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import deque
from urllib.parse import urlsplit

from ...errors import SandboxError
from .engine import Engine

__all__ = ["Capped", "ExecStream", "open_stream"]

_STDERR = 2
_PIECE = 65536


class Capped:
    """Output of any length, of which the head and the tail are kept: *limit* bytes in all."""

    def __init__(self, limit: int) -> None:
        self._head_limit = limit // 2
        self._tail_limit = limit - limit // 2
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._cut = 0

    @property
    def truncated(self) -> bool:
        """Whether anything is missing in the middle."""
        return self._cut > 0

    def add(self, data: bytes) -> None:
        """Take the next piece."""
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._tail.append(data)
            self._tail_size += len(data)
            self._shrink()

    def _shrink(self) -> None:
        while self._tail_size > self._tail_limit:
            over = self._tail_size - self._tail_limit
            first = self._tail.popleft()
            cut = min(over, len(first))
            if cut < len(first):
                self._tail.appendleft(first[cut:])
            self._tail_size -= cut
            self._cut += cut

    def ending(self) -> bytes:
        """Return the last bytes that came, at least 32 where there are that many."""
        if not self._tail:
            return bytes(self._head[-32:])
        last = self._tail[-1]
        return last if len(last) >= 32 or len(self._tail) == 1 else self._tail[-2] + last

    def text(self) -> str:
        """Return what was kept, decoded with replacement, and where it was cut how much."""
        tail = b"".join(self._tail)
        if not self._cut:
            return (bytes(self._head) + tail).decode("utf-8", "replace")
        head = bytes(self._head).decode("utf-8", "replace")
        return f"{head}\n[... {self._cut} bytes cut ...]\n{tail.decode('utf-8', 'replace')}"


class ExecStream:
    """The demultiplexed output of one exec."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limit: int) -> None:
        self._reader, self._writer = reader, writer
        self.stdout, self.stderr = Capped(limit), Capped(limit)

    async def read(self, last: re.Pattern[bytes] | None = None) -> None:
        """Read until the engine closes the stream, or standard output ends with *last*."""
        try:
            while True:
                head = await self._reader.readexactly(8)
                target = self.stderr if head[0] == _STDERR else self.stdout
                await self._content(target, int.from_bytes(head[4:], "big"))
                if last is not None and last.search(self.stdout.ending()):
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return

    async def _content(self, target: Capped, length: int) -> None:
        while length:
            data = await self._reader.read(min(length, _PIECE))
            if not data:
                raise asyncio.IncompleteReadError(b"", length)
            target.add(data)
            length -= len(data)

    def close(self) -> None:
        """Let the connection go; the command runs on."""
        self._writer.transport.abort()


async def _connect(engine: Engine) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if engine.local:
        return await asyncio.open_unix_connection(engine.address.removeprefix("unix://"))
    where = urlsplit(engine.address)
    return await asyncio.open_connection(where.hostname, where.port or 2375, ssl=engine.tls)


async def open_stream(engine: Engine, exec_id: str, limit: int) -> ExecStream:
    """Start the exec and return its output stream.

    Raises SandboxError with the engine's own words when it refuses; `status` is the HTTP status.
    """
    try:
        reader, writer = await _connect(engine)
    except OSError as error:
        raise SandboxError(f"the Docker engine at {engine.address} does not answer: {error}") from error
    try:
        body = json.dumps({"Detach": False, "Tty": False}).encode()
        writer.write(
            f"POST /v{engine.client.api_version}/exec/{exec_id}/start HTTP/1.1\r\nHost: docker\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            "Connection: Upgrade\r\nUpgrade: tcp\r\n\r\n".encode()
            + body
        )
        status = await _head(reader)
        if status not in (101, 200):
            raise await _refusal(reader, status)
    except (ConnectionError, asyncio.IncompleteReadError, ValueError) as error:
        writer.transport.abort()
        raise SandboxError(f"the Docker engine closed the connection: {error}") from error
    except BaseException:
        writer.transport.abort()
        raise
    return ExecStream(reader, writer, limit)


async def _head(reader: asyncio.StreamReader) -> int:
    """Read the response's status line and headers; return the status."""
    lines = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
    return int(lines[0].split()[1])


async def _refusal(reader: asyncio.StreamReader, status: int) -> SandboxError:
    try:
        text = (await asyncio.wait_for(reader.read(_PIECE), 2.0)).decode("utf-8", "replace")
    except TimeoutError:
        text = ""
    start, end = text.find("{"), text.rfind("}")
    try:
        message = str(json.loads(text[start : end + 1])["message"])
    except (ValueError, KeyError, TypeError):
        message = text.strip()
    return SandboxError(message[:1000] or f"status {status}", status=status)
