"""Whole runs of questions: direct answers, model judges, code, media, on the scripted server."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("httpx", reason="needs the extra models")

from pytest_agentcompass.models.scripted import ScriptedServer

from .helpers import Result, Suite
from .test_models import KEY, answers, bash, say, scripted


def ask(suite: Suite, server: ScriptedServer, rows: list[dict[str, Any]], *words: str, harness: str = "") -> Result:
    """Run rows as questions."""
    shared = suite.path / "shared"
    shared.mkdir(exist_ok=True, mode=0o700)
    suite.write("q.jsonl", "\n".join(json.dumps(row) for row in rows))
    settings = (f"harness={harness or 'openai_chat'}", "model=gpt-4o", f"base_url={server.base_url}", f"api_key={KEY}")
    return suite.run(
        "--agentcompass", "benchmark=qa", "benchmark.path=q.jsonl", *settings, *words, XDG_RUNTIME_DIR=str(shared)
    )


def question(id: str, answer: Any = "42", **more: Any) -> dict[str, Any]:
    """Return a row."""
    return {"id": id, "question": f"question {id}?", "answer": answer, **more}


def judge(server: ScriptedServer, **more: Any) -> str:
    """Return the word that makes a model the judge."""
    model = {"id": "judge", "base_url": server.base_url, "api_key": KEY, "api_protocol": "anthropic"}
    grader = {"kind": "judge", "judge": {"model": model, **more}}
    return f"benchmark.grader={json.dumps(grader)}"


def verdict(text: str, said: str) -> dict[str, Any]:
    """Return the judge's conversation about an answer that contains *text*."""
    return {"match": {"model": "judge", "contains": [text]}, "turns": [{"text": said}]}


def test_answers_are_graded(suite: Suite) -> None:
    """Right and wrong answers pass and fail; the expected one is told; the system prompt and media are sent."""
    picture = {"image": "data:image/png;base64,QUJD"}
    rows = [question("right", **picture), question("wrong", **picture), question("empty", **picture)]
    moves = [answers("right", say("42")), answers("wrong", say("41")), answers("empty", say(""))]
    with scripted(*moves) as server:
        result = ask(suite, server, rows, "benchmark.fields.image=image", "benchmark.system_prompt=Be brief.")
        bodies = [json.dumps(call["body"]) for call in server.calls]
    assert result.verdicts() == {"right::1": True, "wrong::1": False, "empty::1": False}, result.out
    issues = {issue["code"]: issue["message"] for issue in result.records()["wrong::1"]["issues"]}
    assert "expected '42'" in issues["wrong_answer"]
    assert all("Be brief." in body and "QUJD" in body for body in bodies)


def test_a_model_judges(suite: Suite) -> None:
    """The judge decides by its verdict in JSON, with its own endpoint and key; what it spent is kept apart."""
    rows = [question("good"), question("bad")]
    moves = [
        verdict("forty-two", 'Sure: {"reasoning": "same", "correct": true}'),
        verdict("no idea", '{"reasoning": "other", "correct": false}'),
        answers("good", say("forty-two")),
        answers("bad", say('no idea {"correct": true}')),
    ]
    with scripted(*moves) as server:
        result = ask(suite, server, rows, judge(server))
    assert result.verdicts() == {"good::1": True, "bad::1": False}, result.out
    record = result.records()["good::1"]
    spent = record["usage"]
    assert (spent["model_calls"], spent["input_tokens"]) == (1, 1000)
    assert (spent["judge_calls"], spent["judge_input_tokens"], spent["judge_output_tokens"]) == (1, 100, 20)
    assert "judge_cost_usd" not in spent
    assert any(issue["code"] == "unknown_price" and "judge.prices" in issue["message"] for issue in record["issues"])
    assert record["telemetry"]["judge"]["input_tokens"] == 100
    assert KEY.encode() not in b"".join(path.read_bytes() for path in result.run_dir.rglob("*") if path.is_file())


def test_what_judges_spend_is_of_the_budget(suite: Suite) -> None:
    """What a judge costs, its trial too, counts against the run's budget, also where it gives no verdict."""
    examples = [{"question": "?", "reference": "x", "answer": "example-answer", "correct": True}]
    prices = {"judge": {"input": 1000, "output": 0}}
    moves = [
        verdict("example-answer", '{"correct": true}'),
        verdict("forty-two", "no verdict"),
        {"turns": [say("forty-two")]},
    ]
    with scripted(*moves) as server:
        word = judge(server, examples=examples, prices=prices)
        result = ask(suite, server, [question(name) for name in "abcd"], word, "budget.usd=0.42")
    assert result.modes() == {
        "a::1": "evaluation_error", "b::1": "evaluation_error", "c::1": "budget_spent", "d::1": "budget_spent",
    }, result.out  # fmt: skip
    spent = {name: record["usage"].get("judge_cost_usd") for name, record in result.records().items()}
    assert spent == {"a::1": 0.3, "b::1": 0.2, "c::1": None, "d::1": None}
    assert "of budget.usd $0.42 are spent" in result.out


