"""Usage errors of pytest's: the same words with and without workers, and no run directory."""

from __future__ import annotations

import pytest

from .helpers import TASKS, Suite, task

RUN = (*TASKS, "harness=nop")
DRIVERS = pytest.mark.parametrize("words", [["-n0"], ["-n2"], ["concurrency=2"]], ids=["serial", "n2", "engine"])


def check_refused(suite: Suite, *words: str, needle: str) -> str:
    """Run, and check that only pytest's error is said and no run directory is left; returns what was printed."""
    result = suite.run(*RUN, *words)
    assert result.ret == 4, result.out + result.err
    assert needle in result.err
    for text in ("LOST", "missing", "results: ", "= agentcompass =", "= gates ="):
        assert text not in result.out + result.err
    result.check_clean()
    assert not list(suite.path.glob("agentcompass-results/*/*"))
    return result.out


@pytest.mark.parametrize("words", [["-n0"], ["-n2"]], ids=["serial", "n2"])
@pytest.mark.parametrize(
    ("wrong", "needle"),
    [
        (["-k", "a and"], "Wrong expression passed to '-k': a and"),
        (["-m", "a and"], "Wrong expression passed to '-m': a and"),
        (["-k", "a and", "--agentcompass-gate", "pass@1 >= 0.5"], "Wrong expression passed to '-k': a and"),
        (["gone.py"], "file or directory not found: gone.py"),
        (["gone.agentcompass.yaml::x"], "file or directory not found: gone.agentcompass.yaml::x"),
        (["x" * 300], "file or directory not found: xxx"),
        (["--maxfail=x"], "argument --maxfail: invalid int value: 'x'"),
        (["--not-an-option"], "unrecognized arguments: --not-an-option"),
        (["--agentcompass-shard=3"], "3"),
    ],
    ids=["k", "m", "k-gate", "path", "path-of-node", "long-path", "maxfail", "option", "shard"],
)
def test_what_can_be_refused_at_once(suite: Suite, wrong: list[str], needle: str, words: list[str]) -> None:
    """Expressions, paths and options that cannot be used are refused before a run directory is made or named."""
    suite.tasks(task("a"), task("b"))
    assert "agentcompass: run " not in check_refused(suite, *words, *wrong, needle=needle)
    assert not (suite.path / "agentcompass-results").exists()


@DRIVERS
@pytest.mark.parametrize("wrong", ["tasks.yaml::gone", "s.agentcompass.yaml::gone"])
def test_a_node_that_is_not_found(suite: Suite, wrong: str, words: list[str]) -> None:
    """A node id that matches nothing is named, with workers too, and the run's directory is taken back."""
    suite.tasks(task("a"))
    suite.requests({"name": "one"})
    check_refused(suite, *words, wrong, needle=f"{suite.path}/{wrong}\n")


@DRIVERS
@pytest.mark.parametrize(
    "hook",
    [
        "pytest_collection_modifyitems(items)",
        "pytest_collection_finish(session)",
        "pytest_itemcollected(item)",
        "pytest_sessionstart(session)",
    ],
)
def test_a_conftest_that_refuses(suite: Suite, hook: str, words: list[str]) -> None:
    """A usage error that a conftest.py raises while pytest starts or collects is shown alone."""
    suite.tasks(task("a"), task("b"))
    suite.write("conftest.py", f"import pytest\ndef {hook}:\n    raise pytest.UsageError('not like this')\n")
    check_refused(suite, *words, needle="not like this")


@DRIVERS
def test_a_conftest_that_cannot_be_imported(suite: Suite, words: list[str]) -> None:
    """A conftest.py that raises is pytest's error alone."""
    suite.tasks(task("a"))
    suite.write("conftest.py", "raise RuntimeError('broken here')\n")
    result = suite.run(*RUN, *words)
    assert result.ret == 4
    assert "broken here" in result.err
    assert "agentcompass" not in result.out
    assert not (suite.path / "agentcompass-results").exists()


@DRIVERS
@pytest.mark.parametrize(
    ("wrong", "refuse"),
    [(["-k", "a and"], False), (["tasks.yaml::gone"], False), ([], True)],
    ids=["k", "node", "hook"],
)
def test_a_refused_resume_leaves_its_run_alone(suite: Suite, wrong: list[str], refuse: bool, words: list[str]) -> None:
    """A resume that pytest refuses changes neither the records nor the plan nor the state of the run."""
    suite.tasks(task("a"), task("b"), task("c"))
    first = suite.run(*RUN, "-k", "not c")
    before = (first.run_info()["status"], first.summary(), (first.run_dir / "planned.jsonl").read_bytes())
    if refuse:
        hook = "def pytest_collection_modifyitems():\n    raise pytest.UsageError('not like this')\n"
        suite.write("conftest.py", f"import pytest\n{hook}")
    result = suite.run(*RUN, *words, *wrong, "--agentcompass-resume=last")
    assert result.ret == 4, result.out + result.err
    assert "= agentcompass =" not in result.out
    result.check_clean()
    assert result.run_dirs == first.run_dirs
    assert (result.run_info()["status"], result.summary(), (result.run_dir / "planned.jsonl").read_bytes()) == before


def test_markers_of_tasks_are_known_to_a_strict_selection(suite: Suite) -> None:
    """-m with `--strict-markers` knows the tags that tasks bring: names are checked when they are collected."""
    suite.tasks(task("a", tags=["quick"]), task("b"))
    for words in (["-n0"], ["-n2"]):
        result = suite.run(*RUN, "--strict-markers", "-m", "quick", *words)
        assert result.ret == 0, result.out + result.err
        assert list(result.records()) == ["a::1"]


@DRIVERS
def test_a_refusal_after_attempts_loses_none(suite: Suite, words: list[str]) -> None:
    """Status 4 that something gives a run with attempts in it keeps their records and reports."""
    suite.tasks(task("a"), task("b"))
    suite.write(
        "conftest.py",
        "import pytest\ndef pytest_runtest_logreport(report):\n"
        "    if report.when == 'teardown':\n        pytest.exit('enough', returncode=4)\n",
    )
    result = suite.run(*RUN, *words)
    assert result.ret == 4, result.out + result.err
    assert "= agentcompass =" in result.out
    assert result.request_summary()["report"]["attempts"]["passed"] >= 1
