"""summary.json: the run's figures and every task's outcomes, in a stable, versioned form."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ..contracts.record import AttemptRecord
from ..contracts.summary import SUMMARY_KIND, SUMMARY_SCHEMA_VERSION
from ..metrics.estimators import mean
from ..metrics.tallies import Planned, TaskTally, tally
from ..redaction import plain

__all__ = ["SUMMARY_SCHEMA_VERSION", "RequestResult", "build_summary"]

_ELSEWHERE = ("requests", "partial_reasons", "gates")  # of run.json: they have a place of their own in a summary
_COUNTS = ("planned", "finished", "passed", "failed", "errors", "skipped", "missing", "scored", "discarded_tries")


@dataclass(frozen=True)
class RequestResult:
    """One request as reports take it: its metric report, its records, its plan, and what it asked for.

    *info* is the redacted request (`benchmark`, `harness`, `model`, `environment` with their ids);
    *categories* gives the categories of tasks without a record.
    """

    name: str
    report: Mapping[str, Any]
    records: Sequence[AttemptRecord]
    planned: Sequence[Planned]
    info: Mapping[str, Any] = field(default_factory=dict)
    categories: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def tallies(self) -> list[TaskTally]:
        """Return the request's tasks in planned order."""
        return tally(self.records, self.planned, self.categories)[0]


def build_summary(
    run_info: Mapping[str, Any], requests: Sequence[RequestResult], problems: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the summary of a run as strict JSON data; *problems* are damaged files and the like.

    Per request the metric report and per task what a later comparison needs: fingerprint, n, c and every
    attempt's outcome. `complete` is true when every planned attempt of every request has a record and
    nothing was cut.
    """
    reports = [request.report for request in requests]
    reasons = [f"{report['request']}: {text}" for report in reports for text in report["partial_reasons"]]
    reasons = [*_shard(run_info), *plain(list(run_info.get("partial_reasons") or ())), *reasons]
    return {
        "schema_version": SUMMARY_SCHEMA_VERSION,
        "kind": SUMMARY_KIND,
        "run": plain({key: value for key, value in run_info.items() if key not in _ELSEWHERE}),
        "complete": not reasons,
        "partial_reasons": reasons,
        "gates": plain(list(run_info.get("gates") or ())),
        "problems": plain(list(problems)),
        "totals": _totals(reports),
        "averages": _averages(reports),
        "requests": [_request(request) for request in requests],
    }


def _shard(run_info: Mapping[str, Any]) -> list[str]:
    shard = plain(run_info.get("shard"))
    return [f"this is shard {shard}: join all shards with `pytest-agentcompass merge DIR...`"] if shard else []


def _totals(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    totals: dict[str, Any] = {name: sum(report["attempts"][name] for report in reports) for name in _COUNTS}
    for name in ("cost_usd", "judge_cost_usd"):
        costs = [report["usage"][name] for report in reports if name in report["usage"]]
        totals[name] = math.fsum(item["total"] + item["discarded_tries"] for item in costs) if costs else None
    totals["seconds"] = math.fsum(report["durations"]["total"] for report in reports)
    totals["over"] = (
        "attempts of all requests; cost_usd (the agents' own) and judge_cost_usd include discarded tries, "
        "seconds do not"
    )
    return totals


def _averages(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the three averages over several requests that people mix up, each with its label."""
    tasks = sum(report["headline"]["tasks"] for report in reports)
    solved = math.fsum(report["tasks"]["solved"] for report in reports)
    return {
        "over_tasks": _average(
            solved / tasks if tasks else None, f"{tasks} tasks of all requests, each weighs the same"
        ),
        "over_attempts": _over_attempts(reports),
        "over_requests": _average(
            mean(report["headline"]["value"] for report in reports if report["headline"]["value"] is not None),
            f"{len(reports)} requests, each weighs the same whatever its number of tasks",
        ),
    }


def _over_attempts(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    if any(report["early_stop"] for report in reports):
        return _average(None, "attempts: undefined, since tasks that stop at their first success bias it")
    passed = sum(report["attempts"]["passed"] for report in reports)
    planned = sum(report["attempts"]["planned"] for report in reports)
    counted = planned - sum(report["failure_modes"].get("no_solution", 0) for report in reports)
    over = f"{counted} attempts, so tasks with more attempts weigh more"
    return _average(passed / counted if counted else None, over)


def _average(value: float | None, over: str) -> dict[str, Any]:
    return {"value": value, "over": over}


def _request(request: RequestResult) -> dict[str, Any]:
    info = request.info
    return {
        "name": request.name,
        "benchmark": _id(info, "benchmark"),
        "harness": _id(info, "harness"),
        "model": _id(info, "model"),
        "environment": _id(info, "environment"),
        "report": dict(request.report),
        "tasks": [_task(item) for item in request.tallies],
    }


def _id(info: Mapping[str, Any], section: str) -> str:
    value = info.get(section)
    found = value.get("id") if isinstance(value, Mapping) else value
    return plain(found) if isinstance(found, str) else ""


def _task(item: TaskTally) -> dict[str, Any]:
    prints = [record.fingerprint.get("task", "") for record in item.records]
    return {
        "task_id": item.task_id,
        "category": item.category,
        "fingerprint": next((value for value in prints if value), ""),
        "n": item.n,
        "c": item.passed,
        "valid": item.valid,
        "attempts": [_attempt(number, record) for number, record in item.attempts],
    }


def _attempt(number: int, record: AttemptRecord | None) -> dict[str, Any]:
    if record is None:
        return {
            "attempt": number,
            "outcome": "missing",
            "score": None,
            "failure_mode": "none",
            "seconds": 0.0,
            "cost_usd": None,
            "metrics": {},
            "usage": {},
            "discarded_usage": {},
        }
    return {
        "attempt": number,
        "outcome": record.outcome,
        "score": _finite(record.score),
        "failure_mode": record.failure_mode.value,
        "seconds": round(_finite(record.seconds) or 0.0, 3),
        "cost_usd": _finite(record.usage.get("cost_usd")),
        "metrics": _numbers(record.metrics),
        "usage": _numbers(record.usage),
        "discarded_usage": _discarded(record),
    }


def _discarded(record: AttemptRecord) -> dict[str, Any]:
    """Return what the attempt's discarded tries spent: it cost money, but is no sample."""
    found: dict[str, Any] = {}
    for attempt_try in record.retries:
        usage = attempt_try.get("usage")
        for name, value in _numbers(usage if isinstance(usage, Mapping) else {}).items():
            found[name] = found.get(name, 0) + value
    return found


def _numbers(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        plain(name): value for name, value in values.items() if isinstance(value, (int, float)) and math.isfinite(value)
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
