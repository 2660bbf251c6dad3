"""From words, files and suites to requests and options, each value knowing where it came from.

Files, low to high: the user's own, the nearest `agentcompass.yaml` above rootdir, each extra file, the
suite, the command line. Mappings merge, everything else replaces. Component params: config entry of
the chosen component, suite defaults, request, command line; choosing another component in a higher
layer drops the params that were meant for the one below.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..components.registry import Registry
from ..components.yaml_file import Map, Scalar, integer, text, where
from ..contracts.request import RunRuntimeSpec
from ..errors import ConfigError
from ..redaction import secrets_from_environment
from .files import ConfigFiles, default_user_config, read_config_files, shown_path, texts
from .layers import COMMAND_LINE, SECTIONS, SHORT_FORMS, canonical, merge, put, substitute, tree_of, unknown_key
from .options import OPTION_KEYS, RuntimeOptions, make_options
from .requests import RequestSource, ResolvedRequest, Resolver
from .suites import SUITE_SUFFIX, SuiteProblem, read_suite_file
from .words import Words

__all__ = [
    "SUITE_SUFFIX",
    "ResolvedRequest",
    "RunConfig",
    "RuntimeOptions",
    "Suite",
    "SuiteProblem",
    "default_user_config",
    "resolve_run",
]

RESULTS_DIR = "agentcompass-results"


@dataclass(frozen=True, slots=True)
class Suite:
    """A suite, resolved: its requests in order, what its gates say, and the options it sets for the run."""

    name: str
    path: Path
    requests: tuple[ResolvedRequest | SuiteProblem, ...]
    gates: tuple[Any, ...]
    options: RuntimeOptions


@dataclass(frozen=True, slots=True)
class RunConfig:
    """Everything that was configured. *request* is the command line's own (None without `benchmark=`)."""

    options: RuntimeOptions
    request: ResolvedRequest | None
    plugins: tuple[str, ...]
    recipe_dirs: tuple[Path, ...]
    config_paths: tuple[Path, ...]
    words: Words
    _resolver: Resolver
    _cwd: Path
    _rootdir: Path
    _layer: Map = field(default_factory=Map)

    def read_suite(self, path: Path) -> Suite:
        """Return the suite in *path*, the command line's settings laid over each of its requests.

        Raises ConfigError for a suite that is broken as a whole, and for `benchmark=` or `name=` beside it;
        a request that cannot be used becomes a `SuiteProblem`.
        """
        for key in ("benchmark.id", "name"):
            if self.words.has(key):
                short = key.removesuffix(".id")
                raise ConfigError(
                    f"{short}= cannot be given together with the suite {path}: its requests name their own; "
                    "other settings override each of them"
                )
        suite = read_suite_file(path, shown_path(path, self._cwd))
        resolver = replace(self._resolver, bases={**self._resolver.bases, suite.source: path.absolute().parent})
        options = _options(resolver, self.words, self._rootdir, suite.runtime, suite.task_concurrency)
        requests = tuple(self._of_suite(item, resolver, options) for item in suite.requests)
        return Suite(suite.name, path, requests, suite.gates, options)

    def load_suite(self, path: Path) -> list[ResolvedRequest | SuiteProblem]:
        """Return the requests of the suite in *path*; see `read_suite`."""
        return list(self.read_suite(path).requests)

    def _of_suite(
        self, item: RequestSource | SuiteProblem, resolver: Resolver, options: RuntimeOptions
    ) -> ResolvedRequest | SuiteProblem:
        if isinstance(item, SuiteProblem):
            return item
        written = replace(item, layers=(*item.layers, self._layer), options=options)
        try:
            return resolver.resolve(written)
        except ConfigError as error:
            place = "" if error.message.startswith(item.source.rpartition(":")[0]) else f"{item.source}: "
            return SuiteProblem(item.name, f"{place}{error.message}")

    def resolve(
        self, values: Mapping[str, Any], *, name: str, source: str, base: Path | None = None
    ) -> ResolvedRequest:
        """Return the request that *values* describe (a marker's arguments, a script's), command line on top.

        Relative paths are relative to *base* (default: the current directory). Keys are sections and short
        forms, as in a suite's request. Raises ConfigError.
        """
        layer = canonical(tree_of(values, source), tuple({**SECTIONS, **SHORT_FORMS}), source)
        written = RequestSource(name, source, (layer, self._layer), self.options)
        bases = {**self._resolver.bases, source: base or self._cwd}
        return replace(self._resolver, bases=bases).resolve(written)


