"""Running an item of ours: phases, retries in a fresh environment, and what the reports say."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Literal

import pytest
from _pytest.runner import call_and_report  # the phase runner that pytest-rerunfailures uses as well

from ..contracts.outcome import Status
from ..contracts.record import AttemptRecord
from ..errors import AgentCompassError, SetupError
from ..execution.attempt import Attempt, AttemptStopped
from ..redaction import clean_text, plain
from ..reports.attempt_text import failure_text, reason
from .nodes import AttemptItem
from .settled import may_report_at_once, report_at_once, settle
from .state import ATTEMPT, as_ours, case_of, run_of

__all__: list[str] = []

When = Literal["setup", "call", "teardown"]
_NOT_RUN = (pytest.skip.Exception, pytest.xfail.Exception)  # what keeps an attempt from being made


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run an attempt: all its tries, one verdict."""
    if not isinstance(item, AttemptItem):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    try:
        _tries(item, nextitem)
    finally:
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _tries(item: AttemptItem, nextitem: pytest.Item | None) -> None:
    while True:
        if not item._request:  # listed twice
            item._initrequest()
        if settle(item):  # what is left is harmless: it need not run before the attempt
            harmless = item.config.getini("agentcompass_harmless_fixtures")
            item.fixturenames = [name for name in item.fixturenames if name in harmless]
            if may_report_at_once(item):
                report_at_once(item, nextitem)
                _forget(item)
                return
        reports = _phases(item)
        attempt = item.stash.get(ATTEMPT, None)
        again = _clone(item) if attempt is not None and attempt.retry_wait is not None else None
        teardown = call_and_report(item, "teardown", log=False, nextitem=again or nextitem)
        _share_keywords([*reports, teardown])
        _after(item)
        for report in reports:
            if again is not None and report.failed:
                report.outcome = "rerun"  # type: ignore[assignment]
            item.ihook.pytest_runtest_logreport(report=report)
        if again is None or teardown.failed:  # JUnit writers would make a test case of each teardown
            item.ihook.pytest_runtest_logreport(report=teardown)
        if again is None:
            _forget(item)
            return
        assert attempt is not None
        again.stash[ATTEMPT] = run_of(item.config).portal.call(attempt.next_try)
        _forget(item)
        item = again


def _share_keywords(reports: list[pytest.TestReport]) -> None:
    """Let the reports of an item have one mapping of its keywords: pytest keeps them all to the end."""
    for report in reports[1:]:
        if report.keywords == reports[0].keywords:
            report.keywords = reports[0].keywords


def _forget(item: pytest.Function) -> None:
    """Let the attempt and the fixtures' values go, as pytest's own protocol does: items live as long as the session."""
    if ATTEMPT in item.stash:
        del item.stash[ATTEMPT]
    item._request = False  # type: ignore[assignment]
    item.funcargs = None  # type: ignore[assignment]


def _phases(item: AttemptItem) -> list[pytest.TestReport]:
    """Run set-up and call; an interrupt is noted on the attempt's record before it goes on."""
    try:
        reports = [call_and_report(item, "setup", log=False)]
        if (
            reports[0].passed
            and not item.config.getoption("setuponly", False)
            and not item.config.getoption("setupplan", False)
        ):
            reports.append(call_and_report(item, "call", log=False))
    except BaseException as interrupt:
        _interrupted(item, interrupt)
        raise
    return reports


def _interrupted(item: pytest.Item, interrupt: BaseException) -> None:
    attempt = item.stash.get(ATTEMPT, None)
    if attempt is not None and attempt.record is None and not attempt.abandoned:
        if attempt.status is None:
            attempt.stop(KeyboardInterrupt())
        attempt.finish()


def _after(item: pytest.Item) -> None:
    """Release what no fixture released (a sandbox of the evaluation, an overridden fixture's leftovers)."""
    attempt = item.stash.get(ATTEMPT, None)
    if attempt is not None and not attempt.released:
        run_of(item.config).portal.call(attempt.release)


