"""The egress proxy: a program that runs in a container beside a sandbox and lets out what a policy allows.

It is copied into the container as it is: it imports nothing but the standard library and runs on Python 3.8
and later. It speaks HTTP's two ways of using a proxy, `CONNECT host:port` (for TLS and all else) and requests
with an absolute URI (RFC 9112, 3.2.2 and 3.2.3). A name is looked up here, once, and the connection goes to an
address that was judged. Its one argument is JSON:

    mode     allowlist or denylist
    hosts    entries: names, `*.wildcards` (below the domain, not itself), addresses and CIDRs, each with or
             without `:port`
    address  where to listen (`port` beside it)
    own      addresses of the engine's machine, which count as local

Local addresses (private, link-local, the machine's own) can be reached only where an entry of an allow list is
exactly that name, or an address or CIDR that holds it; loopback and multicast never.

Each target is said once on standard output, as a JSON list: `["allowed", "host:port"]` or `["refused", ...]`.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import socket
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_HEAD_BYTES, _HEAD_SECONDS = 65536, 30
_CONNECT_SECONDS = 30
_CHUNK = 65536
_CONNECTIONS = 256
_TARGETS, _TARGET_CHARACTERS = 500, 300

_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_FAILURES = (OSError, EOFError, asyncio.TimeoutError)  # not the built-in one before Python 3.11


class Entry:
    """One entry of a policy: a name, all names below a domain, or a network of addresses; perhaps one port."""

    def __init__(self, text: str) -> None:
        host, port = split_port(text.strip())
        self.port = port
        self.network: Any = None
        self.below = host.startswith("*.")
        self.name = host[2:] if self.below else host
        try:
            self.network = ipaddress.ip_network(host, strict=False)
        except ValueError:
            pass

    def names(self, host: str, port: int) -> bool:
        """Whether *host* is what this entry names."""
        if self.network is not None or self.port not in (None, port):
            return False
        return host.endswith("." + self.name) if self.below else host == self.name

    def holds(self, address: Address, port: int) -> bool:
        """Whether *address* is in this entry's network."""
        if self.network is None or self.port not in (None, port):
            return False
        return address.version == self.network.version and address in self.network


def split_port(text: str) -> tuple[str, int | None]:
    """Return the host (lower case, no last dot, no brackets) and the port of `host`, `host:port` or `[v6]:port`."""
    host, port = text, ""
    if text.startswith("["):
        host, _, port = text[1:].partition("]")
        port = port[1:] if port.startswith(":") else port
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError("impossible port in " + repr(text))
    return host.lower().rstrip("."), int(port) if port else None


def plain(text: str) -> Address:
    """Return an address; of IPv6 forms that carry an IPv4 address, that one."""
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is not None:
            return inner
        if address in _NAT64:
            return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address


class Policy:
    """Judges targets."""

    def __init__(self, mode: str, hosts: list[str], own: list[str]) -> None:
        self.allows = mode == "allowlist"
        self.entries = [Entry(text) for text in hosts]
        self.own = {plain(text) for text in own}

    def local(self, address: Address) -> bool:
        """Whether *address* is no one of the world outside: private, link-local, the engine's own machine."""
        return address.is_multicast or not address.is_global or address in self.own

    def denied_names(self, port: int) -> list[str]:
        """Return the names whose addresses a deny list means as well."""
        names = [e for e in self.entries if e.network is None and not e.below and e.port in (None, port)]
        return [] if self.allows else [e.name for e in names]

    def may_look_up(self, host: str, port: int) -> bool:
        """Whether *host* may be asked for at a name server: a lookup carries its name out."""
        named = any(entry.names(host, port) for entry in self.entries)
        return named if self.allows else not named

    def permitted(self, host: str, port: int, addresses: list[Address], denied: set[Address]) -> list[Address]:
        """Return those of *addresses* (what *host* stands for) that may be reached.

        *denied* are the addresses of `denied_names`.
        """
        never = [a for a in addresses if a.is_loopback or a.is_unspecified or a.is_multicast]
        usable = [a for a in addresses if a not in never]
        named = [entry for entry in self.entries if entry.names(host, port)]
        held = [a for a in usable if any(entry.holds(a, port) for entry in self.entries)]
        if self.allows:
            if any(not entry.below for entry in named):
                return usable
            return [a for a in usable if a in held or (named and not self.local(a))]
        if named or held or any(a in denied for a in usable):
            return []
        return [a for a in usable if not self.local(a)]


