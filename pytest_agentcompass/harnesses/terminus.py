"""Harness `terminus`: an agent at a terminal (tmux in the sandbox), which it sees as a person does.

Each turn the model gets what is new on the screen and answers one JSON object:

    {"analysis": "...", "plan": "...",
     "commands": [{"keystrokes": "ls -la\\n", "wait": "done", "timeout": 30},
                  {"keystrokes": ["C-c"], "duration": 1}],
     "done": false, "answer": ""}

`keystrokes` is text as typed, or a list of texts and tmux key names. With `wait: done` the line is typed, Enter
included, and waited for (at most `timeout` seconds); without it the screen is read `duration` seconds later.
`done` must be said twice in a row: the first time the model is shown the screen and asked whether it is sure.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from ..components.environment import EnvironmentSession
from ..components.terminal import TerminalSession, TerminalTimeout
from ..components.trajectory import shorten
from ..contracts.outcome import FailureMode, RunResult
from ..contracts.plan import HarnessPlan
from ..contracts.request import RunRequest
from ..contracts.task import PreparedTask
from ..contracts.trajectory import Observation
from ..errors import AgentFailure, HarnessError
from ..models.messages import ChatMessage, ModelReply
from .model_agent import AgentRun, ModelAgent, ModelParams
from .openai_chat import task_messages

__all__ = ["TerminusHarness", "TerminusParams", "parse_turn"]

_SYSTEM = """You work at a Linux terminal (bash in tmux) to solve a task. Nobody can answer questions.
Answer every time with one JSON object and nothing else:
{"analysis": "what the screen shows", "plan": "what to do next",
 "commands": [{"keystrokes": "ls -la", "wait": "done", "timeout": 30}], "done": false, "answer": ""}
- "keystrokes" is text to type, or a list of texts and tmux key names such as "C-c", "Escape", "Enter".
- With "wait": "done" Enter is pressed for you and the command is waited for, at most "timeout" seconds.
- Without "wait" press Enter yourself (end the text with a newline); the screen is read after "duration" seconds.
- Use no "wait" inside of programs that take over the screen (editors, pagers, prompts).
- When the task is done set "done" to true with no commands; if an answer was asked for, put it into "answer"."""
_SURE = '\n\nIs the task really done? If so answer again with "done": true; else go on.'
_PARSE_TRIES = 3
_LONGEST = 60.0


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Command(_Strict):
    """Keys to type, and how long to wait."""

    keystrokes: str | list[str]
    wait: str | None = None
    timeout: float = Field(default=30.0, gt=0, allow_inf_nan=False)
    duration: float = Field(default=1.0, ge=0, allow_inf_nan=False)

    @field_validator("keystrokes")
    @classmethod
    def _typeable(cls, value: str | list[str]) -> str | list[str]:
        if any("\0" in item for item in ([value] if isinstance(value, str) else value)):
            raise ValueError("a NUL character cannot be typed")
        return value

    @field_validator("wait")
    @classmethod
    def _known(cls, value: str | None) -> str | None:
        if value not in (None, "", "done"):
            raise ValueError('must be "done" or left out')
        return value or None


class AgentTurn(_Strict):
    """What the model wants to do."""

    analysis: str = ""
    plan: str = ""
    commands: list[Command] = Field(default_factory=list)
    done: bool = False
    answer: str = ""


def parse_turn(text: str) -> AgentTurn | str:
    """Return the turn in a model's text, or why there is none: the last JSON object that stands in it counts."""
    decoder, at, last = json.JSONDecoder(), 0, None
    problem = "there is no JSON object in it"
    while (at := text.find("{", at)) >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            problem, at = f"the JSON cannot be read: {error}", at + 1
            if last is not None or at > 10_000:
                break
            continue
        last, at = value, end
    if not isinstance(last, dict):
        return problem
    try:
        return AgentTurn.model_validate(last)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


class TerminusParams(ModelParams):
    """`harness.params` of terminus: at most *max_steps* model calls; *screen_limit* characters are shown of a turn."""

    max_steps: int = Field(default=100, ge=1)
    screen_limit: int = Field(default=10_000, ge=500)
    width: int = Field(default=160, ge=40)
    height: int = Field(default=40, ge=10)
    record: bool = True
    user: str | None = None


class TerminusHarness(ModelAgent):
    """An agent that types and looks; panes before and after, a recording and the list of keys are kept."""

    id: ClassVar[str] = "terminus"
    params_model: ClassVar[type[BaseModel] | None] = TerminusParams

    async def start_session(
        self, env: EnvironmentSession | None, req: RunRequest, plan: HarnessPlan
    ) -> TerminalSession:
        """Open the agent's terminal."""
        if env is None:
            raise HarnessError("harness 'terminus' needs an environment to work in")
        params: TerminusParams = self.params(req)
        return await TerminalSession.open(
            env, "agent", user=params.user, width=params.width, height=params.height, record=params.record
        )

    async def run_task(
        self, session: TerminalSession, prepared: PreparedTask, req: RunRequest, plan: HarnessPlan
    ) -> RunResult:
        """Let the model work at the terminal until it says twice that it is done."""
        params: TerminusParams = self.params(req)
        run = AgentRun(self, prepared, req, params)
        await session.renew()
        await session.save_pane("pre-agent")
        try:
            async with run.running(prepared.run_timeout_seconds):
                await _Sitting(run, session, params).work()
        finally:
            run.result.agent_output = shorten(await session.capture(), 20_000)
            await session.save_pane("post-agent")
        return run.result


