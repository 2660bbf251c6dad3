"""How attempts end: statuses, failure modes, issues, and what a command left behind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

__all__ = [
    "AGENT_MODES",
    "INFRASTRUCTURE_MODES",
    "SKIP_MODES",
    "ExecResult",
    "FailureMode",
    "Fault",
    "Issue",
    "RunResult",
    "Status",
    "Usage",
    "decisive_mode",
]


class Status(str, Enum):
    """The state of a finished attempt; a score of 0 is `completed`."""

    COMPLETED = "completed"
    RUN_ERROR = "run_error"
    EVAL_ERROR = "eval_error"
    RUN_ERROR_OR_EVAL_ERROR = "run_error_or_eval_error"
    SKIPPED = "skipped"


class Fault(str, Enum):
    """Who is at fault for a failure mode."""

    NONE = "none"
    AGENT = "agent"
    INFRASTRUCTURE = "infrastructure"
    NOBODY = "nobody"


class FailureMode(str, Enum):
    """The closed list of ways in which an attempt does not go as planned."""

    NONE = "none"
    # the agent's: graded, counts as not solved unless the grade says solved, never retried
    AGENT_TIMEOUT = "agent_timeout"
    AGENT_ERROR = "agent_error"
    CONTEXT_LENGTH = "context_length"
    OUTPUT_LENGTH = "output_length"
    MODEL_REFUSED = "model_refused"
    PARSE_ERROR = "parse_error"
    OUT_OF_MEMORY = "out_of_memory"
    EMPTY_PATCH = "empty_patch"
    PATCH_NOT_APPLIED = "patch_not_applied"
    TEST_TIMEOUT = "test_timeout"
    # the infrastructure's: missing data
    SETUP_ERROR = "setup_error"
    ENVIRONMENT_ERROR = "environment_error"
    MODEL_UNAVAILABLE = "model_unavailable"
    HARNESS_ERROR = "harness_error"
    VERIFIER_NOT_STARTED = "verifier_not_started"
    NO_REWARD = "no_reward"
    NO_TESTS = "no_tests"
    CONTRADICTION = "contradiction"
    EVALUATION_ERROR = "evaluation_error"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"
    # nobody's: skipped
    STRATEGY_SATISFIED = "strategy_satisfied"
    NO_SOLUTION = "no_solution"
    BUDGET_SPENT = "budget_spent"
    DEADLINE = "deadline"
    GATE_DECIDED = "gate_decided"
    SKIP_REQUESTED = "skip_requested"

    @property
    def fault(self) -> Fault:
        """Who is at fault."""
        if self is FailureMode.NONE:
            return Fault.NONE
        if self in AGENT_MODES:
            return Fault.AGENT
        return Fault.NOBODY if self in SKIP_MODES else Fault.INFRASTRUCTURE


_ORDER = list(FailureMode)
AGENT_MODES = frozenset(_ORDER[1 : _ORDER.index(FailureMode.SETUP_ERROR)])
INFRASTRUCTURE_MODES = frozenset(
    _ORDER[_ORDER.index(FailureMode.SETUP_ERROR) : _ORDER.index(FailureMode.STRATEGY_SATISFIED)]
)
SKIP_MODES = frozenset(_ORDER[_ORDER.index(FailureMode.STRATEGY_SATISFIED) :])
_INFRASTRUCTURE_CODES = frozenset(mode.value for mode in INFRASTRUCTURE_MODES)


def decisive_mode(mode: FailureMode, issues: Iterable[Mapping[str, Any]]) -> FailureMode:
    """Return why an attempt without a score has none; *mode* is its record's own, *issues* those of the record.

    They differ where an agent failed first (that stays the failure mode) and the infrastructure after it.
    """
    if mode.fault is Fault.AGENT:
        for issue in issues:
            if issue.get("severity") == "error" and issue.get("code") in _INFRASTRUCTURE_CODES:
                return FailureMode(issue["code"])
    return mode


@dataclass(slots=True)
class ExecResult:
    """What a command in a sandbox left.

    *returncode* is the foreground process's own (128 + signal number when a signal ended it; -1
    when it was stopped at its time limit). Output is decoded with replacement and capped: head and
    tail are kept and *truncated* is true. *out_of_memory*: the kernel killed it for memory.
    """

    returncode: int
    stdout: str = ""
    stderr: str = ""
    timed_out: bool = False
    truncated: bool = False
    out_of_memory: bool = False
    duration_seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether it ended by itself with status 0."""
        return self.returncode == 0 and not self.timed_out

    @property
    def output(self) -> str:
        """Standard output, then standard error."""
        if not self.stderr:
            return self.stdout
        return self.stdout + ("\n" if self.stdout and not self.stdout.endswith("\n") else "") + self.stderr


@dataclass(frozen=True, slots=True)
class Issue:
    """One thing that went wrong or is worth knowing: phase, severity, code, message."""

    phase: str
    severity: str
    code: str
    message: str


@dataclass(slots=True)
class Usage:
    """Tokens and money spent by the agent, and (`judge_...`) by a model that graded it.

    `None` where it is not known. Cost is in US dollars.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    cost_usd: float | None = None
    model_calls: int | None = None
    judge_input_tokens: int | None = None
    judge_output_tokens: int | None = None
    judge_cost_usd: float | None = None
    judge_calls: int | None = None

    def known(self) -> dict[str, int | float]:
        """Return what is known."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in values.items() if value is not None}

    def of_agent(self) -> dict[str, int | float]:
        """Return what is known of the agent's own spending."""
        return {name: value for name, value in self.known().items() if not name.startswith("judge_")}


@dataclass(slots=True)
class RunResult:
    """What an agent's run and its evaluation produced; mutable, as adapters expect.

    *metrics* holds the observations that the benchmark's contract declares; *tests* per-test
    statuses where the verifier tells them; *agent_output* and *verifier_output* the text that
    people look at first when an attempt failed.
    """

    task_id: str = ""
    status: Status = Status.COMPLETED
    category: str | None = None
    final_answer: Any = None
    ground_truth: Any = None
    trajectory: list[dict[str, Any]] | None = None
    issues: list[Issue] = field(default_factory=list)
    artifacts: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, bool | int | float] = field(default_factory=dict)
    telemetry: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    failure_mode: FailureMode = FailureMode.NONE
    usage: Usage = field(default_factory=Usage)
    tests: dict[str, str] = field(default_factory=dict)
    agent_output: str = ""
    verifier_output: str = ""

    def note(self, phase: str, code: str, message: str, severity: str = "warning") -> None:
        """Add an issue."""
        self.issues.append(Issue(phase, severity, code, message))

    def fail(self, mode: FailureMode | str, phase: str, message: str) -> None:
        """Set the failure mode, unless an earlier one stands, and note the reason."""
        mode = FailureMode(mode)
        if self.failure_mode is FailureMode.NONE:
            self.failure_mode = mode
        self.issues.append(Issue(phase, "error", mode.value, message))
