"""Configuration files: which ones are read, and what each may hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..components.registry import Registry
from ..components.yaml_file import Map, Scalar, Seq, load_yaml_mapping, text, where
from ..contracts.request import ExecutionSpec
from ..errors import ConfigError
from .layers import canonical, merge, put, tree_of, unknown_key
from .options import OPTION_KEYS

__all__ = ["ConfigFiles", "default_user_config", "find_project_file", "read_config_files"]

PROJECT_FILE = "agentcompass.yaml"
_ENTRIES = {"benchmarks": "benchmark", "harnesses": "harness", "environments": "environment"}
_KEYS = (*_ENTRIES, "execution", "runtime", "recipe_dirs", "plugins")


@dataclass(frozen=True, slots=True)
class ConfigFiles:
    """All configuration files as one: *entries* holds the tree of each configured component."""

    paths: tuple[Path, ...] = ()
    entries: Mapping[tuple[str, str], Map] = field(default_factory=dict)
    execution: Map = field(default_factory=Map)
    runtime: Map = field(default_factory=Map)
    recipe_dirs: tuple[Path, ...] = ()
    plugins: tuple[str, ...] = ()
    bases: Mapping[str, Path] = field(default_factory=dict)

    def entry(self, kind: str, id: str) -> Map:
        """Return what the files say about a component: `{kind: {field: ..., params: {...}}}`."""
        return self.entries.get((kind, id)) or Map()

    def check_ids(self, registry: Registry) -> None:
        """Raise ConfigError for an entry of a component that does not exist."""
        for (kind, id), tree in self.entries.items():
            if id not in registry.ids(kind):
                raise unknown_key(where(tree), id, registry.ids(kind), f"{_section(kind)} (no such {kind})")


def _section(kind: str) -> str:
    return next(section for section, name in _ENTRIES.items() if name == kind)


def default_user_config() -> Path:
    """Return where the user's own file stands on this system; it need not exist."""
    import platformdirs

    return Path(platformdirs.user_config_dir("agentcompass", appauthor=False)) / "config.yaml"


def find_project_file(rootdir: Path) -> Path | None:
    """Return the nearest `agentcompass.yaml` in *rootdir* or above it."""
    for folder in (rootdir, *rootdir.parents):
        candidate = folder / PROJECT_FILE
        if candidate.is_file():
            return candidate
    return None


def shown_path(path: Path, cwd: Path) -> str:
    """Return *path* as messages show it: relative to *cwd* where it is below."""
    try:
        return str(path.absolute().relative_to(cwd))
    except ValueError:
        return str(path)


def read_config_files(rootdir: Path, extra: Sequence[Path], user_config: Path | None, cwd: Path) -> ConfigFiles:
    """Return the user's, the project's and the *extra* files merged, later ones winning.

    Raises ConfigError for a file that is broken, an *extra* one that is missing, and unknown keys.
    """
    merged = ConfigFiles()
    for path in _existing(rootdir, extra, user_config):
        merged = _over(merged, path, load_yaml_mapping(path, shown_path(path, cwd)))
    return merged


def _existing(rootdir: Path, extra: Sequence[Path], user_config: Path | None) -> Iterable[Path]:
    if user_config is not None and user_config.is_file():
        yield user_config
    project = find_project_file(rootdir)
    if project is not None:
        yield project
    yield from extra


def _over(low: ConfigFiles, path: Path, tree: Map) -> ConfigFiles:
    _check_keys(tree)
    base = path.absolute().parent
    dirs, plugins = tree.get("recipe_dirs"), tree.get("plugins")
    return ConfigFiles(
        paths=(*low.paths, path),
        entries=_entries(low.entries, tree),
        execution=merge(low.execution, _section_tree(tree, "execution", ExecutionSpec.model_fields)),
        runtime=merge(low.runtime, _section_tree(tree, "runtime", OPTION_KEYS)),
        recipe_dirs=low.recipe_dirs if dirs is None else tuple(base / name for name in texts(dirs, "recipe_dirs")),
        plugins=low.plugins if plugins is None else tuple(texts(plugins, "plugins")),
        bases={**low.bases, tree.source: base},
    )


def _check_keys(tree: Map) -> None:
    for key in tree:
        place = f"{tree.source}:{tree.lines.get(key, 1)}"
        if key in ("models", "model"):
            raise ConfigError(
                f"{place}: {key!r} cannot stand in a config file: the model is always given explicitly, "
                "on the command line (model=ID base_url=URL api_key='${VARIABLE}') or in a suite"
            )
        if key not in _KEYS:
            raise unknown_key(place, key, _KEYS, "a config file")


def _section_tree(tree: Map, key: str, known: Iterable[str]) -> Map:
    section = section_of(tree, key)
    for name in section:
        if name not in known:
            raise unknown_key(f"{tree.source}:{section.lines.get(name, 1)}", name, known, f"section {key!r}")
    return section


def section_of(tree: Map, key: str) -> Map:
    """Return the mapping under *key*; an empty one when it is left out."""
    node = tree.get(key)
    if node is None or (isinstance(node, Scalar) and node.is_null):
        return Map(tree.source, tree.lines.get(key, 0))
    if not isinstance(node, Map):
        raise ConfigError(f"{where(node, tree.source)}: {key!r} must be a mapping of keys to values")
    return node


def texts(node: Any, name: str) -> list[str]:
    """Return a list of texts; ConfigError for anything else."""
    if isinstance(node, Scalar) and node.is_null:
        return []
    if not isinstance(node, Seq):
        raise ConfigError(f"{where(node)}: {name!r} must be a list, as in {name}: [a, b]")
    return [text(item, name) for item in node]


def _entries(low: Mapping[tuple[str, str], Map], tree: Map) -> dict[tuple[str, str], Map]:
    result = dict(low)
    for section, kind in _ENTRIES.items():
        ids = section_of(tree, section)
        for id in ids:
            entry = section_of(ids, id)
            line = ids.lines.get(id, 0)
            if "id" in entry:
                raise ConfigError(f"{tree.source}:{entry.lines['id']}: {section}.{id} cannot set its own id")
            written = tree_of({}, tree.source)
            written.line = line
            put(written, kind, entry, line)
            result[kind, id] = merge(result.get((kind, id)) or Map(), canonical(written, (kind,), f"{section}.{id}"))
    return result
