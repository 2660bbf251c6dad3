"""Layers of settings: one canonical tree per source, merged so that later layers win.

A layer is a tree of `Map`, `Seq` and `Scalar` nodes (see `components.yaml_file`). Each scalar knows
where it was written, so a merged tree tells of every value where it came from.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..components.yaml_file import Map, Scalar, Seq, where
from ..contracts.environment import EnvironmentSpec
from ..contracts.request import BenchmarkSpec, ExecutionSpec, HarnessSpec, ModelSpec, OutputSpec, RunRuntimeSpec
from ..errors import ConfigError, nearest
from ..redaction import add_secret

__all__ = [
    "COMMAND_LINE",
    "COMPONENTS",
    "SECTIONS",
    "SHORT_FORMS",
    "canonical",
    "full_path",
    "leaves",
    "merge",
    "origins",
    "put",
    "resolve_paths",
    "set_path",
    "substitute",
    "tree_of",
    "unknown_key",
]

COMMAND_LINE = "command line"

#: Sections of a request and the model that each becomes.
SECTIONS: dict[str, type[Any]] = {
    "model": ModelSpec,
    "benchmark": BenchmarkSpec,
    "harness": HarnessSpec,
    "environment": EnvironmentSpec,
    "execution": ExecutionSpec,
    "runtime": RunRuntimeSpec,
    "output": OutputSpec,
}
#: Sections that choose a component; their keys beyond the common fields are the component's params.
COMPONENTS = ("benchmark", "harness", "environment")
_WITH_ID = ("model", *COMPONENTS)

#: Short form -> (full key, what it does). Valid before `=` on the command line and as keys of a suite's requests.
SHORT_FORMS: dict[str, tuple[str, str]] = {
    "model": ("model.id", "model under test"),
    "api_key": ("model.api_key", "key of the model's endpoint, best as ${VARIABLE}"),
    "base_url": ("model.base_url", "address of the model's endpoint"),
    "benchmark": ("benchmark.id", "which benchmark"),
    "limit": ("benchmark.limit", "at most so many tasks"),
    "sample_ids": ("benchmark.sample_ids", "only these tasks: [id, id]"),
    "harness": ("harness.id", "which agent"),
    "environment": ("environment.id", "which provider of sandboxes"),
    "attempts": ("execution.attempts.k", "attempts per task"),
    "strategy": ("execution.attempts.strategy", "which attempts run: avg (all) or pass (stop at the first success)"),
    "concurrency": ("execution.task_concurrency", "attempts in flight, whole run"),
    "timeout": ("execution.run_timeout_seconds", "seconds that the agent has"),
    "retries": ("execution.max_retries", "retries after infrastructure errors"),
    "keep_environment": ("execution.keep_environment", "leave sandboxes open: true or false"),
    "run_name": ("output.run_name", "folder of the run under the results directory"),
    "run_id": ("output.run_id", "name of the run"),
    "deadline": ("runtime.deadline_seconds", "seconds that the whole run has"),
    "budget.usd": ("runtime.budget.usd", "US dollars that the whole run may spend"),
    "budget.tokens": ("runtime.budget.tokens", "tokens that the whole run may spend"),
    "budget.wall_seconds": ("runtime.budget.wall_seconds", "seconds after which nothing new starts"),
}

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?\}", re.DOTALL)
_PART = re.compile(r"(?<!\$)\$\{")
_SECRET_KEY = re.compile(r"(api_?key|token|secret|password|passwd|credentials?|private_key)$", re.IGNORECASE)
_PATH_KEY = re.compile(r"(.*_)?path|.*_(file|dir)")


def unknown_key(place: str, key: str, known: Any, inside: str = "") -> ConfigError:
    """Return the error about a key that nothing reads."""
    tail = f" of {inside}" if inside else ""
    start = f"{place}: " if place else ""
    return ConfigError(f"{start}unknown key {key!r}{tail}; {nearest(key, known)}")


def merge(low: Map, high: Map) -> Map:
    """Return a new tree: mappings merge recursively, anything else in *high* replaces.

    Shares no mapping with the inputs, which stay as they are.
    """
    result = Map(high.source or low.source, high.line or low.line)
    for side in (low, high):
        for key, value in side.items():
            known = result.get(key)
            if isinstance(value, Map):
                value = merge(known, value) if isinstance(known, Map) else merge(Map(), value)
            put(result, key, value, side.lines.get(key, 0))
    return result


def put(tree: Map, key: str, value: Any, line: int = 0) -> None:
    """Set *key* of *tree* and the line on which it stands."""
    tree[key] = value
    tree.lines[key] = line


def set_path(tree: Map, path: tuple[str, ...], value: Any, line: int = 0) -> None:
    """Set what stands at *path*; mappings on the way are made, an existing mapping is merged into."""
    for part in path[:-1]:
        below = tree.get(part)
        if not isinstance(below, Map):
            below = Map(tree.source, line)
            put(tree, part, below, line)
        tree = below
    last = path[-1]
    known = tree.get(last)
    put(tree, last, merge(known, value) if isinstance(known, Map) and isinstance(value, Map) else value, line)


def tree_of(value: Any, source: str) -> Any:
    """Return plain Python data as a tree of *source*; texts are taken as they are."""
    if isinstance(value, Mapping):
        tree = Map(source)
        for key, item in value.items():
            put(tree, str(key), tree_of(item, source))
        return tree
    if isinstance(value, (list, tuple, set, frozenset)):
        items = Seq(source)
        items.extend(tree_of(item, source) for item in value)
        return items
    if isinstance(value, (str, Path)):
        return Scalar(str(value), True, 0, source)
    return Scalar("null", False, 0, source) if value is None else value


def leaves(node: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield path and node of everything in a tree that is no non-empty mapping."""
    if isinstance(node, Map) and node:
        for key, value in node.items():
            yield from leaves(value, (*path, key))
    else:
        yield path, node


