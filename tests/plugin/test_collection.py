"""From tasks to items: the tree, the ids, what cannot be collected."""

from __future__ import annotations

import pytest

from .helpers import TASKS, Suite, cases, task

RUN = (*TASKS, "harness=nop")


def test_the_tree_is_session_request_task_attempt(suite: Suite) -> None:
    """Node ids are agentcompass::request::task::attemptN, in the order of the data."""
    suite.tasks(task("b"), task("a"))
    suite.tasks(task("z"), name="other.yaml")
    result = suite.collect(*RUN, "attempts=2")
    assert result.ret == 0
    assert result.nodeids == [f"agentcompass::tasks::{name}::attempt{n}" for name in "ba" for n in (1, 2)]
    tree = suite.run(*RUN, "--collect-only").out
    for node in ("<RequestNode", "<TaskNode b>", "<AttemptItem attempt1>"):
        assert node in tree


def test_collecting_alone_leaves_nothing(suite: Suite) -> None:
    """`--collect-only` opens nothing and makes no run directory, with -n too."""
    suite.tasks(task("a"))
    for more in ([], ["-n2"]):
        result = suite.run(*RUN, "--collect-only", *more)
        assert result.ret == 0, result.out
        result.check_clean()
    assert not (suite.path / "agentcompass-results").exists()


def test_setup_plan_runs_nothing(suite: Suite) -> None:
    """`--setup-plan` shows the fixtures of an attempt and makes none of them."""
    suite.tasks(task("a", verify="touch /does-not-exist/x"))
    result = suite.run(*RUN, "--setup-plan")
    assert result.ret == 0
    assert "SETUP    F environment_session" in result.out
    assert not (suite.path / "agentcompass-results").exists()
    shown = suite.run(*RUN, "--fixtures-per-test")
    assert "agentcompass_attempt" in shown.out


@pytest.mark.parametrize("workers", [[], ["-n2"], ["concurrency=2"]], ids=["serial", "n2", "engine"])
def test_a_broken_task_is_an_error_of_its_own(suite: Suite, workers: list[str]) -> None:
    """A task that cannot be used is a collection error naming file, line and field; the rest runs; exit 1."""
    suite.tasks(task("a"), {"id": "bad", "instruction": "x", "verify": "true", "timeuot": "3"}, task("c"))
    result = suite.run(*RUN, *workers)
    assert result.ret == 1
    assert sorted(result.records()) == ["a::1", "c::1"]
    assert "timeuot" in result.out
    assert "did you mean 'timeout'?" in result.out
    assert "tasks.yaml:" in result.out
    result.check_clean()


@pytest.mark.parametrize("workers", [[], ["-n2"], ["concurrency=2"]], ids=["serial", "n2", "engine"])
def test_a_dataset_that_cannot_be_loaded_is_exit_1(suite: Suite, workers: list[str]) -> None:
    """B1: a request without tasks is a collection error, named once, exit 1, in every mode."""
    result = suite.run(*RUN, *workers)
    assert result.ret == 1, result.out + result.err
    assert "tasks.yaml" in result.out
    result.check_clean()


def test_tasks_with_one_id_are_refused(suite: Suite) -> None:
    """Two tasks with one id, or with ids that one folder on disk would hold, are an error naming both."""
    suite.write("rows.jsonl", '{"id": "q", "question": "x", "answer": "1"}\n' * 2)
    result = suite.run("--agentcompass", "benchmark=tasks", "benchmark.path=rows.jsonl", "harness=nop")
    assert result.ret == 1
    assert "rows.jsonl:1" in result.out
    assert "rows.jsonl:2" in result.out
    result.check_clean()


def test_ids_that_differ_in_case_alone_stay_apart(suite: Suite) -> None:
    """Ids that fold to one file name are two tasks with two folders."""
    suite.tasks(task("Case"), task("case"))
    result = suite.run(*RUN)
    assert result.ret == 0
    assert sorted(result.records()) == ["Case::1", "case::1"]


ODD = [
    "django/django-1",
    "../../escape",
    "..",
    "/abs/id",
    "-rf",
    "a b",
    "con",
    "x::y",
    "a\\b",
    "trail.",
    "[lead]",
    "and",
    "not a",
    'it\'s "q"',
    "line\nbreak",
    "esc\x1b[31mred",
    "bidi\u202e",
    "caf\u00e9",
    "cafe\u0301",
    "\u65e5\u672c-\U0001f600",
    "<b>&amp;</b>",
    "$(touch pwned)",
    "*",
    "%s%n",
]


@pytest.mark.parametrize("workers", [[], ["-n2"]], ids=["serial", "n2"])
def test_odd_ids_run_and_come_back_exactly(suite: Suite, workers: list[str]) -> None:
    """Any text is an id: it runs, its record holds it exactly, nothing is written elsewhere, reports parse."""
    suite.tasks(*(task(name) for name in ODD))
    before = set(suite.path.parent.rglob("*"))
    result = suite.run(*RUN, *workers, "--junitxml=own.xml", "-p", "no:cacheprovider")
    assert result.ret == 0, result.out + result.err
    assert {record["task_id"] for record in result.records().values()} == set(ODD)
    folders = {path.parent.name for path in result.run_dir.glob("attempts/tasks/*/1")}
    assert len(folders) == len(ODD)
    assert len(result.junit()) == len(result.junit(suite.path / "own.xml")) == len(ODD)
    new = set(suite.path.parent.rglob("*")) - before - {suite.path / "own.xml"}
    kept = (suite.path / "agentcompass-results", suite.path.parent / "tmp")
    assert [path for path in new if not any(path.is_relative_to(place) for place in kept)] == []
    assert suite.sandboxes() == []
    result.check_clean()


