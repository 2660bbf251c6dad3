"""Rules of reading rows: every list encoding, every file format, one broken row never costs the others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_agentcompass.benchmarks.swebench import SwebenchBenchmark
from pytest_agentcompass.benchmarks.swebench.loading import row_of
from pytest_agentcompass.benchmarks.swebench.rows import parse_row
from pytest_agentcompass.benchmarks.swebench.rows import test_ids as read_ids
from pytest_agentcompass.contracts.environment import EnvironmentSpec
from pytest_agentcompass.contracts.request import BenchmarkSpec, HarnessSpec, RunRequest
from pytest_agentcompass.contracts.task import TaskProblem, TaskSpec
from pytest_agentcompass.errors import ConfigError, PlanningError, TaskLoadError

SHARED = Path(__file__).parents[3].parent / "shared" / "cases" / "07-list-encodings"


def row(**changes: Any) -> dict[str, Any]:
    """Return a sound row."""
    base = {
        "instance_id": "acme__shapes-1",
        "repo": "acme/shapes",
        "base_commit": "0123456",
        "version": "1.0",
        "patch": "--- a\n+++ b\n",
        "test_patch": "",
        "problem_statement": "p",
        "FAIL_TO_PASS": '["t.py::a"]',
        "PASS_TO_PASS": "[]",
        "image": "acme/sweb.eval.x86_64.acme_1776_shapes-1:latest",
        "eval_script": "true\n",
        "log_parser": "parse_log_pytest",
        "eval_type": "pass_and_fail",
        "difficulty": "<15 min fix",
    }
    return {**base, **changes}


def request(path: Path | str, environment: str = "docker", **params: Any) -> RunRequest:
    """Return a request for a dataset."""
    return RunRequest(
        benchmark=BenchmarkSpec(id="swebench", params={"dataset": str(path), **params}),
        harness=HarnessSpec(id="nop"),
        environment=EnvironmentSpec(id=environment),
    )


def load(path: Path | str, **params: Any) -> list[TaskSpec | TaskProblem]:
    """Load a dataset."""
    return SwebenchBenchmark().load_tasks(request(path, **params))


def lines(path: Path, *rows: Any) -> Path:
    """Write rows as JSON lines; a text is written as it is."""
    path.write_text("".join((item if isinstance(item, str) else json.dumps(item)) + "\n" for item in rows), "utf-8")
    return path


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ('["t.py::a", "t.py::b"]', ("t.py::a", "t.py::b")),
        (["t.py::a"], ("t.py::a",)),
        (("t.py::a",), ("t.py::a",)),
        ("['t.py::a', \"t.py::it's\"]", ("t.py::a", "t.py::it's")),
        ('["t.py::p[x, y]"]', ("t.py::p[x, y]",)),
        ('["a | b should \\"quote\\" things"]', ('a | b should "quote" things',)),
        ('["t.py::p[cut at a"]', ("t.py::p[cut at a",)),
        (None, ()),
        ("", ()),
        ("[]", ()),
    ],
)
def test_sound_lists(value: Any, expected: tuple[str, ...]) -> None:
    """A list, its JSON text and its Python text give the same ids; nothing is an empty list."""
    assert read_ids(value, "FAIL_TO_PASS") == expected


@pytest.mark.parametrize(
    "value",
    ["t.py::a", "[1, 40]", '[["t.py::a"], null]', [None], [""], 7, {"t": 1}, '{"t": 1}', "'t.py::a'", "[" * 9999],
)
def test_other_lists_are_refused(value: Any) -> None:
    """What is no list of texts is an error that names the column, never letters of a text."""
    with pytest.raises(TaskLoadError, match="FAIL_TO_PASS"):
        read_ids(value, "FAIL_TO_PASS")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"FAIL_TO_PASS": None, "PASS_TO_PASS": "[]"}, "no required tests"),
        ({"FAIL_TO_PASS": "", "PASS_TO_PASS": None}, "no required tests"),
        ({"base_commit": 123456}, "base_commit must be a text, not a number"),
        ({"base_commit": "--upload-pack=x"}, "commit hash"),
        ({"base_commit": None}, "base_commit is missing"),
        ({"instance_id": " "}, "instance_id is missing"),
        ({"repo": ["acme"]}, "repo must be a text, not a list"),
        ({"patch": 5}, "patch must be a text"),
        ({"eval_type": "both"}, "eval_type is 'both'"),
        ({"image_assets": "{"}, "image_assets is no JSON"),
    ],
)
def test_broken_columns(changes: dict[str, Any], message: str) -> None:
    """A wrong column is named, with what came."""
    with pytest.raises(TaskLoadError, match=message):
        parse_row(row(**changes))


def test_texts_stay_as_written() -> None:
    """Commits keep leading zeros, texts their carriage returns, and null and NaN are empty texts."""
    parsed = parse_row(row(problem_statement="a\r\nb", difficulty=float("nan"), hints_text=None))
    assert (parsed.base_commit, parsed.problem_statement, parsed.difficulty) == ("0123456", "a\r\nb", "")


def test_a_broken_row_is_one_problem(tmp_path: Path) -> None:
    """Broken rows are problems that name their line; the others load, with true line numbers."""
    path = lines(
        tmp_path / "rows.jsonl",
        row(),
        "",
        "{broken",
        row(instance_id="b-2", FAIL_TO_PASS="x"),
        "[1]",
        row(instance_id="c-3"),
    )
    found = load(path)
    assert [type(item) for item in found] == [TaskSpec, TaskProblem, TaskProblem, TaskProblem, TaskSpec]
    messages = [item.message for item in found if isinstance(item, TaskProblem)]
    assert ["row 3" in messages[0], "row 4" in messages[1], "row 5" in messages[2]] == [True] * 3
    assert "'b-2'" in messages[1]
    assert found[-1].source == f"{path}:6"


def test_lines_end_at_a_line_feed_only(tmp_path: Path) -> None:
    """Line separators of Unicode, a byte-order mark and CRLF do not cut or spoil rows."""
    text = json.dumps(row(problem_statement="a\u2028b\u0085c\x0bd"), ensure_ascii=False)
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + text.encode() + b"\r\n" + json.dumps(row(instance_id="b-2")).encode())
    first, second = load(path)
    assert isinstance(first, TaskSpec)
    assert first.question == "a\u2028b\u0085c\x0bd"
    assert isinstance(second, TaskSpec)
    assert row_of(first).instance_id == "acme__shapes-1"
    assert row_of(second).instance_id == "b-2"


def test_tasks_point_at_their_rows(tmp_path: Path) -> None:
    """A task holds neither patch nor script nor test lists: they are read again from the row."""
    big = "x" * 50_000
    path = lines(tmp_path / "rows.jsonl", row(patch=big, test_patch=big, eval_script=big, PASS_TO_PASS=[big]))
    (task,) = load(path)
    assert isinstance(task, TaskSpec)
    assert len(json.dumps(task.to_row())) < 3_000
    again = row_of(TaskSpec.from_row(json.loads(json.dumps(task.to_row()))))
    assert (again.patch, again.eval_script, again.pass_to_pass) == (big, big, (big,))


def test_a_changed_row_is_refused(tmp_path: Path) -> None:
    """A row that is not what was collected any more is never graded."""
    path = lines(tmp_path / "rows.jsonl", row())
    (task,) = load(path)
    assert isinstance(task, TaskSpec)
    lines(path, row(patch="another"))
    with pytest.raises(TaskLoadError, match="has changed"):
        row_of(task)
    path.unlink()
    with pytest.raises(TaskLoadError, match="cannot be read again"):
        row_of(task)


def test_the_fingerprint_is_of_the_content(tmp_path: Path) -> None:
    """The same row has one fingerprint in every format and place; columns that do not count leave it alone."""
    jsonl = lines(tmp_path / "a.jsonl", row(instance_id="z-1"), row(created_at="2024"))
    (tmp_path / "b.json").write_text(json.dumps([row()], indent=1))
    first, second = load(jsonl)[1], load(tmp_path / "b.json")[0]
    assert isinstance(first, TaskSpec)
    assert isinstance(second, TaskSpec)
    assert first.fingerprint == second.fingerprint
    assert row_of(second) == row_of(first)


def test_a_task_repository(tmp_path: Path) -> None:
    """The directory form gives the same rows, filtered by split; a task with a missing file is a problem."""
    own = row(split="test", patch="p\r\n", test_patch="t", eval_script="e", problem_statement="s", version="1.10")
    for name, drop in (("acme__shapes-1", None), ("acme__shapes-2", "eval.sh"), ("acme__shapes-3", None)):
        folder = tmp_path / "tasks" / name
        folder.mkdir(parents=True)
        head = {key: own[key] for key in ("repo", "base_commit", "version", "image", "log_parser", "eval_type")}
        split = "dev" if name.endswith("3") else "test"
        (folder / "task.yaml").write_text(
            "".join(f"{key}: {value!r}\n" for key, value in {**head, "split": split}.items())
        )
        files = {"gold.patch": "p\r\n", "test.patch": "t", "eval.sh": "e", "problem_statement.md": "s"}
        files["tests.json"] = json.dumps({"FAIL_TO_PASS": ["t.py::a"], "PASS_TO_PASS": []})
        for file, content in files.items():
            if file != drop:
                (folder / file).write_bytes(content.encode())
    first, second = load(tmp_path)
    assert isinstance(first, TaskSpec)
    assert isinstance(second, TaskProblem)
    assert "eval.sh: is missing" in second.message
    assert row_of(first).patch == "p\r\n"
    assert first.metadata["version"] == "1.10"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("rows.json", '{"a": 1}', "holds one list"),
        ("rows.json", "[", "not JSON"),
        ("rows.csv", "a,b", "is none of"),
        ("rows.jsonl", "\n", "holds no row"),
    ],
)
def test_unusable_files(tmp_path: Path, name: str, content: str, message: str) -> None:
    """A file that holds no rows is one error that says what is expected."""
    (tmp_path / name).write_text(content)
    with pytest.raises(TaskLoadError, match=message):
        load(tmp_path / name)


@pytest.mark.parametrize("name", ["missing.jsonl", "missing.parquet", "./no/such/folder"])
def test_missing_files(tmp_path: Path, name: str) -> None:
    """A path that does not exist is told, not looked up on the hub."""
    with pytest.raises(TaskLoadError, match="does not exist"):
        load(str(tmp_path / name) if not name.startswith(".") else name)


def test_rows_from_before_5_0(tmp_path: Path) -> None:
    """Rows of old datasets are collected with one warning, and refused before anything opens."""
    old = {key: value for key, value in row().items() if key not in ("image", "eval_script", "log_parser", "eval_type")}
    first, second = load(lines(tmp_path / "rows.jsonl", old, {**old, "instance_id": "acme__shapes-2"}))
    assert isinstance(first, TaskSpec)
    assert isinstance(second, TaskSpec)
    assert "eval_script, log_parser, eval_type" in first.warnings[0]
    assert "1 more row" in first.warnings[0]
    assert second.warnings == ()
    assert first.environment["image"] == "swebench/sweb.eval.x86_64.acme_1776_shapes-1:latest"
    with pytest.raises(PlanningError, match=r"lacks eval_script, log_parser, eval_type"):
        SwebenchBenchmark().build_plan(first, request("x"), EnvironmentSpec())


@pytest.mark.parametrize(
    ("namespace", "image"),
    [
        (None, "acme/sweb.eval.x86_64.acme_1776_shapes-1:latest"),
        ("mine", "mine/sweb.eval.x86_64.acme_1776_shapes-1:latest"),
        ("", "sweb.eval.x86_64.acme__shapes-1:latest"),
    ],
)
def test_image_names(tmp_path: Path, namespace: str | None, image: str) -> None:
    """The row's image is taken, or the official name in another namespace, or the local one."""
    (task,) = load(lines(tmp_path / "rows.jsonl", row()), namespace=namespace)
    assert isinstance(task, TaskSpec)
    assert task.environment == {"image": image, "workdir": "/testbed"}


