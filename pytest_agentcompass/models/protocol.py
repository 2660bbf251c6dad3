"""The seam between the client and the three protocols."""

from __future__ import annotations

import base64
import mimetypes
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol, get_args

from ..contracts.request import ModelSpec
from ..contracts.request import Protocol as ProtocolName
from ..contracts.task import MediaItem, ToolDef
from ..errors import ConfigError, SetupError
from .messages import ChatMessage, ModelReply

__all__ = ["WireProtocol", "choose_protocol", "join_url", "media_parts", "protocol_named"]


class WireProtocol(Protocol):
    """How one protocol writes a call and reads its answer; pure, no I/O."""

    name: ClassVar[str]
    default_url: ClassVar[str]
    key_variable: ClassVar[str]

    def url(self, base_url: str) -> str:
        """Return the address of a call."""

    def headers(self, api_key: str) -> dict[str, str]:
        """Return the headers that carry the key."""

    def body(
        self,
        model: str,
        messages: Sequence[ChatMessage],
        tools: Sequence[ToolDef],
        params: Mapping[str, Any],
        stream: bool,
    ) -> dict[str, Any]:
        """Return the JSON of a call; *params* are passed through and win."""

    def reply(self, data: Mapping[str, Any]) -> ModelReply:
        """Read the JSON of an answer; raises ModelRefusal for one that is none."""

    def assemble(self, events: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the JSON that the events of a stream amount to; raises ModelRefusal for a broken stream."""


def choose_protocol(model: ModelSpec, supported: Sequence[str] = ()) -> str:
    """Return the protocol to use: the first of `api_protocol` that is *supported* (all, where that is empty).

    `auto` is `anthropic` for addresses and model ids that say so, else `openai-chat`. ConfigError when
    nothing fits.
    """
    wanted = (model.api_protocol,) if isinstance(model.api_protocol, str) else model.api_protocol
    known = tuple(supported) or tuple(name for name in get_args(ProtocolName) if name != "auto")
    guess = "anthropic" if "anthropic" in (model.base_url or "") or _is_claude(model) else "openai-chat"
    for name in wanted:
        if name == "auto":
            return guess if guess in known else known[0]
        if name in known:
            return name
    raise ConfigError(f"model.api_protocol: {', '.join(wanted)} is not supported here; it can be: {', '.join(known)}")


def _is_claude(model: ModelSpec) -> bool:
    return not model.base_url and model.id.startswith("claude")


def protocol_named(name: str) -> WireProtocol:
    """Return the protocol called *name*."""
    from .anthropic import Anthropic
    from .openai_chat import OpenAIChat
    from .openai_responses import OpenAIResponses

    for kind in (OpenAIChat, OpenAIResponses, Anthropic):
        if kind.name == name:
            return kind()
    raise ConfigError(f"model.api_protocol: {name!r} is no protocol")


def join_url(base_url: str, path: str, version: str = "v1") -> str:
    """Return *base_url* with *path*; a base that is the whole address already stays, *version* is put in once."""
    base = base_url.rstrip("/")
    if base.endswith(path):
        return base
    if version and not base.endswith(f"/{version}"):
        base += f"/{version}"
    return base + path


def media_parts(media: Iterable[MediaItem]) -> list[tuple[MediaItem, str, str]]:
    """Return each item with its MIME type and its content: a URL, or base64 data. SetupError for a missing file."""
    return [(item, *_content(item)) for item in media]


def _content(item: MediaItem) -> tuple[str, str]:
    name = item.path or item.url or ""
    mime = item.mime_type or mimetypes.guess_type(name)[0] or f"{item.type}/png"
    if item.url:
        return mime, item.url
    if item.data is not None:
        return mime, item.data
    try:
        return mime, base64.b64encode(Path(item.path or "").read_bytes()).decode()
    except OSError as error:
        raise SetupError(f"the task's {item.type} {item.path!r} cannot be read: {error.strerror or error}") from error
