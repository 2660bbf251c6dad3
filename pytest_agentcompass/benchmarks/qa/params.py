"""Params of the benchmark `qa`: where the rows are, what their columns mean, how answers are graded."""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from ...contracts.request import ModelSpec
from ...models.prices import Price

__all__ = ["CodeParams", "Extract", "GraderParams", "JudgeExample", "JudgeParams", "QaFields", "QaParams"]

Extract = Literal["whole", "boxed", "last_line", "last_number", "final_answer"]
GraderKind = Literal["exact", "normalized", "numeric", "choice", "regex", "json", "quasi_exact", "judge", "code"]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class QaFields(_Strict):
    """Which column holds what; a dotted name leads into a nested value.

    *choices* is the column of a list of options, or a list of columns with one option each. *image* and *audio* hold
    a path (below `files_dir`), an address or a data URL; *file* a path that is copied into the sandbox.
    *messages* is a conversation that comes before the question; *tests* the program that grades code.
    """

    question: str = "question"
    answer: str = "answer"
    id: str | None = None
    category: str | None = None
    difficulty: str | None = None
    tags: str | None = None
    system_prompt: str | None = None
    choices: str | tuple[str, ...] | None = None
    image: str | None = None
    audio: str | None = None
    file: str | None = None
    messages: str | None = None
    tests: str | None = None
    solution: str | None = None


class JudgeExample(_Strict):
    """An answer whose verdict is known: the judge is tried on it before it may judge."""

    question: str
    reference: str
    answer: str
    correct: bool


class JudgeParams(_Strict):
    """The model that judges, what it is told, and how well it must agree with *examples* (a share).

    *prices* maps model ids to US dollars per million tokens.
    """

    model: ModelSpec
    instructions: str | None = None
    examples: tuple[JudgeExample, ...] = ()
    min_agreement: float = Field(default=0.9, ge=0, le=1)
    prices: dict[str, Price] = Field(default_factory=dict)


class CodeParams(_Strict):
    """How code is graded: the answer's last code block is *file*, the row's tests *tests_file*, *command* decides."""

    file: str = "solution.py"
    tests_file: str = "check.py"
    command: tuple[str, ...] = ("python3", "check.py")


class GraderParams(_Strict):
    """How an answer is compared.

    *extract* says where in the answer the final one stands; the first of several that finds something counts.
    *tolerance* and *relative_tolerance* are for numbers; *subset* lets a JSON object have more keys than wanted.
    """

    kind: GraderKind = "normalized"
    extract: tuple[Extract, ...] = ("whole",)
    tolerance: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    relative_tolerance: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    subset: bool = False
    judge: JudgeParams | None = None
    code: CodeParams = CodeParams()

    @field_validator("extract", mode="before")
    @classmethod
    def _one(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _complete(self) -> GraderParams:
        if self.kind == "judge" and self.judge is None:
            raise ValueError("a grader of kind judge needs judge: {model: {id: ...}}")
        return self


class QaParams(_Strict):
    """`benchmark.params` of qa.

    *path* is a .jsonl, .json, .csv, .tsv or .parquet file; else *dataset* is one of the hub (`owner/name`) with
    *split* and *revision*. *filter* keeps rows whose columns have the given values. *prompt_suffix* ends each
    prompt (where it is None, one fitting to the grader does), *system_prompt* begins each conversation.
    """

    path: str | None = None
    dataset: str | None = None
    split: str = "test"
    revision: str = "main"
    refresh: bool = False
    files_dir: str | None = None
    fields: QaFields = QaFields()
    filter: dict[str, Any] = Field(default_factory=dict)
    grader: GraderParams = GraderParams()
    prompt_suffix: str | None = None
    system_prompt: str | None = None
    answer_pattern: str | None = None
    shuffle_choices: bool | None = None

    @field_validator("answer_pattern")
    @classmethod
    def _compiles(cls, value: str | None) -> str | None:
        try:
            re.compile(value or "")
        except re.error as error:
            raise ValueError(f"{value!r} is no regular expression: {error}") from None
        return value

    @model_validator(mode="after")
    def _some_source(self) -> QaParams:
        if self.path is None and self.dataset is None:
            raise ValueError("give path (a file of rows) or dataset (owner/name on the hub)")
        return self