def test_selection(tmp_path: Path) -> None:
    """repo and difficulty select, then ids and limit; an unknown value names the nearest."""
    path = lines(
        tmp_path / "rows.jsonl",
        row(),
        row(instance_id="b-2", repo="b/b"),
        row(instance_id="b-3", repo="b/b", difficulty=">4 hours"),
    )
    benchmark, tasks = SwebenchBenchmark(), [item for item in load(path) if isinstance(item, TaskSpec)]
    chosen = benchmark.select_tasks(tasks, request(path, repo="b/b"))
    assert [task.task_id for task in chosen] == ["b-2", "b-3"]
    chosen = benchmark.select_tasks(tasks, request(path, repo=["b/b", "acme/shapes"], difficulty=[">4 hours"]))
    assert [task.task_id for task in chosen] == ["b-3"]
    with pytest.raises(ConfigError, match=r"no instance has 'acme/shape'; did you mean 'acme/shapes'"):
        benchmark.select_tasks(tasks, request(path, repo="acme/shape"))
    assert tasks[0].category == "acme/shapes"
    assert {"shapes", "1.0"} <= set(tasks[0].tags)


@pytest.mark.parametrize("mode", ["reuse", "none"])
def test_only_fresh_evaluation(tmp_path: Path, mode: str) -> None:
    """Grading in the agent's own sandbox is refused before anything opens."""
    (task,) = load(lines(tmp_path / "rows.jsonl", row()))
    assert isinstance(task, TaskSpec)
    with pytest.raises(PlanningError, match="fresh"):
        SwebenchBenchmark().build_plan(task, request("x"), EnvironmentSpec(evaluation_environment_mode=mode))


