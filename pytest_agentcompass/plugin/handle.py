"""What a test or an item gets to drive its attempt: the fixture `agentcompass_attempt`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import AgentCompassError

if TYPE_CHECKING:
    from ..contracts.outcome import RunResult
    from ..contracts.record import AttemptRecord
    from ..execution.attempt import Attempt
    from ..execution.portal import Portal

__all__ = ["AttemptHandle", "AttemptNotPassed"]


class AttemptNotPassed(AgentCompassError):
    """The attempt was graded and did not pass."""


class AttemptHandle:
    """One attempt: `run()` lets the agent work, `evaluate()` grades it, `record` is the stored record."""

    def __init__(self, attempt: Attempt, portal: Portal) -> None:
        self.attempt = attempt
        self._portal = portal

    def run(self) -> RunResult:
        """Let the agent work and return its result."""
        return self._portal.call(self.attempt.run)

    def evaluate(self) -> RunResult:
        """Grade what the agent left and return the result with its metrics."""
        if self.attempt.restored:
            self._portal.call(self.attempt.make_plan)
        return self._portal.call(self.attempt.evaluate)

    def run_and_evaluate(self) -> RunResult:
        """Let the agent work, grade what it left, and return the result."""
        return self._portal.call(self.attempt.run_and_evaluate)

    @property
    def record(self) -> AttemptRecord:
        """The attempt's record (stored now, if it was not yet)."""
        return self.attempt.conclude()

    @property
    def passed(self) -> bool:
        """Whether the attempt passed."""
        return self.record.outcome == "passed"

    def require_passed(self) -> None:
        """Raise AttemptNotPassed unless the attempt passed."""
        if not self.passed:
            raise AttemptNotPassed(f"outcome: {self.record.outcome}")

    def call(self, function: Any, *args: Any) -> Any:
        """Await `function(*args)` (a method of the sandbox, say) from sync code."""
        return self._portal.call(function, *args)