def origins(tree: Map, fallback: str) -> dict[str, str]:
    """Return where each value of *tree* was written, by dotted key; an empty mapping sets nothing."""
    return {
        ".".join(path): where(node, fallback) for path, node in leaves(tree) if not (isinstance(node, Map) and not node)
    }


def full_path(key: str) -> tuple[str, ...]:
    """Return the path that a dotted key (or a short form) stands for, component params under `params`."""
    path = tuple((SHORT_FORMS[key][0] if key in SHORT_FORMS else key).split("."))
    if len(path) > 1 and path[0] in COMPONENTS and path[1] not in SECTIONS[path[0]].model_fields:
        return (path[0], "params", *path[1:])
    return path


def canonical(written: Map, allowed: Any, inside: str) -> Map:
    """Return *written* with full keys alone: ids as `section.id`, params under `params`, no short forms.

    *allowed* are the keys that may stand at its top, short forms included. Raises ConfigError naming
    the nearest keys for others, and for a value that is given in two forms.
    """
    result = Map(written.source, written.line)
    for key, value in written.items():
        line = written.lines.get(key, 0)
        if key not in allowed:
            raise unknown_key(_place(written, line, value), key, allowed, inside)
        for path, node in _spread(key, value):
            for leaf, _ in leaves(node, path):
                if _taken(result, leaf):
                    raise ConfigError(f"{_place(written, line, value)}: {'.'.join(leaf)} is given twice in {inside}")
            set_path(result, path, node, line)
    return result


