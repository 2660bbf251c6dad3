"""What `--agentcompass-show-config` prints: every resolved value, and where it came from."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..redaction import MASK, plain
from .options import RuntimeOptions
from .requests import ResolvedRequest
from .suites import SuiteProblem

__all__ = ["show_config", "show_options"]

_DEFAULT = "built-in default"
_WIDEST_VALUE = 60


def show_config(resolved: Iterable[ResolvedRequest | SuiteProblem], options: RuntimeOptions | None = None) -> str:
    """Return the requests as readable text, secrets masked, with the origin of each value beside it."""
    blocks = [] if options is None else [show_options(options)]
    for item in resolved:
        blocks.append(
            f"request {item.name}\n  cannot be used: {item.message}"
            if isinstance(item, SuiteProblem)
            else _request(item)
        )
    return "\n\n".join(blocks)


def show_options(options: RuntimeOptions) -> str:
    """Return the process options as readable text."""
    rows = []
    for name in options.__dataclass_fields__:
        value = getattr(options, name)
        if name != "provenance" and value is not None and value != {}:
            shown = str(value) if isinstance(value, Path) else value
            rows.append((f"runtime.{name}", shown, _origin(name, options.provenance)))
    return "\n".join(["options", *_table(rows)])


def _request(item: ResolvedRequest) -> str:
    request = item.request
    data = request.model_dump(mode="json", exclude={"metadata"})
    if request.model.api_key is not None:
        data["model"]["api_key"] = MASK
    rows = [(key, value, _origin(key, item.provenance)) for key, value in _leaves(data)]
    shown = [row for row in rows if row[2] != _DEFAULT or row[1] not in (None, [], {}, "")]
    return "\n".join([f"request {item.name}  (from {request.metadata.source})", *_table(shown)])


def _leaves(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in data.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _origin(key: str, provenance: Mapping[str, str]) -> str:
    """Return where *key* came from: it, or what holds it, or something below it."""
    name = key
    while name:
        if name in provenance:
            return provenance[name]
        name = name.rpartition(".")[0]
    return next((place for known, place in provenance.items() if known.startswith(f"{key}.")), _DEFAULT)


def _table(rows: list[tuple[str, Any, str]]) -> list[str]:
    cells = [(key, _text(value), origin) for key, value, origin in rows]
    first = max((len(key) for key, _, _ in cells), default=0)
    second = max((min(len(value), _WIDEST_VALUE) for _, value, _ in cells), default=0)
    return [f"  {key:<{first}}  {value:<{second}}  {origin}" for key, value, origin in cells]


def _text(value: Any) -> str:
    value = plain(value)
    return (
        value
        if isinstance(value, str) and value.strip() == value and value.isprintable() and value
        else json.dumps(value, ensure_ascii=False)
    )
