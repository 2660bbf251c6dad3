"""Components for the tests of planning: they record what they are asked, and misbehave on request."""

from __future__ import annotations

from typing import Any

from pytest_agentcompass.components.benchmark import BaseBenchmark
from pytest_agentcompass.components.environment import BaseEnvironment
from pytest_agentcompass.components.harness import BaseHarness
from pytest_agentcompass.components.recipe import BaseRecipe
from pytest_agentcompass.components.registry import Registry
from pytest_agentcompass.contracts.environment import EnvironmentSpec
from pytest_agentcompass.contracts.network import NetworkMode
from pytest_agentcompass.contracts.plan import BenchmarkPlan, ExecutionPlan, HarnessPlan
from pytest_agentcompass.contracts.request import RunRequest
from pytest_agentcompass.contracts.task import TaskSpec


class Bench(BaseBenchmark):
    id = "bench"
    default_environment = "box"

    def load_tasks(self, req: Any) -> Any:
        return []

    async def prepare_task(self, *args: Any) -> Any:
        raise NotImplementedError

    async def evaluate(self, *args: Any) -> Any:
        raise NotImplementedError

    def build_plan(self, task: TaskSpec, req: RunRequest, environment: EnvironmentSpec) -> BenchmarkPlan:
        plan = super().build_plan(task, req, environment)
        plan.data["saw"] = environment.model_dump(mode="json")
        return plan


class Meddler(Bench):
    """Changes everything that it is handed."""

    id = "meddler"

    def build_plan(self, task: TaskSpec, req: RunRequest, environment: EnvironmentSpec) -> BenchmarkPlan:
        task.metadata["x"] = task.environment["image"] = req.benchmark.params["x"] = "meddled"
        environment.params["x"] = environment.env_variables["X"] = "meddled"
        return BenchmarkPlan()


class Agent(BaseHarness):
    id = "agent"

    async def run_task(self, *args: Any) -> Any:
        raise NotImplementedError


class SandboxedAgent(Agent):
    id = "sandboxed"
    calls_model_from_sandbox = True


class Picky(Agent):
    id = "picky"

    def supports(self, environment: EnvironmentSpec, model: Any) -> bool:
        return environment.image == "good"


class AsyncAgent(Agent):
    id = "async"

    async def build_plan(self, req: Any, environment: Any) -> HarnessPlan:  # type: ignore[override]
        return HarnessPlan()


class Box(BaseEnvironment):
    id = "box"
    supported_network_modes = frozenset(NetworkMode)
    supports_network_switch = True
    supports_images = True
    supported_resources = frozenset({"cpus"})

    async def open(self, *args: Any) -> Any:
        raise NotImplementedError


class Plain(Box):
    """A provider that can do next to nothing."""

    id = "plain"
    supported_network_modes = frozenset({NetworkMode.PUBLIC})
    supports_network_switch = False
    supports_images = False


class Recipe(BaseRecipe):
    def matches(self, req: RunRequest, task: TaskSpec, plan: ExecutionPlan) -> bool:
        return True

    def apply(self, plan: ExecutionPlan, req: RunRequest, task: TaskSpec) -> ExecutionPlan:
        return plan


def make_registry(*recipes: type[BaseRecipe]) -> Registry:
    """Return a registry of the components above and *recipes*."""
    registry = Registry()
    for benchmark in (Bench, Meddler):
        registry.add("benchmark", benchmark)
    for harness in (Agent, SandboxedAgent, Picky, AsyncAgent):
        registry.add("harness", harness)
    for environment in (Box, Plain):
        registry.add("environment", environment)
    for recipe in recipes:
        registry.add("recipe", recipe)
    return registry


def make_request(benchmark: str = "bench", harness: str = "agent", **sections: Any) -> RunRequest:
    """Return a request with the given sections."""
    return RunRequest.model_validate({"benchmark": {"id": benchmark}, "harness": {"id": harness}, **sections})
