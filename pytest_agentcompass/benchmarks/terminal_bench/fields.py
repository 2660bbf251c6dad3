"""Reading the fields of task files: typed, with messages that name file, line, key and what is allowed."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ...components.yaml_file import Map, load_yaml_text, typed
from ...errors import ConfigError, TaskLoadError, nearest

__all__ = ["Fields", "megabytes", "read_task_text", "read_toml", "read_yaml"]

_MAX_BYTES = 4_000_000
_YES = {"yes": True, "on": True, "no": False, "off": False}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*", re.IGNORECASE)
_UNITS = {"": 1 / 2**20, "k": 1 / 2**10, "m": 1.0, "g": 2.0**10, "t": 2.0**20}


def megabytes(text: str) -> int | None:
    """Return a size such as `4G`, `512m` or `1073741824` in MiB, or None when it is none."""
    match = _SIZE.fullmatch(text)
    return None if match is None else math.ceil(float(match[1]) * _UNITS[match[2].lower()])


def read_task_text(path: Path) -> str:
    """Return the text of a task file; TaskLoadError when it is too large, unreadable or no UTF-8."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise TaskLoadError(f"{path}: cannot be read: {error.strerror}") from error
    if len(raw) > _MAX_BYTES:
        raise TaskLoadError(f"{path}: is larger than {_MAX_BYTES} bytes")
    try:
        return raw.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise TaskLoadError(f"{path}, line {line}: is not valid UTF-8 (byte {raw[error.start]:#04x})") from error