def test_what_cannot_be_graded_is_refused_early(tmp_path: Path) -> None:
    """An unknown parser's package and binary assets are told in the plan, before an agent is paid."""
    path = lines(
        tmp_path / "rows.jsonl",
        row(image_assets='{"test_patch": [{"path": "a.png", "url": "u"}]}'),
        row(image_assets="{}"),
    )
    first, second = load(path)
    assert isinstance(first, TaskSpec)
    assert isinstance(second, TaskSpec)
    with pytest.raises(PlanningError, match="image_assets"):
        SwebenchBenchmark().build_plan(first, request("x"), EnvironmentSpec())
    assert SwebenchBenchmark().build_plan(second, request("x"), EnvironmentSpec()).evaluation_timeout_seconds == 1800


@pytest.mark.skipif(not SHARED.is_dir(), reason="the folder ../shared/cases is not there")
def test_shared_list_encodings() -> None:
    """The handed rows: five give lists, six are problems that name their row."""
    found = load(SHARED / "rows.jsonl")
    expected = json.loads((SHARED / "expected.json").read_text())
    for number, item in enumerate(found):
        want = expected[f"r{number}"]
        if isinstance(want, list):
            assert isinstance(item, TaskSpec)
            assert list(row_of(item).fail_to_pass) == want
            assert row_of(item).base_commit == "0123456"
        else:
            assert isinstance(item, TaskProblem)
            assert f"row {number + 1} " in item.message
