"""Tests of the user's own with `@pytest.mark.agentcompass(...)`."""

from __future__ import annotations

import pytest

from .helpers import Suite, task

HEAD = """
import pytest
TASKS = {"id": "tasks", "params": {"path": "tasks.yaml"}}
MARK = pytest.mark.agentcompass(benchmark=TASKS, harness="nop", attempts=2)
"""


def test_a_marked_test_runs_once_per_task_and_attempt(suite: Suite) -> None:
    """The test is parametrized over tasks and attempts; its own asserts decide; records are kept."""
    suite.tasks(task("a"), task("b", verify="false"))
    suite.write(
        "test_mine.py",
        HEAD + "@MARK\ndef test_it(agentcompass_attempt, agentcompass_task):\n"
        "    agentcompass_attempt.run()\n"
        "    result = agentcompass_attempt.evaluate()\n"
        "    assert result.metrics['correct'] == (agentcompass_task.task_id == 'a')\n",
    )
    for workers in ([], ["-n2"]):
        result = suite.run("--agentcompass", "test_mine.py", *workers)
        assert result.ret == 0, result.out
        assert result.counts == {"passed": 4}
        assert result.verdicts() == {"a::1": True, "a::2": True, "b::1": False, "b::2": False}


def test_without_the_option_a_marked_test_is_skipped(suite: Suite) -> None:
    """Nobody starts a costly run by typing pytest."""
    suite.tasks(task("a"))
    suite.write("test_mine.py", HEAD + "@MARK\ndef test_it(agentcompass_attempt): pass\n")
    result = suite.run("-rs", "--strict-markers")
    assert result.ret == 0
    assert result.counts == {"skipped": 1}
    assert "give --agentcompass" in result.out
    assert not (suite.path / "agentcompass-results").exists()


def test_an_own_test_that_does_not_grade_is_the_verdict(suite: Suite) -> None:
    """A test that never calls evaluate() passes or fails the attempt by its own asserts, with its own traceback."""
    suite.tasks(task("a"))
    suite.write(
        "test_mine.py",
        HEAD + "@MARK\ndef test_it(agentcompass_attempt):\n"
        "    agentcompass_attempt.run()\n"
        "    assert agentcompass_attempt.attempt.number == 1, 'mine'\n",
    )
    result = suite.run("--agentcompass", "test_mine.py")
    assert result.ret == 1
    assert result.counts == {"passed": 1, "failed": 1}
    assert result.verdicts() == {"a::1": True, "a::2": False}
    assert "assert agentcompass_attempt.attempt.number == 1" in result.out


def test_an_infrastructure_error_is_an_error_of_the_own_test(suite: Suite) -> None:
    """When the environment fails the test is an error, not a failure, and the text is ours."""
    suite.tasks(task("a"))
    suite.write(
        "test_mine.py",
        HEAD.replace('"nop"', '{"id": "scripted", "params": {"steps": [{"fail": "environment_error"}]}}')
        + "@MARK\ndef test_it(agentcompass_attempt):\n    agentcompass_attempt.run()\n",
    )
    result = suite.run("--agentcompass", "test_mine.py")
    assert result.ret == 1, result.out
    assert result.counts == {"error": 2}
    assert set(result.modes().values()) == {"environment_error"}
    result.check_clean()


@pytest.mark.parametrize(
    ("body", "needle"),
    [
        (
            "@pytest.mark.agentcompass(benchmark='taks')\ndef test_it(agentcompass_attempt): pass\n",
            "did you mean 'tasks'?",
        ),
        (
            "@pytest.mark.agentcompass(benchmrk='x')\ndef test_it(agentcompass_attempt): pass\n",
            "did you mean 'benchmark'?",
        ),
        ("@MARK\ndef test_it(): pass\n", "needs the fixture agentcompass_attempt"),
        ("@pytest.mark.agentcompass('x')\ndef test_it(agentcompass_attempt): pass\n", "takes KEY=VALUE settings"),
        ("def test_it(agentcompass_attempt): pass\n", "agentcompass"),
    ],
    ids=["id", "key", "fixture", "positional", "unmarked"],
)
def test_a_wrong_mark_is_a_clear_error(suite: Suite, body: str, needle: str) -> None:
    """A marker that cannot be used is an error of its module that names the test; other files run."""
    suite.tasks(task("a"))
    suite.write("test_mine.py", HEAD + body)
    suite.write("test_other.py", "def test_other(): pass\n")
    result = suite.run("--agentcompass", "test_mine.py", "test_other.py")
    assert result.ret == 1, result.out
    assert result.counts.get("passed") == 1
    assert needle in result.out
    assert "test_mine.py" in result.out
    result.check_clean()


def test_classes_and_other_parameters(suite: Suite) -> None:
    """The marker works on a class, beside parameters of the user's own, which are attempts of their own."""
    suite.tasks(task("a"))
    suite.write(
        "test_mine.py",
        HEAD
        + "@MARK\nclass TestIt:\n    def test_it(self, agentcompass_attempt):\n        agentcompass_attempt.run()\n",
    )
    result = suite.run("--agentcompass", "test_mine.py")
    assert result.ret == 0, result.out
    assert result.counts == {"passed": 2}


def test_two_own_tests_over_the_same_tasks_stay_apart(suite: Suite) -> None:
    """Two marked tests have two requests, and their records do not meet."""
    suite.tasks(task("a"))
    body = "def test_{}(agentcompass_attempt):\n    agentcompass_attempt.run()\n    assert {}\n"
    suite.write("test_mine.py", HEAD + "@MARK\n" + body.format("x", 1) + "@MARK\n" + body.format("y", 0))
    result = suite.run("--agentcompass", "test_mine.py")
    assert result.counts == {"passed": 2, "failed": 2}
    assert len(result.records()) == 4
    assert sorted(map(str, result.verdicts().values())) == ["False", "False", "True", "True"]


def test_skips_and_expected_failures_of_own_tests(suite: Suite) -> None:
    """skip and xfail of a marked test do what they do elsewhere."""
    suite.tasks(task("a"))
    suite.write(
        "test_mine.py",
        HEAD.replace(", attempts=2", "")
        + "@MARK\n@pytest.mark.skip(reason='not now')\ndef test_s(agentcompass_attempt): pass\n"
        "@MARK\n@pytest.mark.xfail(reason='known')\ndef test_x(agentcompass_attempt):\n    assert 0\n"
        "@MARK\ndef test_p(agentcompass_attempt):\n    pytest.skip('inside')\n",
    )
    result = suite.run("--agentcompass", "test_mine.py", "-rsx")
    assert result.ret == 0, result.out
    assert result.counts == {"skipped": 2, "xfailed": 1}
    result.check_clean()
