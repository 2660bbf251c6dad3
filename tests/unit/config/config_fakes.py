"""Components for the tests of configuration: pure data, nothing opens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from pytest_agentcompass.components.benchmark import BaseBenchmark
from pytest_agentcompass.components.environment import BaseEnvironment
from pytest_agentcompass.components.harness import BaseHarness
from pytest_agentcompass.components.registry import Registry
from pytest_agentcompass.config.resolve import RunConfig, resolve_run
from pytest_agentcompass.config.words import split_words


class BenchParams(BaseModel):
    model_config = ConfigDict(extra="forbid")
    path: str = ""
    version: str = "x"
    count: int = 1
    options: dict[str, Any] = {}


class Bench(BaseBenchmark):
    id = "bench"
    params_model: ClassVar[type[BaseModel] | None] = BenchParams
    default_environment = "box"

    def load_tasks(self, req: Any) -> Any:
        return []

    async def prepare_task(self, *args: Any) -> Any:
        raise NotImplementedError

    async def evaluate(self, *args: Any) -> Any:
        raise NotImplementedError


class Needy(Bench):
    id = "needy"

    class Params(BaseModel):
        path: str

    params_model = Params


class Loose(Bench):
    id = "loose"
    params_model = None


class Free(Bench):
    id = "free"
    harness_free = True


class FakeTasks(Bench):
    """Stands in for the built-in `tasks` benchmark."""

    id = "tasks"


class AgentParams(BaseModel):
    mode: str = "slow"
    steps: int = 10


class Agent(BaseHarness):
    id = "agent"
    params_model: ClassVar[type[BaseModel] | None] = AgentParams

    async def run_task(self, *args: Any) -> Any:
        raise NotImplementedError


class Other(Agent):
    id = "other"
    params_model = None


class Talker(Agent):
    id = "talker"
    needs_model = True


class Box(BaseEnvironment):
    id = "box"

    async def open(self, *args: Any) -> Any:
        raise NotImplementedError


class Crate(Box):
    id = "crate"


class FakeRegistry(Registry):
    """A registry of the components above alone (and the built-in strategies)."""

    def __init__(self) -> None:
        super().__init__()
        for kind in ("benchmark", "harness", "environment"):
            self._entries[kind] = {}
        for benchmark in (Bench, Needy, Loose, Free, FakeTasks):
            self.add("benchmark", benchmark)
        for harness in (Agent, Other, Talker):
            self.add("harness", harness)
        for environment in (Box, Crate):
            self.add("environment", environment)


def resolve(
    folder: Path,
    *words: str,
    environ: Mapping[str, str] | None = None,
    config_files: Sequence[Path] = (),
    user_config: Path | None = None,
) -> RunConfig:
    """Resolve *words* with *folder* as rootdir and working directory."""
    return resolve_run(
        words=split_words(words),
        rootdir=folder,
        config_files=config_files,
        user_config=user_config,
        environ=environ or {},
        registry=FakeRegistry(),
        cwd=folder,
    )
