"""Network policies: what a sandbox may reach in a phase of an attempt."""

from __future__ import annotations

import contextlib
import ipaddress
import re
from collections.abc import Mapping
from enum import Enum
from typing import Any

from pydantic import BaseModel, ConfigDict, field_validator, model_validator

__all__ = ["NetworkMode", "NetworkPolicy"]

_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST = re.compile(rf"(\*\.)?({_LABEL}\.)*{_LABEL}")
_BRACKETS = re.compile(r"\[([^\[\]]*)\](?::(.*))?")
# Networks of IPv6 whose addresses carry one of IPv4 (RFC 4291, 6052, 3056).
_CARRIERS = tuple(ipaddress.IPv6Network(text) for text in ("::ffff:0:0/96", "64:ff9b::/96", "2002::/16"))


class NetworkMode(str, Enum):
    """The closed list of modes; `allowlist` and `denylist` carry host entries."""

    PUBLIC = "public"
    NO_NETWORK = "no-network"
    ALLOWLIST = "allowlist"
    DENYLIST = "denylist"


def _entry(given: str) -> str:
    """Return *given* in the one spelling of a host name, `*.wildcard`, address or CIDR, optionally with a port."""
    text = given.strip()
    if not text or "://" in text:
        raise ValueError(f"network entry {given!r} is no host name, address or CIDR (no URLs, no blanks)")
    host, port = _split(given, text)
    if port is not None and not (port.isascii() and port.isdigit() and len(port) < 6 and 0 < int(port) < 65536):
        raise ValueError(f"network entry {given!r} has an impossible port")
    suffix = f":{port}" if port else ""
    try:
        network = ipaddress.ip_network(host, strict=False)
    except ValueError:
        return _name(given, host) + suffix
    if "%" in host or any(network.version == 6 and network.subnet_of(carrier) for carrier in _CARRIERS):
        raise ValueError(f"network entry {given!r}: give the address itself (IPv4, or IPv6 without a zone)")
    return f"[{host}]{suffix}" if ":" in host and port else host + suffix


def _split(given: str, text: str) -> tuple[str, str | None]:
    if "[" in text or "]" in text:
        found = _BRACKETS.fullmatch(text)
        if found is None:
            raise ValueError(f"network entry {given!r}: brackets stand around an IPv6 address, as in [2001:db8::1]:443")
        return found[1], found[2]
    if text.count(":") == 1:
        host, _, port = text.partition(":")
        return host, port
    return text, None


def _name(given: str, text: str) -> str:
    host = text.removesuffix(".")
    if not host.isascii():
        with contextlib.suppress(UnicodeError):
            hint = host.encode("idna").decode()
            raise ValueError(f"network entry {given!r} is to be written in ASCII: {hint}")
    if not _HOST.fullmatch(host) or host.rpartition(".")[2].isdigit():
        raise ValueError(f"network entry {given!r} is no host name, *.wildcard, address or CIDR")
    return host


class NetworkPolicy(BaseModel):
    """One phase's policy; written as a mode's name or as `{mode: ..., hosts: [...]}`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mode: NetworkMode = NetworkMode.PUBLIC
    hosts: tuple[str, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        if isinstance(value, (str, NetworkMode)):
            return {"mode": value}
        if not isinstance(value, (Mapping, NetworkPolicy)):
            modes = ", ".join(mode.value for mode in NetworkMode)
            raise ValueError(f"is no network policy: give a mode ({modes}), lists as {{mode: allowlist, hosts: [...]}}")
        return value

    @field_validator("hosts")
    @classmethod
    def _one_spelling(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(_entry(entry) for entry in value)

    @model_validator(mode="after")
    def _consistent(self) -> NetworkPolicy:
        listed = self.mode in (NetworkMode.ALLOWLIST, NetworkMode.DENYLIST)
        if listed and not self.hosts:
            raise ValueError(f"network mode {self.mode.value} needs hosts")
        if not listed and self.hosts:
            raise ValueError(f"network mode {self.mode.value} takes no hosts")
        return self

    @property
    def restricted(self) -> bool:
        """Whether anything at all is out of reach."""
        return self.mode is not NetworkMode.PUBLIC

    def __str__(self) -> str:
        return self.mode.value + (f"({', '.join(self.hosts)})" if self.hosts else "")