class Fields:
    """One table of a task file; *prefix* is its dotted key."""

    def __init__(self, data: Mapping[str, Any], path: Path, lines: Mapping[str, int] | str, prefix: str = "") -> None:
        self.data = data
        self.path = path
        self.lines = lines
        self.prefix = prefix

    def key(self, name: str) -> str:
        """Return the dotted name of a key of this table."""
        return f"{self.prefix}.{name}" if self.prefix else name

    def where(self, name: str) -> str:
        """Return `file, line N` of a key, as far as it is known."""
        line = self.lines.get(name, 0) if isinstance(self.lines, Mapping) else _toml_line(self.lines, self.prefix, name)
        return f"{self.path}, line {line}" if line else str(self.path)

    def wrong(self, name: str, wanted: str) -> TaskLoadError:
        """Return the error that *name* holds something else than *wanted*."""
        shown = repr(self.data.get(name))
        shown = shown if len(shown) <= 100 else shown[:100] + "..."
        return TaskLoadError(f"{self.where(name)}: {self.key(name)} must be {wanted}, not {shown}")

    def text(self, name: str, default: str | None = None) -> str | None:
        """Return a text."""
        value = self.data.get(name, default)
        if value is not None and not isinstance(value, str):
            raise self.wrong(name, "a text")
        return value

    def word(self, name: str) -> str | None:
        """Return a text or a whole number as text (user names and ids)."""
        value = self.data.get(name)
        if type(value) is int:
            return str(value)
        return self.text(name) or None

    def number(
        self, name: str, default: float | None = None, *, least: float = 0.0, zero: bool = False
    ) -> float | None:
        """Return a finite number above *least* (or equal to it where *zero* allows that)."""
        value = self.data.get(name)
        if value is None:
            return default
        good = type(value) in (int, float) and math.isfinite(value) and (value > least or (zero and value == least))
        if not good:
            raise self.wrong(name, f"a number {'of at least' if zero else 'above'} {least:g}")
        return float(value)

    def integer(self, name: str, *, least: int = 1) -> int | None:
        """Return a whole number of at least *least*."""
        value = self.data.get(name)
        if value is None:
            return None
        if type(value) is float and value.is_integer():
            value = int(value)
        if type(value) is not int or value < least:
            raise self.wrong(name, f"a whole number of at least {least}")
        return value

    def flag(self, name: str, default: bool | None = False) -> bool | None:
        """Return a boolean (YAML's yes, no, on and off too)."""
        value = self.data.get(name)
        if value is None:
            return default
        value = _YES.get(value.lower(), value) if isinstance(value, str) else value
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def choice(self, name: str, allowed: Iterable[str], default: str) -> str:
        """Return one of the *allowed* words."""
        value = self.data.get(name)
        if value is None:
            return default
        if not isinstance(value, str) or value not in allowed:
            tail = nearest(str(value), allowed)
            raise TaskLoadError(f"{self.where(name)}: {self.key(name)} {value!r} is not known; {tail}")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of texts (numbers are taken as written)."""
        value = self.data.get(name)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, (str, int, float)) for item in value):
            raise self.wrong(name, "a list of texts")
        return tuple(str(item) for item in value)

    def table(self, name: str) -> Fields:
        """Return a table, empty when it is absent."""
        value = self.data.get(name)
        if value is not None and not isinstance(value, Mapping):
            raise self.wrong(name, "a table")
        return Fields(value or {}, self.path, self.lines, self.key(name))

    def tables(self, name: str) -> list[Fields]:
        """Return a list of tables."""
        value = self.data.get(name)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
            raise self.wrong(name, "a list of tables")
        return [Fields(item, self.path, self.lines, f"{self.key(name)}[{index}]") for index, item in enumerate(value)]

    def env(self, name: str) -> dict[str, str]:
        """Return a table of environment variables; numbers become their text."""
        table = self.table(name)
        result = {}
        for key, value in table.data.items():
            if isinstance(value, bool) or not isinstance(value, (str, int, float)) or "=" in key or "\0" in str(value):
                raise table.wrong(key, "a text")
            result[key] = str(value)
        return result

    def misspelt(self, known: Iterable[str]) -> list[str]:
        """Return notes on unknown keys that look like a known one that is not set."""
        import difflib

        free = [name for name in known if name not in self.data]
        notes = []
        for key in self.data:
            near = difflib.get_close_matches(key, free, n=1, cutoff=0.88) if key not in known else []
            if near:
                notes.append(f"{self.where(key)}: unknown key {self.key(key)!r} is ignored; did you mean {near[0]!r}?")
        return notes


def _toml_line(text: str, prefix: str, name: str) -> int:
    """Return the line of a key in TOML text, 0 when it cannot be told."""
    header = re.sub(r"\[\d+\]", "", prefix)
    index = int(match[1]) if (match := re.search(r"\[(\d+)\]", prefix)) else 0
    pattern = re.compile(rf"[\"']?{re.escape(name)}[\"']?\s*=")
    current, counts = "", {"": 0}
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if found := re.match(r"\[{1,2}\s*([^\]]+?)\s*\]{1,2}", stripped):
            current = found[1].replace('"', "").replace(" ", "")
            counts[current] = counts.get(current, -1) + 1 if stripped.startswith("[[") else 0
        elif current == header and counts.get(header.split(".")[0], 0) in (index, 0) and pattern.match(stripped):
            return number
    return 0


def read_toml(path: Path) -> Fields:
    """Return the root table of a TOML file; TaskLoadError names line and column of a fault."""
    text = read_task_text(path)
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        match = re.search(r"^(.*?) \(at (.*)\)$", str(error), re.DOTALL)
        reason, place = (match[1], f", {match[2]}") if match else (str(error), "")
        raise TaskLoadError(f"{path}{place}: is not valid TOML: {reason[:1].lower()}{reason[1:]}") from error
    except RecursionError as error:
        raise TaskLoadError(f"{path}: is not valid TOML: nested too deeply") from error
    return Fields(data, path, text)


def read_yaml(path: Path) -> tuple[Fields, Map]:
    """Return the root mapping of a YAML file, typed and as a tree; TaskLoadError names the line of a fault."""
    text = read_task_text(path)
    try:
        tree = load_yaml_text(text, str(path))
    except ConfigError as error:
        raise TaskLoadError(error.message) from error
    if not isinstance(tree, Map):
        what = "is empty" if not text.strip() else "must hold a mapping of keys and values"
        raise TaskLoadError(f"{path}: {what}")
    return Fields(typed(tree), path, tree.lines), tree
