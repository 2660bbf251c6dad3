"""Grading a model patch: apply it, run the row's script, read the log, fill the result."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...components.context import AttemptContext, current_attempt
from ...contracts.outcome import FailureMode, RunResult
from ...errors import EvaluationError
from ...redaction import clean_text, scrub_bytes
from .grading import END_MARKER, START_MARKER, Verdict, failure_reason, grade, instance_report, with_exit_code
from .integrity import patch_flags
from .loading import WORKDIR
from .parsers import parse_log
from .patches import Applied, apply_patch

if TYPE_CHECKING:
    from ...components.environment import EnvironmentSession
    from ...contracts.outcome import ExecResult
    from ...contracts.task import PreparedTask
    from .rows import Row

__all__ = ["PATCH", "evaluate_patch", "fail_unapplied", "flag", "keep_patch", "stored_patch"]

PATCH = "model.patch"
_OUTPUT_BYTES = 64_000_000
_SHOWN = 4000
_APPLY_GRACE = 20.0  # seconds of the evaluation's slack that applying the patch may use


def keep_patch(prepared: PreparedTask, result: RunResult, patch: bytes, *, source: str) -> None:
    """Store the model patch in the attempt's folder and name it in *result*.

    A secret in it is masked in the file; what is graded is the patch as it was.
    """
    path = _artifacts(current_attempt()) / PATCH
    path.parent.mkdir(parents=True, exist_ok=True)
    clean = scrub_bytes(patch)
    path.write_bytes(clean)
    entry: dict[str, Any] = {"source": source, "status": "collected-by-benchmark", "bytes": len(patch)}
    if clean != patch:
        prepared.metadata[PATCH] = patch
        entry["scrubbed"] = True
        result.note("collect_artifacts", "artifact_scrubbed", "the model patch held a secret, which was masked")
    result.artifacts[PATCH] = entry


def stored_patch(prepared: PreparedTask, result: RunResult) -> bytes | None:
    """Return the attempt's model patch; None when none was taken."""
    if PATCH not in result.artifacts:
        return None
    if isinstance(unmasked := prepared.metadata.get(PATCH), bytes):
        return unmasked
    try:
        return (_artifacts(current_attempt()) / PATCH).read_bytes()
    except FileNotFoundError:
        return None


def _artifacts(attempt: AttemptContext) -> Path:
    return attempt.directory / "artifacts"


def fail_unapplied(result: RunResult, mode: FailureMode, message: str) -> RunResult:
    """Grade an attempt whose patch is not there or does not apply: not resolved, and no test was run."""
    result.fail(mode, "evaluate", message)
    result.metrics.update(resolved=False, partial=0.0)
    return result


def flag(result: RunResult, code: str, message: str, severity: str = "warning") -> None:
    """Put an integrity flag on the record; the verdict stays."""
    flags = result.metadata.setdefault("integrity", [])
    if {"code": code, "message": message} not in flags:
        flags.append({"code": code, "message": message})
        result.note("evaluate", code, message, severity)


async def evaluate_patch(
    env: EnvironmentSession, row: Row, patch: bytes, result: RunResult, limit: float | None
) -> RunResult:
    """Fill *result* with the verdict on *patch* in the fresh sandbox *env*.

    Raises EvaluationError when the log allows no verdict; a patch that does not apply and tests that run
    out of time are the agent's failures.
    """
    begun = time.monotonic()
    for code, message in patch_flags(patch, row.test_patch.encode("utf-8", "surrogateescape")):
        flag(result, code, message)
    applied = await apply_patch(env, patch, None)
    current_attempt().write_log("apply_patch.txt", applied.output)
    if applied.command is None:
        result.verifier_output = applied.output[-_SHOWN:]
        return fail_unapplied(result, FailureMode.PATCH_NOT_APPLIED, _why_refused(applied))
    own = result.metadata.setdefault("swebench", {})
    own["applied_with"] = applied.command
    if applied.conflicts:
        text = f"git apply --3way left conflict marks in {', '.join(applied.conflicts[:5])}, and the tests ran on them"
        flag(result, "patch_conflict", text)
    done = await _run_script(
        env, row, None if limit is None else limit - max(0.0, time.monotonic() - begun - _APPLY_GRACE)
    )
    log = done.stdout
    result.verifier_output = _test_part(log)[-_SHOWN:]
    if done.truncated:
        result.note("evaluate", "output_cut", f"the test output is over {_OUTPUT_BYTES} bytes; its middle was cut")
    if done.timed_out:
        current_attempt().write_log("test_output.txt", f"{log}\n\nTimeout error: {limit:g} seconds exceeded.")
        return fail_unapplied(result, FailureMode.TEST_TIMEOUT, f"the tests did not end within {limit:g} s")
    current_attempt().write_log("test_output.txt", log)
    if done.returncode in (126, 127) and START_MARKER not in log:
        raise EvaluationError(f"the eval script was not started: {log[-_SHOWN:]}", "verifier_not_started")
    return _take(grade(log, row, lambda text: parse_log(row.log_parser, text, row)), row, log, result)


