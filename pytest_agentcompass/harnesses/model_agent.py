"""What all agents of ours that call a model themselves have in common: params, counting, trajectory, time limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from ..components.context import current_attempt, keep_partial
from ..components.harness import BaseHarness
from ..components.trajectory import TrajectoryLog
from ..contracts.environment import EnvironmentSpec
from ..contracts.outcome import FailureMode, RunResult
from ..contracts.request import ModelSpec, RunRequest
from ..contracts.task import PreparedTask, ToolDef
from ..contracts.trajectory import TrajectoryStep
from ..errors import AgentCompassError, AgentFailure, ConfigError, InfrastructureError, PlanningError
from ..models.client import ModelClient, is_loopback
from ..models.messages import ChatMessage, ModelReply, TokenUsage, ToolCall
from ..models.prices import Price, cost, find_price
from ..models.protocol import choose_protocol

__all__ = ["AgentRun", "ModelAgent", "ModelParams", "task_marks"]

_REFUSED = {
    "content_filter": (FailureMode.MODEL_REFUSED, "the provider's content filter withheld the answer"),
    "refusal": (FailureMode.MODEL_REFUSED, "the model refused"),
    "context_length": (FailureMode.CONTEXT_LENGTH, "the model's context is full"),
}


class ModelParams(BaseModel):
    """Params that every agent with a model of its own takes.

    *request_timeout* (seconds) is for one model call, *model_retries* for calls that may succeed later.
    *prices* maps model ids to US dollars per million tokens.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    stream: bool = False
    request_timeout: float = Field(default=600.0, gt=0, allow_inf_nan=False)
    model_retries: int = Field(default=10, ge=0)
    prices: dict[str, Price] = Field(default_factory=dict)


class ModelAgent(BaseHarness):
    """Base of agents that call the model from this process."""

    needs_model: ClassVar[bool] = True
    params_model: ClassVar[type[BaseModel] | None] = ModelParams
    protocols: ClassVar[tuple[str, ...]] = ()

    def supports(self, environment: EnvironmentSpec, model: ModelSpec) -> bool:
        """Say what is missing: a model, or a protocol that the agent can use."""
        if not model.id:
            raise PlanningError(
                f"harness {self.id!r} needs a model; set model=ID (and base_url= for an endpoint of your own)"
            )
        try:
            choose_protocol(model, self.protocols)
        except ConfigError as error:
            raise PlanningError(f"harness {self.id!r}: {error.message}") from error
        return True


class AgentRun:
    """One run of an agent: its result so far, its client, its trajectory."""

    def __init__(self, harness: BaseHarness, prepared: PreparedTask, req: RunRequest, params: ModelParams) -> None:
        self.prepared = prepared
        self.result = RunResult(prepared.task_id, category=prepared.category)
        self.log = TrajectoryLog(harness.id, harness.version, req.model.id)
        self.result.trajectory = self.log.rows
        keep_partial(lambda: self.result)
        self._params = params
        self._model = req.model.id
        self._price = find_price(req.model.id, params.prices)
        self._client = ModelClient(
            req.model,
            protocols=getattr(harness, "protocols", ()),
            timeout=params.request_timeout,
            retries=params.model_retries,
            stream=params.stream,
            headers=task_marks(req.model, prepared),
        )

    @asynccontextmanager
    async def running(self, limit: float | None) -> AsyncIterator[None]:
        """Let the agent work for at most *limit* seconds; whatever ends it carries the result so far."""
        clock = asyncio.timeout(limit)
        try:
            async with clock:
                yield
        except (TimeoutError, asyncio.CancelledError) as error:
            # A cancellation while the end of the time limit was still being carried out is that end.
            if not clock.expired():
                raise
            text = f"the agent did not finish within {limit or 0.0:g} s and was stopped"
            raise AgentFailure(text, "agent_timeout", result=self.result) from error
        except (AgentFailure, InfrastructureError) as error:
            error.result = self.result  # type: ignore[union-attr]
            raise
        finally:
            await self._client.close()
            self._tell_unknown_price()

    async def ask(
        self, messages: Sequence[ChatMessage], tools: Sequence[ToolDef] = (), *, seen: int = 0
    ) -> tuple[ModelReply, TrajectoryStep]:
        """Call the model and count what it cost; return its answer and the trajectory's step, still open.

        *seen* messages stood in the step before. A call that gives no answer is written down and raised.
        """
        step = self.log.new(task_step=self.prepared.step or "", input=[_row(item) for item in messages[seen:]])
        try:
            reply = await self._client.complete(messages, tools)
        except AgentCompassError as error:
            step.error = error.message
            self.log.add(step)
            raise
        self._count(reply.usage, step)
        step.output, step.reasoning, step.stop_reason = reply.text or reply.refusal, reply.reasoning, reply.stop_reason
        step.latency_seconds, step.tries = round(reply.latency, 4), reply.tries
        step.tool_calls = [_call_row(call) for call in reply.tool_calls]
        return reply, step

    def refused(self, reply: ModelReply) -> bool:
        """Whether *reply* is no answer because the model or its provider refused; notes the failure mode."""
        mode, text = _REFUSED.get(reply.stop_reason, (None, ""))
        if mode is None or reply.tool_calls:
            return False
        said = f": {reply.refusal[:300]}" if reply.refusal else ""
        self.result.fail(mode, "run", text + said)
        return True

    def _count(self, spent: TokenUsage, step: TrajectoryStep) -> None:
        usage = self.result.usage
        named = {"input_tokens": spent.input, "output_tokens": spent.output, "cached_tokens": spent.cached}
        step.usage = {name: value for name, value in named.items() if value is not None}
        for name, value in step.usage.items():
            setattr(usage, name, (getattr(usage, name) or 0) + value)
        usage.model_calls = (usage.model_calls or 0) + 1
        dollars = cost(spent, self._price) if self._price else None
        if dollars is not None:
            step.cost_usd = round(dollars, 8)
            usage.cost_usd = round((usage.cost_usd or 0.0) + dollars, 8)

    def _tell_unknown_price(self) -> None:
        if self._price is None and self.result.usage.model_calls:
            text = f"no price is known of {self._model!r}, so cost is unknown; give harness.prices"
            self.result.note("run", "unknown_price", text, "info")


def _call_row(call: ToolCall) -> dict[str, Any]:
    row = {"id": call.id, "name": call.name, "arguments": call.arguments}
    return {**row, "arguments": call.raw, "problem": call.problem} if call.problem else row


def _row(message: ChatMessage) -> dict[str, Any]:
    row: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.media:
        row["media"] = [item.label or item.path or item.url or item.type for item in message.media]
    return row


def task_marks(model: ModelSpec, prepared: PreparedTask) -> dict[str, str]:
    """Tell the task's id to servers on this machine: a scripted one answers by it. No other endpoint learns it."""
    if not model.base_url or not is_loopback(model.base_url):
        return {}
    name = prepared.task_id.encode("ascii", "backslashreplace").decode()
    marks = {"x-agentcompass-task": "".join(c if c.isprintable() else "?" for c in name)}
    try:
        marks["x-agentcompass-attempt"] = str(current_attempt().attempt)
    except AgentCompassError:  # run by a script, outside of a run
        pass
    return marks
