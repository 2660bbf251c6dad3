"""The words after `--agentcompass`: settings, node ids and paths."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..components.yaml_file import Map, Scalar, Seq, load_yaml_text
from ..errors import ConfigError, nearest
from .layers import COMMAND_LINE, SECTIONS, SHORT_FORMS, full_path, leaves, set_path

__all__ = ["Setting", "Words", "is_setting", "settings_tree", "short_forms_help", "split_words"]

_SETTING = re.compile(r"([A-Za-z_][\w.]*)=(.*)", re.DOTALL)
#: Keys beside a request's sections and their short forms.
_OTHER = ("name", "recipe_dirs", "plugins")
_LISTS = frozenset(
    {"benchmark.sample_ids", "execution.enabled_recipes", "execution.retry_pattern_list", "recipe_dirs", "plugins"}
)


@dataclass(frozen=True, slots=True)
class Setting:
    """One `KEY=VALUE`: the full dotted key, the value as a tree, and the word as it was typed."""

    key: str
    value: Any
    text: str

    @property
    def path(self) -> tuple[str, ...]:
        """The key's parts."""
        return tuple(self.key.split("."))


@dataclass(frozen=True, slots=True)
class Words:
    """The words in three kinds, each in the order in which they were typed."""

    settings: tuple[Setting, ...] = ()
    paths: tuple[str, ...] = ()
    node_ids: tuple[str, ...] = ()
    tree: Map = field(default_factory=Map, compare=False)

    def has(self, key: str) -> bool:
        """Whether a setting gives the full dotted *key*."""
        return any(setting.key == key for setting in self.settings)


def is_setting(word: str) -> bool:
    """Whether *word* is `KEY=VALUE`. A node id never is: its first `=` comes after a `/`, `:` or `[`."""
    match = _SETTING.fullmatch(word)
    if match is None:
        return False
    head = match[1].split(".")[0]
    # `a=b.py::test` is a test in an oddly named file; `sample_ids=[a::b]` is a setting.
    return "::" not in word or head in SECTIONS or head in SHORT_FORMS or head in _OTHER


def split_words(words: Sequence[str]) -> Words:
    """Sort *words* into settings, node ids (any word with `::`) and paths.

    Raises ConfigError for an unknown key (with the nearest ones), a value that is broken YAML, and a
    key that is given twice with different values, whichever forms of it were used.
    """
    settings, paths, node_ids = [], [], []
    for word in words:
        if is_setting(word):
            settings.append(_setting(word))
        elif "::" in word:
            node_ids.append(word)
        else:
            paths.append(word)
    return Words(tuple(settings), tuple(paths), tuple(node_ids), settings_tree(settings))


def _setting(word: str) -> Setting:
    match = _SETTING.fullmatch(word)
    assert match is not None
    key, written = match.groups()
    path = full_path(key)
    if path[0] not in SECTIONS and path[0] not in _OTHER:
        raise ConfigError(f"{word!r}: unknown key {key!r}; {nearest(key, [*SHORT_FORMS, *SECTIONS, *_OTHER])}")
    if not all(path):
        raise ConfigError(f"{word!r}: the key {key!r} has an empty part")
    value = parse_value(written, word)
    if len(path) == 1 and path[0] in SECTIONS and not isinstance(value, Map):
        raise ConfigError(f"{word!r}: {key} needs a key of its section ({key}.KEY=VALUE); {_section_keys(key)}")
    if path[0] in SECTIONS and path[1:] == ("id",) and isinstance(value, Map):
        path = path[:1]
    full = ".".join(path)
    if full in _LISTS and isinstance(value, Scalar) and not value.is_null:
        value = _listed(value)
    return Setting(full, value, word)


def _section_keys(section: str) -> str:
    return "known: " + ", ".join(sorted(SECTIONS[section].model_fields))


def _listed(value: Scalar) -> Seq:
    items = Seq(COMMAND_LINE)
    items.append(value)
    return items


def parse_value(written: str, word: str) -> Any:
    """Return the tree of a setting's value: a flow list or map, a quoted text, or the text as typed."""
    if written[:1] in ("[", "{"):
        return _unplaced(_parsed(written, word))
    if written[:1] in ("'", '"') and len(written) > 1 and written[-1] == written[0]:
        return _unplaced(_parsed(written, word))
    return Scalar(written, False, 0, COMMAND_LINE)


def _parsed(written: str, word: str) -> Any:
    try:
        return load_yaml_text(written, "value")
    except ConfigError as error:
        raise ConfigError(f"{word!r}: {error.message}{_hint(written)}") from error


def _hint(written: str) -> str:
    """Say how a text that only begins like a list or mapping is given."""
    if written[:1] in ("'", '"'):
        return ""
    text = written.replace("'", "''")
    return f"; a text that begins with {written[0]} stands in quotes: '{text}'"


def _unplaced(node: Any) -> Any:
    """Return *node* as one of the command line, where lines say nothing."""
    if isinstance(node, Map):
        tree = Map(COMMAND_LINE)
        for key, value in node.items():
            tree[key] = _unplaced(value)
        return tree
    if isinstance(node, Seq):
        items = Seq(COMMAND_LINE)
        items.extend(_unplaced(item) for item in node)
        return items
    return Scalar(node.text, node.quoted, 0, COMMAND_LINE)


def settings_tree(settings: Sequence[Setting]) -> Map:
    """Return one tree of all settings; ConfigError when two of them disagree."""
    given: dict[tuple[str, ...], tuple[Any, str]] = {}
    tree = Map(COMMAND_LINE)
    for setting in settings:
        for path, node in _flat(setting):
            _check_conflict(given, path, node, setting.text)
            given[path] = (node, setting.text)
            set_path(tree, path, node)
    return tree


def _flat(setting: Setting) -> list[tuple[tuple[str, ...], Any]]:
    """Return path and node of each leaf; `benchmark={...}` sorts its keys into fields and params."""
    found = []
    for path, node in leaves(setting.value, setting.path):
        if path[0] in SECTIONS and len(setting.path) == 1 and len(path) > 1:
            path = (*full_path(f"{path[0]}.{path[1]}"), *path[2:])
        found.append((path, node))
    return found


def _check_conflict(given: dict[tuple[str, ...], tuple[Any, str]], path: tuple[str, ...], node: Any, word: str) -> None:
    for known, (value, text) in given.items():
        shorter = min(len(known), len(path))
        clash = known[:shorter] == path[:shorter] and (known != path or value != node)
        if clash and not (_empty(value) or _empty(node)):
            raise ConfigError(f"{'.'.join(path[:shorter])} is given twice with different values: {text!r} and {word!r}")


def _empty(node: Any) -> bool:
    return isinstance(node, Map) and not node


def short_forms_help() -> list[str]:
    """Return one line per short form: what may stand before `=`, its full key, what it does."""
    width = max(len(name) for name in SHORT_FORMS)
    lines = [f"{name:<{width}}  {key:<30} {what}" for name, (key, what) in SHORT_FORMS.items()]
    return [*lines, f"{'name':<{width}}  {'(the request)':<30} name of the request, shown in node ids and results"]