def test_ids_that_nothing_can_carry_are_refused(suite: Suite) -> None:
    """Blank ids, NUL and lone surrogates are collection errors that name the row; the others run."""
    rows = ['{"id": "ok", "question": "x", "answer": "1"}', '{"id": " ", "question": "x", "answer": "1"}']
    rows += [
        '{"id": "nul\\u0000", "question": "x", "answer": "1"}',
        '{"id": "lone\\udcff", "question": "x", "answer": "1"}',
    ]
    suite.write("rows.jsonl", "\n".join(rows))
    words = ("--agentcompass", "benchmark=tasks", "benchmark.path=rows.jsonl", "harness=oracle")
    for workers in ([], ["-n2"]):
        result = suite.run(*words, *workers)
        assert result.ret == 1, result.out + result.err
        assert list(result.records()) == ["ok::1"]
        for number in (2, 3, 4):
            assert f"rows.jsonl:{number}" in result.out
        result.check_clean()


def test_the_order_is_the_same_everywhere(suite: Suite) -> None:
    """Whatever order the loader's data came in, all workers and all runs see one order (hash seeds differ)."""
    suite.write(
        "conftest.py",
        "def pytest_agentcompass_select_tasks(request, tasks):\n"
        "    by_id = {task.task_id: task for task in tasks}\n"
        "    tasks[:] = [by_id[name] for name in set(by_id)]\n",
    )
    suite.tasks(*(task(name) for name in ("alpha", "beta", "gamma", "delta", "epsilon")))
    for seed in ("1", "2", "3"):
        result = suite.run(*RUN, "-n2", PYTHONHASHSEED="random")
        assert result.ret == 0, result.out
        assert result.counts == {"passed": 5}
        assert "Different tests were collected" not in result.out, seed


def test_conftest_of_the_invocation_folder_is_seen(suite: Suite) -> None:
    """B7: a conftest.py between rootdir and the working directory overrides fixtures, the nearest wins."""
    suite.tasks(task("a"), name="sub/deep/tasks.yaml")
    override = (
        "import pytest\n"
        "@pytest.fixture\n"
        "def execution_plan(execution_plan):\n"
        "    print('plan seen in {where}')\n"
        "    return execution_plan\n"
    )
    for where in (".", "sub", "sub/deep"):
        suite.write(f"{where}/conftest.py", override.format(where=where))
    for more in ([], ["test_x.py"], ["-n1"]):
        suite.write("sub/deep/test_x.py", "def test_x(): pass\n")
        result = suite.run(*RUN, *more, "-rA", cwd="sub/deep")
        assert result.ret == 0, result.out
        for where in (".", "sub", "sub/deep"):
            assert f"plan seen in {where}\n" in result.out


def test_a_conftest_that_does_not_belong_is_not_needed(suite: Suite) -> None:
    """With --rootdir elsewhere the items still run (no folder of the working directory is below it)."""
    suite.tasks(task("a"))
    (suite.path / "other").mkdir()
    result = suite.run(*RUN, "--rootdir=other")
    assert result.ret == 0, result.out
    assert result.counts == {"passed": 1}


@pytest.mark.parametrize(
    "options",
    [
        ["--import-mode=importlib"],
        ["--noconftest"],
        ["-p", "no:cacheprovider"],
        ["--strict-markers"],
        ["--keep-duplicates"],
        ["--doctest-modules"],
        ["--showlocals", "--tb=long"],
        ["-p", "no:python"],
        ["-p", "no:terminal"],
        ["-p", "no:xdist"],
        ["--setup-show"],
        ["-p", "no:timeout", "-p", "no:junitxml"],
    ],
    ids=" ".join,
)
def test_options_of_pytest_do_not_matter(suite: Suite, options: list[str]) -> None:
    """B2: with any of pytest's options the bodies really run: one passes, one fails."""
    suite.tasks(task("a", tags=["some-tag"], category="some cat"), task("b", verify="false"))
    result = suite.run(*RUN, *options)
    assert result.ret == 1, result.out + result.err
    assert result.verdicts() == {"a::1": True, "b::1": False}
    result.check_clean()


def test_names_of_items_hold_when_k_changes(suite: Suite) -> None:
    """attempt1 is attempt1 whatever k is."""
    suite.tasks(task("a"))
    one, three = (suite.collect(*RUN, f"attempts={k}").nodeids for k in (1, 3))
    assert one == three[:1]
    assert cases(three) == ["a::attempt1", "a::attempt2", "a::attempt3"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("registry.ad('benchmark', 1)", "AttributeError: 'Registry' object has no attribute 'ad'"),
        ("registry.add('benchmark', type('B', (BaseBenchmark,), {'id': 'b'}))", "lacks the method"),
        ("registry.add('bench', BaseBenchmark)", "did you mean 'benchmark'"),
    ],
)
def test_a_fault_in_the_registration_is_a_usage_error(suite: Suite, line: str, said: str) -> None:
    """What a conftest.py does wrong when it adds components is told in one line with its place, in no traceback."""
    suite.write(
        "conftest.py",
        f"from pytest_agentcompass import BaseBenchmark\ndef pytest_agentcompass_register(registry):\n    {line}\n",
    )
    suite.tasks(task("a"))
    result = suite.run(*RUN)
    assert result.ret == 4
    assert said in result.err
    if "AttributeError" in said:
        assert "conftest.py:3" in result.err
    result.check_clean()