def _spread(key: str, value: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield full path and node of each thing that *key* sets; a section left empty sets nothing."""
    if key in SECTIONS and isinstance(value, Scalar) and value.is_null:
        return
    if key not in SECTIONS or not isinstance(value, Map):
        if key in SECTIONS and key not in _WITH_ID:
            raise ConfigError(f"{where(value)}: {key} must be a mapping of keys to values")
        yield full_path(key), value
        return
    for name, node in value.items():
        yield full_path(f"{key}.{name}"), node


def _taken(tree: Map, path: tuple[str, ...]) -> bool:
    node: Any = tree
    for part in path:
        if not isinstance(node, Map) or part not in node:
            return False
        node = node[part]
    return not isinstance(node, Map)


def _place(tree: Map, line: int, value: Any) -> str:
    return f"{tree.source}:{line}" if line else where(value, tree.source)


def substitute(tree: Any, environ: Mapping[str, str], path: tuple[str, ...] = ()) -> Any:
    """Return *tree* with every `${VARIABLE}` that is a whole value replaced; secrets become known to the scrub.

    Raises ConfigError for a variable that is not set and has no default (`${VARIABLE:-default}`), and
    for one inside a longer text (`$${` writes a literal `${`).
    """
    if isinstance(tree, Map):
        result = Map(tree.source, tree.line)
        for key, value in tree.items():
            put(result, key, substitute(value, environ, (*path, key)), tree.lines.get(key, 0))
        return result
    if isinstance(tree, Seq):
        items = Seq(tree.source, tree.line)
        items.extend(substitute(item, environ, path) for item in tree)
        return items
    return _substituted(tree, environ, path) if isinstance(tree, Scalar) else tree


def _substituted(node: Scalar, environ: Mapping[str, str], path: tuple[str, ...]) -> Scalar:
    value, secret = node.text, bool(path and _SECRET_KEY.search(path[-1]))
    if "${" in value:
        match = _VARIABLE.fullmatch(value)
        if match is None:
            value = _literal(node, path)
        else:
            value = _variable(match, environ, node, path)
            secret = secret or bool(_SECRET_KEY.search(match[1]))
    if secret and not isinstance(Scalar(value).value, (int, float)):
        add_secret(value)
    return node if value == node.text else Scalar(value, node.quoted, node.line, node.source)


def _variable(match: re.Match[str], environ: Mapping[str, str], node: Scalar, path: tuple[str, ...]) -> str:
    name, default = match.groups()
    # As in a shell, `:-` also stands in for a variable that is set to nothing.
    value = environ.get(name) or default if default is not None else environ.get(name)
    if value is None:
        raise ConfigError(
            f"{where(node)}: {'.'.join(path)}: the environment variable {name} is not set; "
            f"export it, or give a default: ${{{name}:-default}}"
        )
    return value


def _literal(node: Scalar, path: tuple[str, ...]) -> str:
    if _PART.search(node.text):
        raise ConfigError(
            f"{where(node)}: {'.'.join(path)}: ${{...}} must be the whole value, not part of {node.text!r} "
            "(write $${ for a literal ${)"
        )
    return node.text.replace("$${", "${")


def resolve_paths(tree: Map, bases: Mapping[str, Path], home: str | None) -> Map:
    """Return *tree* with the relative local paths of its benchmark, harness and environment sections made absolute.

    *bases* gives the folder that each source's paths are relative to. Paths are benchmark params named
    `path` or ending in `_path`, `_file`, `_dir`, the harness param `path` (other paths of a harness may be in the
    sandbox), and the environment's build contexts, compose files and mount sources.
    """
    result = merge(tree, Map())
    benchmark = result.get("benchmark")
    if isinstance(benchmark, Map) and isinstance(benchmark.get("params"), Map):
        benchmark["params"] = _paths_below(benchmark["params"], bases, home)
    harness = result.get("harness")
    if isinstance(harness, Map) and isinstance(params := harness.get("params"), Map):
        harness["params"] = params = merge(params, Map())
        if isinstance(params.get("path"), Scalar):
            params["path"] = _absolute(params["path"], bases, home)
    environment = result.get("environment")
    if isinstance(environment, Map):
        for section, key in (("build", "context"), ("compose", "file")):
            if isinstance(environment.get(section), Map) and key in environment[section]:
                environment[section][key] = _absolute(environment[section][key], bases, home)
        if isinstance(environment.get("mounts"), Seq):
            environment["mounts"] = _mounts(environment["mounts"], bases, home)
    return result


def _mounts(mounts: Seq, bases: Mapping[str, Path], home: str | None) -> Seq:
    result = Seq(mounts.source, mounts.line)
    for mount in mounts:
        if isinstance(mount, Map) and "source" in mount:
            mount = merge(mount, Map())
            mount["source"] = _absolute(mount["source"], bases, home)
        result.append(mount)
    return result


def _paths_below(params: Map, bases: Mapping[str, Path], home: str | None) -> Map:
    result = merge(params, Map())
    for key, value in result.items():
        if isinstance(value, Map):
            result[key] = _paths_below(value, bases, home)
        elif _PATH_KEY.fullmatch(key) and isinstance(value, Scalar):
            result[key] = _absolute(value, bases, home)
    return result


def _absolute(node: Any, bases: Mapping[str, Path], home: str | None) -> Any:
    if not isinstance(node, Scalar) or node.is_null or not node.text or "://" in node.text:
        return node
    text = node.text
    if home and (text == "~" or text.startswith("~/")):
        text = home + text[1:]
    base = bases.get(node.source)
    path = str(base / text) if base is not None else text
    return Scalar(path, True, node.line, node.source)
