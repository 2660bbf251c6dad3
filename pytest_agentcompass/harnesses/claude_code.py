"""Harness `claude_code`: the program `claude` of the npm package `@anthropic-ai/claude-code`, in the sandbox."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from ..components.trajectory import TrajectoryLog
from ..contracts.outcome import RunResult
from ..contracts.request import RunRequest
from ..contracts.trajectory import Observation, TrajectoryStep
from .program_agent import ProgramAgent, ProgramParams, ProgramSession, close_step, open_step

__all__ = ["ClaudeCodeHarness"]

_QUIET = {
    "IS_SANDBOX": "1",  # lets it work without questions as root, too
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
}


class ClaudeCodeHarness(ProgramAgent):
    """Claude Code, non-interactive, in its `stream-json` format."""

    id: ClassVar[str] = "claude_code"
    protocol: ClassVar[str] = "anthropic"
    program: ClassVar[str] = "claude"
    package: ClassVar[str] = "@anthropic-ai/claude-code"

    def command(self, session: ProgramSession, req: RunRequest, params: ProgramParams) -> list[str]:
        """Return the command line."""
        return [
            session.program, "-p", "--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions",
            "--model", req.model.id,
        ]  # fmt: skip

    def variables(self, session: ProgramSession, req: RunRequest) -> dict[str, str]:
        """Return the variables that lead it to the gateway."""
        return {
            **_QUIET,
            "ANTHROPIC_BASE_URL": session.gateway.url,
            "ANTHROPIC_AUTH_TOKEN": session.gateway.token,
            "ANTHROPIC_SMALL_FAST_MODEL": req.model.id,
            "CLAUDE_CONFIG_DIR": f"{session.folder}/config",
        }

    def read(self, events: Iterable[Mapping[str, Any]], log: TrajectoryLog, result: RunResult) -> None:
        """Read `stream-json`: assistant messages come block by block, tool results as user messages."""
        step: TrajectoryStep | None = None
        message_id = ""
        for event in events:
            message = event.get("message") if isinstance(event.get("message"), Mapping) else {}
            assert isinstance(message, Mapping)
            if event.get("type") == "assistant":
                if step is None or message.get("id") != message_id:
                    close_step(log, step)
                    step, message_id = open_step(log, event), str(message.get("id"))
                _take(message, step)
            elif event.get("type") == "user" and step is not None:
                step.observations += _observations(message)
            elif event.get("type") == "result":
                result.final_answer = str(event.get("result") or "")
                result.telemetry["turns"] = event.get("num_turns")
        close_step(log, step)


def _take(message: Mapping[str, Any], step: TrajectoryStep) -> None:
    for block in message.get("content") or ():
        if block.get("type") == "text":
            step.output += str(block.get("text") or "")
        elif block.get("type") == "thinking":
            step.reasoning += str(block.get("thinking") or "")
        elif block.get("type") == "tool_use":
            step.tool_calls.append({"id": block.get("id"), "name": block.get("name"), "arguments": block.get("input")})
    step.stop_reason = str(message.get("stop_reason") or step.stop_reason)


def _observations(message: Mapping[str, Any]) -> list[Observation]:
    content = message.get("content")
    if not isinstance(content, list):
        return []
    return [
        Observation(_text(block.get("content")), str(block.get("tool_use_id")), is_error=bool(block.get("is_error")))
        for block in content
        if block.get("type") == "tool_result"
    ]


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(str(part.get("text") or part.get("type")) for part in content if isinstance(part, Mapping))
    return str(content if content is not None else "")