def _clone(item: AttemptItem) -> AttemptItem:
    """Return a fresh node for the next try, with everything that plugins may have put on the old one."""
    again = AttemptItem.make(item.parent, item.request_node, item.number)  # type: ignore[arg-type]
    again.own_markers[:] = item.own_markers
    again.user_properties = item.user_properties
    for name, value in vars(item).items():
        vars(again).setdefault(name, value)
    return again


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Make the report say what the record says, in plain data that any wire can carry."""
    report = yield
    if case_of(item) is not None:
        attempt = item.stash.get(ATTEMPT, None)
        if attempt is None and call.excinfo is not None and run_of(item.config).context is not None:
            # a mark or a fixture of the user's own ended it before our first fixture: that is a record too
            attempt = item.stash[ATTEMPT] = run_of(item.config).make_attempt(item)
        if attempt is not None and attempt.abandoned:
            _shape_abandoned(report, call)
        elif attempt is not None and call.when != "teardown":
            if isinstance(item, AttemptItem):
                _shape(item, attempt, report, call)
            else:
                _shape_own(item, attempt, report, call)
        elif attempt is not None and attempt.record is not None and item.config.getoption("xmlpath", None):
            _properties(attempt.record, report)  # pytest's JUnit file takes them from the report of the teardown
        _clean(report)
    return report


def _shape_abandoned(report: pytest.TestReport, call: pytest.CallInfo[Any]) -> None:
    """The run was stopped while the attempt waited to start: it has no record and stays pending."""
    if call.excinfo is not None and call.when != "teardown":
        report.outcome = "skipped"
        report.longrepr = (report.location[0], 1, f"Skipped: not started: {call.excinfo.value}")


def _shape(item: AttemptItem, attempt: Attempt, report: pytest.TestReport, call: pytest.CallInfo[Any]) -> None:
    error = call.excinfo.value if call.excinfo else None
    if error is None and call.when == "setup":
        return
    theirs = error is not None and not isinstance(error, AgentCompassError)
    foreign, late = theirs and attempt.record is None, theirs and attempt.record is not None
    if foreign:
        _stop_for(attempt, error, call.when)
    record = attempt.conclude()
    if attempt.unstored:
        _shape_unstored(item, attempt, report)
        return
    _properties(record, report)
    outcome = record.outcome
    if late and not isinstance(error, _NOT_RUN):
        _shape_late(report, call, f"{outcome}, its record stands: {_path(attempt, record)}")
        return
    if _expected(report, call, outcome):
        if outcome == "failed":
            report.longrepr = failure_text(record, _path(attempt, record))
        return
    vars(report).pop("wasxfail", None)
    if foreign and isinstance(error, _NOT_RUN) and outcome == "skipped":
        return
    if foreign and call.when == "setup":
        report.longrepr = f"{_crash(report)}\n{report.longrepr}\nrecord: {_path(attempt, record)}"
        return
    report.outcome = {"passed": "passed", "skipped": "skipped"}.get(outcome, "failed")  # type: ignore[assignment]
    if outcome == "passed":
        report.longrepr = None
    elif outcome == "skipped":
        report.longrepr = (str(item.path), 1, f"Skipped: {reason(record)}")
    else:
        report.longrepr = failure_text(record, _path(attempt, record))
        if outcome == "error":
            report.when = "setup"  # an infrastructure error is an error in every report, not a failure


def _shape_late(report: pytest.TestReport, call: pytest.CallInfo[Any], attempt: str) -> None:
    """Something of the user's (a hook) failed where the attempt has its record already: it is said beside it."""
    vars(report).pop("wasxfail", None)  # what was expected to fail is the agent
    report.outcome, report.when = "failed", "setup"
    report.longrepr = f"{_crash(report)}\n{report.longrepr}\na hook failed in {call.when}; the attempt {attempt}"


def _path(attempt: Attempt, record: AttemptRecord) -> str:
    folder = attempt.run_context.directory.attempt_dir(record.request, record.task_id, record.attempt)
    return f"{folder}/record.json"


