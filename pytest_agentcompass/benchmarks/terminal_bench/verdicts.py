"""TB1 verdicts: a report, the printed output and the script's status must agree, or there is none."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ...errors import EvaluationError
from .junit import read_junit
from .pytest_text import PytestText, read_pytest_text, strip_control

__all__ = ["Evidence", "Verdict", "judge", "short_names", "tail"]

_BAD = ("failed", "error", "xpassed")


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a verifier script left: its output and status, and the report of its own pytest.

    *reliable*: a report must be there if pytest ran at all.
    """

    output: str
    returncode: int
    report: bytes | None = None
    reliable: bool = False


@dataclass(slots=True)
class Verdict:
    """Whether the task is solved, the statuses by test name, and notes (code, message)."""

    correct: bool
    tests: dict[str, str]
    counts: dict[str, int] = field(default_factory=dict)
    notes: list[tuple[str, str]] = field(default_factory=list)


def tail(text: str, lines: int = 3, width: int = 200) -> str:
    """Return the last *lines* of *text*, printable, as the end of a message."""
    last = [line[:width] for line in strip_control(text[-20_000:]).rstrip().split("\n")[-lines:]]
    return "last lines of the output:\n  " + "\n  ".join(last) if any(last) else "there was no output"


def judge(parser: str, evidence: Evidence) -> Verdict:
    """Return the verdict of a task's *parser*.

    Raises EvaluationError with the mode `no_tests`, `contradiction`, `verifier_not_started` or
    `evaluation_error`.
    """
    readers: dict[str, Callable[[Evidence], Verdict]] = {
        "pytest": _pytest,
        "swebench": lambda given: _marked("swebench", given),
        "sweperf": lambda given: _marked("sweperf", given),
        "mlebench": _mlebench,
        "swelancer": _swelancer,
    }
    verdict = readers[parser](evidence)
    if verdict.correct and evidence.returncode != 0:
        raise EvaluationError(
            f"all tests passed, but the test script ended with status {evidence.returncode}; {tail(evidence.output)}",
            "contradiction",
        )
    return verdict


def _pytest(evidence: Evidence) -> Verdict:
    text = read_pytest_text(evidence.output)
    report = None if evidence.report is None else read_junit(evidence.report)
    _check_report(text, report, evidence)
    tests, counts = _merge(text, report)
    notes = [("unnamed_tests", _unnamed(text))] if report is None and _unnamed(text) else []
    if not (text.runs or report is not None):
        tests, counts = dict(text.loose), dict(Counter(text.loose.values()))
    if sum(counts.values()) == counts.get("skipped", 0):
        raise _nothing_ran(counts, evidence)
    bad = any(counts.get(status) for status in _BAD)
    claimed = any(status in _BAD for status in text.loose.values())
    if claimed and not bad:
        raise EvaluationError(
            f"pytest passed, but a summary that the test script printed says otherwise: {text.loose!r:.300}",
            "contradiction",
        )
    return Verdict(not bad, short_names(tests), counts, notes)


def _check_report(text: PytestText, report: dict[str, str] | None, evidence: Evidence) -> None:
    """Raise EvaluationError where report and printed output cannot both be true."""
    broken = [run for run in text.runs if not run.finished]
    if report is None:
        if evidence.reliable and text.framed:
            raise EvaluationError(
                f"pytest started but left no report, so it did not come to its end; {tail(evidence.output)}",
                "contradiction",
            )
        if broken:
            raise EvaluationError(f"a run of pytest did not come to its end; {tail(evidence.output)}")
        return
    counted = [run.counts for run in text.runs if run.counts is not None]
    failed = any(status in ("failed", "error") for status in report.values())
    agree = [bool(counts.get("failed") or counts.get("error")) == failed for counts in counted]
    if counted and not any(agree):
        raise EvaluationError(
            f"pytest's report says {_said(Counter(report.values()))}, its output says {_said(Counter(counted[-1]))}",
            "contradiction",
        )


