"""The program: takes connections, judges their targets, passes on what is allowed."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import socket
import sys
import time
from typing import TYPE_CHECKING, Any

from .flow import CHUNK, FAILURES, Flow, keep_alive, origin_form
from .policy import NAME, Policy, plain, split_port

if TYPE_CHECKING:
    from .policy import Address

_HEAD_BYTES, _HEAD_SECONDS = 65536, 30
_CONNECT_SECONDS = 30
_LINGER_SECONDS = 5
_LOOKUP_SECONDS = 60  # for how long the addresses of a denied name are kept
_CONNECTIONS = 256
_TARGETS, _TARGET_CHARACTERS = 500, 300
_SHOWN = 20  # entries that a refusal names


class _Refused(Exception):
    """A request that is answered with *status* and a text for people."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(text)
        self.status = status


class Proxy:
    """Takes connections of the sandbox."""

    def __init__(self, policy: Policy, said: str, peers: str = "") -> None:
        self.policy = policy
        self.said = said
        self.peers = ipaddress.ip_network(peers) if peers else None
        self.connections: set[Any] = set()  # the event loop itself holds its tasks weakly
        self.targets: dict[str, set[str]] = {"allowed": set(), "refused": set()}
        self.denied: dict[str, tuple[float, list[Address]]] = {}

    def tell(self, verdict: str, target: str) -> None:
        """Say a target on standard output, each once, at most `_TARGETS` of a kind and none at length."""
        target, told = target[:_TARGET_CHARACTERS], self.targets[verdict]
        if target in told or len(told) > _TARGETS:
            return
        told.add(target)
        more = len(told) > _TARGETS
        print(json.dumps(["more " + verdict, ""] if more else [verdict, target]), flush=True)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection to its end."""
        task = asyncio.current_task()
        self.connections.add(task)
        try:
            peer = ipaddress.ip_address(writer.get_extra_info("peername")[0])
            if self.peers is not None and peer not in self.peers:
                return
            keep_alive(writer)
            if len(self.connections) > _CONNECTIONS:
                raise _Refused("503 Service Unavailable", "too many connections at once")
            await self._serve(reader, writer)
        except _Refused as refused:
            try:
                await _answer(reader, writer, refused)
            except FAILURES:
                pass
        except FAILURES:
            pass
        finally:
            self.connections.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _HEAD_SECONDS)
        except asyncio.LimitOverrunError:
            raise _Refused("431 Request Header Fields Too Large", "the head of the request is too long") from None
        line, _, fields = head.partition(b"\r\n")
        words = line.decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            raise _Refused("400 Bad Request", "this is a proxy: " + repr(words[:2]) + " is no request that it takes")
        method, target, version = words
        flow = Flow()
        if method == "CONNECT":
            host, port = _authority(target, None)
            up, down = await self._connect(host, port)
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            there, back = flow.copy(reader, down), flow.copy(up, writer)
        else:
            scheme, _, rest = target.partition("://")
            if scheme.lower() != "http":
                raise _Refused("400 Bad Request", "this is a proxy: it takes CONNECT and http:// addresses")
            authority, slash, path = rest.partition("/")
            if "?" in authority:
                authority, _, query = authority.partition("?")
                slash, path = "/?", query + slash + path
            host, port = _authority(authority.rpartition("@")[2], 80)
            up, down = await self._connect(host, port)
            down.write(origin_form(method, (slash or "/") + path, version, authority, fields))
            there, back = flow.request(reader, down, fields), flow.answer(up, writer)
        try:
            await flow.both(there, back)
        finally:
            down.close()

    async def _connect(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to an address of *host* that the policy permits."""
        target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        permitted, problem = await self._permitted(host, port)
        if not permitted and not problem:
            self.tell("refused", target)
            what = target[:_TARGET_CHARACTERS]
            text = f"{what} cannot be reached under this task's network policy: {self.said}"
            raise _Refused("403 Forbidden", text)
        self.tell("allowed", target)
        for address in permitted:
            try:
                opening = asyncio.open_connection(str(address), port, limit=_HEAD_BYTES)
                up, down = await asyncio.wait_for(opening, _CONNECT_SECONDS)
            except FAILURES as error:
                problem = str(error) or f"no answer after {_CONNECT_SECONDS} s"
            else:
                keep_alive(down)
                return up, down
        raise _Refused("502 Bad Gateway", target + " did not answer: " + problem)

    async def _permitted(self, host: str, port: int) -> tuple[list[Address], str]:
        """Return the addresses of *host* that may be reached, and why the name server knows none."""
        try:
            addresses = [plain(host)]
        except ValueError:
            if not NAME.fullmatch(host) or not self.policy.may_look_up(host, port):
                return [], ""
            try:
                addresses = await _addresses(host, port)
            except OSError as error:
                return [], str(error)
        found = await asyncio.gather(*map(self._denied, self.policy.denied_names(port)))
        denied = {address for group in found for address in group}
        return self.policy.permitted(host, port, addresses, denied), ""

    async def _denied(self, name: str) -> list[Address]:
        """Return the addresses of a denied name; the last known ones where it cannot be looked up now."""
        until, known = self.denied.get(name, (0.0, []))
        if time.monotonic() < until:
            return known
        try:
            known = await _addresses(name, 0)
        except OSError:
            pass
        self.denied[name] = (time.monotonic() + _LOOKUP_SECONDS, known)
        return known


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, refused: _Refused) -> None:
    """Answer a request that is not passed on; what the client still sends is read, or it would not see the answer."""
    data = f"agentcompass: {refused}\n".encode("utf-8", "replace")
    head = f"HTTP/1.1 {refused.status}\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n"
    writer.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
    await writer.drain()
    writer.write_eof()
    end = time.monotonic() + _LINGER_SECONDS
    while await asyncio.wait_for(reader.read(CHUNK), max(0.01, end - time.monotonic())):
        pass


def _authority(text: str, default: int | None) -> tuple[str, int]:
    try:
        host, port = split_port(text)
    except ValueError as error:
        raise _Refused("400 Bad Request", str(error)) from None
    port = port or default
    if not host or port is None:
        raise _Refused("400 Bad Request", repr(text) + " is no host with a port")
    return host, port


async def _addresses(host: str, port: int) -> list[Address]:
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise OSError(f"no host name: {error}") from None
    return list(dict.fromkeys(plain(str(item[4][0])) for item in found))


async def main(settings: dict[str, Any]) -> None:
    """Serve until the process is ended."""
    policy = Policy(settings["mode"], settings["hosts"], settings.get("own", []))
    kind = "only these can be reached: " if policy.allows else "these cannot be reached: "
    shown = settings["hosts"][:_SHOWN] + ["..."] * (len(settings["hosts"]) > _SHOWN)
    proxy = Proxy(policy, kind + ", ".join(shown), settings.get("peers", ""))
    server = await asyncio.start_server(proxy.serve, settings["address"], settings["port"], limit=_HEAD_BYTES)
    print(json.dumps(["listens", server.sockets[0].getsockname()[1]]), flush=True)
    async with server:
        await server.serve_forever()


def run() -> None:
    """Read the settings and serve."""
    try:
        with open(sys.argv[1], encoding="utf-8") as stream:
            asyncio.run(main(json.load(stream)))
    except KeyboardInterrupt:
        pass
    except ValueError as error:
        sys.exit(f"the policy cannot be read: {error}")


if __name__ == "__main__":
    run()
