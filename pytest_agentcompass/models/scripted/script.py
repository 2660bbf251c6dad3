"""The script of a model server: which conversation a call belongs to, and what its next turn is.

    version: 1
    api_key: test-key              # optional: any other key is refused with 401
    models: [test-model]           # optional: any other model is refused with 404
    rate_limit: {every: 3, retry_after: 0.1}   # every third call is refused with 429
    conversations:                 # the first that matches answers
      - match: {contains: hello.txt}           # text (or list: all of them) in system and user messages
        turns:                                 # by the number of assistant turns so far
          - text: I write the file.
            tool_calls: [{name: bash, arguments: {command: "echo hi > hello.txt"}}]
          - text: Done.
      - match: {task: other-task}  # the task id that clients of this package tell servers on loopback
        turns: [{error: {status: 529, times: 2}, text: "42"}]
      - turns: [{text: I do not know.}]        # no match: everything else

A turn holds `text`, `tool_calls` (name, arguments or raw text), `stop` (length, content_filter, refusal),
`usage` (input, output, cached), `delay` (seconds), `error`, or `body` (with `status`: any text at all).
After the last turn it repeats. Answers are deterministic: nothing but `rate_limit` and `times` counts calls.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from ...components.shape import validate
from ...components.yaml_file import load_yaml_mapping

__all__ = ["Call", "Conversation", "Script", "ScriptedError", "Turn", "load_script"]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Match(_Strict):
    """When a conversation is meant: every given condition must hold."""

    contains: tuple[str, ...] = ()
    task: str | None = None
    model: str | None = None

    @field_validator("contains", mode="before")
    @classmethod
    def _one(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value


class ScriptedCall(_Strict):
    """A tool call; *raw* stands in for the JSON of the arguments, broken if it has to be."""

    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    raw: str | None = None


class ScriptedUsage(_Strict):
    """Tokens that a turn claims."""

    input: int = 100
    output: int = 20
    cached: int = 0


class ScriptedError(_Strict):
    """A refusal; with *times* only the first so many calls of the turn get it."""

    status: int = 500
    type: str | None = None
    code: str | None = None
    message: str = "scripted error"
    retry_after: float | None = None
    times: int | None = Field(default=None, ge=1)
    reset: bool = False  # cut the connection instead of answering


class Turn(_Strict):
    """One answer of the model."""

    text: str = ""
    tool_calls: tuple[ScriptedCall, ...] = ()
    stop: Literal["stop", "tool_calls", "length", "content_filter", "refusal"] | None = None
    usage: ScriptedUsage = ScriptedUsage()
    delay: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    error: ScriptedError | None = None
    status: int = 200
    body: str | None = None

    @property
    def reason(self) -> str:
        """Why the answer ends."""
        return self.stop or ("tool_calls" if self.tool_calls else "stop")


class Conversation(_Strict):
    """The turns of the conversations that *match*."""

    match: Match = Match()
    turns: tuple[Turn, ...] = Field(min_length=1)


class RateLimit(_Strict):
    """Refuse every so-manieth call with 429."""

    every: int = Field(ge=2)
    retry_after: float | None = None


class Script(_Strict):
    """All that a scripted model server knows."""

    version: Literal[1] = 1
    api_key: str | None = None
    models: tuple[str, ...] = ()
    rate_limit: RateLimit | None = None
    conversations: tuple[Conversation, ...] = Field(min_length=1)

    def find(self, call: Call) -> tuple[int, int, Turn] | None:
        """Return the number of the conversation, of the turn, and the turn; None when nothing matches."""
        for index, conversation in enumerate(self.conversations):
            if _fits(conversation.match, call):
                number = min(call.turn, len(conversation.turns) - 1)
                return index, number, conversation.turns[number]
        return None


class Call(_Strict):
    """What counts of a call: the text of system and user messages, and how many turns the assistant had."""

    model: str
    text: str
    turn: int
    task: str = ""
    stream: bool = False


def _fits(match: Match, call: Call) -> bool:
    return (
        all(item in call.text for item in match.contains)
        and match.task in (None, call.task)
        and match.model in (None, call.model)
    )


def load_script(path: str | Path) -> Script:
    """Return the script of a YAML file; ConfigError names file, line and key of what is wrong."""
    return validate(Script, load_yaml_mapping(path))
