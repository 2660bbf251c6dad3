"""Harness `openai_chat`: the model answers directly, without tools; works with every protocol.

The conversation is the task's own (system prompt, messages, media) and the prompt; the answer is the text of the
reply, or what `answer_pattern` finds in it.
"""

from __future__ import annotations

import re
from typing import ClassVar

from pydantic import BaseModel, field_validator

from ..components.environment import EnvironmentSession
from ..contracts.outcome import FailureMode, RunResult
from ..contracts.plan import HarnessPlan
from ..contracts.request import RunRequest
from ..contracts.task import Message, PreparedTask
from ..models.messages import ChatMessage
from .model_agent import AgentRun, ModelAgent, ModelParams

__all__ = ["OpenAIChatHarness", "OpenAIChatParams", "task_messages"]

_SEARCHED = 200_000  # characters of an answer that a pattern may look at


class OpenAIChatParams(ModelParams):
    """`harness.params` of openai_chat.

    *system_prompt* goes before the task's own. *answer_pattern* is a regular expression: the last thing that
    it finds (its first group, where it has one) is the answer; where it finds nothing the whole text is.
    """

    system_prompt: str | None = None
    answer_pattern: str | None = None

    @field_validator("answer_pattern")
    @classmethod
    def _compiles(cls, value: str | None) -> str | None:
        try:
            re.compile(value or "")
        except re.error as error:
            raise ValueError(f"{value!r} is no regular expression: {error}") from None
        return value


class OpenAIChatHarness(ModelAgent):
    """Asks the model once and takes its answer."""

    id: ClassVar[str] = "openai_chat"
    params_model: ClassVar[type[BaseModel] | None] = OpenAIChatParams

    async def run_task(
        self, session: EnvironmentSession | None, prepared: PreparedTask, req: RunRequest, plan: HarnessPlan
    ) -> RunResult:
        """Return the model's answer.

        A cut answer is `output_length` and is graded as far as it goes; a refusal is `model_refused`.
        """
        params: OpenAIChatParams = self.params(req)
        run = AgentRun(self, prepared, req, params)
        async with run.running(prepared.run_timeout_seconds):
            reply, step = await run.ask(task_messages(prepared, params.system_prompt))
            run.log.add(step)
            run.result.agent_output = reply.text
            run.result.final_answer = _answer(reply.text, params.answer_pattern)
            if not run.refused(reply) and reply.stop_reason == "length":
                run.result.fail(FailureMode.OUTPUT_LENGTH, "run", "the answer was cut at the output limit of tokens")
            await _leave(run.result.final_answer, prepared, session)
        return run.result


def task_messages(prepared: PreparedTask, system_prompt: str | None = None) -> list[ChatMessage]:
    """Return the conversation with which a task begins."""
    given = prepared.input
    system = "\n\n".join(text for text in (system_prompt, given.system_prompt) if text)
    messages = [ChatMessage("system", system)] if system else []
    messages += [_converted(item) for item in given.messages]
    if given.prompt or not given.messages:
        messages.append(ChatMessage("user", given.prompt, media=tuple(given.media)))
    return messages


def _converted(message: Message) -> ChatMessage:
    content = message.content
    if not isinstance(content, str):
        content = "\n".join(str(part.get("text") or "") for part in content)
    return ChatMessage("user" if message.role == "tool" else message.role, content)


def _answer(text: str, pattern: str | None) -> str:
    found = list(re.finditer(pattern, text[-_SEARCHED:])) if pattern else []
    if not found:
        return text.strip()
    last = found[-1]
    return (last[1] if last.re.groups else last[0] or "").strip() if last[0] is not None else text.strip()


async def _leave(answer: str, prepared: PreparedTask, session: EnvironmentSession | None) -> None:
    """Write the answer where the task looks for it."""
    files = prepared.output.files
    if session is not None and len(files) == 1:
        await session.write_text(files[0].path, answer)