def resolve_run(
    *,
    words: Words,
    rootdir: Path,
    config_files: Sequence[Path] = (),
    user_config: Path | None = None,
    environ: Mapping[str, str],
    registry: Registry,
    cwd: Path | None = None,
) -> RunConfig:
    """Read all files and return the resolved configuration; modules of `plugins:` are loaded into *registry*.

    *cwd* is what relative paths on the command line are relative to. Raises ConfigError.
    """
    cwd = (cwd or Path.cwd()).absolute()
    secrets_from_environment(environ)
    files = read_config_files(rootdir.absolute(), [cwd / path for path in config_files], user_config, cwd)
    plugins, recipe_dirs = _extensions(words, files, cwd)
    registry.load_modules(list(plugins))
    files.check_ids(registry)
    resolver = Resolver(registry, files, environ, {**files.bases, COMMAND_LINE: cwd}, recipe_dirs)
    options = _options(resolver, words, rootdir)
    layer = _request_layer(words.tree)
    return RunConfig(
        options=options,
        request=_own_request(words, resolver, layer, options),
        plugins=plugins,
        recipe_dirs=recipe_dirs,
        config_paths=files.paths,
        words=words,
        _resolver=resolver,
        _cwd=cwd,
        _rootdir=rootdir,
        _layer=layer,
    )


def _extensions(words: Words, files: ConfigFiles, cwd: Path) -> tuple[tuple[str, ...], tuple[Path, ...]]:
    plugins, dirs = words.tree.get("plugins"), words.tree.get("recipe_dirs")
    return (
        files.plugins if plugins is None else tuple(texts(plugins, "plugins")),
        files.recipe_dirs if dirs is None else tuple(cwd / name for name in texts(dirs, "recipe_dirs")),
    )


def _own_request(words: Words, resolver: Resolver, layer: Map, options: RuntimeOptions) -> ResolvedRequest | None:
    if not words.has("benchmark.id"):
        return None
    name = text(words.tree["name"], "name") if "name" in words.tree else text(words.tree["benchmark"]["id"])
    if not name.strip() or not name.isprintable():
        raise ConfigError(f"name= must be a readable text, not {name!r}")
    return resolver.resolve(RequestSource(name, COMMAND_LINE, (layer,), options))


def _request_layer(tree: Map) -> Map:
    """Return the settings that belong to a request: no process options, no whole-run keys."""
    layer = Map(COMMAND_LINE)
    for key, value in tree.items():
        if key in SECTIONS:
            put(layer, key, merge(Map(), value) if isinstance(value, Map) else value)
    if isinstance(layer.get("runtime"), Map):
        for key in OPTION_KEYS:
            layer["runtime"].pop(key, None)
    if isinstance(layer.get("execution"), Map):
        layer["execution"].pop("task_concurrency", None)
    return layer


def _options(
    resolver: Resolver,
    words: Words,
    rootdir: Path,
    suite_runtime: Map | None = None,
    suite_concurrency: Scalar | None = None,
) -> RuntimeOptions:
    """Lay `runtime` sections over each other: config files, suite, command line."""
    tree = merge(resolver.files.runtime, suite_runtime or Map())
    _put_concurrency(tree, resolver.files.execution)
    if suite_concurrency is not None:
        put(tree, "task_concurrency", suite_concurrency)
    own = words.tree.get("runtime")
    for key, value in (own if isinstance(own, Map) else Map()).items():
        if key in OPTION_KEYS:
            tree = merge(tree, _single(key, value))
        elif key not in RunRuntimeSpec.model_fields:
            raise unknown_key(COMMAND_LINE, key, (*OPTION_KEYS, *RunRuntimeSpec.model_fields), "runtime")
    _put_concurrency(tree, words.tree.get("execution"))
    options = make_options(substitute(tree, resolver.environ, ("runtime",)), resolver.bases, rootdir / RESULTS_DIR)
    _check_providers(options, resolver.registry)
    return options


def _check_providers(options: RuntimeOptions, registry: Registry) -> None:
    """Raise ConfigError for a limit or rate of an environment that does not exist: it would limit nothing."""
    known = registry.ids("environment")
    for name, limits in (("provider_limits", options.provider_limits), ("open_rates", options.open_rates)):
        for id in limits:
            if id not in known:
                place = options.provenance.get(f"{name}.{id}", "")
                raise unknown_key(place, id, known, f"runtime.{name} (no such environment)")


def _single(key: str, value: Any) -> Map:
    tree = Map(COMMAND_LINE)
    put(tree, key, value)
    return tree


def _put_concurrency(tree: Map, execution: Any) -> None:
    node = execution.get("task_concurrency") if isinstance(execution, Map) else None
    if node is not None:
        if isinstance(node, Scalar) and "${" not in node.text and integer(node, "task_concurrency") < 0:
            raise ConfigError(f"{where(node)}: task_concurrency must be 0 or more, not {node.text}")
        put(tree, "task_concurrency", node)
