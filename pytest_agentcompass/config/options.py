"""Process options: what belongs to the whole run and not to a request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from ..components.shape import validate
from ..components.yaml_file import Map
from ..contracts.environment import Strict
from .layers import origins

__all__ = ["OPTION_KEYS", "Budget", "RuntimeOptions", "least", "make_options", "strictest"]

_Limit = Annotated[int, Field(ge=0)]
_Rate = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Budget(Strict):
    """What the whole run may spend: US dollars, tokens (input and output), seconds; `None` is no limit."""

    usd: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    tokens: int | None = Field(default=None, gt=0)
    wall_seconds: float | None = Field(default=None, gt=0, allow_inf_nan=False)


class _Options(Strict):
    results_dir: str | None = None
    deadline_seconds: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    cleanup_grace_seconds: float = Field(default=30.0, ge=0, allow_inf_nan=False)
    provider_limits: dict[str, _Limit] = Field(default_factory=dict)
    model_limits: dict[str, _Limit] = Field(default_factory=dict)
    open_rates: dict[str, _Rate] = Field(default_factory=dict)
    budget: Budget = Field(default_factory=Budget)
    order: Literal["declared", "longest_first"] = "declared"
    progress: Literal["auto", "on", "off"] = "auto"
    log_level: Literal["debug", "info", "warning", "error"] = "warning"
    task_concurrency: int | None = Field(default=None, ge=0)


#: Keys of a `runtime` section (`task_concurrency` has its own places).
OPTION_KEYS = tuple(name for name in _Options.model_fields if name != "task_concurrency")


@dataclass(frozen=True, slots=True)
class RuntimeOptions:
    """Options of the process. Times are seconds; a limit or rate of 0 is switched off.

    *provider_limits* are attempts in flight per environment id, *model_limits* per endpoint,
    *open_rates* sandboxes opened per second and environment id. *task_concurrency* is the number of
    attempts in flight in the whole run (`None`: not set). *order* is that of the attempts of a request.
    *provenance* tells where each set value came from.
    """

    results_dir: Path
    deadline_seconds: float | None = None
    cleanup_grace_seconds: float = 30.0
    provider_limits: Mapping[str, int] = field(default_factory=dict)
    model_limits: Mapping[str, int] = field(default_factory=dict)
    open_rates: Mapping[str, float] = field(default_factory=dict)
    budget: Budget = field(default_factory=Budget)
    order: str = "declared"
    progress: str = "auto"
    log_level: str = "warning"
    task_concurrency: int | None = None
    provenance: Mapping[str, str] = field(default_factory=dict)


def make_options(tree: Map, bases: Mapping[str, Path], default_results: Path) -> RuntimeOptions:
    """Return the options of a merged `runtime` tree; a relative results folder stands beside where it was written."""
    options = validate(_Options, tree, "runtime")
    results = default_results
    if options.results_dir is not None:
        base = bases.get(getattr(tree["results_dir"], "source", ""), Path())
        results = base / options.results_dir
    return RuntimeOptions(
        results_dir=results,
        deadline_seconds=options.deadline_seconds,
        cleanup_grace_seconds=options.cleanup_grace_seconds,
        provider_limits=options.provider_limits,
        model_limits=options.model_limits,
        open_rates=options.open_rates,
        budget=options.budget,
        order=options.order,
        progress=options.progress,
        log_level=options.log_level,
        task_concurrency=options.task_concurrency,
        provenance=origins(tree, tree.source),
    )


def strictest(options: Sequence[RuntimeOptions]) -> RuntimeOptions:
    """Return the options of a run of several suites: what limits more wins, of all else the first's."""
    first = options[0]
    return replace(
        first,
        deadline_seconds=_least(item.deadline_seconds for item in options),
        provider_limits=_tightest([item.provider_limits for item in options]),
        model_limits=_tightest([item.model_limits for item in options]),
        open_rates=_tightest([item.open_rates for item in options]),
        budget=Budget(**{key: _least(getattr(item.budget, key) for item in options) for key in Budget.model_fields}),
        order=next((item.order for item in options if item.order != "declared"), "declared"),
    )


def least(limits: Iterable[int | None]) -> int | None:
    """Return the smallest limit that is switched on; 0 where all that are given are off, None where none is given."""
    given = [limit for limit in limits if limit is not None]
    return min((limit for limit in given if limit), default=0 if given else None)


def _least(values: Iterable[Any]) -> Any:
    return min((value for value in values if value is not None), default=None)


def _tightest(maps: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge limits: per key the smallest that is switched on."""
    keys = {key for item in maps for key in item}
    return {key: min((item[key] for item in maps if item.get(key)), default=0) for key in keys}
