"""Suite files: `*.agentcompass.yaml`, ordered named requests with common defaults."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..components.yaml_file import Map, Scalar, Seq, integer, load_yaml_mapping, text, typed, where
from ..errors import ConfigError
from .files import section_of
from .layers import SECTIONS, SHORT_FORMS, canonical, put, set_path, unknown_key
from .options import OPTION_KEYS
from .requests import RequestSource

__all__ = ["SUITE_SUFFIX", "SuiteFile", "SuiteProblem", "read_suite_file"]

SUITE_SUFFIX = ".agentcompass.yaml"
_VERSION = 1
_KEYS = ("version", "name", "task_concurrency", "runtime", "defaults", "requests", "gates", "tasks")
#: Short forms that belong to the whole run -> where they stand in a suite.
_WHOLE_RUN = {
    "concurrency": "task_concurrency",
    "deadline": "runtime.deadline_seconds",
    "budget.usd": "runtime.budget.usd",
    "budget.tokens": "runtime.budget.tokens",
    "budget.wall_seconds": "runtime.budget.wall_seconds",
}
_DEFAULT_KEYS = tuple(key for key in {**SECTIONS, **SHORT_FORMS} if key not in _WHOLE_RUN)
_REQUEST_KEYS = ("name", *_DEFAULT_KEYS)


@dataclass(frozen=True, slots=True)
class SuiteProblem:
    """A request of a suite that cannot be used; the others still run."""

    name: str
    message: str


@dataclass(frozen=True, slots=True)
class SuiteFile:
    """A suite as written: requests in order, a broken one as its problem. *gates* are plain data."""

    path: Path
    source: str
    name: str
    requests: tuple[RequestSource | SuiteProblem, ...]
    gates: tuple[Any, ...] = ()
    runtime: Map | None = None
    task_concurrency: Scalar | None = None


def read_suite_file(path: Path, source: str) -> SuiteFile:
    """Return the suite in *path*; ConfigError with file and line when it is broken as a whole."""
    tree = load_yaml_mapping(path, source)
    for key in tree:
        if key not in _KEYS:
            raise unknown_key(f"{source}:{tree.lines[key]}", key, _KEYS, "a suite")
    _check_version(tree)
    name = _name(tree["name"], "name") if "name" in tree else path.name.removesuffix(SUITE_SUFFIX)
    return SuiteFile(
        path=path,
        source=source,
        name=name,
        requests=tuple(_requests(tree, path, name)),
        gates=_gates(tree),
        runtime=_runtime(tree),
        task_concurrency=_task_concurrency(tree),
    )


def _check_version(tree: Map) -> None:
    node = tree.get("version")
    if node is None:
        raise ConfigError(f"{tree.source}:{tree.line}: a suite needs `version: {_VERSION}`")
    if typed(node) != _VERSION or isinstance(typed(node), bool):
        raise ConfigError(f"{where(node)}: version must be {_VERSION}, not {typed(node)!r}")


def _name(node: Any, key: str) -> str:
    name = text(node, key)
    if not name.strip() or not name.isprintable():
        raise ConfigError(f"{where(node)}: {key} must be a readable text, not {name!r}")
    return name


def _task_concurrency(tree: Map) -> Scalar | None:
    node = tree.get("task_concurrency")
    if node is None:
        return None
    if integer(node, "task_concurrency") < 0:
        raise ConfigError(f"{where(node)}: task_concurrency must be 0 or more, not {node.text}")
    return Scalar(node.text, False, node.line, node.source)


def _runtime(tree: Map) -> Map:
    section = section_of(tree, "runtime")
    for key in section:
        if key not in OPTION_KEYS:
            raise unknown_key(f"{tree.source}:{section.lines[key]}", key, OPTION_KEYS, "section 'runtime'")
    return section


def _gates(tree: Map) -> tuple[Any, ...]:
    node = tree.get("gates")
    if node is None or (isinstance(node, Scalar) and node.is_null):
        return ()
    gates = node if isinstance(node, Seq) else [node]
    for gate in gates:
        if not isinstance(gate, Map) and (not isinstance(gate, Scalar) or gate.is_null):
            raise ConfigError(f"{where(gate)}: a gate must be an expression or a mapping")
    return tuple(gate.text if isinstance(gate, Scalar) else typed(gate) for gate in gates)


def _requests(tree: Map, path: Path, suite_name: str) -> Iterator[RequestSource | SuiteProblem]:
    defaults = _section(section_of(tree, "defaults"), _DEFAULT_KEYS, "defaults")
    seen: dict[str, int] = {}
    for index, (written, line) in enumerate(_written_requests(tree, suite_name)):
        label = f"request {index + 1}"
        try:
            if not isinstance(written, Map):
                raise ConfigError(f"{where(written)}: a request must be a mapping of keys to values")
            label = _request_name(written, label)
        except ConfigError as error:
            yield SuiteProblem(label, error.message)
            continue
        if label in seen:
            raise ConfigError(
                f"{tree.source}:{line}: request name {label!r} is used twice (first on line {seen[label]})"
            )
        seen[label] = line
        try:
            layer = _section(written, _REQUEST_KEYS, f"request {label!r}")
        except ConfigError as error:
            yield SuiteProblem(label, error.message)
            continue
        layer.pop("name", None)
        layers = (_inline_tasks(tree, path, (defaults, layer)), defaults, layer)
        yield RequestSource(label, f"{tree.source}:{line}", layers)


def _written_requests(tree: Map, suite_name: str) -> list[tuple[Any, int]]:
    """Return each request as written with its line; a mapping gives names as keys."""
    node = tree.get("requests")
    if isinstance(node, Seq) and node:
        return [(item, getattr(item, "line", 0)) for item in node]
    if isinstance(node, Map) and node:
        return [(_named(node, name), node.lines[name]) for name in node]
    if node is not None and not (isinstance(node, Scalar) and node.is_null):
        raise ConfigError(f"{where(node)}: requests must be a list of requests that each have a name")
    if "tasks" not in tree:
        raise ConfigError(f"{tree.source}:{tree.line}: a suite needs `requests:` (or `tasks:` of its own)")
    request = Map(tree.source, tree.lines["tasks"])
    put(request, "name", Scalar(suite_name, True, tree.lines["tasks"], tree.source), tree.lines["tasks"])
    return [(request, tree.lines["tasks"])]


def _named(requests: Map, name: str) -> Any:
    request = requests[name]
    if not isinstance(request, Map):
        return request
    if "name" in request:
        raise ConfigError(
            f"{requests.source}:{request.lines['name']}: the request {name!r} is named by its key already"
        )
    put(request, "name", Scalar(name, True, requests.lines[name], requests.source), requests.lines[name])
    return request


def _request_name(request: Map, label: str) -> str:
    if "name" not in request:
        raise ConfigError(f"{where(request)}: {label} has no name; give it one: `name: ...`")
    return _name(request["name"], "name")


def _section(written: Map, keys: tuple[str, ...], inside: str) -> Map:
    for key in _WHOLE_RUN:
        if key in written:
            raise _whole_run(written, key)
    layer = canonical(written, keys, inside)
    execution = layer.get("execution")
    if isinstance(execution, Map) and "task_concurrency" in execution:
        raise _whole_run(execution, "task_concurrency")
    return layer


def _whole_run(section: Map, key: str) -> ConfigError:
    instead = _WHOLE_RUN.get(key, key)
    return ConfigError(
        f"{section.source}:{section.lines.get(key, section.line)}: {key!r} belongs to the whole run and not to a "
        f"request; set {instead!r} at the top of the suite or on the command line"
    )


def _inline_tasks(tree: Map, path: Path, layers: tuple[Map, ...]) -> Map:
    """Return the lowest layer of a request: the suite's own `tasks:` where the benchmark is `tasks` or not named."""
    lowest = Map(tree.source, tree.line)
    chosen = [layer["benchmark"]["id"] for layer in layers if "id" in (layer.get("benchmark") or ())]
    if "tasks" in tree and (not chosen or getattr(chosen[-1], "text", "") == "tasks"):
        line = tree.lines["tasks"]
        set_path(lowest, ("benchmark", "id"), Scalar("tasks", True, line, tree.source), line)
        set_path(lowest, ("benchmark", "params", "path"), Scalar(str(path.absolute()), True, line, tree.source), line)
    return lowest
