"""Whole runs of the real mini-swe-agent on the scripted model."""

from __future__ import annotations

import importlib.util

import pytest

pytest.importorskip("httpx", reason="needs the extra models")
if importlib.util.find_spec("minisweagent") is None:  # its import prints and makes folders
    pytest.skip("needs the extra mini-swe-agent", allow_module_level=True)

from .helpers import Suite, task
from .test_models import KEY, PROTOCOLS, answers, bash, run, say, scripted, trajectory

SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_real_agent_solves_tasks_and_fails(suite: Suite, protocol: str) -> None:
    """Right moves pass, wrong ones fail; tokens, cost, version, submission and trajectory stand on the record."""
    suite.tasks(task("one", "test -f a.txt"), task("two", "test -f b.txt"), task("bad", "test -f c.txt"))
    moves = [
        answers("one", bash("touch a.txt; env"), bash(f"{SUBMIT}; echo my patch")),
        answers("two", bash("echo hello two; exit 3"), bash("touch b.txt"), bash(SUBMIT)),
        answers("bad", bash(SUBMIT)),
    ]
    with scripted(*moves) as server:
        result = run(suite, server, "mini_swe_agent", f"model.api_protocol={protocol}")
    assert result.verdicts() == {"one::1": True, "two::1": True, "bad::1": False}, result.out + result.err
    assert set(result.modes().values()) == {"none"}
    record = result.records()["one::1"]
    assert record["final_answer"] == "my patch"
    assert record["usage"]["cost_usd"] == 0.007
    assert record["harness"]["version"].startswith("mini-swe-agent ")
    steps = trajectory(result, "two")
    assert [step["observations"][0]["exit_code"] for step in steps] == [3, 0, 0]
    assert KEY.encode() not in b"".join(path.read_bytes() for path in result.run_dir.rglob("*") if path.is_file())
    assert "mini-swe-agent version" not in result.out
    result.check_clean()


def test_how_the_real_agent_fails(suite: Suite) -> None:
    """Limits, unreadable answers, a full context and the time limit have their modes; what was left is graded."""
    names = ("endless", "chatty", "full", "slow", "sleepy", "refusing")
    suite.tasks(*(task(name, "test -f a.txt") for name in names))
    first = bash("touch a.txt")
    moves = [
        answers("endless", first, bash("true")),
        answers("chatty", first, say("no command here")),
        answers("full", first, {"error": {"status": 400, "message": "maximum context length is 10 tokens"}}),
        answers("slow", first, say("late", delay=60)),
        answers("sleepy", first, bash("sleep 60")),
        answers("refusing", first, say("no", stop="refusal")),
    ]
    with scripted(*moves) as server:
        result = run(suite, server, "mini_swe_agent", "timeout=4", "harness.step_limit=5", "concurrency=3")
    assert result.modes() == {
        "endless::1": "agent_error",
        "chatty::1": "parse_error",
        "full::1": "context_length",
        "slow::1": "agent_timeout",
        "sleepy::1": "agent_timeout",
        "refusing::1": "model_refused",
    }, result.out + result.err
    assert result.verdicts() == {f"{name}::1": True for name in names}
    assert result.records()["sleepy::1"]["usage"]["model_calls"] == 2
    result.check_clean()


def test_an_unknown_config_is_an_error(suite: Suite) -> None:
    """The name of a config file that does not exist is answered with those that do."""
    suite.tasks(task("a"))
    with scripted({"turns": [say("x")]}) as server:
        result = run(suite, server, "mini_swe_agent", "harness.config=mimi")
    assert result.modes() == {"a::1": "harness_error"}
    assert "did you mean 'mini'?" in result.out