def _shape_unstored(item: pytest.Item, attempt: Attempt, report: pytest.TestReport) -> None:
    """The attempt's record could not be stored, so it counts as not made: an error, and the run ends here."""
    report.outcome, report.when = "failed", "setup"
    report.longrepr = f"the attempt was made, but its record could not be stored: {attempt.unstored}"
    item.session.shouldstop = f"agentcompass: {attempt.run_context.admission.breaker.reason}"


def _stop_for(attempt: Attempt, error: BaseException | None, when: str) -> None:
    """Take an exception that is none of ours as the attempt's end: a skip, a fixture's fault, something in the body."""
    assert error is not None
    if isinstance(error, _NOT_RUN):
        attempt.stop(as_ours(error))
    elif when == "setup":
        attempt.stop(SetupError(f"a fixture or a hook failed: {type(error).__name__}: {error}"))
    else:
        attempt.stop(error)


def _expected(report: pytest.TestReport, call: pytest.CallInfo[Any], outcome: str) -> bool:
    """Whether pytest's reading of an xfail mark stands: it is about the agent's failures, never about missing data."""
    if hasattr(report, "wasxfail"):
        unmade = call.excinfo is not None and isinstance(call.excinfo.value, pytest.xfail.Exception)
        return outcome in ("passed", "failed", *(["skipped"] if unmade else []))
    return report.failed and call.excinfo is None and outcome == "passed"  # strict, and it passed


def _crash(report: pytest.TestReport) -> str:
    return str(getattr(getattr(report.longrepr, "reprcrash", None), "message", "")).partition("\n")[0]


def _shape_own(item: pytest.Item, attempt: Attempt, report: pytest.TestReport, call: pytest.CallInfo[Any]) -> None:
    """A test of the user's own: pytest's outcome stands; without `evaluate()` it is the verdict too."""
    if call.when == "setup" and call.excinfo is None:
        return
    error = call.excinfo.value if call.excinfo else None
    if attempt.record is None:
        foreign = error is not None and not isinstance(error, AttemptStopped)
        if foreign and (call.when == "setup" or isinstance(error, pytest.skip.Exception)):
            _stop_for(attempt, error, call.when)
        elif not attempt.evaluated and attempt.status is None:
            contract = attempt.context.benchmark.metric_contract
            attempt.result.metrics = {contract.primary: error is None}
            attempt.evaluated = True
    record = attempt.finish()
    if attempt.unstored:
        _shape_unstored(item, attempt, report)
        return
    _properties(record, report)
    if isinstance(error, AttemptStopped):
        report.longrepr = failure_text(record, _path(attempt, record))
        if record.status is Status.SKIPPED:
            report.outcome = "skipped"
            report.longrepr = (report.location[0], 1, f"Skipped: {reason(record)}")
        else:
            report.when = "setup"


def _properties(record: AttemptRecord, report: pytest.TestReport) -> None:
    report.user_properties.extend(
        [
            ("agentcompass_outcome", record.outcome),
            ("agentcompass_failure_mode", record.failure_mode.value),
            ("agentcompass_score", "" if record.score is None else str(record.score)),
            ("agentcompass_seconds", f"{record.seconds:.3f}"),
        ]
    )


def _clean(report: pytest.TestReport) -> None:
    """Turn everything that leaves this process into plain, valid, scrubbed data.

    A Path, a str subclass or a lone surrogate in a report kills an xdist worker, and the test vanishes.
    """
    report.user_properties = [(clean_text(str(name)), plain(value)) for name, value in report.user_properties]
    report.sections = [(clean_text(str(name)), clean_text(str(text))) for name, text in report.sections]
    if isinstance(report.longrepr, str):
        report.longrepr = clean_text(report.longrepr)
    elif isinstance(report.longrepr, tuple):
        report.longrepr = (clean_text(str(report.longrepr[0])), report.longrepr[1], clean_text(str(report.longrepr[2])))
    elif report.longrepr is not None:
        report.longrepr = clean_text(str(report.longrepr))
