"""Agents with a (scripted) model in real containers: solved and failed, counted, and never with the key inside."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("httpx", reason="needs the extra models")

from pytest_agentcompass.models.scripted import Script, ScriptedServer, serve

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("base_image")]

SHARED = Path(__file__).parents[2].parent / "shared" / "tasks"
KEY = "sk-test-4712-secret"
IMAGE = "pytest-agentcompass-test:bookworm"
CONFORMANCE_BASE = "agentcompass-base:bookworm"
FOLDERS = "/root /tmp /home /etc /job /var /run /srv /opt"
LOOK = f"(env; cat /proc/*/environ /proc/*/cmdline; grep -rs sk-test-4712 {FOLDERS}) > /seen.txt 2>/dev/null; true"


@contextmanager
def scripted(*conversations: dict[str, Any], **script: Any) -> Iterator[ScriptedServer]:
    """Serve conversations by task id."""
    with serve(Script.model_validate({"conversations": conversations, "api_key": KEY, **script})) as server:
        yield server


def answers(name: str, *turns: dict[str, Any]) -> dict[str, Any]:
    """Return the conversation of a task."""
    return {"match": {"task": name}, "turns": list(turns)}


def run(folder: Path, server: ScriptedServer, harness: str, *words: str) -> tuple[dict[str, dict[str, Any]], Path, str]:
    """Run with an agent on Docker; return the records by task, the run directory and what was printed."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    settings = (f"harness={harness}", "model=gpt-4o", f"base_url={server.base_url}", "api_key=${MY_KEY}")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--agentcompass", *settings, "environment=docker", *words],
        cwd=folder, env={**os.environ, "MY_KEY": KEY}, capture_output=True, text=True, stdin=subprocess.DEVNULL,
        timeout=500, check=False,
    )  # fmt: skip
    found = sorted(folder.glob("agentcompass-results/*/*/attempts/*/*/*/record.json"))
    records = {record["task_id"]: record for record in (json.loads(path.read_bytes()) for path in found)}
    return records, next(folder.glob("agentcompass-results/*/*")), done.stdout + done.stderr


def program(name: str) -> str:
    """Return the path of a program from npm, or skip."""
    folder = os.environ.get("AGENTCOMPASS_TEST_PROGRAMS", "")
    found = shutil.which(name, path=str(Path(folder) / "node_modules" / ".bin")) if folder else shutil.which(name)
    if found is None:
        pytest.skip(f"the program {name!r} is not installed (npm); see AGENTCOMPASS_TEST_PROGRAMS")
    return found


def own_tasks(folder: Path, *names: str) -> list[str]:
    """Write tasks that want a file with the task's name; return the words that choose them."""
    rows = [
        {
            "id": name,
            "instruction": f"make the file {name}",
            "verify": f"test -f /job/{name}",
            "environment": {"image": IMAGE, "workdir": "/job"},
            "artifacts": ["/seen.txt"],
        }
        for name in names
    ]
    (folder / "tasks.yaml").write_text(json.dumps({"tasks": rows}))
    return ["benchmark=tasks", "benchmark.path=tasks.yaml"]


def move(harness: str, command: str) -> dict[str, Any]:
    """Return a turn that runs a command with the agent's own tool."""
    usage = {"usage": {"input": 1000, "output": 100}}
    if harness == "terminus":
        return {"text": json.dumps({"commands": [{"keystrokes": command, "wait": "done"}]}), **usage}
    calls = {
        "tool_loop": {"name": "bash", "arguments": {"command": command}},
        "mini_swe_agent": {"name": "bash", "arguments": {"command": command}},
        "claude_code": {"name": "Bash", "arguments": {"command": command, "description": "work"}},
        "codex": {"name": "exec_command", "arguments": {"cmd": command}},
    }
    return {"text": "I run it.", "tool_calls": [calls[harness]], **usage}


def end(harness: str) -> list[dict[str, Any]]:
    """Return the turns with which a conversation ends."""
    if harness == "mini_swe_agent":
        return [move(harness, "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")]
    usage = {"usage": {"input": 1000, "output": 100}}
    return [{"text": '{"done": true}' if harness == "terminus" else "done", **usage}]


PROGRAMS = {"claude_code": "claude", "codex": "codex"}
AGENTS = ("tool_loop", "terminus", "mini_swe_agent", *PROGRAMS)


