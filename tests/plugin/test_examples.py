"""The example suites: with the reference solutions everything passes, with an agent that does nothing nothing does."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .helpers import Suite

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "example_suites"
_BARE = """
import sys
class Without:
    def find_spec(self, name, path=None, target=None):
        if name in ("hypothesis", "httpx", "scipy", "statsmodels", "xdist", "pytest_timeout"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Without())
import pytest
sys.exit(pytest.main(sys.argv[1:]))
"""


@pytest.fixture
def examples(suite: Suite) -> Suite:
    """A copy of the example suites."""
    shutil.copytree(EXAMPLES, suite.path / "example_suites")
    return suite


@pytest.mark.parametrize("words", [[], ["concurrency=4"]], ids=["serial", "engine"])
def test_the_oracle_solves_all(examples: Suite, words: list[str]) -> None:
    """The oracle passes every example, at least five of them; nothing is skipped, nothing is left."""
    result = examples.run("--agentcompass", "example_suites/examples.agentcompass.yaml", *words)
    assert result.ret == 0, result.out
    assert result.counts == {"passed": len(result.records())}
    assert len(result.records()) >= 5
    assert examples.sandboxes() == []
    assert all(request["report"]["headline"]["value"] == 1.0 for request in result.summary()["requests"])


def test_doing_nothing_solves_nothing(examples: Suite) -> None:
    """No example passes by itself."""
    result = examples.run("--agentcompass", "example_suites/examples.agentcompass.yaml", "harness=nop", "-n2")
    assert result.ret == 1
    assert not any(result.verdicts().values()), result.out


def test_they_need_no_extra(suite: Suite) -> None:
    """The first command of the README, in a checkout, works where none of the optional packages is installed."""
    for name in ("conftest.py", "pyproject.toml"):
        shutil.copy(ROOT / name, suite.path)
    for name in ("example_suites", "tests"):
        shutil.copytree(ROOT / name, suite.path / name, ignore=shutil.ignore_patterns("__pycache__"))
    (suite.path / "pytest.ini").unlink()
    hidden = [word for name in ("hypothesispytest", "xdist", "timeout") for word in ("-p", f"no:{name}")]
    for words in (["example_suites"], ["example_suites", "concurrency=3"]):
        done = subprocess.run(
            [sys.executable, "-c", _BARE, *hidden, "--agentcompass", *words],
            cwd=suite.path, env=suite.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert "10 passed" in done.stdout
