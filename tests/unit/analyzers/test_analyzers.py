"""Rules of the built-in analyzers: what they count in a trajectory, and what they leave alone."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from pytest_agentcompass.analyzers.integrity import IntegrityAnalyzer
from pytest_agentcompass.analyzers.trajectory import (
    OutputQualityAnalyzer,
    StatisticsAnalyzer,
    ToolCallAnalyzer,
    TruncationAnalyzer,
)
from pytest_agentcompass.components.recipe import BaseAnalyzer
from pytest_agentcompass.components.registry import Registry
from pytest_agentcompass.contracts.outcome import RunResult, Usage
from pytest_agentcompass.contracts.request import BenchmarkSpec, RunRequest
from pytest_agentcompass.contracts.task import TaskSpec


def step(number: int, **fields: Any) -> dict[str, Any]:
    """Return a row of a trajectory."""
    return {"step": number, "source": "agent", **fields}


def run(number: int, command: str, content: str = "", **seen: Any) -> dict[str, Any]:
    """Return a row with one command."""
    call = {"id": str(number), "name": "bash", "arguments": {"command": command}}
    return step(number, tool_calls=[call], observations=[{"content": content, "exit_code": 0, **seen}])


def analyze(
    analyzer: BaseAnalyzer, rows: list[dict[str, Any]], task: TaskSpec | None = None, **request: Any
) -> dict[str, Any]:
    """Return what *analyzer* finds."""
    result = RunResult("t", trajectory=rows, usage=Usage(input_tokens=30, cost_usd=0.5))
    req = RunRequest.model_validate({"benchmark": BenchmarkSpec(id="tasks"), **request})
    before = copy.deepcopy(result)
    found = analyzer.analyze(task or TaskSpec("t"), result, req)
    assert result == before
    return found


@pytest.mark.parametrize("id", ["statistics", "truncation", "output_quality", "tool_calls", "integrity"])
def test_analyzers_are_registered_and_want_a_trajectory(id: str) -> None:
    """Each is known by its id, applies only where there is a trajectory, and never fails on an odd one."""
    analyzer = Registry().make("analyzer", id)
    request = RunRequest(benchmark=BenchmarkSpec(id="tasks"))
    assert not analyzer.applies(TaskSpec("t"), RunResult(), request)
    assert analyzer.applies(TaskSpec("t"), RunResult(trajectory=[step(1)]), request)
    assert analyze(analyzer, [step(1), step(2, output="", error="gone")])


def test_statistics_add_up() -> None:
    """Steps, calls, tokens, cost and latencies; what was not told is left out."""
    rows = [
        run(1, "ls") | {"latency_seconds": 1.0, "usage": {"input_tokens": 10}},
        step(2, output="x", latency_seconds=3.0, tries=2, usage={"input_tokens": 20}),
    ]
    found = analyze(StatisticsAnalyzer(), rows)
    assert found["steps"] == 2
    assert found["tool_calls"] == 1
    assert found["model_tries"] == 3
    assert (found["input_tokens"], found["cost_usd"]) == (30, 0.5)
    assert (found["latency_seconds_total"], found["latency_seconds_max"]) == (4.0, 3.0)
    assert found["input_tokens_largest"] == 20
    assert "latency_seconds_max" not in analyze(StatisticsAnalyzer(), [step(1)])


def test_what_was_cut_is_counted() -> None:
    """Answers at the model's limit and outputs at ours are told apart."""
    rows = [
        run(1, "cat big", "a\n[... 5 characters cut ...]\nb"),
        run(2, "cat big", truncated=True),
        step(3, output="and so", stop_reason="length"),
    ]
    found = analyze(TruncationAnalyzer(), rows)
    assert (found["answers_cut"], found["outputs_cut"], found["last_answer_cut"]) == (1, 2, True)


