"""Whole runs of agents with a model: the scripted server speaks the real protocols on loopback."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httpx", reason="needs the extra models")

from pytest_agentcompass.models.scripted import Script, ScriptedServer, serve

from .helpers import TASKS, Result, Suite, task

EXAMPLES = Path(__file__).parents[2] / "example_suites"
KEY = "sk-test-4711-secret"
PROTOCOLS = ("openai-chat", "openai-responses", "anthropic")


def bash(command: str, **more: Any) -> dict[str, Any]:
    """Return a turn that runs a command."""
    call = {"name": "bash", "arguments": {"command": command}}
    return {"text": "I run it.", "tool_calls": [call], "usage": {"input": 1000, "output": 100}, **more}


def say(text: str, **more: Any) -> dict[str, Any]:
    """Return a turn that answers."""
    return {"text": text, "usage": {"input": 1000, "output": 100}, **more}


@contextmanager
def scripted(*conversations: dict[str, Any], **script: Any) -> Iterator[ScriptedServer]:
    """Serve conversations by task id."""
    with serve(Script.model_validate({"conversations": conversations, "api_key": KEY, **script})) as server:
        yield server


def run(suite: Suite, server: ScriptedServer, harness: str, *words: str, model: str = "gpt-4o") -> Result:
    """Run `tasks.yaml` with an agent on the scripted model; backs off in a folder of the test's own."""
    shared = suite.path / "shared"
    shared.mkdir(exist_ok=True, mode=0o700)
    settings = (f"harness={harness}", f"model={model}", f"base_url={server.base_url}", "api_key=${MY_KEY}")
    return suite.run(*TASKS, *settings, *words, MY_KEY=KEY, XDG_RUNTIME_DIR=str(shared))


def answers(name: str, *turns: dict[str, Any]) -> dict[str, Any]:
    """Return the conversation of a task."""
    return {"match": {"task": name}, "turns": list(turns)}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_reference_agent_solves_tasks_and_fails_with_wrong_moves(suite: Suite, protocol: str) -> None:
    """Right moves pass, wrong moves fail; tokens, cost, calls, trajectory and answer stand on the record."""
    suite.tasks(task("good", "test -f a.txt"), task("better", "test -f b.txt"), task("bad", "test -f c.txt"))
    moves = [
        answers("good", bash("touch a.txt"), say("done")),
        answers("better", bash("ls"), bash("touch b.txt; exit 3"), say("made")),
        answers("bad", bash("touch wrong.txt"), say("done")),
    ]
    with scripted(*moves) as server:
        result = run(suite, server, "tool_loop", f"model.api_protocol={protocol}")
    assert result.verdicts() == {"good::1": True, "better::1": True, "bad::1": False}, result.out
    assert set(result.modes().values()) == {"none"}
    record = result.records()["better::1"]
    assert record["final_answer"] == "made"
    assert record["usage"] == {
        "input_tokens": 3000, "output_tokens": 300, "cached_tokens": 0, "model_calls": 3, "cost_usd": 0.0105,
    }  # fmt: skip
    steps = trajectory(result, "better")
    assert [step["step"] for step in steps] == [1, 2, 3]
    assert steps[1]["observations"][0]["exit_code"] == 3
    assert steps[0]["input"][-1]["content"] == "work"
    assert steps[2]["stop_reason"] == "stop"
    assert all(step["latency_seconds"] > 0 for step in steps)


def trajectory(result: Result, name: str) -> list[dict[str, Any]]:
    """Return the steps of the trajectory of a task's first attempt; checks the header."""
    path = next(result.run_dir.glob(f"attempts/*/{name}*/1/trajectory.jsonl"))
    header, *steps = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert (header["schema"], header["version"]) == ("agentcompass-trajectory", 1)
    return steps


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_direct_answer(suite: Suite, protocol: str) -> None:
    """openai_chat answers a question; a refusal and a cut answer are failures of the agent, graded."""
    questions = [{"id": name, "instruction": "which?", "answer": "42"} for name in ("yes", "no", "cut", "refused")]
    suite.tasks(*questions)
    moves = [
        answers("yes", say("I think: Answer: 41, no. Answer: 42")),
        answers("no", say("Answer: 7")),
        answers("cut", say("Answer: 42", stop="length")),
        answers("refused", say("I will not", stop="refusal")),
    ]
    with scripted(*moves) as server:
        result = run(
            suite, server, "openai_chat", f"model.api_protocol={protocol}", r"harness.answer_pattern=Answer: (\d+)"
        )
    assert result.verdicts() == {"yes::1": True, "no::1": False, "cut::1": True, "refused::1": False}, result.out
    modes = result.modes()
    assert (modes["cut::1"], modes["refused::1"]) == ("output_length", "model_refused")
    assert all(record["usage"]["model_calls"] == 1 for record in result.records().values())


