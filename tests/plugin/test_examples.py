"""The example suites: with the reference solutions everything passes, with an agent that does nothing nothing does."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from .helpers import Suite

EXAMPLES = Path(__file__).parents[2] / "example_suites"


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