def _said(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {status}" for status, count in sorted(counts.items()) if count) or "no tests"


def _merge(text: PytestText, report: dict[str, str] | None) -> tuple[dict[str, str], dict[str, int]]:
    """Return statuses by node id and counts of all runs; the report stands for the last run."""
    tests: dict[str, str] = {}
    counts: Counter[str] = Counter()
    runs = text.runs
    for run in runs if report is None else runs[:-1]:
        _add(tests, run.tests)
        counts.update(run.counts if run.counts is not None else Counter(run.tests.values()))
    if report is not None:
        last = runs[-1] if runs else None
        against = {name for name, status in (last.tests if last else {}).items() if status == "xpassed"}
        final = {
            name: "xpassed" if name in against and status == "passed" else status for name, status in report.items()
        }
        _add(tests, final)
        counts.update(final.values())
        counts["xpassed"] = max(counts["xpassed"], (last.counts or {}).get("xpassed", 0) if last else 0)
    return tests, {status: count for status, count in counts.items() if count}


def _add(tests: dict[str, str], more: dict[str, str]) -> None:
    order = ("passed", "xfailed", "skipped", "xpassed", "failed", "error")
    for name, status in more.items():
        if name not in tests or order.index(status) > order.index(tests[name]):
            tests[name] = status


def _unnamed(text: PytestText) -> str:
    total: Counter[str] = Counter()
    for run in text.runs:
        total.update(run.unnamed)
    return f"the output does not name all tests: {_said(total)} more" if total else ""


def _nothing_ran(counts: dict[str, int], evidence: Evidence) -> EvaluationError:
    if evidence.returncode in (126, 127) and not counts:
        return EvaluationError(
            f"the test script could not run (status {evidence.returncode}); {tail(evidence.output)}",
            "verifier_not_started",
        )
    what = f"all {counts['skipped']} tests were skipped" if counts else "no test ran"
    return EvaluationError(
        f"{what}: nothing was verified (status {evidence.returncode}); {tail(evidence.output)}", "no_tests"
    )


def short_names(tests: dict[str, str]) -> dict[str, str]:
    """Return *tests* by what follows the first `::` of the node id, or by the whole id where two would clash.

    A collection error has no `::`; its name is that of the file.
    """
    short = Counter(_short(name) for name in tests)
    return {(_short(name) if short[_short(name)] == 1 else name): status for name, status in tests.items()}


def _short(name: str) -> str:
    return name.partition("::")[2] or (name.rpartition("/")[2] if name.endswith(".py") else name)


def _marked(parser: str, evidence: Evidence) -> Verdict:
    """Return the word between the marker lines; all pairs must say the same."""
    words = set(_between(strip_control(evidence.output), parser))
    if not words:
        raise _nothing(parser, "its start and end markers were not printed", evidence)
    if len(words) > 1:
        raise EvaluationError(
            f"parser {parser}: the output holds different results: {sorted(words)!r:.300}", "contradiction"
        )
    word = words.pop()
    if word not in ("PASSED", "FAILED"):
        raise _nothing(parser, f"between the markers stands {word!r:.200}, neither PASSED nor FAILED", evidence)
    return _one(word == "PASSED")


def _between(text: str, name: str) -> Iterator[str]:
    """Yield what stands between each start line and the end line that follows it."""
    inside: list[str] | None = None
    for line in text.split("\n"):
        lower = line.lower().replace("-", "")
        if f"{name} results starts here" in lower:
            inside = []
        elif f"{name} results ends here" in lower and inside is not None:
            yield "\n".join(inside).strip()
            inside = None
        elif inside is not None:
            inside.append(line)


def _mlebench(evidence: Evidence) -> Verdict:
    text = strip_control(evidence.output)
    if re.search(r"ALL TESTS PASSED", text):
        return _one(True)
    if re.search(r"FAILED|results ends here", text, re.IGNORECASE):
        return _one(False)
    raise _nothing("mlebench", "neither 'ALL TESTS PASSED' nor a failure was printed", evidence)


def _swelancer(evidence: Evidence) -> Verdict:
    text = strip_control(evidence.output).lower()
    success, failure = "swe lancer success" in text, "swe lancer failure" in text
    if success and failure:
        raise EvaluationError("parser swelancer: the output says both success and failure", "contradiction")
    if success or failure:
        return _one(success)
    if "user_tool" in text and "completed" in text:
        return _one(True)
    raise _nothing("swelancer", "neither success nor failure was printed", evidence)


def _one(passed: bool) -> Verdict:
    status = "passed" if passed else "failed"
    return Verdict(passed, {"tests": status}, {status: 1})


def _nothing(parser: str, why: str, evidence: Evidence) -> EvaluationError:
    mode = "verifier_not_started" if evidence.returncode in (126, 127) else "no_tests"
    return EvaluationError(f"parser {parser}: {why} (status {evidence.returncode}); {tail(evidence.output)}", mode)