@dataclass(slots=True)
class _Sitting:
    run: AgentRun
    terminal: TerminalSession
    params: TerminusParams
    messages: list[ChatMessage] = field(default_factory=list)
    screen: str = ""
    was_done: bool = False
    unreadable: int = 0
    seen: int = 0

    async def work(self) -> None:
        self.messages = task_messages(self.run.prepared, _SYSTEM)
        self.messages[-1] = ChatMessage(
            "user", f"{self.messages[-1].text}\n\nThe screen:\n{await self._news()}", media=self.messages[-1].media
        )
        for _ in range(self.params.max_steps):
            reply, step = await self._ask()
            self.messages.append(reply.message())
            self.seen = len(self.messages)
            try:
                over = await self._take(reply, step)
            finally:
                self.run.log.add(step)
            if over:
                return
        text = f"the agent was not done after {self.params.max_steps} steps (max_steps)"
        self.run.result.fail(FailureMode.AGENT_ERROR, "run", text)

    async def _ask(self) -> tuple[ModelReply, Any]:
        try:
            return await self.run.ask(self.messages, seen=self.seen)
        except AgentFailure as failure:
            if failure.failure_mode != "context_length" or not self._make_room():
                raise
        return await self.run.ask(self.messages, seen=self.seen)

    def _make_room(self) -> bool:
        """Drop the older half of the turns between the task and now."""
        start = 2 if self.messages[0].role == "system" else 1
        middle = len(self.messages[start:-1]) // 4 * 2
        if middle < 2:
            return False
        del self.messages[start : start + middle]
        self.run.result.note("run", "context_cut", f"{middle} old messages were dropped", "info")
        return True

    async def _take(self, reply: ModelReply, step: Any) -> bool:
        if self.run.refused(reply):
            return True
        turn = parse_turn(reply.text)
        if isinstance(turn, str):
            return self._unreadable(turn, reply)
        self.unreadable = 0
        if turn.done and self.was_done and not turn.commands:
            self.run.result.final_answer = turn.answer
            return True
        step.tool_calls = [
            {"id": str(at), "name": "keys", "arguments": item.model_dump(exclude_none=True)}
            for at, item in enumerate(turn.commands)
        ]
        notes = [await self._type(item) for item in turn.commands]
        news = "\n".join([*filter(None, notes), await self._news()])
        step.observations.append(Observation(news))
        self.was_done = turn.done
        self.messages.append(ChatMessage("user", f"The screen:\n{news}{_SURE if turn.done else ''}"))
        return False

    def _unreadable(self, problem: str, reply: ModelReply) -> bool:
        self.unreadable += 1
        cut = reply.stop_reason == "length"
        if self.unreadable > _PARSE_TRIES:
            mode = FailureMode.OUTPUT_LENGTH if cut else FailureMode.PARSE_ERROR
            self.run.result.fail(mode, "run", f"{self.unreadable} answers in a row could not be read; {problem}")
            return True
        why = "it was cut at the output limit; answer shorter" if cut else problem
        self.messages.append(ChatMessage("user", f"Your answer could not be read: {why}. Answer one JSON object."))
        return False

    async def _type(self, command: Command) -> str:
        """Type one command; return what is to be told of it beside the screen."""
        keys = command.keystrokes
        try:
            if command.wait:
                await self.terminal.send_keys(keys, block=True, max_timeout=command.timeout)
            else:
                await self.terminal.send_keys(_keys(keys), min_timeout=min(command.duration, _LONGEST))
        except TerminalTimeout as error:
            return f"[{error.message}; it goes on]"
        return ""

    async def _news(self) -> str:
        """Return what is new in the pane since the last look, or the screen where that cannot be told."""
        pane = await self.terminal.capture()
        old, self.screen = self.screen.rstrip(), pane
        if old and pane.startswith(old):
            pane = pane[len(old) :]
            last = old.rpartition("\n")[2]
            pane = last + pane if not pane.startswith("\n") else pane.lstrip("\n")
        elif old:
            pane = await self.terminal.capture(history=False)
        return shorten(pane.strip("\n"), self.params.screen_limit) or "[nothing new]"


def _keys(keys: str | list[str]) -> list[str]:
    """Return *keys* for tmux: the newline at the end of a text is the key Enter."""
    found: list[str] = []
    for item in [keys] if isinstance(keys, str) else keys:
        text = item.rstrip("\n")
        found += [text] if text else []
        found += ["Enter"] * (len(item) - len(text))
    return found
