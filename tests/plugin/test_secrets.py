"""A key that the agent prints in every form is nowhere where somebody may read it."""

from __future__ import annotations

import shlex
import sys

import pytest
from leaking import LEAK, command_lines, holds, random_key, watched

from .helpers import TASKS, Suite, task

DRIVERS = pytest.mark.parametrize("words", [["-n0"], ["-n2"], ["concurrency=2"]], ids=["serial", "n2", "engine"])


@DRIVERS
@pytest.mark.parametrize("name", ["MY_KEY", "PLAIN_NAME"])
def test_a_key_is_nowhere(suite: Suite, words: list[str], name: str) -> None:
    """Not in a file of the run, in what is printed, in JUnit, nor in a command line, whatever the agent does."""
    key = random_key()
    suite.write("leak.py", LEAK.replace("MY_KEY", name))
    kept = ["kept.txt", "answer.txt"]
    suite.tasks(task("a", verify="cat kept.txt answer.txt; false", artifacts=kept), task("b", artifacts=kept))
    command = shlex.join([sys.executable, str(suite.path / "leak.py")])
    known = [] if "KEY" in name else ["model=m", "model.api_key=${PLAIN_NAME}"]
    with watched(command_lines, key) as seen:
        result = suite.run(
            *TASKS, "harness=command", f"harness.command={command}", f"harness.pass_env=[{name}]", *known, *words,
            "-rA", "-v", "--junitxml=own.xml", **{name: key},
        )  # fmt: skip
    assert result.counts == {"passed": 1, "failed": 1}, result.out
    assert seen == []
    log = (result.run_dir / "attempts/tasks/a/1/logs/agent.txt").read_text()
    assert log.count("[redacted]") == 6, log  # it did print all of them
    assert not holds((result.out + result.err).encode(), key)
    places = [suite.path / "own.xml", *(path for path in result.run_dir.rglob("*") if path.is_file())]
    assert [path for path in places if holds(path.read_bytes(), key)] == []
