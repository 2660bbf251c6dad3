"""Rules by which rows of any dataset become questions."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from pytest_agentcompass.benchmarks.qa.params import QaParams
from pytest_agentcompass.benchmarks.qa.tasks import KEY, load_tasks, oracle_answer
from pytest_agentcompass.components.yaml_file import load_yaml_mapping, typed
from pytest_agentcompass.contracts.task import TaskProblem, TaskSpec
from pytest_agentcompass.errors import TaskLoadError

SUITES = Path(__file__).parents[3] / "example_suites" / "qa"


def load(path: Path, rows: list[dict[str, Any]], **params: Any) -> list[TaskSpec | TaskProblem]:
    """Write the rows as JSON lines, CSV or a JSON list and load them."""
    if path.suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)
    else:
        lines = [json.dumps(row) for row in rows]
        path.write_text("\n".join(lines) if path.suffix == ".jsonl" else json.dumps(rows))
    return load_tasks(QaParams.model_validate({"path": str(path), **params}))


def specs(items: list[TaskSpec | TaskProblem]) -> list[TaskSpec]:
    """Return the tasks; fails for a problem."""
    assert not [item.message for item in items if isinstance(item, TaskProblem)]
    return [item for item in items if isinstance(item, TaskSpec)]


@pytest.mark.parametrize("name", ["q.jsonl", "q.csv", "q.json"])
def test_columns_are_mapped(tmp_path: Path, name: str) -> None:
    """Every kind of file gives the same tasks; ids are the mapped column, the column id, or the row's number."""
    rows = [{"problem": "1+1?", "gold": "2", "field": "math"}, {"problem": "2+2?", "gold": "4", "field": "math"}]
    fields = {"question": "problem", "answer": "gold", "category": "field"}
    tasks = specs(load(tmp_path / name, rows, fields=fields))
    assert [(t.task_id, t.question, t.ground_truth, t.category) for t in tasks] == [
        ("00001", "1+1?", "2", "math"),
        ("00002", "2+2?", "4", "math"),
    ]
    assert all(t.has_solution for t in tasks)


def test_a_row_that_cannot_be_used_is_a_problem_of_its_own(tmp_path: Path) -> None:
    """Broken lines, missing columns, empty answers and repeated ids name file and line; the rest is loaded."""
    path = tmp_path / "q.jsonl"
    lines = ['{"id": "a", "question": "q", "answer": "x"}', "{broken", '["a"]', '{"id": "b", "answer": "x"}']
    lines += ['{"id": "c", "question": "q", "answer": ""}', '{"id": "a", "question": "q", "answer": "y"}']
    path.write_text("\n".join(lines))
    items = load_tasks(QaParams(path=str(path)))
    assert [type(item).__name__ for item in items] == ["TaskSpec"] + ["TaskProblem"] * 5
    messages = [item.message for item in items if isinstance(item, TaskProblem)]
    assert [f"{path}:{line}" in message for line, message in zip(range(2, 7), messages, strict=True)] == [True] * 5
    assert "no column 'question'" in messages[2]
    assert f"given before, at {path}:1" in messages[4]


@pytest.mark.parametrize(
    ("content", "name", "needle"),
    [
        ("", "q.jsonl", "holds no row"),
        ("{}", "q.json", "holds one list"),
        ("a,a\n1,2\n", "q.csv", "name each column once"),
        ("x", "q.txt", "ends in one of"),
        ("q", "other.jsonl", "did you mean 'other.jsonl'"),
    ],
)
def test_a_source_that_is_none(tmp_path: Path, content: str, name: str, needle: str) -> None:
    """An empty file, a wrong kind of file and a wrong name are errors that say so."""
    (tmp_path / name).write_text(content)
    path = tmp_path / ("othr.jsonl" if name == "other.jsonl" else name)
    with pytest.raises(TaskLoadError, match=needle):
        load_tasks(QaParams(path=str(path)))


def test_csv_rows_of_another_length_are_problems(tmp_path: Path) -> None:
    """A row with too many cells is told with its line, quoted line breaks counted."""
    (tmp_path / "q.csv").write_text('question,answer\n"two\nlines",a\nx,y,z\n')
    first, second = load_tasks(QaParams(path=str(tmp_path / "q.csv")))
    assert isinstance(first, TaskSpec)
    assert first.question == "two\nlines"
    assert isinstance(second, TaskProblem)
    assert "q.csv:4: has 3 cells for 2 columns" in second.message


@pytest.mark.parametrize(
    ("row", "choices", "wanted"),
    [
        ({"answer": "Rome", "choices": ["Paris", "Rome"]}, "choices", "B"),
        ({"answer": 1, "choices": ["Paris", "Rome"]}, "choices", "B"),
        ({"answer": "a", "choices": '["Paris", "Rome"]'}, "choices", "A"),
        ({"answer": "Rome", "choices": {"text": ["Paris", "Rome"], "label": ["A", "B"]}}, "choices", "B"),
        ({"answer": "(C)"}, None, "C"),
    ],
)
def test_choices_in_all_their_forms(tmp_path: Path, row: dict[str, Any], choices: Any, wanted: str) -> None:
    """The right option is given by text, letter or number; the question lists options with letters."""
    tasks = specs(
        load(tmp_path / "q.jsonl", [{"question": "?", **row}], fields={"choices": choices}, grader={"kind": "choice"})
    )
    assert tasks[0].ground_truth == wanted
    assert ("B) Rome" in tasks[0].question) is (choices is not None)


