"""What a run gives back in the official formats: the report (schema 2) and a predictions file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...components.predictions import prediction_line
from ...contracts.outcome import FailureMode
from ...contracts.record import AttemptRecord
from ...contracts.request import RunRequest
from .evaluating import PATCH
from .patches import is_empty

__all__ = ["model_name", "official_report", "write_predictions", "write_reports"]

#: modes after which the official harness has written a (negative) report of the instance
_REPORTED = frozenset({FailureMode.NO_TESTS, FailureMode.CONTRADICTION})


def official_report(records: Iterable[AttemptRecord], instance_ids: Iterable[str]) -> dict[str, Any]:
    """Return the official summary (schema 2) of one attempt per instance.

    *instance_ids* are all that were planned. What was never submitted (no record, or skipped) is incomplete;
    an empty patch is listed apart; tests that ran out of time, patches that do not apply and failures of the
    infrastructure are errors; the rest is resolved or not.
    """
    by_id = {record.task_id: record for record in records}
    total = sorted({*by_id, *instance_ids})
    places = {name: _place(by_id.get(name)) for name in total}
    reasons = {name: _reason(by_id.get(name)) for name in total if places[name] in ("unresolved", "error")}
    known = {name: reason for name, reason in reasons.items() if reason}
    ids: dict[str, list[str]] = {
        "completed": [name for name in total if places[name] in ("resolved", "unresolved")],
        "submitted": [name for name in total if places[name] != "incomplete"],
        "infra_failure": sorted(name for name, (_, environment) in known.items() if environment),
        "ambiguous_failure": sorted(name for name, (_, environment) in known.items() if not environment),
    }
    for place in ("resolved", "unresolved", "incomplete", "empty_patch", "error"):
        ids[place] = [name for name in total if places[name] == place]
    counted = (
        "submitted",
        "completed",
        "resolved",
        "unresolved",
        "infra_failure",
        "ambiguous_failure",
        "empty_patch",
        "error",
    )
    return {
        "total_instances": len(total),
        **{f"{name}_instances": len(ids[name]) for name in counted},
        **{f"{name}_ids": ids[name] for name in sorted(ids)},
        "failure_reasons": {name: label for name, (label, _) in sorted(known.items())},
        "schema_version": 2,
    }


def _place(record: AttemptRecord | None) -> str:
    if record is None or record.outcome == "skipped":
        return "incomplete"
    if record.failure_mode is FailureMode.EMPTY_PATCH:
        return "empty_patch"
    if record.metrics.get("resolved") is True and record.passed is not None:
        return "resolved"
    if record.failure_mode in (FailureMode.PATCH_NOT_APPLIED, FailureMode.TEST_TIMEOUT):
        return "error"
    return "unresolved" if record.passed is not None or record.failure_mode in _REPORTED else "error"


def _reason(record: AttemptRecord | None) -> tuple[str, bool] | None:
    if record is None:
        return None
    if record.failure_mode is FailureMode.TEST_TIMEOUT:
        return "tests_timed_out", False
    own = _own(record)
    return (str(own["failure_reason"]), bool(own.get("failure_of_environment"))) if "failure_reason" in own else None


def _own(record: AttemptRecord) -> Mapping[str, Any]:
    own = record.details.get("swebench")
    return own if isinstance(own, Mapping) else {}


def model_name(record: AttemptRecord) -> str:
    """Return what the official files call the model: the predictions' own name, the model, or the harness."""
    if record.harness.get("id") == "oracle":
        return "gold"
    return str(record.details.get("model_name_or_path") or record.model or record.harness.get("id") or "none")


def write_predictions(path: Path, attempts: Iterable[tuple[AttemptRecord, Path]]) -> int:
    """Write the model patches of *attempts* (record, attempt folder) as a predictions file; return how many.

    An attempt that left no patch because it was skipped or the infrastructure failed is left out.
    """
    lines = list(_prediction_lines(attempts))
    _replace(path, "".join(lines))
    return len(lines)


def _prediction_lines(attempts: Iterable[tuple[AttemptRecord, Path]]) -> Iterator[str]:
    for record, folder in attempts:
        file = folder / "artifacts" / PATCH
        patch = file.read_bytes() if PATCH in record.artifacts and file.is_file() else b""
        if PATCH in record.artifacts or record.failure_mode is FailureMode.EMPTY_PATCH:
            yield prediction_line(record.task_id, model_name(record), b"" if is_empty(patch) else patch)


def write_reports(
    directory: Path, attempts: Sequence[tuple[AttemptRecord, Path]], planned: Sequence[tuple[str, int]], req: RunRequest
) -> list[Path]:
    """Write `MODEL.RUN.json` and `predictions.jsonl` into *directory*, once per attempt number; return their paths."""
    written = []
    for number in sorted({record.attempt for record, _ in attempts}):
        chosen = [(record, folder) for record, folder in attempts if record.attempt == number]
        records = [record for record, _ in chosen]
        tail = "" if req.metadata.source == "command line" else f".{_safe(req.name)}"
        tail += "" if number == 1 else f".attempt{number}"
        run = _safe(records[0].run_id or directory.name)
        report = directory / f"{_safe(model_name(records[0]))}.{run}{tail}.json"
        ids = [task_id for task_id, attempt in planned if attempt == number]
        _replace(report, json.dumps(official_report(records, ids), indent=4) + "\n")
        predictions = directory / f"predictions{tail}.jsonl"
        write_predictions(predictions, chosen)
        written += [report, predictions]
    return written


def _safe(name: str) -> str:
    return (
        "".join(c if c.isalnum() or c in "-_.+" else "__" if c == "/" else "_" for c in name).strip(".")[:120] or "none"
    )


def _replace(path: Path, text: str) -> None:
    new = path.with_name(f".{path.name}.new")
    new.write_text(text, encoding="ascii")
    os.replace(new, path)
