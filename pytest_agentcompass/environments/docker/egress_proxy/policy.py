"""What a policy lets out: entries, names and addresses."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    Address = ipaddress.IPv4Address | ipaddress.IPv6Address

__all__ = ["NAME", "Policy", "plain", "split_port"]

NAME = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*")
_LOCAL = [ipaddress.ip_network(text) for text in ("fec0::/10", "::/96", "64:ff9b:1::/48")]
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


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
        if self.network is not None or self.port not in (None, port) or not NAME.fullmatch(host):
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
    if port and not (port.isascii() and port.isdigit() and len(port) < 6 and 0 < int(port) < 65536):
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
        if address.is_multicast or not address.is_global or address in self.own:
            return True
        return any(address.version == network.version and address in network for network in _LOCAL)

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
