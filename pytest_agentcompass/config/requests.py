"""One request: its layers merged, its components known, its values validated."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..components.registry import Registry
from ..components.shape import shape, validate
from ..components.yaml_file import Map, Scalar, text, where
from ..contracts.request import RunMetadata, RunRequest
from ..errors import ConfigError, nearest
from .files import ConfigFiles
from .layers import COMPONENTS, SECTIONS, merge, origins, put, resolve_paths, set_path, substitute, unknown_key
from .options import RuntimeOptions

__all__ = ["RequestSource", "ResolvedRequest", "Resolver"]


@dataclass(frozen=True, slots=True)
class ResolvedRequest:
    """A request and, for every value that was set, where it came from (dotted key -> place)."""

    request: RunRequest
    provenance: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The request's name."""
        return self.request.name


@dataclass(frozen=True, slots=True)
class RequestSource:
    """A request as written: its name, where it stands, and its layers in canonical form, low to high.

    *options* are those of the run that it belongs to (for its concurrency).
    """

    name: str
    source: str
    layers: Sequence[Map]
    options: RuntimeOptions | None = None


@dataclass(frozen=True, slots=True)
class Resolver:
    """Turns written requests into resolved ones. *bases* says what each source's paths are relative to."""

    registry: Registry
    files: ConfigFiles
    environ: Mapping[str, str]
    bases: Mapping[str, Path]
    recipe_dirs: tuple[Path, ...] = ()

    def resolve(self, written: RequestSource) -> ResolvedRequest:
        """Return the resolved request; ConfigError names key and place of whatever is wrong with it."""
        tree = self._merged(written)
        notes = self._fill_environment(tree)
        tree = resolve_paths(substitute(tree, self.environ), self.bases, self.environ.get("HOME"))
        self._check_agent(tree)
        sections = {name: self._section(name, tree) for name in SECTIONS if isinstance(tree.get(name), Map)}
        provenance = origins(tree, written.source)
        request = RunRequest(metadata=self._metadata(written), **sections)
        self._check_choices(request, tree)
        if written.options is not None and written.options.task_concurrency is not None:
            execution = request.execution.model_copy(update={"task_concurrency": written.options.task_concurrency})
            request = request.model_copy(update={"execution": execution})
            notes["execution.task_concurrency"] = written.options.provenance["task_concurrency"]
        return ResolvedRequest(request, {**provenance, **notes})

    def _metadata(self, written: RequestSource) -> RunMetadata:
        return RunMetadata(
            name=written.name,
            source=written.source,
            config_paths=tuple(str(path) for path in self.files.paths),
            recipe_dirs=tuple(str(path) for path in self.recipe_dirs),
        )

    def _merged(self, written: RequestSource) -> Map:
        """Merge the request's layers over what the config files say of the chosen components."""
        tree = Map(written.source)
        for layer in written.layers:
            self._drop_foreign_params(tree, layer)
            tree = merge(tree, layer)
        self._check_ids(tree)
        low = Map(written.source)
        for kind in COMPONENTS:
            chosen = self._chosen(tree, kind) or (self._default_environment(tree) if kind == "environment" else "")
            low = merge(low, self.files.entry(kind, chosen))
        put(low, "execution", self.files.execution)
        return merge(low, tree)

    def _drop_foreign_params(self, tree: Map, layer: Map) -> None:
        """Forget params meant for another component when *layer* chooses a new one."""
        for kind in COMPONENTS:
            old, new = self._chosen(tree, kind), self._chosen(layer, kind)
            if old and new and old != new and "params" in tree[kind]:
                tree[kind] = merge(tree[kind], Map())
                del tree[kind]["params"]

    def _chosen(self, tree: Map, kind: str) -> str | None:
        section = tree.get(kind)
        if not isinstance(section, Map) or "id" not in section:
            return None
        return text(substitute(section["id"], self.environ, (kind, "id")), f"{kind}.id")

    def _default_environment(self, tree: Map) -> str:
        benchmark = self._chosen(tree, "benchmark")
        return str(self.registry.get("benchmark", benchmark or "").default_environment)

    def _check_ids(self, tree: Map) -> None:
        """Raise ConfigError unless a benchmark is chosen and every chosen component exists."""
        if not self._chosen(tree, "benchmark"):
            raise ConfigError(f"which benchmark? benchmark=ID; known: {', '.join(self.registry.ids('benchmark'))}")
        for kind in COMPONENTS:
            id = self._chosen(tree, kind)
            if id and id not in self.registry.ids(kind) and (kind, id) != ("harness", "none"):
                place = where(tree[kind]["id"])
                raise ConfigError(f"{place}: {kind} {id!r} is not known; {nearest(id, self.registry.ids(kind))}")

    def _fill_environment(self, tree: Map) -> dict[str, str]:
        """Fill in the benchmark's default environment where none is chosen; return the note of provenance."""
        if self._chosen(tree, "environment"):
            return {}
        set_path(tree, ("environment", "id"), Scalar(self._default_environment(tree), True))
        return {"environment.id": f"default of benchmark {self._chosen(tree, 'benchmark')!r}"}

    def _check_agent(self, tree: Map) -> None:
        benchmark = self._chosen(tree, "benchmark") or ""
        harness = self._chosen(tree, "harness") or "none"
        free = self.registry.get("benchmark", benchmark).harness_free
        if harness == "none" and not free:
            known = ", ".join(sorted(self.registry.ids("harness")))
            raise ConfigError(f"which harness? benchmark {benchmark!r} needs one: harness=ID; known: {known}")
        if harness != "none" and free:
            raise ConfigError(f"benchmark {benchmark!r} makes its own runs: leave the harness out (not {harness!r})")
        if harness != "none" and self.registry.get("harness", harness).needs_model and not _model_id(tree):
            raise ConfigError(f"which model? harness {harness!r} needs one: model=ID")

    def _section(self, name: str, tree: Map) -> Any:
        section = tree[name]
        model = SECTIONS[name]
        if name not in COMPONENTS:
            if name == "model":
                _check_model_keys(section, model)
            return validate(model, section, name)
        plain = merge(section, Map())
        params = plain.pop("params", None)
        validated = validate(model, plain, name)
        if params is None or (isinstance(params, Scalar) and params.is_null):
            params = Map(section.source, section.line)
        if not isinstance(params, Map):
            raise ConfigError(f"{where(params)}: {name}.params must be a mapping of keys to values")
        return validated.model_copy(update={"params": self._params(name, validated.id, params)})

    def _params(self, kind: str, id: str, params: Map) -> dict[str, Any]:
        component = None if (kind, id) == ("harness", "none") else self.registry.get(kind, id)
        model = getattr(component, "params_model", None)
        common = [field for field in SECTIONS[kind].model_fields if field not in ("id", "params")]
        if model is None:
            _check_near_misses(kind, id, params, common)
            return dict(shape(params))
        known = {*model.model_fields, *(field.alias for field in model.model_fields.values() if field.alias)}
        for key, node in params.items():
            if key not in known and model.model_config.get("extra") != "allow":
                raise unknown_key(_place(params, key, node), key, {*known, *common}, f"{kind} {id!r}")
        validate(model, params, kind)
        return dict(shape(params, model, kind))

    def _check_choices(self, request: RunRequest, tree: Map) -> None:
        strategy = request.execution.attempts.strategy
        known = self.registry.ids("strategy")
        if strategy not in known:
            place = where(tree["execution"]["attempts"]["strategy"])
            raise ConfigError(
                f"{place}: execution.attempts.strategy: {strategy!r} is not known; {nearest(strategy, known)}"
            )


def _model_id(tree: Map) -> str:
    section = tree.get("model")
    node = section.get("id") if isinstance(section, Map) else None
    return node.text if isinstance(node, Scalar) and not node.is_null else ""


def _check_model_keys(section: Map, model: type[Any]) -> None:
    for key, node in section.items():
        if key not in model.model_fields:
            known = nearest(key, model.model_fields)
            place = _place(section, key, node)
            raise ConfigError(
                f"{place}: unknown key {key!r} of model; {known} (what is sent with every call: model.params.{key})"
            )


def _check_near_misses(kind: str, id: str, params: Map, common: Sequence[str]) -> None:
    """Refuse a param that is a misspelt common field, where the component does not say what it takes."""
    for key, node in params.items():
        if difflib.get_close_matches(key, common, n=1, cutoff=0.8):
            raise unknown_key(_place(params, key, node), key, common, f"{kind} {id!r}")


def _place(section: Map, key: str, node: Any) -> str:
    source = getattr(node, "source", "") or section.source
    line = section.lines.get(key, 0) or getattr(node, "line", 0)
    return f"{source}:{line}" if line else source
