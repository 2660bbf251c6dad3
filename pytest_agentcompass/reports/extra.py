"""Report files of the benchmarks' own, beside the summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from pydantic import ValidationError

from ..components.benchmark import BaseBenchmark
from ..components.registry import Registry
from ..contracts.request import RunRequest
from ..errors import AgentCompassError, ConfigError, ResultsError
from .summary import RequestResult
from .write import RunReader

__all__ = ["write_extra_reports"]


def write_extra_reports(
    rundir: RunReader,
    results: Sequence[RequestResult],
    registry: Registry,
    requests: Mapping[str, RunRequest] | None = None,
) -> list[Path]:
    """Let each request's benchmark write its files (`BaseBenchmark.write_extra_reports`); return their paths.

    A request that is not among *requests* is rebuilt from what the run stored; one whose benchmark is not known
    here is left out. Raises ResultsError naming the
    benchmarks that failed, after all others have written theirs.
    """
    written: list[Path] = []
    failures = []
    for result in results:
        request = (requests or {}).get(result.name) or _stored_request(result)
        benchmark = None if request is None else _benchmark(registry, request.benchmark.id)
        if request is None or benchmark is None:
            continue
        try:
            attempts = [
                (record, rundir.attempt_dir(record.request, record.task_id, record.attempt))
                for record in result.records
            ]
            planned = [(task_id, number) for _, task_id, number in result.planned]
            written += benchmark.write_extra_reports(rundir.path, attempts, planned, request)
        except Exception as error:  # an extension's fault must not cost the reports of others
            text = error.message if isinstance(error, AgentCompassError) else f"{type(error).__name__}: {error}"
            failures.append(f"extra reports of request {result.name!r}: {text}")
    if failures:
        raise ResultsError("; ".join(failures))
    return written


def _benchmark(registry: Registry, id: str) -> BaseBenchmark | None:
    """Return the benchmark, or None where it is not known: reports are also rebuilt without a conftest.py."""
    try:
        return cast(BaseBenchmark, registry.make("benchmark", id))
    except ConfigError:
        return None


def _stored_request(result: RequestResult) -> RunRequest | None:
    stored = {name: result.info[name] for name in RunRequest.model_fields if name in result.info}
    try:
        return RunRequest.model_validate(stored)
    except ValidationError:
        return None  # written by another version: the reports of all benchmarks are there all the same
