"""The one error tree of the package.

Every error carries its data as attributes and pickles (it may cross an xdist or process
boundary). A message says what is wrong, where, what is allowed and what to do.
"""

from __future__ import annotations

__all__ = [
    "AgentCompassError",
    "AgentFailure",
    "AttemptSkipped",
    "ConfigError",
    "EnvironmentGone",
    "EvaluationError",
    "HarnessError",
    "InfrastructureError",
    "MetricError",
    "ModelUnavailable",
    "PlanningError",
    "ResultsError",
    "SandboxError",
    "SetupError",
    "TaskLoadError",
    "nearest",
]


def nearest(name: str, known: object) -> str:
    """Return the `did you mean` tail of a message about an unknown *name*.

    *known* is an iterable of names; the nearest come first, the rest follow sorted.
    """
    import difflib

    names = sorted({str(item) for item in known})  # type: ignore[attr-defined]
    if not names:
        return "none are known"
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    rest = [item for item in names if item not in near]
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{hint}known: {', '.join(near + rest)}"


class AgentCompassError(Exception):
    """Base of all errors that this package raises on purpose."""

    failure_mode = "unknown"

    def __init__(self, message: str, **data: object) -> None:
        super().__init__(message)
        self.message = message
        for key, value in data.items():
            setattr(self, key, value)
        self._data = data

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self._data))


def _rebuild(kind: type[AgentCompassError], message: str, data: dict[str, object]) -> AgentCompassError:
    return kind(message, **data)


class ConfigError(AgentCompassError):
    """Something a person wrote (a word, a file, a setting) cannot be used."""

    failure_mode = "setup_error"


class TaskLoadError(ConfigError):
    """A dataset, a task directory or a row cannot be read; names file, line or field."""


class PlanningError(ConfigError):
    """An attempt cannot be planned: a recipe or a component refused the request."""


class MetricError(AgentCompassError):
    """An observation breaks its benchmark's metric contract."""

    failure_mode = "evaluation_error"


class ResultsError(AgentCompassError):
    """A run directory cannot be used (locked, foreign, newer schema)."""


class AttemptSkipped(AgentCompassError):
    """An attempt cannot or need not be made; never an error and never a score."""

    failure_mode = "no_solution"

    def __init__(self, message: str, failure_mode: str = "no_solution", **data: object) -> None:
        super().__init__(message, failure_mode=failure_mode, **data)


class InfrastructureError(AgentCompassError):
    """Missing data: the attempt says nothing about the agent.

    *failure_mode* is one of the infrastructure modes of `contracts.outcome.FailureMode`.
    """

    failure_mode = "environment_error"

    def __init__(self, message: str, failure_mode: str | None = None, **data: object) -> None:
        super().__init__(message, failure_mode=failure_mode or type(self).failure_mode, **data)


class SetupError(InfrastructureError):
    """The attempt's sandbox or task could not be set up."""

    failure_mode = "setup_error"


class SandboxError(InfrastructureError):
    """An engine or a sandbox did not do what it was asked (image, engine, daemon)."""

    failure_mode = "environment_error"


class EnvironmentGone(SandboxError):
    """The sandbox of a running attempt does not exist any more.

    `partial`, where it is set, is the ExecResult of the command that ran, with the output that came before.
    """


class ModelUnavailable(InfrastructureError):
    """The model endpoint refused for a reason that is not the agent's."""

    failure_mode = "model_unavailable"


class HarnessError(InfrastructureError):
    """The harness adapter itself failed (not the agent)."""

    failure_mode = "harness_error"


class EvaluationError(InfrastructureError):
    """The verifier gave no trustworthy verdict: no score, never 0.

    *failure_mode*: `evaluation_error`, `verifier_not_started`, `no_reward`, `no_tests`
    or `contradiction`.
    """

    failure_mode = "evaluation_error"


class AgentFailure(AgentCompassError):
    """The agent under test failed; the attempt is graded and never retried.

    *failure_mode*: one of the agent modes of `contracts.outcome.FailureMode`.
    """

    failure_mode = "agent_error"

    def __init__(self, message: str, failure_mode: str = "agent_error", **data: object) -> None:
        super().__init__(message, failure_mode=failure_mode, **data)
