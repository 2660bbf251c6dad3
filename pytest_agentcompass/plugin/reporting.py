"""The controller's view: which outcomes arrived, what is missing, the reports, the last screen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from ..errors import AgentCompassError
from ..redaction import clean_text
from ..reports.extra import write_extra_reports
from ..reports.text import problems, request_table, rerun_hint, results_lines
from ..reports.write import collect_results, write_files
from ..results.layout import escape_id
from .selection import adopt_requests
from .settled import is_last_report

if TYPE_CHECKING:
    from ..contracts.metrics import MetricContract
    from ..reports.summary import RequestResult
    from .session import AgentCompassRun

__all__ = ["Reporting"]


def _stopped(session: pytest.Session, status: int) -> bool:
    return bool(session.shouldfail or session.shouldstop) or status == pytest.ExitCode.INTERRUPTED


def _redden(session: pytest.Session) -> None:
    """Let no run look green whose outcomes are not whole; pytest's other codes keep their meaning."""
    if session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _tail(nodeid: str) -> str:
    """Return request, task and attempt of an item of ours."""
    return "::".join(nodeid.rsplit("::", 3)[-3:])


class Reporting:
    """Compare what was planned with what arrived, write the reports, decide the exit status."""

    def __init__(self, run: AgentCompassRun) -> None:
        self.run = run
        self.planned: Counter[str] = Counter()
        self.done: Counter[str] = Counter()
        self.results: list[RequestResult] = []
        self.files: list[str] = []
        self.lost: list[str] = []
        self._interrupted = False
        self.duplicates: list[str] = []
        self.removed = False
        self.gone: list[str] = []
        self.failed_reports = ""
        self._finalized: dict[str, Mapping[str, Any]] = {}

    # -- what is planned and what arrives ------------------------------------------------------

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Remember the plan of a run without workers."""
        if session.items:
            self.planned = Counter(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: list[str]) -> None:
        """Remember the plan of a run with workers."""
        self.planned = Counter(ids)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count the outcomes that arrive; a crashed worker's report has no proper `when`."""
        if report.outcome == "rerun":  # type: ignore[comparison-overlap]
            return
        crashed = report.failed and report.when not in ("setup", "call", "teardown")
        if crashed or is_last_report(report):
            self.done[report.nodeid] += 1
        if crashed:
            self._crashed(report)

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, Any] | None:
        """Show a discarded try as pytest-rerunfailures shows its reruns."""
        if report.outcome == "rerun":  # type: ignore[comparison-overlap]
            return "rerun", "R", ("RERUN", {"yellow": True})
        return None

    def _crashed(self, report: pytest.TestReport) -> None:
        """Record an attempt whose worker died."""
        from .crash import record_lost

        if self.run.context is not None:
            record_lost(self.run, report.nodeid, "its worker process died in the middle of the attempt")

    # -- the end -------------------------------------------------------------------------------

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self) -> None:
        """Remember it: a second interrupt, while pytest shows the first, loses the exit status."""
        self._interrupted = True

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> Generator[None, None, None]:
        """Write the reports and set the exit status; nothing raised here may reach pytest.

        pytest would show a bare traceback and lose its own summary; the records are on disk, and the
        reports can be rebuilt from them.
        """
        if self.run.context is not None:
            try:
                self._finish(session, int(exitstatus))
            except AgentCompassError as error:
                self._fail_reports(session, error.message)
            except Exception as error:
                self._fail_reports(session, f"{type(error).__name__}: {error}")
        return (yield)

    def _fail_reports(self, session: pytest.Session, message: str) -> None:
        self.failed_reports = clean_text(message)
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED

    def _finish(self, session: pytest.Session, status: int) -> None:
        assert self.run.context is not None
        self._guard(session, status)
        adopt_requests(self.run)
        cut = self._interrupted or status == pytest.ExitCode.INTERRUPTED
        self.run.write_run_info("interrupted" if cut else "finished")
        self.results = collect_results(self.run.context.directory, contracts=self.contracts(), aggregate=self.aggregate)
        self._look_for_records(session, status)
        if self.run.gates is not None:
            self.run.gates.decide(session, self.results, [*self.lost, *self.duplicates, *self.gone])
        self.files = [path.name for path in write_files(self.run.context.directory, self.results)]
        self.finalize(self.results)
        self.run.context.events.emit("run_finished", status=str(int(session.exitstatus)))
        extra = write_extra_reports(self.run.context.directory, self.results, self.run.registry, self.run.requests)
        self.files += [path.name for path in extra]

    def finalize(self, results: Sequence[RequestResult]) -> None:
        """Tell by hook and event that requests are over; once, unless what is told changed."""
        assert self.run.context is not None
        for result in results:
            if self._finalized.get(result.name) != result.report:
                report, status = dict(result.report), result.report["status"]
                self.run.config.hook.pytest_agentcompass_request_finalized(request=result.name, report=report)
                self.run.context.events.emit("request_finalized", request=result.name, status=status)
                self._finalized[result.name] = result.report

    def contracts(self) -> dict[str, MetricContract]:
        """Return the metric contract of each known request."""
        make = self.run.registry.make
        return {
            name: make("benchmark", request.benchmark.id).metric_contract for name, request in self.run.requests.items()
        }

    def aggregate(self, name: str, report: dict[str, Any]) -> dict[str, Any]:
        """Let the benchmark have its say; what it raises costs its own figures, not the report."""
        request = self.run.requests.get(name)
        if request is None:
            return report
        benchmark = self.run.registry.make("benchmark", request.benchmark.id)
        try:
            return dict(benchmark.aggregate_metrics(dict(report), request))
        except Exception as error:  # an extension's fault must not lose the reports
            note = f"benchmark {request.benchmark.id!r}: aggregate_metrics failed: {type(error).__name__}: {error}"
            return {**report, "notes": [*report.get("notes", []), note]}

    def _guard(self, session: pytest.Session, status: int) -> None:
        """Fail the run when an outcome that was planned never arrived: it must not look green."""
        self.duplicates = sorted(nodeid for nodeid, count in self.planned.items() if count > 1)
        if not _stopped(session, status) and not self.run.config.option.collectonly:
            self.lost = sorted((self.planned - self.done).elements())
        assert self.run.context is not None
        plan = self.run.context.directory.path / "planned.jsonl"
        self.removed = bool(self.planned) and not plan.exists()  # by an agent, or by another process
        if self.lost or self.duplicates or self.removed:
            _redden(session)

    def _look_for_records(self, session: pytest.Session, status: int) -> None:
        """Fail the run when an attempt was reported, and its record is not there any more."""
        stored = {(r.request, r.task_id, r.attempt) for result in self.results for r in result.records}
        planned = [item for result in self.results for item in result.planned]
        only_fixtures = self.run.config.getoption("setuponly", False)
        if len(stored) == len(planned) or only_fixtures or _stopped(session, status):
            return
        ends = {_tail(nodeid) for nodeid in self.done}
        names = {item: f"{escape_id(item[0])}::{escape_id(item[1])}::attempt{item[2]}" for item in planned}
        self.gone = [name for item, name in names.items() if item not in stored and name in ends]
        if self.gone:
            _redden(session)

    # -- the last screen -----------------------------------------------------------------------

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Show the table, what went wrong, where the results are and how to go on."""
        if self.run.context is None:
            return
        write = terminalreporter.write_line
        width = terminalreporter._tw.fullwidth
        shown = [result for result in self.results if result.planned or result.records]
        if shown or self.lost or self.failed_reports:
            terminalreporter.section("agentcompass", sep="=")
        if shown:
            reports = [result.report for result in shown]
            for line in request_table(reports, width):
                write(line)
            records = [record for result in shown for record in result.records]
            planned = [item for result in shown for item in result.planned]
            for line in problems(records, planned):
                write(line, red=True)
            for lines in self.run.config.hook.pytest_agentcompass_summary(reports=reports):
                for line in lines or []:
                    write(line)
        for nodeid in self.lost[:20]:
            write(f"LOST: {nodeid} was planned, but its outcome never arrived", red=True)
        for name in self.gone[:20]:
            write(f"LOST: {name} was reported, but its record is not there: was it removed during the run?", red=True)
        for nodeid in self.duplicates[:20]:
            write(f"DUPLICATE: {nodeid} was collected more than once", red=True)
        if self.removed:
            path = self.run.context.directory.path
            write(f"LOST: {path} was removed during the run, with records in it: run the command again", red=True)
        if self.failed_reports:
            write(f"the reports could not be written: {self.failed_reports}", red=True)
            path = self.run.context.directory.path
            write(f"the records are kept; to rebuild the reports: python -m pytest_agentcompass report {path}")
        if shown:
            for line in results_lines(str(self.run.context.directory.path), self.files):
                write(line)
            hint = rerun_hint([result.report for result in shown], self.run.context.run_id)
            if hint:
                write(hint)
            if any(record.outcome in ("failed", "error") for result in shown for record in result.records):
                write("to run only what failed: the same command with --lf")

    def pytest_report_header(self) -> list[str]:
        """Name the run at the top."""
        if self.run.context is None:
            return []
        return [f"agentcompass: run {self.run.context.run_id} in {self.run.context.directory.path}"]
