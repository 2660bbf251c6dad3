"""Network policies: what a sandbox may reach in a phase of an attempt."""

from __future__ import annotations

import ipaddress
import re
from enum import Enum
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

__all__ = ["NetworkMode", "NetworkPolicy"]

_HOST = re.compile(r"^(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*$")


class NetworkMode(str, Enum):
    """The closed list of modes; `allowlist` and `denylist` carry host entries."""

    PUBLIC = "public"
    NO_NETWORK = "no-network"
    ALLOWLIST = "allowlist"
    DENYLIST = "denylist"


def _check_entry(entry: str) -> str:
    """Return *entry* if it is a host name, `*.wildcard`, address or CIDR, optionally with a port."""
    text = entry.strip()
    if not text or "://" in text:
        raise ValueError(f"network entry {entry!r} is no host name, address or CIDR (no URLs, no blanks)")
    host, port = text, ""
    if text.startswith("["):
        host, _, port = text[1:].partition("]")
        port = port.lstrip(":")
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError(f"network entry {entry!r} has an impossible port")
    try:
        ipaddress.ip_network(host, strict=False)
    except ValueError:
        if not _HOST.match(host):
            raise ValueError(f"network entry {entry!r} is no host name, *.wildcard, address or CIDR") from None
    return text


class NetworkPolicy(BaseModel):
    """One phase's policy; written as a mode's name or as `{mode: ..., hosts: [...]}`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mode: NetworkMode = NetworkMode.PUBLIC
    hosts: tuple[str, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        return {"mode": value} if isinstance(value, (str, NetworkMode)) else value

    @model_validator(mode="after")
    def _consistent(self) -> NetworkPolicy:
        listed = self.mode in (NetworkMode.ALLOWLIST, NetworkMode.DENYLIST)
        if listed and not self.hosts:
            raise ValueError(f"network mode {self.mode.value} needs hosts")
        if not listed and self.hosts:
            raise ValueError(f"network mode {self.mode.value} takes no hosts")
        for entry in self.hosts:
            _check_entry(entry)
        return self

    @property
    def restricted(self) -> bool:
        """Whether anything at all is out of reach."""
        return self.mode is not NetworkMode.PUBLIC

    def __str__(self) -> str:
        return self.mode.value + (f"({', '.join(self.hosts)})" if self.hosts else "")
