"""A gateway for one attempt: where the sandbox can reach it, and what the calls through it amount to."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from ..components.calls import in_thread
from ..components.context import keep_partial
from ..components.environment import EnvironmentSession
from ..contracts.outcome import RunResult
from ..contracts.request import ModelSpec
from ..contracts.task import PreparedTask
from ..errors import SetupError
from ..models.gateway import Gateway, GatewayCall
from ..models.prices import Price, cost, find_price
from ..models.protocol import choose_protocol
from .model_agent import task_marks

__all__ = [
    "count_calls",
    "count_gateway",
    "gateway_address",
    "make_gateway",
    "model_variables",
    "open_gateway",
    "same_machine",
]

_SETTLE_SECONDS = 2.0


async def same_machine(env: EnvironmentSession) -> bool:
    """Whether commands of the sandbox share this machine's network."""
    done = await env.exec(["readlink", "/proc/self/ns/net"], timeout=30)
    return done.ok and done.stdout.strip() == os.readlink("/proc/self/ns/net")


async def gateway_address(env: EnvironmentSession) -> str:
    """Return the address of this machine that the sandbox can reach: loopback, or its bridge's gateway.

    Raises SetupError where the sandbox has no network, or one that leads elsewhere.
    """
    if await same_machine(env):
        return "127.0.0.1"
    if env.network_policy.restricted:
        raise SetupError(
            f"the network policy {env.network_policy} keeps the sandbox from this machine, so the agent in it cannot "
            "reach the model; use an agent that runs outside (tool_loop, mini_swe_agent, command with where: host)"
        )
    done = await env.exec(["cat", "/proc/net/route"], timeout=30)
    for line in done.stdout.splitlines()[1:]:
        fields = line.split()
        if len(fields) > 2 and fields[1] == "00000000" and fields[2] != "00000000":
            return ".".join(str(byte) for byte in reversed(bytes.fromhex(fields[2])))
    raise SetupError("the sandbox has no network, so an agent in it cannot reach the model; use tool_loop, say")


@asynccontextmanager
async def open_gateway(
    model: ModelSpec, prepared: PreparedTask, env: EnvironmentSession | None
) -> AsyncIterator[Gateway]:
    """Open a gateway for a program in the sandbox *env* (on this machine, where there is none)."""
    address = "127.0.0.1" if env is None else await gateway_address(env)
    gateway = make_gateway(model, choose_protocol(model), address, headers=task_marks(model, prepared))
    keep_partial(lambda: _counted(gateway, model, RunResult(prepared.task_id, category=prepared.category)))
    try:
        yield gateway
    finally:
        await in_thread(gateway.close)


def make_gateway(
    model: ModelSpec,
    protocol: str,
    address: str,
    *,
    timeout: float = 600.0,
    budget_tokens: int | None = None,
    headers: Mapping[str, str] | None = None,
) -> Gateway:
    """Return a gateway that listens on *address*; SetupError when that is no address of this machine."""
    try:
        return Gateway(model, protocol, address=address, timeout=timeout, budget_tokens=budget_tokens, headers=headers)
    except OSError as error:
        raise SetupError(
            f"the sandbox reaches the world by {address}, which is no address of this machine ({error}), so an agent "
            "in it cannot reach the model from here; is the engine on another machine?"
        ) from error


def model_variables(model: ModelSpec, gateway: Gateway) -> dict[str, str]:
    """Return the variables that lead a program to the gateway instead of the endpoint."""
    version = "" if gateway.protocol.name == "anthropic" else "/v1"
    return {
        "AGENTCOMPASS_MODEL": model.id,
        "AGENTCOMPASS_BASE_URL": gateway.url + version,
        "AGENTCOMPASS_API_KEY": gateway.token,
    }


def _counted(gateway: Gateway, model: ModelSpec, result: RunResult) -> RunResult:
    count_calls(gateway.calls, model, result)
    return result


def count_gateway(gateway: Gateway, model: ModelSpec, result: RunResult) -> None:
    """Put what went through *gateway* into *result*, the calls that are just ending included."""
    gateway.settle(_SETTLE_SECONDS)
    count_calls(gateway.calls, model, result)


def count_calls(
    calls: Sequence[GatewayCall], model: ModelSpec, result: RunResult, prices: Mapping[str, Price] | None = None
) -> None:
    """Put tokens, cost and latency of *calls* into *result*; what the program says of itself is not asked."""
    usage, price = result.usage, find_price(model.id, prices)
    replies = [call.reply for call in calls if call.reply is not None]
    usage.model_calls = len(replies)
    usage.input_tokens = sum(reply.usage.input or 0 for reply in replies)
    usage.output_tokens = sum(reply.usage.output or 0 for reply in replies)
    usage.cached_tokens = sum(reply.usage.cached or 0 for reply in replies)
    if price is not None:
        usage.cost_usd = round(sum(cost(reply.usage, price) or 0.0 for reply in replies), 8)
    elif replies:
        text = f"no price is known of {model.id!r}, so cost is unknown; give harness.prices"
        result.note("run", "unknown_price", text, "info")
    result.telemetry["model_latency_seconds"] = round(sum(call.seconds for call in calls), 4)
