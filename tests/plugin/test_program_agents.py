"""Whole runs of the real programs `claude` and `codex` (from npm) on the scripted model, by the gateway.

They are looked for on PATH and in the folder that AGENTCOMPASS_TEST_PROGRAMS names (an npm prefix).
"""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httpx", reason="needs the extra models")

from .helpers import TASKS, Suite, task
from .test_models import KEY, answers, run, say, scripted, trajectory


def program(name: str) -> str:
    """Return the path of a program, or skip."""
    folder = os.environ.get("AGENTCOMPASS_TEST_PROGRAMS", "")
    found = shutil.which(name, path=str(Path(folder) / "node_modules" / ".bin")) if folder else shutil.which(name)
    if found is None:
        pytest.skip(f"the program {name!r} is not installed (npm); see AGENTCOMPASS_TEST_PROGRAMS")
    return found


def shell(harness: str, command: str) -> dict[str, Any]:
    """Return a turn that runs a command with the program's own tool."""
    if harness == "claude_code":
        call = {"name": "Bash", "arguments": {"command": command, "description": "work"}}
    else:
        call = {"name": "exec_command", "arguments": {"cmd": command}}
    return {"text": "I run it.", "tool_calls": [call], "usage": {"input": 1000, "output": 100}}


AGENTS = pytest.mark.parametrize(("harness", "name"), [("claude_code", "claude"), ("codex", "codex")])


@AGENTS
def test_the_real_program_solves_tasks(suite: Suite, harness: str, name: str) -> None:
    """Right moves pass and wrong ones fail; tokens, cost, version and trajectory stand on the record; no key inside."""
    path = program(name)
    look = "(env; cat /proc/*/environ /proc/*/cmdline; ls -la ~ /tmp; grep -rs sk-test-4711 . ~) > seen.txt 2>/dev/null"
    suite.tasks(
        task("one", "test -f a.txt", artifacts=["seen.txt"]), task("two", "test -f b.txt"), task("bad", "test -f c.txt")
    )
    moves = [
        answers("one", shell(harness, f"touch a.txt; {look}; true"), say("done one")),
        answers("two", shell(harness, "echo hello two; exit 3"), shell(harness, "touch b.txt"), say("done two")),
        answers("bad", say("I give up")),
    ]
    with scripted(*moves) as server:
        result = run(suite, server, harness, f"harness.program={path}", "timeout=60")
    assert result.verdicts() == {"one::1": True, "two::1": True, "bad::1": False}, result.out
    assert set(result.modes().values()) == {"none"}
    record = result.records()["two::1"]
    assert record["final_answer"] == "done two"
    assert record["usage"]["input_tokens"] == 3000
    assert record["usage"]["output_tokens"] == 300
    assert record["usage"]["cost_usd"] == 0.0105
    assert record["telemetry"]["agent_version"][0].isdigit()
    steps = trajectory(result, "two")
    calls = [call for step in steps for call in step.get("tool_calls", [])]
    assert len(calls) == 2
    assert any("hello two" in item["content"] for step in steps for item in step.get("observations", []))
    seen = next(result.run_dir.glob("attempts/*/one*/1/artifacts/**/seen.txt")).read_text(errors="replace")
    assert "PATH=" in seen
    assert KEY not in seen
    assert KEY.encode() not in b"".join(item.read_bytes() for item in result.run_dir.rglob("*") if item.is_file())


@AGENTS
def test_how_the_real_program_fails(suite: Suite, harness: str, name: str) -> None:
    """A time limit, an empty quota and a full context are read from the gateway, whatever the program says."""
    path = program(name)
    suite.tasks(task("slow", "test -f a.txt"), task("full", "false"))
    moves = [
        answers("slow", shell(harness, "touch a.txt"), say("late", delay=30)),
        answers("full", {"error": {"status": 400, "message": "maximum context length is 10 tokens"}}),
    ]
    with scripted(*moves) as server:
        result = run(suite, server, harness, f"harness.program={path}", "timeout=8")
    assert result.modes() == {"slow::1": "agent_timeout", "full::1": "context_length"}, result.out
    assert result.verdicts() == {"slow::1": True, "full::1": False}
    assert result.records()["slow::1"]["usage"]["input_tokens"] == 1000


