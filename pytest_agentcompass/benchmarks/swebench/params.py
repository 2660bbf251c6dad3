"""The settings of the benchmark: `benchmark.params` of a request."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

__all__ = ["SwebenchParams"]


class SwebenchParams(BaseModel):
    """Which instances, where their images and rows come from, and what the agent is told.

    *dataset*: `verified`, `lite`, `full`, `multilingual`, `multimodal`, a dataset of the hub (`owner/name`), a
    `.jsonl`, `.json` or `.parquet` file, or a folder (`SPLIT.*` files, or a task repository). *path* is a local
    dataset too, relative to the file that names it. *revision* and
    *refresh* are for the hub: the commit is kept until *refresh*. *namespace* replaces the one of the image
    names (empty: images built locally). *history*: `remove` what the repository knows beyond the base commit,
    or `keep` it. *template* is the prompt, with {problem_statement}, {repo}, {base_commit}, {version},
    {workdir} and {hints}. *repositories_dir* is a folder of clones (`owner__repo`), for environments without
    images. *quarantine* names instances whose result depends on the machine.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: str = Field(default="verified", min_length=1)
    path: str | None = None
    split: str = Field(default="test", min_length=1)
    revision: str = Field(default="main", min_length=1)
    refresh: bool = False
    cache_dir: str | None = None
    repo: tuple[str, ...] = ()
    difficulty: tuple[str, ...] = ()
    namespace: str | None = None
    arch: str = "x86_64"
    history: Literal["remove", "keep"] = "remove"
    template: str | None = None
    hints: bool = False
    repositories_dir: str | None = None
    quarantine: tuple[str, ...] = ()

    @field_validator("repo", "difficulty", "quarantine", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @field_validator("template")
    @classmethod
    def _holds_problem(cls, value: str | None) -> str | None:
        if value is not None and "{problem_statement}" not in value:
            raise ValueError("must hold {problem_statement}")
        return value
