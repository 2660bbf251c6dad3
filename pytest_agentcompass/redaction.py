"""The scrub: known secret values never reach a file, a terminal or the xdist wire.

A leaf module. Values are registered once (`add_secret`); every text that leaves the
process goes through `scrub`, every structure through `plain`, which also turns it into
plain built-in data that JSON and execnet can carry.
"""

from __future__ import annotations

import base64
import dataclasses
import enum
import json
import math
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any

__all__ = [
    "MASK",
    "add_secret",
    "clean_text",
    "known_secrets",
    "plain",
    "scrub",
    "scrub_bytes",
    "secrets_from_environment",
]

MASK = "[redacted]"
_MIN_LENGTH = 6
_SECRET_NAME = re.compile(r"(API_?KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|PRIVATE_KEY)", re.IGNORECASE)
_values: set[str] = set()
_pattern: re.Pattern[str] | None = None
_bytes_pattern: re.Pattern[bytes] | None = None


def _forms(value: str) -> Iterable[str]:
    """Yield *value* and the encodings in which programs usually print it."""
    yield value
    escaped = json.dumps(value)[1:-1]
    yield escaped
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    raw = value.encode("utf-8", "surrogatepass")
    # Base64 of the value at each of the three byte offsets it can have inside a longer text.
    for lead in range(3):
        text = base64.b64encode(b"\0" * lead + raw).decode()
        start = {0: 0, 1: 2, 2: 3}[lead]
        end = len(text) - {0: 0, 1: 3, 2: 2}[(lead + len(raw)) % 3]
        if end - start >= _MIN_LENGTH:
            yield text[start:end]


def add_secret(value: str | None) -> None:
    """Mask *value* in every text from now on; values under six characters are ignored."""
    global _pattern, _bytes_pattern
    if value and len(value) >= _MIN_LENGTH and value not in _values:
        _values.add(value)
        forms = {form for item in _values for form in _forms(item)}
        longest_first = sorted(forms, key=len, reverse=True)
        _pattern = re.compile("|".join(map(re.escape, longest_first)))
        _bytes_pattern = re.compile(
            b"|".join(re.escape(form.encode("utf-8", "surrogatepass")) for form in longest_first)
        )


def known_secrets() -> frozenset[str]:
    """Return the values that `scrub` masks now."""
    return frozenset(_values)


def secrets_from_environment(environ: Mapping[str, str] | None = None) -> None:
    """Register the values of environment variables whose names look like secrets."""
    for name, value in (os.environ if environ is None else environ).items():
        if _SECRET_NAME.search(name):
            add_secret(value)


def scrub(text: str) -> str:
    """Return *text* with every known secret value replaced by `MASK`."""
    return text if _pattern is None else _pattern.sub(MASK, text)


def scrub_bytes(content: bytes) -> bytes:
    """Return *content* with every known secret value replaced by `MASK`."""
    return content if _bytes_pattern is None else _bytes_pattern.sub(MASK.encode(), content)


def clean_text(text: str) -> str:
    """Return *text* scrubbed and valid: lone surrogates become `\\udcXX` escapes."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return scrub(str(text))


def plain(value: Any) -> Any:
    """Return *value* as scrubbed, plain built-in data: what JSON and execnet can carry.

    NaN and infinities become their names (strict JSON has no token for them).
    """
    kind = type(value)
    if kind is str:
        return clean_text(value)
    if kind is bool or value is None or kind is int:
        return value
    if kind is float:
        return value if math.isfinite(value) else str(value)
    if kind is dict:
        return {
            clean_text(key) if type(key) is str else clean_text(str(key)): plain(item) for key, item in value.items()
        }
    if kind is list or kind is tuple:
        return [plain(item) for item in value]
    return _plain_rest(value)


def _plain_rest(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if isinstance(value, bool):
        return bool(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return plain(float(value))
    if isinstance(value, str):
        return clean_text(str.__str__(value))
    if isinstance(value, (bytes, bytearray)):
        return clean_text(bytes(value).decode("utf-8", "backslashreplace"))
    if isinstance(value, PurePath):
        return clean_text(str(value))
    if isinstance(value, Mapping):
        return {clean_text(str(key)): plain(item) for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {item.name: plain(getattr(value, item.name)) for item in dataclasses.fields(value)}
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        return plain(dump(mode="json"))
    if isinstance(value, (set, frozenset)):
        return sorted((plain(item) for item in value), key=repr)
    if isinstance(value, Iterable):
        return [plain(item) for item in value]
    return clean_text(str(value))