def test_the_direct_answer_solves_the_example_suite(suite: Suite) -> None:
    """The example questions are solved by right answers and failed by a wrong one; each is counted and told."""
    suite.tasks(*map(json.loads, (EXAMPLES / "questions.jsonl").read_text().splitlines()))
    said = {"capital-of-france": "Paris", "author-of-hamlet": "William Shakespeare", "leap-year": "2007"}
    with scripted(*(answers(name, say(text)) for name, text in said.items())) as server:
        result = run(suite, server, "openai_chat", f"sample_ids=[{','.join(said)}]")
    right = {"capital-of-france::1": True, "author-of-hamlet::1": True, "leap-year::1": False}
    assert result.verdicts() == right, result.out
    assert set(result.modes().values()) == {"none"}
    for name, record in result.records().items():
        assert (record["usage"]["input_tokens"], record["usage"]["cost_usd"]) == (1000, 0.0035)
        assert trajectory(result, name.partition("::")[0])[0]["output"] == record["final_answer"]


FAILURES: dict[str, tuple[dict[str, Any], str]] = {
    "context": ({"error": {"status": 400, "message": "maximum context length is 10"}}, "context_length"),
    "filtered": ({"stop": "content_filter"}, "model_refused"),
    "garbled": ({"tool_calls": [{"name": "bash", "raw": "{"}]}, "parse_error"),
    "foreign": ({"tool_calls": [{"name": "python", "arguments": {}}]}, "parse_error"),
    "empty": ({"text": ""}, "parse_error"),
    "cut": ({"text": "and", "stop": "length"}, "output_length"),
    "endless": (bash("true"), "agent_error"),
}


def test_failures_of_the_agent_are_graded(suite: Suite) -> None:
    """Each way in which an agent fails has its mode; what it left is graded all the same, and nothing is retried."""
    suite.tasks(*(task(name, "test -f made.txt") for name in FAILURES))
    moves = [answers(name, bash("touch made.txt"), turn) for name, (turn, _) in FAILURES.items()]
    with scripted(*moves) as server:
        result = run(suite, server, "tool_loop", "harness.max_steps=9", "retries=2")
    assert result.verdicts() == {f"{name}::1": True for name in FAILURES}, result.out
    assert result.modes() == {f"{name}::1": mode for name, (_, mode) in FAILURES.items()}
    assert all(record["retries"] == [] for record in result.records().values())


def test_a_time_limit_keeps_the_partial_result(suite: Suite) -> None:
    """What was done and spent before the time limit is graded and counted."""
    suite.tasks(task("slow", "test -f made.txt"), task("sleeper", "test -f made.txt"))
    moves = [
        answers("slow", bash("touch made.txt"), say("late", delay=30)),
        answers("sleeper", bash("touch made.txt"), bash("sleep 60"), say("late")),
    ]
    with scripted(*moves) as server:
        result = run(suite, server, "tool_loop", "timeout=3")
    assert result.verdicts() == {"slow::1": True, "sleeper::1": True}, result.out
    assert set(result.modes().values()) == {"agent_timeout"}
    assert result.records()["slow::1"]["usage"]["model_calls"] == 1
    assert result.records()["sleeper::1"]["usage"]["model_calls"] == 2


def test_sixteen_attempts_with_a_third_of_the_calls_refused(suite: Suite) -> None:
    """With 429 for every third call sixteen attempts at once all finish without an infrastructure error."""
    suite.tasks(*(task(f"t{number}", "test -f a.txt") for number in range(16)))
    moves = {"turns": [bash("touch a.txt"), say("done")]}
    with scripted(moves, rate_limit={"every": 3, "retry_after": 0.05}) as server:
        result = run(suite, server, "tool_loop", "concurrency=16")
    assert result.ret == 0, result.out
    assert result.counts == {"passed": 16}