def installed(harness: str) -> list[str]:
    """Return the words with which an agent is found, or skip where it is not installed."""
    if harness == "mini_swe_agent" and importlib.util.find_spec("minisweagent") is None:
        pytest.skip("needs the extra mini-swe-agent")
    return [f"harness.program={program(PROGRAMS[harness])}"] if harness in PROGRAMS else []


@pytest.mark.parametrize("harness", AGENTS)
def test_agents_solve_and_fail_tasks_in_containers(tmp_path: Path, harness: str) -> None:
    """Two tasks solved, one not; tokens, cost and trajectory on the record; the key is nowhere in the container."""
    words = [*installed(harness), *own_tasks(tmp_path, "one", "two", "bad")]
    moves = [
        answers("one", move(harness, f"touch one; {LOOK}"), *end(harness)),
        answers("two", move(harness, "ls"), move(harness, "touch two"), *end(harness)),
        answers("bad", move(harness, "touch wrong"), *end(harness)),
    ]
    with scripted(*moves) as server:
        records, directory, printed = run(tmp_path, server, harness, *words, "timeout=90", "concurrency=2")
    assert {name: record["passed"] for name, record in records.items()} == {"one": True, "two": True, "bad": False}, (
        printed
    )
    for name, record in records.items():
        assert record["failure_mode"] == "none", (name, record["issues"])
        assert record["usage"]["input_tokens"] >= 2000
        assert record["usage"]["cost_usd"] > 0
    for path in directory.glob("attempts/*/*/1"):
        assert len((path / "trajectory.jsonl").read_text().splitlines()) >= 3
    seen = next(directory.glob("attempts/*/one*/1/artifacts/**/seen.txt")).read_text(errors="replace")
    assert "PATH=" in seen
    assert KEY not in seen
    assert KEY.encode() not in b"".join(item.read_bytes() for item in directory.rglob("*") if item.is_file())


@pytest.mark.parametrize("harness", PROGRAMS)
def test_programs_work_as_the_containers_user(tmp_path: Path, harness: str) -> None:
    """Where the task's user is not root the program has a folder of its own to write into."""
    words = own_tasks(tmp_path, "one")
    rows = json.loads((tmp_path / "tasks.yaml").read_text())
    rows["tasks"][0] |= {"verify": "grep -q daemon /tmp/one", "artifacts": []}
    rows["tasks"][0]["environment"] = {"image": IMAGE, "workdir": "/tmp", "user": "daemon"}
    (tmp_path / "tasks.yaml").write_text(json.dumps(rows))
    words.append(f"harness.program={program(PROGRAMS[harness])}")
    with scripted(answers("one", move(harness, "id > /tmp/one"), *end(harness))) as server:
        records, _, printed = run(tmp_path, server, harness, *words, "timeout=90")
    assert records["one"]["passed"] is True, printed


@pytest.mark.parametrize("harness", PROGRAMS)
def test_programs_work_without_a_network(tmp_path: Path, harness: str) -> None:
    """Where the run policy is no-network a program reaches the gateway of its attempt alone, and the record says so."""
    words = own_tasks(tmp_path, "one")
    rows = json.loads((tmp_path / "tasks.yaml").read_text())
    rows["tasks"][0] |= {"verify": "grep -qx 403 /job/one", "artifacts": [], "network": "no-network"}
    (tmp_path / "tasks.yaml").write_text(json.dumps(rows))
    words += [f"harness.program={program(PROGRAMS[harness])}", f"environment.params.egress_image={IMAGE}"]
    ask = "curl -s -m 9 -o /dev/null -w '%{http_code}\\n' http://192.88.99.7/ > one"
    with scripted(answers("one", move(harness, ask), *end(harness))) as server:
        records, _, printed = run(tmp_path, server, harness, *words, "timeout=90")
    assert records["one"]["passed"] is True, printed
    environment = records["one"]["environment"]
    gateway = environment["run_network_policy"].removeprefix("allowlist(").removesuffix(")")
    assert environment["network_targets"]["allowed"] == [gateway]
    assert "192.88.99.7:80" in environment["network_targets"]["refused"]
    assert records["one"]["plan"]["run_network_policy"] == "no-network"