@pytest.mark.parametrize(
    ("turn", "mode"),
    [
        ({"text": "I think it is fine"}, "evaluation_error"),
        ({"text": '{"correct": "yes"}'}, "evaluation_error"),
        ({"error": {"status": 400, "message": "maximum context length"}}, "evaluation_error"),
        ({"error": {"status": 400, "message": "odd"}}, "model_unavailable"),
    ],
)
def test_no_verdict_is_no_score(suite: Suite, turn: dict[str, Any], mode: str) -> None:
    """A judge that gives no clear verdict is an error, never a pass or a fail."""
    moves: list[dict[str, Any]] = [{"match": {"model": "judge"}, "turns": [turn]}, {"turns": [say("42")]}]
    with scripted(*moves) as server:
        result = ask(suite, server, [question("a")], judge(server))
    assert result.modes() == {"a::1": mode}, result.out
    assert result.verdicts() == {"a::1": None}


@pytest.mark.parametrize(("agrees", "mode"), [(True, "none"), (False, "evaluation_error")])
def test_a_judge_is_tried_first(suite: Suite, agrees: bool, mode: str) -> None:
    """A judge that disagrees with its examples may not judge; it is tried once for all attempts."""
    examples = [{"question": "?", "reference": "x", "answer": "example-answer", "correct": True}]
    moves = [
        verdict("example-answer", json.dumps({"correct": agrees})),
        verdict("forty-two", '{"correct": true}'),
        {"turns": [say("forty-two")]},
    ]
    with scripted(*moves) as server:
        result = ask(suite, server, [question("a"), question("b")], judge(server, examples=examples), "concurrency=2")
        tried = sum("example-answer" in json.dumps(call["body"]) for call in server.calls)
    assert set(result.modes().values()) == {mode}, result.out
    assert tried == 1


def test_code_is_run(suite: Suite) -> None:
    """The answer's code is graded by the row's tests; an endless one is a test time-out, a broken one fails."""
    check = "from solution import double\nassert double(4) == 8\n"
    names = ("right", "wrong", "broken", "endless", "prose")
    rows = [question(name, tests=check) for name in names]
    block = "Here:\n```python\n{}\n```\n"
    moves = [
        answers("right", say(block.format("def double(x):\n    return 2 * x"))),
        answers("wrong", say(block.format("def double(x):\n    return x"))),
        answers("broken", say(block.format("def double(:"))),
        answers("endless", say(block.format("while True: pass"))),
        answers("prose", say("I cannot program")),
    ]
    words = ("benchmark.grader.kind=code", "benchmark.fields.tests=tests", "execution.evaluation_timeout_seconds=3")
    with scripted(*moves) as server:
        result = ask(suite, server, rows, *words)
    assert result.verdicts() == {f"{name}::1": name == "right" for name in names}, result.out
    assert result.modes()["endless::1"] == "test_timeout"


def test_the_oracle_needs_no_model(suite: Suite) -> None:
    """The oracle plays the right answers, also of choices; a filter and a limit choose rows."""
    rows = [question(str(n), "yes", options=["no", "yes"], level=n % 2) for n in range(6)]
    suite.write("q.jsonl", "\n".join(json.dumps(row) for row in rows))
    words = ("benchmark.grader.kind=choice", "benchmark.fields.choices=options", "benchmark.filter={level: 1}")
    result = suite.run("--agentcompass", "benchmark=qa", "benchmark.path=q.jsonl", "harness=oracle", *words, "limit=2")
    assert result.verdicts() == {"1::1": True, "3::1": True}, result.out + result.err
    assert result.ret == 0


def test_an_agent_works_on_a_questions_file(suite: Suite) -> None:
    """A file of the dataset is in the sandbox and named in the prompt."""
    suite.write("notes.txt", "the number is 42")
    with scripted({"turns": [bash("grep -o '[0-9]*' notes.txt"), say("42")]}) as server:
        rows = [question("a", file="notes.txt")]
        result = ask(suite, server, rows, "benchmark.fields.file=file", harness="tool_loop")
        prompt = json.dumps(server.calls[0]["body"])
        seen = json.dumps(server.calls[1]["body"])
    assert result.verdicts() == {"a::1": True}, result.out
    assert "notes.txt belongs to the question" in prompt
    assert "42" in seen
