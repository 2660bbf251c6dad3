"""The settings of the benchmark: `benchmark.params` of a request."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["TerminalBenchParams", "VerifierParams"]


class VerifierParams(BaseModel):
    """How the verifier is run.

    *leftovers*: which processes of the agent live on while it runs after a normal end (`services`: those
    that listen on a socket). *mode*: in the agent's sandbox, or in one of its own.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    leftovers: Literal["services", "keep", "kill"] = "services"
    mode: Literal["shared", "separate"] | None = None


class TerminalBenchParams(BaseModel):
    """Which tasks, and what the format leaves open.

    *path*: a folder of task folders, or one task folder, relative to the working directory. *image*: what a
    TB2 task runs in when it has both a Dockerfile and a `docker_image`. *rule*: when an attempt passes whose
    rewards have no key `reward` (`all` or `any` of them, or the `mean`, at least 1). *reward_range*: the
    rewards that are valid.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str = Field(min_length=1)
    format: Literal["auto", "tb1", "tb2"] = "auto"
    verifier: VerifierParams = VerifierParams()
    image: Literal["build", "published"] = "build"
    rule: Literal["all", "any", "mean"] = "all"
    reward_range: tuple[float, float] = (0.0, 1.0)
