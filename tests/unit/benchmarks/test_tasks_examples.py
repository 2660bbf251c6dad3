"""The example suites are sound as a user would start them."""

from __future__ import annotations

from pathlib import Path

from pytest_agentcompass.benchmarks.tasks import TasksBenchmark
from pytest_agentcompass.components.registry import Registry
from pytest_agentcompass.config.resolve import ResolvedRequest, resolve_run
from pytest_agentcompass.config.words import split_words
from pytest_agentcompass.contracts.task import TaskSpec

EXAMPLES = Path(__file__).parents[3] / "example_suites"


def test_suite_runs_tasks_then_questions(tmp_path: Path) -> None:
    """The example suite resolves to its two requests, in order, with files found beside the suite."""
    config = resolve_run(words=split_words([]), rootdir=tmp_path, environ={}, registry=Registry(), cwd=tmp_path)
    entries = config.load_suite(EXAMPLES / "examples.agentcompass.yaml")
    requests = [item.request for item in entries if isinstance(item, ResolvedRequest)]
    assert [item.name for item in requests] == ["first-steps", "questions"]
    assert {(item.harness.id, item.environment.id) for item in requests} == {("oracle", "host_process")}
    loaded = [TasksBenchmark().load_tasks(item) for item in requests]
    assert [len(items) for items in loaded] == [6, 4]
    assert all(isinstance(item, TaskSpec) for items in loaded for item in items)


def test_questions_show_every_kind_of_match() -> None:
    """Each kind of match has its example."""
    text = (EXAMPLES / "questions.jsonl").read_text()
    assert all(f'"match": "{name}"' in text for name in ("exact", "normalized", "numeric", "regex"))