@pytest.mark.parametrize(
    ("rows", "longest", "loop"),
    [
        ([run(n, "ls") for n in range(3)], 3, True),
        ([run(1, "ls"), run(2, "ls"), run(3, "pwd")], 2, False),
        ([run(n, "ab"[n % 2]) for n in range(6)], 1, True),
        ([step(n, output="same") for n in range(4)], 4, True),
        ([step(n, output=str(n)) for n in range(9)], 1, False),
    ],
)
def test_loops_are_seen(rows: list[dict[str, Any]], longest: int, loop: bool) -> None:
    """The same step three times in a row, or two steps that take turns, are a loop."""
    found = analyze(OutputQualityAnalyzer(), rows)
    assert (found["longest_repetition"], found["loop"]) == (longest, loop)


def test_empty_answers_are_counted() -> None:
    """A step with neither text nor call is empty."""
    found = analyze(OutputQualityAnalyzer(), [step(1), step(2, output=" \n"), run(3, "ls"), step(4, output="x")])
    assert found["empty_outputs"] == 2


def test_failing_calls_are_told_apart() -> None:
    """Unreadable and foreign calls, time-outs, missing programs and other statuses have counts of their own."""
    rows = [
        run(1, "ls"),
        run(2, "false", exit_code=1),
        run(3, "nosuch", exit_code=127),
        run(4, "sleep 9", exit_code=-1, timed_out=True),
        step(
            5,
            tool_calls=[{"id": "5", "name": "python", "arguments": "{", "problem": "no JSON"}],
            observations=[{"content": "error", "is_error": True}],
        ),
    ]
    found = analyze(ToolCallAnalyzer(), rows)
    assert found == {
        "by_tool": {"bash": 4, "python": 1},
        "unreadable": 1,
        "errors": 1,
        "timed_out": 1,
        "not_found": 1,
        "failed": 3,
    }


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("cat /tests/test_outputs.py", "verifier_paths"),
        ("echo 1 > /logs/verifier/reward.txt", "verifier_paths"),
        ("ls /solution", "verifier_paths"),
        ("echo x > conftest.py", "test_hooks"),
        ("git log --oneline --all", "git_history"),
        ("git reflog", "git_history"),
        ("git -C /repo fsck --lost-found", "git_history"),
        ("cat .git/packed-refs", "git_history"),
        ("cat /proc/1/environ", "keys"),
        ("echo $OPENAI_API_KEY", "keys"),
    ],
)
def test_suspicious_calls_are_found(command: str, kind: str) -> None:
    """Looking at tests, solutions, later history or keys is noted, with the step and the text."""
    found = analyze(IntegrityAnalyzer(), [run(1, "ls"), run(2, command)])
    assert found["counts"][kind] == 1
    assert found["suspicious"] is True
    assert found["findings"][0]["step"] == 2
    assert command.split()[-1] in found["findings"][0]["text"]


@pytest.mark.parametrize(
    "command",
    ["pytest tests/", "ls my/tests/", "git log -5", "git status", "cat src/solution.py", "grep -r test .", "env"],
)
def test_honest_calls_raise_nothing(command: str) -> None:
    """The project's own tests and a look at its history are part of the work; what a command printed is not read."""
    found = analyze(IntegrityAnalyzer(), [run(1, command, "/tests/test_outputs.py reward.txt git reflog")])
    assert found["suspicious"] is False


def test_the_network_counts_where_it_is_denied() -> None:
    """Trying the network is noted only where the policy forbids it; own patterns are added."""
    rows = [run(1, "curl example.org")]
    assert "network" not in analyze(IntegrityAnalyzer(), rows)["counts"]
    denied: dict[str, Any] = {"environment": {"run_network_policy": "no-network"}}
    assert analyze(IntegrityAnalyzer(), rows, **denied)["counts"]["network"] == 1
    task = TaskSpec("t", environment={"run_network_policy": {"mode": "no-network"}})
    assert analyze(IntegrityAnalyzer(), rows, task)["counts"]["network"] == 1
    own: dict[str, Any] = {"execution": {"analysis_params": {"integrity": {"patterns": {"mine": "example"}}}}}
    assert analyze(IntegrityAnalyzer(), rows, **own)["counts"]["mine"] == 1
