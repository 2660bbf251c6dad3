"""Gates in a pytest run: options, early checks, the exit code, the last screen."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ..contracts.summary import Summary
from ..errors import AgentCompassError
from ..metrics.gates import (
    Gate,
    GateResult,
    PlannedRequest,
    check_gates,
    exit_code,
    parse_gate,
    parse_gates,
)
from ..reports.gates import gate_headline, gate_lines
from ..reports.github import workflow_commands, write_step_summary
from ..reports.judge import GateSet, judge
from ..results.baseline import read_baseline
from .early import EarlyStop
from .options import option
from .selection import collected, selection_reasons

if TYPE_CHECKING:
    from ..config.resolve import Suite
    from ..contracts.request import RunRequest
    from ..reports.summary import RequestResult
    from .session import AgentCompassRun

__all__ = ["GateKeeper"]

_REPLACED = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)  # pytest's other codes keep their meaning
_UNRESOLVED = ("failure", "skipped", "passed")
_NAMED = 3


class GateKeeper:
    """Evaluates the gates of an active run in its controller and decides the exit status.

    `Reporting` calls `decide` when outcomes are collected and before reports are written.
    """

    def __init__(self, run: AgentCompassRun) -> None:
        self.run = run
        self.results: list[GateResult] | None = None
        self.failed: list[str] = []
        self.broken_files: list[str] = []
        self.status: int | None = None
        self.early: EarlyStop | None = None
        self._suites: dict[Path, GateSet] = {}
        config = run.config
        try:
            self.gates = tuple(parse_gate(text) for text in option(config, "gate") or [])
            given = option(config, "baseline")
            self.baseline_path = str(config.invocation_params.dir / given) if given else None
            self.baseline = read_baseline(Path(self.baseline_path)) if self.baseline_path else None
            request = run.resolved.request
            if request is not None:
                self._check(self.gates, [self._planned(request.request)], self.baseline)
        except AgentCompassError as error:
            raise pytest.UsageError(error.message) from None
        self.unresolved = option(config, "gate-unresolved")
        if self.unresolved not in (None, *_UNRESOLVED):
            raise pytest.UsageError(
                f"--agentcompass-gate-unresolved takes {', '.join(_UNRESOLVED)}, not {self.unresolved!r}"
            )

    # -- before anything runs ------------------------------------------------------------------

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Check the gates of the suites now: a typing error must not cost a run."""
        planned: list[PlannedRequest] = []
        request = self.run.resolved.request
        try:
            for path in _suite_paths(self.run.config):
                planned += self._load(path)
            if request is None and planned:
                self._check(self.gates, planned, self.baseline)
            planned += [self._planned(request.request)] if request is not None else []
        except AgentCompassError as error:
            raise pytest.UsageError(error.message) from None
        if any(gate.settings.stop_when_decided for item in self._sets() for gate in item.gates):
            self.early = EarlyStop(self.run, self._sets, planned)
            session.config.pluginmanager.register(self.early, "agentcompass-early")

    def _sets(self) -> list[GateSet]:
        """Return all gates: those of the command line first, then suite by suite."""
        own = GateSet(self.gates, None, self.baseline, self.baseline_path, self.unresolved)
        return [*([own] if self.gates else []), *self._suites.values()]

    def _load(self, path: Path) -> list[PlannedRequest]:
        """Read the gates of the suite in *path* and return its requests; a broken suite is a collection error."""
        try:
            suite = self.run.resolved.read_suite(path)
        except AgentCompassError:
            return []
        requests = [item.request for item in suite.requests if hasattr(item, "request")]
        planned = [self._planned(request) for request in requests]
        if suite.gates:
            self._suites[path] = self._read(suite, tuple(request.name for request in requests))
            self._check(self._suites[path].gates, planned, self._suites[path].baseline)
        return planned

    def _read(self, suite: Suite, names: tuple[str, ...]) -> GateSet:
        found = parse_gates(suite.gates, str(suite.path))
        baseline, path = self.baseline, self.baseline_path
        if baseline is None and found.baseline is not None:
            path = str(suite.path.parent / found.baseline)
            baseline = read_baseline(Path(path))
        return GateSet(found.gates, names, baseline, path, self.unresolved or found.unresolved)

    def _planned(self, request: RunRequest) -> PlannedRequest:
        attempts, registry = request.execution.attempts, self.run.registry
        contract = registry.make("benchmark", request.benchmark.id).metric_contract
        strategy = registry.make("strategy", attempts.strategy)
        metrics = None if contract.open_scalars else frozenset(contract.metrics)
        return PlannedRequest(request.name, attempts.k, bool(getattr(strategy, "early_stop", False)), metrics)

    def _check(self, gates: Sequence[Gate], planned: Sequence[PlannedRequest], baseline: Summary | None) -> None:
        problems = check_gates(gates, planned, baseline is not None)
        if problems:
            raise AgentCompassError("\n".join(problems))

    # -- while it runs -------------------------------------------------------------------------

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Remember what could not be collected: such a run cannot be judged."""
        if report.failed and report.nodeid not in self.broken_files:
            self.broken_files.append(report.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember failures that no gate is about: tests of the user's own, fixtures that break at teardown."""
        if report.failed:
            outcome = dict(report.user_properties).get("agentcompass_outcome")
            ours = outcome in ("failed", "error") and report.when != "teardown"
            crashed = report.when not in ("setup", "call", "teardown")  # recorded as an infrastructure error
            if not ours and not crashed and report.nodeid not in self.failed:
                self.failed.append(report.nodeid)

    # -- the end -------------------------------------------------------------------------------

    def decide(self, session: pytest.Session, results: Sequence[RequestResult], lost: Sequence[str]) -> None:
        """Evaluate all gates on *results*, store their verdicts in run.json, and set the exit status.

        Must come before the reports are written: they show what is stored.
        """
        assert self.run.context is not None
        directory = self.run.context.directory
        suites, deselected = collected(directory.path)
        reasons = selection_reasons(self.run, deselected)
        stopped = session.shouldfail or session.shouldstop
        if stopped:
            reasons.append(f"the run was stopped early: {stopped}")
        directory.update_run_info(partial_reasons=reasons, shard=option(self.run.config, "shard"))
        self._keep(suites)
        sets, decided = self._sets(), self.early is not None and self.early.after is not None
        verdicts = judge(directory, results, sets, list(self._broken(lost)), decided)
        if not sets:
            return
        self.results = verdicts
        for item in verdicts:
            self.run.context.events.emit("gate_evaluated", status=item.verdict.value, gate=item.gate.text)
        self.status = self._status(int(session.exitstatus))
        session.exitstatus = self.status

    def _keep(self, suites: Sequence[Path]) -> None:
        """Keep the gates of the suites that were collected; one that no path named is read now."""
        for path in suites:
            if path not in self._suites:
                self._load(path)
        self._suites = {path: item for path, item in self._suites.items() if path in suites}

    def _broken(self, lost: Sequence[str]) -> Iterator[str]:
        if self.broken_files:
            yield f"{_count(self.broken_files, 'collection error')}: {_some(self.broken_files)}"
        if lost:
            yield f"{_count(lost, 'outcome')} planned but never reported: {_some(lost)}"

    def _status(self, status: int) -> int:
        assert self.results is not None
        if status not in _REPLACED:
            return status
        code = exit_code(self.results)
        return int(pytest.ExitCode.TESTS_FAILED) if code == 0 and self.failed else code

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> Generator[None, None, None]:
        """Show the gates below everything else that a run prints, and tell GitHub where it is there."""
        result = yield
        if self.run.context is None:
            self._show_nothing(session)
            return result
        if self.results is None and (self.gates or self._suites) and session.exitstatus in _REPLACED:
            session.exitstatus = self.status = 12  # what was to be judged never was: never green
        self._show(session)
        if os.environ.get("GITHUB_ACTIONS") == "true":
            self._github(session)
        return result

    def _show_nothing(self, session: pytest.Session) -> None:
        """Say that gates judged nothing where nothing was run."""
        terminal: Any = session.config.pluginmanager.getplugin("terminalreporter")
        empty = session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and not session.config.option.collectonly
        if empty and (self.gates or self._suites) and terminal is not None:
            terminal.section("gates", sep="=")
            code = f"exit code {int(session.exitstatus)} (pytest's own code stays)"
            terminal.write_line(f"INVALID: no attempt was run, so there is nothing to judge -> {code}", red=True)

    def _show(self, session: pytest.Session) -> None:
        terminal: Any = session.config.pluginmanager.getplugin("terminalreporter")
        if terminal is None or (self.results is None and self.status is None):
            return
        data = [item.to_dict() for item in self.results or []]
        terminal.section("gates", sep="=")
        if not data:
            terminal.write_line("INVALID: the gates could not be evaluated, since no reports could be made", red=True)
        for line in gate_lines(data, terminal._tw.fullwidth):
            terminal.write_line(line)
        verdict = gate_headline(data) if data else "INVALID"
        good = self.status == 0
        if self.early is not None and self.early.after is not None:
            terminal.write_line(
                f"decided after {self.early.after} of {len(self.early.planned)} attempts: the rest was not made"
            )
        for nodeid in self.failed[:_NAMED] if exit_code(self.results or []) == 0 else []:
            terminal.write_line(f"FAILED        {nodeid}: not an attempt's verdict, so no gate excuses it", red=True)
        terminal.write_line(f"{verdict} -> exit code {self._code_text(session)}", bold=True, green=good, red=not good)

    def _code_text(self, session: pytest.Session) -> str:
        code = int(session.exitstatus)
        if self.results is not None and code != exit_code(self.results):
            why = "other tests failed" if code == 1 else "pytest's own code stays"
            return f"{code} ({why})"
        return str(code)

    def _github(self, session: pytest.Session) -> None:
        assert self.run.context is not None
        directory = self.run.context.directory
        terminal: Any = session.config.pluginmanager.getplugin("terminalreporter")
        gates = [item.to_dict() for item in self.results or []]
        for line in workflow_commands(gates, directory.records()):
            terminal.write_line(line) if terminal is not None else print(line)
        target = os.environ.get("GITHUB_STEP_SUMMARY")
        problem = write_step_summary(Path(target), directory.path / "summary.md") if target else None
        if problem and terminal is not None:
            terminal.write_line(f"agentcompass: {problem}")


def _suite_paths(config: pytest.Config) -> list[Path]:
    """Return the suites below the paths of the command line, as far as they can be told without collecting."""
    found: dict[Path, None] = {}
    for argument in config.args:
        path = config.invocation_params.dir / str(argument).partition("::")[0]
        if path.is_dir():
            found.update(dict.fromkeys(sorted(path.rglob("*.agentcompass.yaml"))))
        elif path.name.endswith((".agentcompass.yaml", ".agentcompass.yml")) and path.is_file():
            found[path] = None
    return list(found)


def _count(items: Sequence[str], noun: str) -> str:
    return f"1 {noun}" if len(items) == 1 else f"{len(items)} {noun}s"


def _some(items: Sequence[str]) -> str:
    more = f" and {len(items) - _NAMED} more" if len(items) > _NAMED else ""
    return ", ".join(items[:_NAMED]) + more