class _Refused(Exception):
    """A request that is answered with *status* and a text for people."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(text)
        self.status = status


class Proxy:
    """Takes connections of the sandbox."""

    def __init__(self, policy: Policy, said: str) -> None:
        self.policy = policy
        self.said = said
        self.open = 0
        self.targets: dict[tuple[str, str], None] = {}

    def tell(self, verdict: str, target: str) -> None:
        """Say a target on standard output, each once, at most `_TARGETS` and none at length."""
        target = target[:_TARGET_CHARACTERS]
        if (verdict, target) not in self.targets and len(self.targets) < _TARGETS:
            self.targets[verdict, target] = None
            print(json.dumps([verdict, target]), flush=True)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection to its end."""
        self.open += 1
        try:
            if self.open > _CONNECTIONS:
                raise _Refused("503 Service Unavailable", "too many connections at once")
            await self._serve(reader, writer)
        except _Refused as refused:
            text = "agentcompass: " + str(refused) + "\n"
            head = "HTTP/1.1 %s\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\nContent-Length: %d"
            data = text.encode("utf-8", "replace")
            writer.write((head % (refused.status, len(data))).encode() + b"\r\n\r\n" + data)
            await _quietly(writer.drain())
        except _FAILURES:
            pass
        finally:
            self.open -= 1
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
        if method == "CONNECT":
            host, port = _authority(target, None)
            up, down = await self._connect(host, port)
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
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
            down.write(_origin_form(method, (slash or "/") + path, version, authority, fields))
        try:
            await asyncio.gather(_copy(reader, down), _copy(up, writer))
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
                opening = asyncio.open_connection(str(address), port)
                return await asyncio.wait_for(opening, _CONNECT_SECONDS)
            except _FAILURES as error:
                problem = str(error) or f"no answer after {_CONNECT_SECONDS} s"
        raise _Refused("502 Bad Gateway", target + " did not answer: " + problem)

    async def _permitted(self, host: str, port: int) -> tuple[list[Address], str]:
        """Return the addresses of *host* that may be reached, and why the name server knows none."""
        try:
            addresses = [plain(host)]
        except ValueError:
            if not self.policy.may_look_up(host, port):
                return [], ""
            try:
                addresses = await _addresses(host, port)
            except OSError as error:
                return [], str(error)
        denied: set[Address] = set()
        for name in self.policy.denied_names(port):
            try:
                denied.update(await _addresses(name, port))
            except OSError:
                pass  # a name that is not known stands for no address
        return self.policy.permitted(host, port, addresses, denied), ""


def _authority(text: str, default: int | None) -> tuple[str, int]:
    try:
        host, port = split_port(text)
    except ValueError as error:
        raise _Refused("400 Bad Request", str(error)) from None
    port = port or default
    if not host or port is None:
        raise _Refused("400 Bad Request", repr(text) + " is no host with a port")
    return host, port


def _origin_form(method: str, path: str, version: str, authority: str, fields: bytes) -> bytes:
    """Return the head of a request as its origin takes it: path alone, no words for the proxy, one request."""
    kept = []
    for field in fields.split(b"\r\n"):
        name = field.partition(b":")[0].strip().lower()
        if field and name not in (b"host", b"connection", b"keep-alive") and not name.startswith(b"proxy-"):
            kept.append(field)
    host = authority.rpartition("@")[2]
    lines = [f"{method} {path} {version}", "Host: " + host, "Connection: close"]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n" + b"".join(field + b"\r\n" for field in kept) + b"\r\n"


async def _addresses(host: str, port: int) -> list[Address]:
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise OSError(f"no host name: {error}") from None
    return list(dict.fromkeys(plain(str(item[4][0])) for item in found))


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    try:
        while True:
            data = await source.read(_CHUNK)
            if not data:
                break
            target.write(data)
            await target.drain()
        target.write_eof()
    except OSError:
        target.close()


async def _quietly(waiting: Any) -> None:
    try:
        await waiting
    except OSError:
        pass


async def main(settings: dict[str, Any]) -> None:
    """Serve until the process is ended."""
    policy = Policy(settings["mode"], settings["hosts"], settings.get("own", []))
    kind = "only these can be reached: " if policy.allows else "these cannot be reached: "
    proxy = Proxy(policy, kind + ", ".join(settings["hosts"]))
    server = await asyncio.start_server(proxy.serve, settings["address"], settings["port"], limit=_HEAD_BYTES)
    print(json.dumps(["listens", server.sockets[0].getsockname()[1]]), flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    try:
        asyncio.run(main(json.loads(sys.argv[1])))
    except KeyboardInterrupt:
        pass
