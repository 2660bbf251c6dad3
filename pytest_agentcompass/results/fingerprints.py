"""Fingerprints: which results may stand for each other.

The *task* fingerprint covers what a task is and how it is graded; the *run* fingerprint adds who
solved it. Secrets never count, nor do how many attempts run, how fast, how often they are retried,
or where results and datasets lie on disk.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from pydantic import BaseModel

from .. import __version__
from ..contracts.plan import ExecutionPlan
from ..contracts.record import SCHEMA_VERSION
from ..contracts.request import ModelSpec, RunRequest
from ..contracts.task import TaskSpec
from ..redaction import clean_text
from .files import json_row

__all__ = [
    "basis_fingerprint",
    "both_fingerprints",
    "differences",
    "fingerprint_parts",
    "request_digest",
    "request_parts",
    "run_fingerprint",
    "task_fingerprint",
]

_SHOWN = 160  # characters of a value that a table of differences shows
_ABSENT = "(not set)"
_TASK_FIELDS = ("task_id", "question", "category", "ground_truth", "metadata", "environment", "fingerprint")
_PLAN_FIELDS = (
    "environment",
    "evaluation_environment",
    "baseline_network_policy",
    "run_network_policy",
    "evaluation_network_policy",
    "evaluation_environment_mode",
    "benchmark_plan",
    "artifacts",
    "run_timeout_seconds",
    "evaluation_timeout_seconds",
)
_EXECUTION_FIELDS = ("pass_threshold", "output_limit_bytes", "artifact_limit_bytes", "artifact_limit_files")
_MODEL_FIELDS = ("id", "api_protocol", "params")
# Stricter than the scrub's own rule: `max_tokens` is a setting that counts.
_SECRET_KEY = re.compile(r"(api_?key|secret|password|passwd|credential|private_key|authorization|(^|[_-])token$)", re.I)
_PATH_KEY = re.compile(r"(^|_)(path|dir|directory|folder|root)$")


def task_fingerprint(task: TaskSpec, plan: ExecutionPlan) -> str:
    """Return SHA-256 over task content, grader, image, limits and policies (canonical JSON).

    What baselines, comparisons and merges demand to be equal.
    """
    return _digest(_task_parts(task, plan))


def run_fingerprint(task: TaskSpec, plan: ExecutionPlan, request: RunRequest, harness_version: str = "") -> str:
    """Return SHA-256 over the task's parts, benchmark, harness, model, recipes and the record's schema.

    What resume and reuse demand to be equal.
    """
    return _digest({**_task_parts(task, plan), **_run_parts(plan, request, harness_version)})


def both_fingerprints(
    task: TaskSpec, plan: ExecutionPlan, request: RunRequest, harness_version: str = ""
) -> dict[str, str]:
    """Return the `task` and the `run` fingerprint, as records hold them."""
    parts = _task_parts(task, plan)
    return {"task": _digest(parts), "run": _digest({**parts, **_run_parts(plan, request, harness_version)})}


def fingerprint_parts(
    task: TaskSpec, plan: ExecutionPlan, request: RunRequest | None = None, harness_version: str = ""
) -> dict[str, str]:
    """Return what the fingerprint is made of, flat and fit to be stored and read (see `differences`).

    Values are scrubbed JSON; a long one is replaced by its length and hash. Without *request* the parts
    of the task fingerprint.
    """
    parts = _task_parts(task, plan)
    if request is not None:
        parts.update(_run_parts(plan, request, harness_version))
    return dict(sorted((clean_text(key), _shown(value)) for key, value in _flat(parts)))


def request_parts(request: RunRequest, harness_version: str = "") -> dict[str, str]:
    """Return what of a request counts in the run fingerprints of its attempts, flat and fit to be stored."""
    canonical = _Canonical(())
    parts = {f"model.{name}": canonical(getattr(request.model, name)) for name in _MODEL_FIELDS}
    parts["model.base_url"] = _endpoint(request.model)
    parts.update({"benchmark.id": request.benchmark.id, "benchmark.params": canonical(request.benchmark.params)})
    parts.update({"harness.id": request.harness.id, "harness.params": canonical(request.harness.params)})
    parts.update({"harness.version": harness_version, "environment": canonical(request.environment)})
    limits = (*_EXECUTION_FIELDS, "run_timeout_seconds", "evaluation_timeout_seconds", "timeout_multiplier")
    parts.update((f"execution.{name}", canonical(getattr(request.execution, name))) for name in limits)
    return dict(sorted((clean_text(key), _shown(value)) for key, value in _flat(parts)))


def basis_fingerprint(task: TaskSpec, request: str) -> str:
    """Return SHA-256 over the task's row and *request*, a result of `request_digest`: what a plan is made from.

    Where it is equal, and no component of a user's own plans, the run fingerprint is equal too: planning is pure.
    """
    row = json_row(clean_text(repr(task.to_row())))
    return hashlib.sha256(f"{request}\n{row}".encode("ascii")).hexdigest()


def request_digest(request: RunRequest, harness_version: str = "") -> str:
    """Return SHA-256 over all of a request that a plan may depend on, and the version of this package."""
    neutral = {"task_concurrency", "max_retries", "attempts", "retry_min_delay_seconds", "retry_max_delay_seconds"}
    dump = request.model_dump(
        mode="json", exclude={"output": True, "runtime": True, "metadata": True, "execution": neutral}
    )
    return _digest({"request": clean_text(json_row(_sorted(dump))), "harness": harness_version, "package": __version__})


def differences(old: Mapping[str, str], new: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Return the rows *(key, old value, new value)* in which two results of `fingerprint_parts` differ."""
    keys = sorted({*old, *new})
    return [(key, old.get(key, _ABSENT), new.get(key, _ABSENT)) for key in keys if old.get(key) != new.get(key)]


