"""Strict YAML: scalars keep the text that was written, until a field says what it wants.

`load_yaml_text` and `load_yaml_file` return a tree of `Map` (a dict with text keys), `Seq` (a
list) and `Scalar` (neither text nor number, so that it cannot be used as one by accident). Each
knows its source and line. A consumer reads a scalar with `text`, `number`, `integer` or `boolean`,
or turns a whole tree into plain JSON-like data with `typed`.

Rules: a plain scalar is null (`null`, `~`, nothing), a boolean (`true`, `false`, `True`, `False`) or a number
only when it is one in JSON (`7`, `-1.5`, `1e3`). All else that YAML 1.1 would convert (`no`, `007`,
`0x1F`, `1_000`, `12:30`, `2024-01-01`, `.inf`) stays text. Where text is wanted, `1.10` is the text `1.10`.
Duplicate keys, unknown tags, several documents, keys that are no text and recursive aliases are refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from ..errors import ConfigError

__all__ = [
    "Map",
    "Scalar",
    "Seq",
    "boolean",
    "integer",
    "line_at",
    "line_of",
    "load_yaml_file",
    "load_yaml_mapping",
    "load_yaml_text",
    "number",
    "text",
    "typed",
    "where",
]

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?P<float>(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)")
_NULLS = frozenset({"", "~", "null"})
_BOOLEANS = {"true": True, "True": True, "false": False, "False": False}
_TEXT_TAGS = frozenset({"!", "tag:yaml.org,2002:str"})
_MAX_DEPTH = 100
_MAX_NODES = 5_000_000
_MAX_DIGITS = 300
_Loader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


@dataclass(frozen=True, slots=True)
class Scalar:
    """One scalar as written; *quoted* ones (block scalars too) are always text."""

    text: str
    quoted: bool = False
    line: int = field(default=0, compare=False)
    source: str = field(default="", compare=False)

    @property
    def is_null(self) -> bool:
        """Whether the scalar is a plain null (`null`, `~` or nothing)."""
        return not self.quoted and self.text in _NULLS

    @property
    def value(self) -> str | int | float | bool | None:
        """The scalar read by the strict rules of this module."""
        if self.quoted:
            return self.text
        if self.text in _NULLS:
            return None
        if self.text in _BOOLEANS:
            return _BOOLEANS[self.text]
        return _as_number(self.text)


class Map(dict[str, Any]):
    """A mapping that knows where it and each of its keys were written (`line`, `lines`, `source`)."""

    __slots__ = ("line", "lines", "size", "source")

    def __init__(self, source: str = "", line: int = 0) -> None:
        super().__init__()
        self.source = source
        self.line = line
        self.lines: dict[str, int] = {}
        self.size = 1


class Seq(list[Any]):
    """A sequence that knows where it was written."""

    __slots__ = ("line", "size", "source")

    def __init__(self, source: str = "", line: int = 0) -> None:
        super().__init__()
        self.source = source
        self.line = line
        self.size = 1


def _as_number(written: str) -> str | int | float:
    match = _NUMBER.fullmatch(written)
    if match is None or len(written) > _MAX_DIGITS:
        return written
    if not match["float"]:
        return int(written)
    value = float(written)
    return value if math.isfinite(value) else written


def where(node: Any, fallback: str = "") -> str:
    """Return `source:line` of a node of the tree (*fallback* for anything else)."""
    line = getattr(node, "line", 0)
    source = getattr(node, "source", "") or fallback
    return f"{source}:{line}" if line else source


def line_of(node: Any, key: str) -> int:
    """Return the line on which *key* of a `Map` stands, or 0 when that is not known."""
    return node.lines.get(key, 0) if isinstance(node, Map) else 0


def line_at(node: Any, path: Iterable[object]) -> int:
    """Return the line of what *path* (keys and indices) leads to: of the deepest part that exists."""
    line = getattr(node, "line", 0)
    for part in path:
        if isinstance(node, Map) and part in node:
            line = node.lines.get(str(part), line)
            node = node[str(part)]
        elif isinstance(node, Seq) and isinstance(part, int) and part < len(node):
            node = node[part]
            line = getattr(node, "line", line) or line
        else:
            break
    return int(line)


def _refuse(node: Any, wanted: str, name: str) -> ConfigError:
    place = where(node)
    what = f"{name} " if name else ""
    return ConfigError(f"{place}{': ' if place else ''}{what}must be {wanted}, not {_shown(node)}")


def _shown(node: Any) -> str:
    if isinstance(node, Scalar):
        if node.is_null:
            return "null" if node.text else "empty"
        return repr(node.text) if node.quoted else node.text
    if isinstance(node, dict):
        return "a mapping"
    return "a list" if isinstance(node, list) else repr(node)


def text(node: Any, name: str = "", *, empty: bool = False) -> str:
    """Return a scalar's text as written; with *empty* a scalar that is left out is the empty text.

    Raises ConfigError for null, lists and mappings. *name* is what messages call the field.
    """
    if isinstance(node, Scalar):
        if not node.is_null:
            return node.text
        if empty and not node.text:
            return ""
    elif type(node) is str:
        return node
    raise _refuse(node, "a text (quote it if it looks like something else)", name)


def number(node: Any, name: str = "") -> int | float:
    """Return a number; ConfigError for anything that is not written as a JSON number."""
    value = node.value if isinstance(node, Scalar) else node
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    raise _refuse(node, "a plain number such as 750 or 12.5", name)


def integer(node: Any, name: str = "") -> int:
    """Return a whole number; ConfigError for anything else."""
    value = node.value if isinstance(node, Scalar) else node
    if type(value) is int:
        return value
    raise _refuse(node, "a whole number", name)


def boolean(node: Any, name: str = "") -> bool:
    """Return a boolean; ConfigError for anything but true and false."""
    value = node.value if isinstance(node, Scalar) else node
    if type(value) is bool:
        return value
    raise _refuse(node, "true or false", name)


def typed(node: Any) -> Any:
    """Return *node* and all below it as plain dicts, lists, texts, numbers, booleans and None."""
    if isinstance(node, Scalar):
        return node.value
    if isinstance(node, dict):
        return {key: typed(item) for key, item in node.items()}
    if isinstance(node, list):
        return [typed(item) for item in node]
    return node


def load_yaml_file(path: str | Path, source: str | None = None) -> Any:
    """Return the tree of a UTF-8 file; ConfigError when it cannot be read."""
    name = source or str(path)
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{name}: cannot be read: {error.strerror or error}") from error
    try:
        return load_yaml_text(content.decode("utf-8-sig"), name)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{name}:{line}: is no UTF-8 text (byte {error.start}: {error.reason})") from error


def load_yaml_mapping(path: str | Path, source: str | None = None) -> Map:
    """Return the tree of a file whose top level is a mapping; an empty file is an empty mapping."""
    tree = load_yaml_file(path, source)
    if isinstance(tree, Scalar) and tree.is_null:
        return Map(source or str(path), 1)
    if not isinstance(tree, Map):
        raise _refuse(tree, "a mapping of keys to values", "the file's top level")
    return tree


def load_yaml_text(content: str, source: str) -> Any:
    """Return the tree of a YAML text; an empty one is a null `Scalar`.

    Raises ConfigError naming *source*, line and column for whatever the module's rules refuse.
    """
    try:
        loader = _Loader(content.removeprefix("\ufeff"))
        try:
            return _Composer(source).compose(loader.get_event)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        raise _broken(error, source) from error
    except yaml.reader.ReaderError as error:
        line = _line_of_character(content, error)
        raise ConfigError(
            f"{source}:{line}: holds a character that YAML does not allow; write it as an escape"
        ) from error
    except UnicodeEncodeError as error:
        line = content.count("\n", 0, error.start) + 1
        raise ConfigError(f"{source}:{line}: holds a lone surrogate ({content[error.start]!r})") from error


def _broken(error: yaml.MarkedYAMLError, source: str) -> ConfigError:
    mark = error.problem_mark or error.context_mark
    place = f"{source}:{mark.line + 1}:{mark.column + 1}" if mark else source
    context = f" ({error.context}{_since(error)})" if error.context else ""
    return ConfigError(f"{place}: broken YAML: {error.problem}{context}")


def _since(error: yaml.MarkedYAMLError) -> str:
    mark = error.context_mark
    same = mark is None or (error.problem_mark is not None and mark.line == error.problem_mark.line)
    return "" if same or mark is None else f" that starts on line {mark.line + 1}"


def _line_of_character(content: str, error: Any) -> int:
    bad = error.character
    index = content.find(chr(bad) if isinstance(bad, int) else str(bad))
    return content.count("\n", 0, max(index, 0)) + 1


class _Composer:
    """Builds the tree from parser events, without recursion."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.anchors: dict[str, Any] = {}
        self.stack: list[Map | Seq] = []
        self.keys: list[tuple[str, int] | None] = []
        self.names: list[str | None] = []
        self.root: Any = None
        self.documents = 0

    def compose(self, next_event: Callable[[], Any]) -> Any:
        handlers: dict[type, Callable[[Any], None]] = {
            yaml.ScalarEvent: self._scalar,
            yaml.MappingStartEvent: self._start,
            yaml.SequenceStartEvent: self._start,
            yaml.MappingEndEvent: self._end,
            yaml.SequenceEndEvent: self._end,
            yaml.AliasEvent: self._alias,
            yaml.DocumentStartEvent: self._document,
        }
        while True:
            event = next_event()
            kind = type(event)
            if kind is yaml.StreamEndEvent:
                return Scalar("", False, 1, self.source) if self.root is None else self.root
            handler = handlers.get(kind)
            if handler is not None:
                handler(event)

    def _error(self, event: Any, message: str) -> ConfigError:
        mark = event.start_mark
        return ConfigError(f"{self.source}:{mark.line + 1}:{mark.column + 1}: {message}")

    def _document(self, event: Any) -> None:
        self.documents += 1
        if self.documents > 1:
            raise self._error(event, "a second YAML document starts here; a file holds one")

    def _scalar(self, event: Any) -> None:
        quoted = bool(event.style)
        if event.tag is not None:
            if event.tag not in _TEXT_TAGS:
                raise self._error(event, f"the tag {event.tag!r} is not allowed (only !!str is)")
            quoted = True
        node = Scalar(event.value, quoted, event.start_mark.line + 1, self.source)
        if event.anchor:
            self.anchors[event.anchor] = node
        self._add(node, event)

    def _start(self, event: Any) -> None:
        mapping = type(event) is yaml.MappingStartEvent
        if event.tag is not None and event.tag not in ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"):
            raise self._error(event, f"the tag {event.tag!r} is not allowed")
        if len(self.stack) >= _MAX_DEPTH:
            raise self._error(event, f"is nested deeper than {_MAX_DEPTH} levels")
        if self.stack and isinstance(self.stack[-1], Map) and self.keys[-1] is None:
            raise self._error(event, "a key must be a text, not a list or mapping")
        node: Map | Seq = (Map if mapping else Seq)(self.source, event.start_mark.line + 1)
        self.stack.append(node)
        self.keys.append(None)
        self.names.append(event.anchor)

    def _end(self, event: Any) -> None:
        node = self.stack.pop()
        self.keys.pop()
        name = self.names.pop()
        if name:
            self.anchors[name] = node
        if isinstance(node, Map) and "<<" in node:
            self._merge(node, event)
        self._add(node, event)

    def _alias(self, event: Any) -> None:
        node = self.anchors.get(event.anchor)
        if node is None:
            raise self._error(event, f"the alias *{event.anchor} names nothing that is complete here")
        self._add(node, event)

    def _add(self, node: Any, event: Any) -> None:
        if not self.stack:
            self.root = node
            return
        parent = self.stack[-1]
        if isinstance(parent, Map):
            if self.keys[-1] is None:
                self.keys[-1] = self._key(parent, node, event)
                return
            key, line = self.keys[-1]
            self.keys[-1] = None
            parent[key] = node
            parent.lines[key] = line
        else:
            parent.append(node)
        # An alias may name a large part many times: what is written out in full must stay bounded.
        parent.size += getattr(node, "size", 1)
        if parent.size > _MAX_NODES:
            raise self._error(event, f"holds more than {_MAX_NODES} values when its aliases are written out")

    def _key(self, parent: Map, node: Any, event: Any) -> tuple[str, int]:
        line = event.start_mark.line + 1
        if not isinstance(node, Scalar):
            raise self._error(event, "a key must be a text, not a list or mapping")
        if not node.text and not node.quoted:
            raise self._error(event, "a key is empty")
        if node.text in parent:
            raise self._error(event, f"key {node.text!r} is given twice (first on line {parent.lines[node.text]})")
        return node.text, line

    def _merge(self, node: Map, event: Any) -> None:
        given = node.pop("<<")
        line = node.lines.pop("<<")
        for base in given if isinstance(given, Seq) else [given]:
            if not isinstance(base, Map):
                raise ConfigError(f"{self.source}:{line}: << takes a mapping or a list of mappings")
            for key, value in base.items():
                if key not in node:
                    node[key] = value
                    node.lines[key] = base.lines.get(key, line)