def test_options_of_several_columns_are_mixed_the_same_way_each_time(tmp_path: Path) -> None:
    """The order depends on the id alone, and the right letter is not always the first."""
    rows = [{"id": str(n), "question": "?", "right": "yes", "w1": "no", "w2": "maybe"} for n in range(20)]
    options = {"fields": {"choices": ["right", "w1", "w2"], "answer": "right"}, "grader": {"kind": "choice"}}
    first = specs(load(tmp_path / "q.jsonl", rows, **options))
    assert [t.to_row() for t in first] == [t.to_row() for t in specs(load(tmp_path / "q.jsonl", rows, **options))]
    assert {t.ground_truth for t in first} == {"A", "B", "C"}
    for item in first:
        assert item.metadata[KEY]["choices"]["ABC".index(item.ground_truth)] == "yes"


@pytest.mark.parametrize(
    ("row", "grader", "needle"),
    [
        ({"answer": "Bern", "choices": ["Paris", "Rome"]}, "choice", "none of the options"),
        ({"answer": "x", "choices": ["x", "x"]}, "choice", "two options are the same"),
        ({"answer": "x", "choices": ["x"]}, "choice", "1 options"),
        ({"answer": "many"}, "numeric", "is no number"),
        ({"answer": "[a"}, "regex", "is no regular expression"),
        ({"answer": "x"}, "code", "needs fields.tests"),
    ],
)
def test_answers_that_could_never_be_right(tmp_path: Path, row: dict[str, Any], grader: str, needle: str) -> None:
    """An expected answer that its grader cannot compare is a problem at collection."""
    fields = {"choices": "choices" if "choices" in row else None}
    (item,) = load(tmp_path / "q.jsonl", [{"question": "?", **row}], fields=fields, grader={"kind": grader})
    assert isinstance(item, TaskProblem)
    assert needle in item.message


def test_the_filter_keeps_rows(tmp_path: Path) -> None:
    """Rows are kept by the values of columns, numbers and texts alike; one that keeps nothing is an error."""
    rows = [{"question": "?", "answer": "x", "Level": level} for level in (1, 2, 3)]
    assert len(load(tmp_path / "q.jsonl", rows, filter={"Level": [1, "3"]})) == 2
    with pytest.raises(TaskLoadError, match="the filter keeps no row"):
        load(tmp_path / "q.jsonl", rows, filter={"Level": 9})


def test_media_files_and_messages(tmp_path: Path) -> None:
    """Images come as data, address or file; a file may not lead out of the dataset's folder."""
    (tmp_path / "a.png").write_bytes(b"png")
    given: list[dict[str, Any]] = [
        {"image": "data:image/jpeg;base64,QUJD"},
        {"image": "https://example.org/a.png"},
        {"image": "a.png", "file": "a.png", "talk": [{"role": "user", "content": "hi"}]},
        {"image": "../a.png"},
        {"image": "missing.png"},
        {"image": "", "talk": [{"role": "tool", "content": "x"}]},
    ]
    rows = [{"question": "?", "answer": "x", "file": "", "talk": [], **row} for row in given]
    items = load(tmp_path / "q.jsonl", rows, fields={"image": "image", "file": "file", "messages": "talk"})
    own = [item.metadata[KEY] for item in items if isinstance(item, TaskSpec)]
    assert [entry["media"][0] for entry in own] == [
        {"type": "image", "data": "QUJD", "mime_type": "image/jpeg"},
        {"type": "image", "url": "https://example.org/a.png"},
        {"type": "image", "path": str(tmp_path / "a.png")},
    ]
    assert own[2]["file"] == str(tmp_path / "a.png")
    assert own[2]["messages"] == [{"role": "user", "content": "hi"}]
    problems = [item.message for item in items if isinstance(item, TaskProblem)]
    assert "leads out of" in problems[0]
    assert "does not exist" in problems[1]
    assert "role" in problems[2]


def test_the_oracle_answers_rightly(tmp_path: Path) -> None:
    """What the oracle answers is right by the grader, where there is a right answer to be given."""
    (task,) = specs(load(tmp_path / "q.jsonl", [{"question": "?", "answer": {"a": [1]}}], grader={"kind": "json"}))
    assert oracle_answer(task, QaParams(path="x", grader={"kind": "json"})) == '{"a": [1]}'
    (task,) = specs(load(tmp_path / "q.jsonl", [{"question": "?", "answer": "a+"}], grader={"kind": "regex"}))
    assert not task.has_solution


ROWS: dict[str, dict[str, Any]] = {
    "aime": {"id": 60, "problem": "How many?", "answer": "204", "solution": "..."},
    "gaia": {"task_id": "x1", "Question": "Who?", "Final answer": "Ada", "Level": 1, "file_name": ""},
    "gpqa": {
        "Record ID": "r1", "Question": "Which?", "Correct Answer": "a", "Incorrect Answer 1": "b",
        "Incorrect Answer 2": "c", "Incorrect Answer 3": "d", "High-level domain": "Physics",
    },
    "hle": {"id": "h1", "question": "What?", "answer": "this", "category": "Math", "image": ""},
    "simpleqa": {"metadata": "{}", "problem": "When?", "answer": "1815"},
}  # fmt: skip


@pytest.mark.parametrize("path", sorted(SUITES.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_example_mappings_fit_rows_of_their_datasets(tmp_path: Path, path: Path) -> None:
    """Each mapping in example_suites/qa reads a row with the columns of its dataset."""
    params = typed(load_yaml_mapping(path))["benchmarks"]["qa"]
    (task,) = specs(load(tmp_path / "q.jsonl", [ROWS[path.stem]], **params))
    assert task.question
    assert task.ground_truth