@pytest.mark.parametrize("workers", [(), ("concurrency=4",), ("-n2",)], ids=["serial", "engine", "xdist"])
@pytest.mark.parametrize(
    ("error", "word"),
    [
        ({"status": 429, "code": "insufficient_quota", "message": "You exceeded your current quota"}, "quota"),
        ({"status": 401, "message": "invalid api key"}, "authentication"),
        ({"status": 404, "message": "model not found"}, "not_found"),
    ],
    ids=["quota", "authentication", "not_found"],
)
def test_the_run_stops_when_nobody_can_go_on(
    suite: Suite, workers: tuple[str, ...], error: dict[str, Any], word: str
) -> None:
    """Quota, key and model are everybody's: the rest is not started, stays pending, and the last screen says why."""
    suite.tasks(*(task(f"t{number:02}") for number in range(30)))
    with scripted({"turns": [{"error": error}]}) as server:
        result = run(suite, server, "tool_loop", *workers)
    assert result.ret not in (0, 5), result.out
    assert len(result.records()) <= 8, result.out
    assert set(result.modes().values()) == {"model_unavailable"}
    assert word in result.out


def test_tokens_before_an_outage_are_counted(suite: Suite) -> None:
    """An endpoint that fails in the middle is an infrastructure error that keeps what was spent."""
    suite.tasks(task("a", "test -f a.txt"))
    with scripted({"turns": [bash("touch a.txt"), {"error": {"status": 400, "message": "odd"}}]}) as server:
        result = run(suite, server, "tool_loop")
    record = result.records()["a::1"]
    assert (record["failure_mode"], record["score"]) == ("model_unavailable", None)
    assert record["usage"]["input_tokens"] == 1000
    assert trajectory(result, "a")[-1]["error"]


@pytest.mark.parametrize(
    "turn",
    [{"error": {"status": 400, "message": "odd"}}, {"body": "<html>log in here</html>", "status": 200}],
    ids=["400", "page"],
)
def test_an_answer_that_will_not_change_buys_no_other_try(suite: Suite, turn: dict[str, Any]) -> None:
    """What no repetition mends ends its attempt at the first try, whatever `retries` allows."""
    suite.tasks(task("a"), task("b"))
    with scripted({"turns": [turn]}) as server:
        result = run(suite, server, "tool_loop", "retries=2", "execution.retry_min_delay_seconds=0")
    assert set(result.modes().values()) == {"model_unavailable"}, result.out
    assert [len(record["retries"]) for record in result.records().values()] == [0, 0]


@pytest.mark.parametrize("words", [[], ["concurrency=2"], ["-n1"]], ids=["serial", "engine", "xdist"])
def test_what_an_interrupted_agent_spent_is_kept(suite: Suite, words: list[str]) -> None:
    """After Ctrl-C the record of the attempt that was cut has the tokens and cost so far, and the budget knows them."""
    suite.tasks(task("a"))
    shared = suite.path / "shared"
    shared.mkdir(mode=0o700)
    begun = suite.path / "begun"
    with scripted({"turns": [bash("touch a.txt"), bash(f"touch {begun}; sleep 300")]}) as server:
        settings = ("harness=tool_loop", "model=gpt-4o", f"base_url={server.base_url}", f"api_key={KEY}")
        running = suite.start(*TASKS, *settings, *words, XDG_RUNTIME_DIR=str(shared))
        running.wait_for(begun.exists)
        running.signal(signal.SIGINT)
        result = running.end()
    record = result.records()["a::1"]
    assert (record["failure_mode"], record["score"]) == ("cancelled", None), result.out
    assert record["usage"]["model_calls"] == 2
    assert (record["usage"]["input_tokens"], record["usage"]["cost_usd"]) == (2000, 0.007)
    assert json.loads((result.run_dir / "spend.jsonl").read_text()) == {"usd": 0.007, "tokens": 2200}


