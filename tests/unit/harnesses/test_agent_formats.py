"""Rules by which agents' own formats are read (turns at a terminal, `stream-json`, `exec --json`), and trajectories."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httpx", reason="needs the extra models")

from pytest_agentcompass.components.trajectory import TrajectoryLog, shorten
from pytest_agentcompass.contracts.outcome import RunResult
from pytest_agentcompass.contracts.trajectory import Observation
from pytest_agentcompass.harnesses.claude_code import ClaudeCodeHarness
from pytest_agentcompass.harnesses.codex import CodexHarness
from pytest_agentcompass.harnesses.terminus import AgentTurn, parse_turn
from pytest_agentcompass.redaction import add_secret


@pytest.mark.parametrize(
    "text",
    [
        '{"commands": [{"keystrokes": "ls", "wait": "done"}], "done": false}',
        'I look first.\n```json\n{"commands": [{"keystrokes": "ls", "wait": "done"}]}\n```\n',
        'First {"commands": []}, no: {"analysis": "{", "commands": [{"keystrokes": "ls", "wait": "done"}]}',
        'set {x} then {"commands": [{"keystrokes": "ls", "wait": "done", "why": "curious"}]}',
    ],
)
def test_turns_are_found_in_all_kinds_of_text(text: str) -> None:
    """The last JSON object counts, with or without text and fences around it."""
    turn = parse_turn(text)
    assert isinstance(turn, AgentTurn)
    assert turn.commands[0].keystrokes == "ls"
    assert turn.commands[0].wait == "done"


@pytest.mark.parametrize(
    ("text", "needle"),
    [
        ("ls -la", "no JSON object"),
        ("", "no JSON object"),
        ('{"commands": [', "cannot be read"),
        ('{"commands": "ls"}', "commands"),
        ('{"commands": [{"keys": "ls"}]}', "keystrokes"),
        ('{"commands": [{"keystrokes": "ls", "wait": "forever"}]}', 'must be "done"'),
        ('{"commands": [{"keystrokes": "ls", "timeout": -1}]}', "timeout"),
        ("{" * 100_000, "cannot be read"),
        ('{"commands": [{"keystrokes": ["ls\\u0000"]}]}', "NUL"),
    ],
)
def test_turns_that_are_none_say_why(text: str, needle: str) -> None:
    """The model is told what is wrong with its answer."""
    problem = parse_turn(text)
    assert isinstance(problem, str)
    assert needle in problem


def read(harness: Any, events: list[dict[str, Any]], path: Path) -> tuple[list[dict[str, Any]], RunResult]:
    """Return the trajectory and the result that a program's events amount to."""
    log, result = TrajectoryLog(harness.id, path=path), RunResult()
    harness.read(events, log, result)
    return log.rows, result


def test_stream_json_is_read(tmp_path: Path) -> None:
    """Blocks of one message are one step; tool results belong to it; the result is the answer."""

    def assistant(id: str, block: dict[str, Any]) -> dict[str, Any]:
        return {"type": "assistant", "message": {"id": id, "content": [block]}}

    results = [
        {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "out"}], "is_error": True}
    ]
    events = [
        {"type": "system", "subtype": "init"},
        assistant("m1", {"type": "thinking", "thinking": "hm"}),
        assistant("m1", {"type": "text", "text": "I run"}),
        assistant("m1", {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}),
        {"type": "user", "message": {"content": results}},
        {"type": "user", "message": {"content": "plain"}},
        assistant("m2", {"type": "text", "text": "done"}),
        {"type": "result", "result": "done", "num_turns": 2},
        {"type": "news", "message": None},
    ]
    rows, result = read(ClaudeCodeHarness(), events, tmp_path / "t.jsonl")
    assert [row["output"] for row in rows] == ["I run", "done"]
    assert rows[0]["reasoning"] == "hm"
    assert rows[0]["tool_calls"] == [{"id": "t1", "name": "Bash", "arguments": {"command": "ls"}}]
    assert rows[0]["observations"] == [{"content": "out", "call_id": "t1", "is_error": True}]
    assert (result.final_answer, result.telemetry["turns"]) == ("done", 2)


def test_exec_json_is_read(tmp_path: Path) -> None:
    """A message begins a step, commands belong to it, the last message is the answer; warnings are notes."""

    def item(**fields: Any) -> dict[str, Any]:
        return {"type": "item.completed", "item": fields}

    command = {"type": "command_execution", "command": "ls", "aggregated_output": "out", "exit_code": 2}
    events = [
        {"type": "thread.started"},
        item(id="0", type="error", message="a warning"),
        item(id="1", type="agent_message", text="I look"),
        {"type": "item.started", "item": {"id": "2", **command}},
        item(id="2", **command),
        item(id="3", type="file_change", changes=[{"path": "a"}]),
        item(id="4", type="agent_message", text="done"),
        {"type": "turn.failed", "error": {"message": "no more"}},
    ]
    rows, result = read(CodexHarness(), events, tmp_path / "t.jsonl")
    assert [row["output"] for row in rows] == ["I look", "done"]
    assert rows[0]["observations"] == [{"content": "out", "call_id": "2", "exit_code": 2}]
    assert [call["name"] for call in rows[0]["tool_calls"]] == ["shell", "file_change"]
    assert result.final_answer == "done"
    assert [issue.message for issue in result.issues] == ["a warning", "no more"]


def test_the_binary_behind_the_script_is_found(tmp_path: Path) -> None:
    """The npm package's script stands for the binary of the platform's package, which needs no node."""
    package = tmp_path / "node_modules" / "@openai"
    (package / "codex" / "bin").mkdir(parents=True)
    script = package / "codex" / "bin" / "codex.js"
    script.write_text("")
    assert CodexHarness().real_program(script) == script
    binary = package / "codex-linux-x64" / "vendor" / "triple" / "bin" / "codex"
    binary.parent.mkdir(parents=True)
    binary.write_text("")
    assert CodexHarness().real_program(script) == binary


def test_a_trajectory_is_written_while_it_runs(tmp_path: Path) -> None:
    """Header first, each step as it ends, scrubbed and cut; a second run of the agent goes on counting."""
    add_secret("very-secret-value")
    path = tmp_path / "attempt" / "trajectory.jsonl"
    log = TrajectoryLog("mine", "2", "model", path=path)
    step = log.new(output="x" * 50_000)
    step.observations.append(Observation("the very-secret-value \udc80", exit_code=0))
    assert len(path.read_text().splitlines()) == 1
    log.add(step)
    again = TrajectoryLog("mine", "2", "model", path=path)
    again.add(again.new(output="more"))
    header, first, second = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert header == {
        "schema": "agentcompass-trajectory", "version": 1, "harness": "mine", "harness_version": "2", "model": "model",
    }  # fmt: skip
    assert (first["step"], second["step"]) == (1, 2)
    assert len(first["output"]) < 21_000
    assert "characters cut" in first["output"]
    assert "very-secret-value" not in path.read_text("utf-8")
    assert first["observations"][0]["exit_code"] == 0
    assert log.rows == [first]


def test_long_texts_keep_head_and_tail() -> None:
    """The cut is stated with its size; short texts stay as they are."""
    assert shorten("abc", 3) == "abc"
    cut = shorten("a" * 50 + "b" * 50, 20)
    assert cut.startswith("a" * 10)
    assert cut.endswith("b" * 10)
    assert "80 characters cut" in cut