@pytest.fixture
def handed_tasks(docker_client: Any) -> Path:
    """The handed Terminal-Bench tasks of the first format; skips where they or their image are not there."""
    if not SHARED.is_dir():
        pytest.skip("the conformance tasks (../shared/tasks) are not there")
    if not docker_client.images(name=CONFORMANCE_BASE):
        pytest.skip(f"the image {CONFORMANCE_BASE} is not there")
    return SHARED / "tb1"


@pytest.mark.parametrize("harness", AGENTS)
def test_agents_solve_conformance_tasks(tmp_path: Path, handed_tasks: Path, harness: str) -> None:
    """Agents solve two handed tasks with the solutions' own moves and fail one with wrong moves, all of it counted."""
    words = installed(harness)
    names = ("csv-cleanup", "access-log-report", "fix-slugify")
    solutions = {name: (handed_tasks / name / "solution.sh").read_text() for name in names[:2]}
    moves = [answers(name, move(harness, text), *end(harness)) for name, text in solutions.items()]
    moves.append(answers("fix-slugify", move(harness, "touch /tmp/nothing"), *end(harness)))
    words += ["benchmark=terminal_bench", f"benchmark.path={handed_tasks}", f"sample_ids=[{','.join(names)}]"]
    with scripted(*moves) as server:
        records, directory, printed = run(tmp_path, server, harness, *words, "concurrency=2")
    assert {name: record["passed"] for name, record in records.items()} == {
        "csv-cleanup": True, "access-log-report": True, "fix-slugify": False,
    }, printed  # fmt: skip
    for name, record in records.items():
        assert record["failure_mode"] == "none", (name, record["issues"])
        assert (record["usage"]["input_tokens"] >= 2000, record["usage"]["cost_usd"] > 0) == (True, True)
        assert next(directory.glob(f"attempts/*/{name}*/1/trajectory.jsonl")).stat().st_size > 0
    if harness == "terminus":
        folder = next(directory.glob("attempts/*/csv-cleanup*/1"))
        assert {path.name for path in (folder / "panes").iterdir()} >= {"pre-agent.txt", "post-agent.txt"}
        assert "contacts.csv" in recorded(folder / "recording.cast")
        assert "contacts.csv" in (folder / "commands.txt").read_text()


def keys_of_solution(path: Path) -> dict[str, Any]:
    """Return the turn in which an agent types a task's own `solution.yaml`."""
    commands = []
    for step in yaml.safe_load(path.read_text()):
        keys = step["command"] + ("\n" if step.get("append_enter", True) and not step.get("block") else "")
        commands.append({"keystrokes": keys, **({"wait": "done", "timeout": 60} if step.get("block") else {})})
    return {"text": json.dumps({"commands": commands})}


MOMENTS = ("pre-agent", "post-agent", "post-test")


def recorded(cast: Path) -> str:
    """Return what a recording shows, all its output in order; it must be a valid one (asciicast, version 2)."""
    head, *events = [json.loads(line) for line in cast.read_text().splitlines()]
    assert (head["version"], head["width"], head["height"]) == (2, 160, 40)
    moments = [event[0] for event in events]
    assert moments == sorted(moments)
    return "".join(text for _, kind, text in events if kind == "o")


@pytest.mark.parametrize("harness", ["oracle", "terminus"])
def test_the_terminal_is_kept_before_after_and_after_the_tests(
    tmp_path: Path, handed_tasks: Path, harness: str
) -> None:
    """Where the tests run in the agent's shell its pane is kept three times, and all of it is recorded."""
    moves = keys_of_solution(handed_tasks / "deploy-shell" / "solution.yaml")
    with scripted({"turns": [moves, *end("terminus")]}) as server:
        words = ["benchmark=terminal_bench", f"benchmark.path={handed_tasks}", "sample_ids=[deploy-shell]"]
        records, directory, printed = run(tmp_path, server, harness, *words)
    assert records["deploy-shell"]["passed"] is True, printed
    folder = next(directory.glob("attempts/*/deploy-shell*/1"))
    before, after, tested = ((folder / "panes" / f"{name}.txt").read_text() for name in MOMENTS)
    assert "DEPLOY_ENV" not in before
    assert "export DEPLOY_ENV=staging" in after
    assert "run.sh" not in after
    assert "run.sh" in tested
    shown = recorded(folder / "recording.cast")
    assert "DEPLOY_ENV" in shown
    assert "run.sh" in shown
    assert "DEPLOY_ENV" in (folder / "commands.txt").read_text()