def test_the_key_is_nowhere(suite: Suite) -> None:
    """The key is in no file of the run and nothing that the agent's commands can see, even where it looks for it."""
    look = "env; cat /proc/self/environ; grep -rl sk-test-4711 . ..; ps -eo args 2>/dev/null | grep -c '[s]k-test-4711'"
    suite.tasks(task("a", artifacts=["seen.txt"]))
    moves = {"turns": [bash(f"({look}) > seen.txt 2>&1; cat seen.txt"), say(f"the key is {KEY}")]}
    with scripted(moves) as server:
        result = run(suite, server, "tool_loop")
    assert result.verdicts() == {"a::1": True}, result.out
    seen = next(result.run_dir.glob("attempts/*/a*/1/artifacts/**/seen.txt")).read_text()
    assert KEY not in seen
    assert "[redacted]" not in seen
    assert KEY.encode() not in b"".join(path.read_bytes() for path in result.run_dir.rglob("*") if path.is_file())
    assert KEY not in result.out + result.err
    assert "[redacted]" in result.records()["a::1"]["final_answer"]


def test_an_unknown_price_is_said(suite: Suite) -> None:
    """Where no price is known there is no cost, and the record says so; the user's own price is used."""
    suite.tasks(task("a"))
    with scripted({"turns": [say("done")]}) as server:
        record = run(suite, server, "tool_loop", model="own").records()["a::1"]
        own = run(suite, server, "tool_loop", "harness.prices={own: {input: 1, output: 10}}", model="own")
    assert "cost_usd" not in record["usage"]
    assert any(issue["code"] == "unknown_price" for issue in record["issues"])
    assert own.records()["a::1"]["usage"]["cost_usd"] == 0.002


def test_a_missing_model_is_said_before_anything_opens(suite: Suite) -> None:
    """An agent without a model is a usage error that says what to set."""
    suite.tasks(task("a"))
    result = suite.run(*TASKS, "harness=tool_loop")
    assert result.ret == 4
    assert "harness 'tool_loop' needs one: model=ID" in result.err
    result.check_clean()


def keys(*commands: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a turn of the terminal agent."""
    return say(json.dumps({"commands": list(commands), **more}))


def test_the_terminal_agent(suite: Suite) -> None:
    """It types, waits, sees what is new, is asked twice whether it is done; its failures have their modes."""
    if shutil.which("tmux") is None:
        pytest.skip("needs tmux")
    names = ("good", "chatty", "endless", "full", "slow")
    suite.tasks(*(task(name, "test -f a.txt") for name in names))
    first = keys({"keystrokes": "touch a.txt; echo number $((40 + 2))", "wait": "done"})
    editor = [keys({"keystrokes": ["cat > b.txt", "Enter", "hello", "Enter", "C-d"], "duration": 0.5})]
    wait = [keys({"keystrokes": "sleep 30", "wait": "done", "timeout": 0.5}), keys({"keystrokes": ["C-c"]})]
    done = say('{"done": true, "answer": "42"}')
    moves = [
        answers("good", first, *editor, *wait, keys({"keystrokes": "cat b.txt", "wait": "done"}), done, done),
        answers("chatty", first, say("no JSON")),
        answers("endless", first, keys({"keystrokes": "true", "wait": "done"})),
        answers("full", first, {"error": {"status": 400, "message": "maximum context length is 10 tokens"}}),
        answers("slow", first, say("late", delay=60)),
    ]
    with scripted(*moves) as server:
        result = run(suite, server, "terminus", "timeout=12", "harness.max_steps=8", "concurrency=3")
    assert result.modes() == {
        "good::1": "none",
        "chatty::1": "parse_error",
        "endless::1": "agent_error",
        "full::1": "context_length",
        "slow::1": "agent_timeout",
    }, result.out
    assert result.verdicts() == {f"{name}::1": True for name in names}
    assert result.records()["good::1"]["final_answer"] == "42"
    seen = [step["observations"][0]["content"] for step in trajectory(result, "good") if "observations" in step]
    assert "number 42" in seen[0]
    assert "still running after 0.5 s" in seen[2]
    assert "hello" in seen[4]
    assert "number 42" not in seen[4]
    folder = next(result.run_dir.glob("attempts/*/good*/1"))
    assert {path.name for path in (folder / "panes").iterdir()} == {"pre-agent.txt", "post-agent.txt"}
    assert "touch a.txt" in (folder / "commands.txt").read_text()
