"""Harness `codex`: the program `codex` of the npm package `@openai/codex`, in the sandbox."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from ..components.trajectory import TrajectoryLog
from ..contracts.outcome import RunResult
from ..contracts.request import RunRequest
from ..contracts.trajectory import Observation, TrajectoryStep
from .program_agent import ProgramAgent, ProgramParams, ProgramSession, close_step, open_step

__all__ = ["CodexHarness"]

_TOKEN = "AGENTCOMPASS_GATEWAY_TOKEN"


class CodexHarness(ProgramAgent):
    """Codex, non-interactive (`codex exec --json`); the sandbox of the attempt is its only one."""

    id: ClassVar[str] = "codex"
    protocol: ClassVar[str] = "openai-responses"
    program: ClassVar[str] = "codex"
    package: ClassVar[str] = "@openai/codex"

    def real_program(self, path: Path) -> Path:
        """Return the binary that the package's script starts: the script needs node, the binary nothing."""
        path = path.resolve()
        if path.suffix != ".js":
            return path
        package = path.parents[1]
        for root in (package / "node_modules" / "@openai", package.parent):
            for found in sorted(root.glob("codex-*/vendor/*/bin/codex")):
                return found
        return path

    def command(self, session: ProgramSession, req: RunRequest, params: ProgramParams) -> list[str]:
        """Return the command line."""
        provider = {"name": "agentcompass", "base_url": f"{session.gateway.url}/v1", "env_key": _TOKEN}
        fields = ",".join(f"{key}={json.dumps(value)}" for key, value in {**provider, "wire_api": "responses"}.items())
        return [
            session.program, "exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox",
            "-m", req.model.id,
            "-c", 'model_provider="agentcompass"',
            "-c", f"model_providers.agentcompass={{{fields}}}",
            "-c", "analytics.enabled=false",
            "-c", "check_for_update_on_startup=false",
            "-",
        ]  # fmt: skip

    def variables(self, session: ProgramSession, req: RunRequest) -> dict[str, str]:
        """Return the variables that lead it to the gateway."""
        return {_TOKEN: session.gateway.token, "CODEX_HOME": session.folder}

    def read(self, events: Iterable[Mapping[str, Any]], log: TrajectoryLog, result: RunResult) -> None:
        """Read the events of `--json`: a message begins a step, what is done until the next belongs to it."""
        step: TrajectoryStep | None = None
        for event in events:
            item = event.get("item")
            if event.get("type") == "item.completed" and isinstance(item, Mapping):
                kind = item.get("type")
                if kind == "error":
                    result.note("run", "agent_said", str(item.get("message"))[:1_000], "info")
                    continue
                if step is None or kind == "agent_message" or (kind == "reasoning" and step.tool_calls):
                    close_step(log, step)
                    step = open_step(log, event)
                _take(item, step)
                if kind == "agent_message":
                    result.final_answer = str(item.get("text") or "")
            elif event.get("type") in ("error", "turn.failed"):
                said = event.get("message") or (event.get("error") or {}).get("message")
                result.note("run", "agent_said", str(said)[:1_000], "info")
        close_step(log, step)


def _take(item: Mapping[str, Any], step: TrajectoryStep) -> None:
    kind = item.get("type")
    if kind == "agent_message":
        step.output += str(item.get("text") or "")
    elif kind == "reasoning":
        step.reasoning += str(item.get("text") or "")
    elif kind == "command_execution":
        step.tool_calls.append({"id": item.get("id"), "name": "shell", "arguments": {"command": item.get("command")}})
        code = item.get("exit_code")
        output = str(item.get("aggregated_output") or "")
        step.observations.append(Observation(output, str(item.get("id")), code if isinstance(code, int) else None))
    else:
        rest = {key: value for key, value in item.items() if key not in ("id", "type")}
        step.tool_calls.append({"id": item.get("id"), "name": str(kind), "arguments": rest})