def _task_parts(task: TaskSpec, plan: ExecutionPlan) -> dict[str, Any]:
    canonical = _Canonical(_local_roots(task))
    parts = {f"task.{name}": canonical(getattr(task, name)) for name in _TASK_FIELDS}
    parts.update((f"plan.{name}", canonical(getattr(plan, name))) for name in _PLAN_FIELDS)
    parts.update((f"execution.{name}", canonical(getattr(plan.execution, name))) for name in _EXECUTION_FIELDS)
    return parts


def _run_parts(plan: ExecutionPlan, request: RunRequest, harness_version: str) -> dict[str, Any]:
    canonical = _Canonical(())
    parts = {f"model.{name}": canonical(getattr(request.model, name)) for name in _MODEL_FIELDS}
    parts["model.base_url"] = _endpoint(request.model)
    parts["benchmark.id"] = request.benchmark.id
    parts["benchmark.params"] = canonical(request.benchmark.params)
    parts["harness.id"] = request.harness.id
    parts["harness.params"] = canonical(request.harness.params)
    parts["harness.version"] = harness_version
    parts["plan.harness_plan"] = canonical(plan.harness_plan)
    parts["plan.applied_recipes"] = canonical(plan.applied_recipes)
    parts["record.schema_version"] = SCHEMA_VERSION
    return parts


def _endpoint(model: ModelSpec) -> str | None:
    """Return the model's endpoint without the user and password that a URL may carry."""
    if not model.base_url:
        return None
    try:
        url = urlsplit(model.base_url)
    except ValueError:
        return model.base_url.rpartition("@")[2]
    return urlunsplit((url.scheme, url.netloc.rpartition("@")[2], url.path.rstrip("/"), url.query, ""))


def _local_roots(task: TaskSpec) -> tuple[str, ...]:
    """Return the local folders the task was read from: moving a dataset does not change its tasks.

    They are known from `source` (`FILE` or `FILE:LINE`) and from metadata entries named like a path. Only
    for tasks whose files have a content hash of their own.
    """
    if not task.fingerprint:
        return ()
    source = re.sub(r"(:\d+)+$", "", task.source)
    named = [value for key, value in task.metadata.items() if isinstance(value, str) and _PATH_KEY.search(key)]
    found = {source, str(PurePath(source).parent), *named}
    return tuple(
        sorted((root for root in found if root.startswith("/") and root.count("/") > 1), key=len, reverse=True)
    )


class _Canonical:
    """Turns values into plain JSON data that is the same in every process, on every machine."""

    def __init__(self, roots: Iterable[str]) -> None:
        self._roots = tuple(roots)

    def __call__(self, value: Any) -> Any:
        if isinstance(value, enum.Enum):
            return self(value.value)
        if value is None or isinstance(value, (bool, int)):
            return value
        if isinstance(value, float):
            return value if value == value and abs(value) != float("inf") else str(value)
        if isinstance(value, (str, PurePath)):
            return self._text(str(value))
        if isinstance(value, (bytes, bytearray)):
            return hashlib.sha256(value).hexdigest()
        return self._container(value)

    def _container(self, value: Any) -> Any:
        if isinstance(value, BaseModel):
            return self._mapping({name: getattr(value, name) for name in type(value).model_fields})
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return self._mapping({item.name: getattr(value, item.name) for item in dataclasses.fields(value)})
        if isinstance(value, Mapping):
            return self._mapping(value)
        if isinstance(value, (set, frozenset)):
            return sorted((self(item) for item in value), key=json_row)
        if isinstance(value, (list, tuple)):
            return [self(item) for item in value]
        return f"{type(value).__module__}.{type(value).__qualname__}"  # never a repr: it may hold an address

    def _mapping(self, value: Mapping[Any, Any]) -> dict[str, Any]:
        return {str(key): "(secret)" if _SECRET_KEY.search(str(key)) else self(item) for key, item in value.items()}

    def _text(self, text: str) -> str:
        for root in self._roots:
            if text == root or text.startswith(root + "/"):
                return "<task>" + text[len(root) :]
        return text


def _digest(parts: Mapping[str, Any]) -> str:
    return hashlib.sha256(json_row(_sorted(dict(parts))).encode("ascii")).hexdigest()


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def _flat(parts: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """Yield dotted keys and values; empty and long mappings stay one value."""
    for key, value in parts.items():
        if isinstance(value, dict) and 0 < len(value) <= 60:
            yield from _flat({f"{key}.{name}": item for name, item in value.items()})
        else:
            yield key, value


def _shown(value: Any) -> str:
    text = json_row(_sorted(value))
    if len(text) <= _SHOWN:
        return clean_text(text)
    return f"{len(text)} characters, sha256 {hashlib.sha256(text.encode('ascii')).hexdigest()[:16]}"