@AGENTS
def test_a_wrong_key_stops_the_run(suite: Suite, harness: str, name: str) -> None:
    """What the endpoint refuses for all is an infrastructure error, and the rest is not started."""
    path = program(name)
    suite.tasks(*(task(f"t{number}") for number in range(6)))
    with scripted({"turns": [say("x")]}, api_key="another-key") as server:
        result = run(suite, server, harness, f"harness.program={path}", "timeout=30")
    assert result.ret != 0
    assert set(result.modes().values()) == {"model_unavailable"}, result.out
    assert len(result.records()) == 1


def test_a_missing_program_says_how_to_get_it(suite: Suite) -> None:
    """Without the program the attempt is an error that names the package."""
    suite.tasks(task("a"))
    with scripted({"turns": [say("x")]}) as server:
        result = run(suite, server, "codex", "harness.program=/nowhere/codex")
    assert result.modes() == {"a::1": "setup_error"}
    assert "npm install -g @openai/codex" in result.out


def test_another_protocol_is_refused_at_collection(suite: Suite) -> None:
    """A program that cannot speak the wanted protocol is a collection error that names what it can."""
    suite.tasks(task("a"))
    with scripted({"turns": [say("x")]}) as server:
        result = run(suite, server, "codex", "model.api_protocol=anthropic")
    assert result.ret == 1
    assert "it can be: openai-responses" in result.out
    result.check_clean()


CALLER = """
import json, os, urllib.request
base, key = os.environ["AGENTCOMPASS_BASE_URL"], os.environ["AGENTCOMPASS_API_KEY"]
body = {"model": "x", "messages": [{"role": "user", "content": os.environ["AGENTCOMPASS_INSTRUCTION"]}]}
headers = {"authorization": "Bearer " + key, "content-type": "application/json"}
call = urllib.request.Request(base + "/chat/completions", json.dumps(body).encode(), headers)
print(json.load(urllib.request.urlopen(call))["choices"][0]["message"]["content"])
open("env.txt", "w").write(repr(dict(os.environ)))
"""


@pytest.mark.parametrize("where", ["sandbox", "host"])
def test_any_program_can_be_kept_from_the_key(suite: Suite, where: str) -> None:
    """With model.wrap_api_key a command gets a gateway and a token; its calls are counted."""
    suite.write("caller.py", CALLER)
    suite.tasks({"id": "a", "instruction": "which?", "answer": "42", "artifacts": ["env.txt"]})
    command = f"harness.command=python3 {suite.path / 'caller.py'}"
    with scripted({"turns": [say("42")]}) as server:
        result = run(suite, server, "command", command, f"harness.where={where}", "model.wrap_api_key=true")
    assert result.verdicts() == {"a::1": True}, result.out
    record = result.records()["a::1"]
    assert (record["usage"]["input_tokens"], record["usage"]["cost_usd"]) == (1000, 0.0035)
    seen = next(result.run_dir.glob("attempts/*/a*/1/artifacts/**/env.txt")).read_text()
    assert "AGENTCOMPASS_BASE_URL" in seen
    assert KEY not in seen


def test_calls_through_the_gateway_count_also_when_interrupted(suite: Suite) -> None:
    """After Ctrl-C the calls of a program that reached the model by the gateway are on the record."""
    begun, shared = suite.path / "begun", suite.path / "shared"
    shared.mkdir(mode=0o700)
    suite.write("caller.py", CALLER + f"open({str(begun)!r}, 'w').close()\n__import__('time').sleep(300)\n")
    suite.tasks(task("a"))
    with scripted({"turns": [say("42")]}) as server:
        settings = ("model=gpt-4o", f"base_url={server.base_url}", f"api_key={KEY}", "model.wrap_api_key=true")
        command = f"harness.command=python3 {suite.path / 'caller.py'}"
        running = suite.start(*TASKS, "harness=command", command, *settings, XDG_RUNTIME_DIR=str(shared))
        running.wait_for(begun.exists)
        running.signal(signal.SIGINT)
        result = running.end()
    record = result.records()["a::1"]
    assert (record["failure_mode"], record["usage"]["input_tokens"]) == ("cancelled", 1000), result.out


def test_a_deny_list_is_refused_at_collection(suite: Suite) -> None:
    """A program in a sandbox that may not reach this machine is refused before anything opens, and told what works."""
    suite.tasks(task("a"))
    with scripted({"turns": [say("x")]}) as server:
        policy = "environment.run_network_policy={mode: denylist, hosts: [a.org]}"
        words = ("environment=docker", policy, "--collect-only")
        result = run(suite, server, "claude_code", "model.api_protocol=anthropic", *words)
    assert result.ret == 1, result.out
    assert "use an agent that runs outside (tool_loop, mini_swe_agent)" in result.out
    result.check_clean()
