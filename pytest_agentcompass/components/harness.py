"""Harnesses: how an agent is started on a prepared task."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any, ClassVar

from ..contracts.plan import HarnessPlan

if TYPE_CHECKING:
    from pydantic import BaseModel

    from ..contracts.environment import EnvironmentSpec
    from ..contracts.outcome import RunResult
    from ..contracts.request import ModelSpec, RunRequest
    from ..contracts.task import PreparedTask, TaskSpec
    from .environment import EnvironmentSession

__all__ = ["BaseHarness"]


class BaseHarness(abc.ABC):
    """An agent under test. Every method may be sync (it runs in a thread) or async."""

    id: ClassVar[str] = ""
    version: ClassVar[str] = "1"
    params_model: ClassVar[type[BaseModel] | None] = None
    needs_model: ClassVar[bool] = False
    #: whether the agent itself calls the model out of the sandbox (its run policy must then let it)
    calls_model_from_sandbox: ClassVar[bool] = False
    #: False: it hands over what was made elsewhere, and no sandbox is opened for it where evaluation has its own
    needs_environment: ClassVar[bool] = True

    def params(self, req: RunRequest) -> Any:
        """Return the request's harness params, validated."""
        return self.params_model.model_validate(req.harness.params) if self.params_model else dict(req.harness.params)

    def supports(self, environment: EnvironmentSpec, model: ModelSpec) -> bool:
        """Whether the agent can work in such an environment with such a model."""
        return True

    def unavailable(self, task: TaskSpec, req: RunRequest) -> str | None:
        """Return why this harness cannot attempt *task* at all (it is then skipped, nothing opens), or None."""
        return None

    def build_plan(self, req: RunRequest, environment: EnvironmentSpec) -> HarnessPlan:
        """Return what the harness decides: pure, no I/O."""
        return HarnessPlan(
            inject_network_restriction_notice=req.harness.inject_network_restriction_notice,
            params=dict(req.harness.params),
        )

    async def start_session(self, env: EnvironmentSession | None, req: RunRequest, plan: HarnessPlan) -> Any:
        """Start (or install) the agent under the baseline policy and return a session object."""
        return env

    def endpoints(self, session: Any) -> list[str]:
        """Return what an agent inside the sandbox must reach while it works, as network entries (`host:port`).

        A restricted run policy lets these through as well, and the record says so.
        """
        return []

    @abc.abstractmethod
    async def run_task(self, session: Any, prepared: PreparedTask, req: RunRequest, plan: HarnessPlan) -> RunResult:
        """Let the agent work on the task until it is done.

        Raises `AgentFailure` for what is the agent's fault, `ModelUnavailable` for what is the
        endpoint's. Runs under the attempt's time limit: a cancelled run must end what it started.
        """

    async def close_session(self, session: Any) -> None:
        """End the agent's session; called exactly once, also after a failure."""