def _why_refused(applied: Applied) -> str:
    errors = [line for line in applied.output.split("\n") if line.startswith(("error:", "fatal:", "patch:"))]
    detail = "; ".join(dict.fromkeys(errors[:3])) or applied.output.strip()[-300:]
    return f"none of git apply, git apply --3way, git apply --reject and patch takes the patch: {detail}"


async def _run_script(env: EnvironmentSession, row: Row, limit: float | None) -> ExecResult:
    """Run the eval script with both streams in one, in order (its markers go to the error stream)."""
    script = with_exit_code(row.eval_script)
    path = "/eval.sh"
    if env.local_workdir is not None:  # no container: the script's paths are the attempt's own
        path = f"{env.scratch_dir}/eval.sh"
        script = script.replace(WORKDIR, env.local_workdir)
    await env.write_text(path, script)
    current_attempt().write_log("eval.sh", script)
    command = ["/bin/bash", "-c", f"exec /bin/bash {path} 2>&1"]
    return await env.exec(command, timeout=None if limit is None else max(1.0, limit), output_limit=_OUTPUT_BYTES)


def _test_part(log: str) -> str:
    """Return what the tests printed: between the markers, without the lines that these stand on."""
    if START_MARKER not in log:
        return log
    return log.rpartition(START_MARKER)[2].partition("\n")[2].partition(END_MARKER)[0].rpartition("\n")[0]


def _take(verdict: Verdict, row: Row, log: str, result: RunResult) -> RunResult:
    own = result.metadata["swebench"]
    own["exit_code"] = verdict.exit_code
    reason = None if verdict.resolved else failure_reason(log)
    if reason is not None:
        own["failure_reason"], own["failure_of_environment"] = reason
    for code, message in verdict.notes:
        flag(result, code, message)
    _write_report(row, verdict, log)
    if verdict.invalid is not None:
        raise EvaluationError(f"{verdict.reason}:\n{_test_part(log)[-1500:].strip()}", verdict.invalid.value)
    required = [*row.fail_to_pass, *row.pass_to_pass]
    seen = verdict.statuses
    result.tests = {name: seen.get(name, "") for name in required if name in seen} | seen
    for name, lists in (("fail_to_pass", verdict.fail_to_pass), ("pass_to_pass", verdict.pass_to_pass)):
        own[name] = {"success": len(lists[0]), "failure": len(lists[1])}
    own["level"] = verdict.level
    result.metrics.update(resolved=verdict.resolved, partial=verdict.partial)
    _note_failures(verdict, result)
    return result


def _write_report(row: Row, verdict: Verdict, log: str) -> None:
    path = _artifacts(current_attempt()) / "report.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    report = instance_report(row.instance_id, verdict, log)
    path.write_text(clean_text(json.dumps(report, indent=4)) + "\n", encoding="ascii")


def _note_failures(verdict: Verdict, result: RunResult) -> None:
    """Say which required tests do not hold; absent ones are named as such."""
    for name, lists in (("FAIL_TO_PASS", verdict.fail_to_pass), ("PASS_TO_PASS", verdict.pass_to_pass)):
        bad = lists[1]
        if bad:
            shown = ", ".join(f"{test} ({verdict.statuses.get(test, 'absent')})" for test in bad[:5])
            more = f" and {len(bad) - 5} more" if len(bad) > 5 else ""
            text = f"{len(bad)} of {len(bad) + len(lists[0])} {name} tests do not pass: {shown}{more}"
            result.note("evaluate", "tests_failed", text, "info")
