"""Rules of reading task files: every row is a task or a problem that names it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_agentcompass.benchmarks.tasks import TasksBenchmark, TasksParams
from pytest_agentcompass.benchmarks.tasks.fields import KEY
from pytest_agentcompass.benchmarks.tasks.loading import load_path
from pytest_agentcompass.contracts.request import BenchmarkSpec, RunRequest
from pytest_agentcompass.contracts.task import TaskProblem, TaskSpec
from pytest_agentcompass.errors import TaskLoadError

CASES = Path(__file__).parents[3].parent / "shared" / "cases"
needs_cases = pytest.mark.skipif(not CASES.is_dir(), reason="the folder ../shared/cases is not there")


def load(path: Path) -> tuple[list[TaskSpec], list[TaskProblem]]:
    """Return tasks and problems of a file."""
    items = load_path(str(path), "exact")
    tasks = [item for item in items if isinstance(item, TaskSpec)]
    return tasks, [item for item in items if isinstance(item, TaskProblem)]


def yaml_tasks(tmp_path: Path, content: str) -> tuple[list[TaskSpec], list[TaskProblem]]:
    """Return tasks and problems of a YAML text."""
    path = tmp_path / "t.yaml"
    path.write_text(content, encoding="utf-8")
    return load(path)


def rows(tmp_path: Path, *lines: str | bytes) -> tuple[list[TaskSpec], list[TaskProblem]]:
    """Return tasks and problems of JSONL lines."""
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"\n".join(line if isinstance(line, bytes) else line.encode() for line in lines))
    return load(path)


def one_problem(tmp_path: Path, fields: str) -> str:
    """Return the message of the only problem of a task with *fields*, next to a sound one that still loads."""
    sound = "  - {id: sound, instruction: x, verify: 'true'}\n"
    body = "".join(f"    {line}\n" for line in fields.splitlines())
    tasks, problems = yaml_tasks(tmp_path, f"tasks:\n{sound}  -\n{body}")
    assert [task.task_id for task in tasks] == ["sound"]
    assert len(problems) == 1
    return problems[0].message


FULL = """\
tasks:
  - id: full
    instruction: do it
    files:
      a.txt: text
      run.sh: {content: "#!/bin/sh", executable: true}
      copied: {source: data.bin}
      empty.txt:
    verify_files: {check.py: "import sys"}
    verify: [python3, check.py]
    setup: make
    solution: echo
    env: {DEBUG: on, VERSION: 1.10, MODE: 0755, COMMIT: 0123456, EMPTY: , SHA: 12345e67}
    environment: {resources: {memory_mb: 512}, setup: [apt]}
    image: debian
    workdir: src
    network: {mode: allowlist, hosts: [example.org]}
    answer: 1.10
    match: numeric
    tolerance: 0.5
    answer_file: out.txt
    tags: [a, 1.0]
    category: c
    difficulty: hard
    timeout: 12.5
    verify_timeout: 30
    estimated_seconds: 3
    artifacts: [out, {source: logs, destination: kept, exclude: ["*.tmp"]}]
    metadata: {level: 3, nested: [true, null]}
"""


def test_every_field_is_read(tmp_path: Path) -> None:
    """All documented fields arrive, texts as written, and the task survives the way through its row."""
    (tmp_path / "data.bin").write_bytes(b"\0\xff")
    tasks, problems = yaml_tasks(tmp_path, FULL)
    assert problems == []
    task = tasks[0]
    assert task.environment["env_variables"] == {
        "DEBUG": "on", "VERSION": "1.10", "MODE": "0755", "COMMIT": "0123456", "EMPTY": "", "SHA": "12345e67",
    }  # fmt: skip
    assert task.environment["run_network_policy"] == {"mode": "allowlist", "hosts": ["example.org"]}
    assert (task.environment["image"], task.environment["workdir"]) == ("debian", "src")
    assert task.environment["resources"] == {"memory_mb": 512}
    assert (task.ground_truth, task.tags, task.category, task.difficulty) == ("1.10", ("a", "1.0"), "c", "hard")
    assert (task.run_timeout_seconds, task.evaluation_timeout_seconds, task.estimated_seconds) == (12.5, 30.0, 3.0)
    assert [(item.source, item.destination) for item in task.artifacts] == [("out", None), ("logs", "kept")]
    assert task.has_solution
    assert task.fingerprint
    own = task.metadata.pop(KEY)
    assert task.metadata == {"level": 3, "nested": [True, None]}
    assert own["files"]["run.sh"] == {"text": "#!/bin/sh", "mode": 0o755}
    assert own["files"]["copied"] == {"source": str(tmp_path / "data.bin")}
    assert own["files"]["empty.txt"] == {"text": ""}
    assert (own["verify"], own["setup"], own["tolerance"]) == (["python3", "check.py"], ["make"], 0.5)
    assert TaskSpec.from_row(json.loads(json.dumps(task.to_row()))) == task


def test_fingerprint_follows_copied_files(tmp_path: Path) -> None:
    """A changed local file is a changed task."""
    source = tmp_path / "data.bin"
    prints = []
    for content in (b"1", b"2"):
        source.write_bytes(content)
        prints.append(yaml_tasks(tmp_path, FULL)[0][0].fingerprint)
    assert prints[0] != prints[1]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("instruction: x\nverify: x", "id is missing"),
        ("id:\ninstruction: x\nverify: x", "id must be a text"),
        ("id: ' '\ninstruction: x\nverify: x", "id is blank"),
        ("id: ''\ninstruction: x\nverify: x", "id is empty"),
        ("id: a\nverify: x", "instruction (or question) is missing"),
        ("id: a\ninstruction: null\nverify: x", "instruction must be a text"),
        ("id: a\ninstruction: ''\nverify: x", "instruction is empty"),
        ("id: a\ninstruction: x", "neither verify (a command) nor answer"),
        ("id: a\ninstruction: x\nverify: []", "verify is an empty command"),
        ("id: a\ninstruction: x\nverify: {a: b}", "verify must be a text"),
        ("id: a\ninstruction: x\nverfy: x\nanswer: y", "verfy is no field of a task; did you mean 'verify'"),
        ("id: a\ninstruction: x\nquestion: y\nanswer: z", "same field"),
        ("id: a\ninstruction: x\nanswer: y\nexpected: z", "same field"),
        ("id: a\ninstruction: x\nverify: x\nmatch: exact", "has no answer"),
        ("id: a\ninstruction: x\nanswer: x\nmatch: fuzzy", "match 'fuzzy' is not known"),
        ("id: a\ninstruction: x\nanswer: x\ntolerance: 1", "tolerance goes with match: numeric"),
        ("id: a\ninstruction: x\nanswer: []", "answer is an empty list"),
        ("id: a\ninstruction: x\nanswer: {a: 1}", "answer must be a text"),
        ("id: a\ninstruction: x\nanswer: '('\nmatch: regex", "no regular expression"),
        ("id: a\ninstruction: x\nverify: x\ntimeout: 12:30", "timeout must be a plain number"),
        ("id: a\ninstruction: x\nverify: x\ntimeout: 0", "more than 0"),
        ("id: a\ninstruction: x\nverify: x\ntimeout: -1", "at least 0"),
        ("id: a\ninstruction: x\nverify: x\ntimeout:", "timeout must be a plain number"),
        ("id: a\ninstruction: x\nverify: x\nfiles: [a]", "files must be a mapping"),
        ("id: a\ninstruction: x\nverify: x\nfiles: {../a: x}", "no path of a file"),
        ("id: a\ninstruction: x\nverify: x\nfiles: {a/: x}", "no path of a file"),
        ("id: a\ninstruction: x\nverify: x\nfiles: {d: a, d/e: b}", "d/e of files lies below 'd', which is a file"),
        ("id: a\ninstruction: x\nverify: x\nfiles: {d/e/f: b, ./d: a}", "d/e/f of files lies below './d'"),
        ("id: a\ninstruction: x\nverify: x\nfiles: {/d/e: b, /d: a}", "/d/e of files lies below '/d'"),
        ("id: a\ninstruction: x\nverify: x\nverify_files: {d: a, d//e: b}", "d//e of verify_files lies below 'd'"),
        ("id: a\ninstruction: x\nverify: x\nfiles: {a/b: x, a//b: y}", "a//b is the same path of files as 'a/b'"),
        ("id: a\ninstruction: x\nverify: x\nfiles: {a: {sorce: x}}", "did you mean 'source'"),
        ("id: a\ninstruction: x\nverify: x\nfiles: {a: {content: x, source: y}}", "either content or source"),
        ("id: a\ninstruction: x\nverify: x\nfiles: {a: {source: none.txt}}", "'none.txt' cannot be read: No such file"),
        ("id: a\ninstruction: x\nverify: x\nfiles: {a: {content: x, executable: yes}}", "true or false"),
        ("id: a\ninstruction: x\nverify: x\nenv: [A]", "env must be a mapping"),
        ("id: a\ninstruction: x\nverify: x\nenv: {A=B: x}", "no process can take"),
        ("id: a\ninstruction: x\nverify: x\nenvironment: {id: docker}", "no hint that a task can give"),
        ("id: a\ninstruction: x\nverify: x\nenvironment: {imge: x}", "did you mean 'image'"),
        ("id: a\ninstruction: x\nverify: x\nenvironment: {resources: {cpus: -1}}", "resources.cpus"),
        ("id: a\ninstruction: x\nverify: x\nnetwork: nowhere", "network"),
        ("id: a\ninstruction: x\nverify: x\ntags: smoke", "tags must be a list"),
        ("id: a\ninstruction: x\nverify: x\nartifacts: [{sorce: x}]", "did you mean 'source'"),
        ("id: a\ninstruction: x\nverify: x\nmetadata: [1]", "metadata must be a mapping"),
        ('id: a\ninstruction: "x\\0"\nverify: x', "NUL character"),
        ("just a text", "a task must be a mapping"),
    ],
)
def test_broken_task_is_named_and_the_rest_loads(tmp_path: Path, fields: str, message: str) -> None:
    """One broken task is one problem with file, line and field; the others still run."""
    text = one_problem(tmp_path, fields)
    assert text.startswith(f"{tmp_path / 't.yaml'}:")
    assert text.split(":")[1].isdigit()
    assert message in text


def test_line_of_the_field_is_named(tmp_path: Path) -> None:
    """The line is that of the field, not of the task."""
    text = one_problem(tmp_path, "id: a\ninstruction: x\nverify: x\n\n\nwrong: 1")
    assert text.startswith(f"{tmp_path / 't.yaml'}:9: wrong")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("- a", "must be a mapping"),
        ("name: x", "no list of tasks"),
        ("tasks: {a: b}", "tasks must be a list"),
        ("tasks: []", "holds no task"),
        ("taks: []", r"t.yaml:1: 'taks' is not known.*did you mean 'tasks'"),
        ("defaults: {}\ntasks: []", "'defaults' is not known"),
        ("tasks: [", r"t.yaml:\d+:\d+: broken YAML"),
        ("tasks:\n - id: a\n   verify: x\n   verify: y\n", "t.yaml:4:.*'verify' is given twice"),
    ],
)
def test_unusable_file_is_an_error_of_its_own(tmp_path: Path, content: str, message: str) -> None:
    """A file that cannot be read as tasks at all is one error with its place."""
    with pytest.raises(TaskLoadError, match=message):
        yaml_tasks(tmp_path, content)


def test_suite_keys_are_known_in_suite_files(tmp_path: Path) -> None:
    """A suite file may hold its tasks beside its own keys."""
    path = tmp_path / "x.agentcompass.yaml"
    path.write_text("version: 1\nname: x\ndefaults: {harness: {id: nop}}\ntasks: [{id: a, question: q, answer: b}]\n")
    assert [task.task_id for task in load(path)[0]] == ["a"]


def test_folder_is_read_by_file_name(tmp_path: Path) -> None:
    """All task files of a folder are one set, in the order of their names; ids must differ across them."""
    (tmp_path / "b.jsonl").write_text(
        '{"id":"b","question":"q","answer":"a"}\n{"id":"same","question":"q","answer":"a"}'
    )
    (tmp_path / "a.yml").write_text("tasks: [{id: a, question: q, answer: x}, {id: same, question: q, answer: x}]")
    (tmp_path / "notes.txt").write_text("no task")
    (tmp_path / ".hidden.yaml").write_text("{")
    tasks, problems = load(tmp_path)
    assert [task.task_id for task in tasks] == ["a", "b"]
    assert len(problems) == 1
    assert "a.yml:1 and" in problems[0].message
    assert "b.jsonl:2" in problems[0].message


def test_missing_paths_name_what_is_near(tmp_path: Path) -> None:
    """A wrong path names its neighbours; a folder without task files and a foreign suffix are said."""
    (tmp_path / "tasks.yaml").write_text("")
    (tmp_path / "empty").mkdir()
    (tmp_path / "x.csv").write_text("")
    for name, message in (
        ("task.yaml", "did you mean 'tasks.yaml'"),
        ("none/x.yaml", "the folder .* does not exist"),
        ("empty", "no task file"),
        ("x.csv", "ends in .yaml"),
    ):
        with pytest.raises(TaskLoadError, match=message):
            load(tmp_path / name)


def test_only_a_line_feed_ends_a_row(tmp_path: Path) -> None:
    """Byte-order mark, CRLF, blank lines and other separators inside texts do not change rows or numbers."""
    tasks, problems = rows(
        tmp_path,
        b'\xef\xbb\xbf{"id":"a","question":"x\xe2\x80\xa8y\xc2\x85z","answer":"1"}\r',
        b"\r",
        b"  ",
        b'{"id":"b","question":"q","answer":"2"}',
    )
    assert problems == []
    assert [(task.task_id, task.source.rpartition(":")[2]) for task in tasks] == [("a", "1"), ("b", "4")]
    assert tasks[0].question == "x\u2028y\x85z"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('{"id":"a","question":null,"answer":"2"}', "question must be a text, not null"),
        ('{"id":"a","question":"q"}', "neither verify (a command) nor answer"),
        ('{"id":"a","question":"q","answer":null}', "answer must be a text, not null"),
        ('{"id":"a","question":"q","answer":true}', "answer must be a text, not true"),
        ('{"id":"a","question":"q","answer":""}', "expected answer is empty"),
        ('{"id":7,"question":"q","answer":"a"}', "id must be a text, not the number 7"),
        ('{"id":"","question":"q","answer":"a"}', "id is empty"),
        ('{"id":" ","question":"q","answer":"a"}', "id is blank"),
        ('{"question":"q","answer":"a"}', "id is missing"),
        ('{"id":"a","id":"b","question":"q","answer":"a"}', "the key 'id' is given twice"),
        ('{"id":"a","question":"q","answer":NaN}', "holds NaN"),
        ('{"id":"a","question":"q","answer":1e999}', "too large"),
        ('{"id":"a\\u0000","question":"q","answer":"a"}', "NUL"),
        ('{"id":"a\\udcff","question":"q","answer":"a"}', "surrogate"),
        ('{"id":"a","question":"q","answer":"a","metadata":{"x":["\\ud800"]}}', "surrogate"),
        ('{"id":"a","question":"q","anser":"a"}', "did you mean 'answer'"),
        ('["id"]', "no JSON object"),
        ('{"id":"a"', "no JSON object"),
        (b'{"id":"a\xff"}', "no UTF-8"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_broken_row_is_named_and_the_rest_loads(tmp_path: Path, row: str | bytes, message: str) -> None:
    """One broken row is one problem with its true line number and field; the others still load."""
    sound = '{"id":"sound","question":"q","answer":"a"}'
    tasks, problems = rows(tmp_path, "", row, sound)
    assert [task.task_id for task in tasks] == ["sound"]
    assert len(problems) == 1
    assert problems[0].message.startswith(f"{tmp_path / 't.jsonl'}:2: ")
    assert message in problems[0].message


def test_numbers_as_answers_are_text_and_it_is_said_once(tmp_path: Path) -> None:
    """A number counts as its text; one warning for the file says so."""
    lines = [f'{{"id":"{n}","question":"q","answer":{n}}}' for n in (3, 4)]
    tasks, _ = rows(tmp_path, '{"id":"n","question":"q","answer":2,"match":"numeric"}', *lines)
    assert [task.ground_truth for task in tasks] == ["2", "3", "4"]
    assert [len(task.warnings) for task in tasks] == [0, 1, 0]
    assert "compared as text" in tasks[1].warnings[0]


def test_no_row_of_a_doubled_id_runs(tmp_path: Path) -> None:
    """Two rows with one id are one problem that names both; neither is chosen."""
    lines = [f'{{"id":"{name}","question":"q","answer":"a"}}' for name in ("q1", "q2", "q1")]
    tasks, problems = rows(tmp_path, *lines)
    assert [task.task_id for task in tasks] == ["q2"]
    assert len(problems) == 1
    assert "t.jsonl:1 and" in problems[0].message
    assert "t.jsonl:3" in problems[0].message


def test_questions_need_no_sandbox_to_be_graded(tmp_path: Path) -> None:
    """Rows without a verify command are graded without the environment."""
    tasks, _ = rows(tmp_path, '{"id":"a","question":"q","answer":"a"}')
    assert tasks[0].environment == {"evaluation_environment_mode": "none"}
    assert yaml_tasks(tmp_path, "tasks: [{id: a, question: q, verify: x}]")[0][0].environment == {}


def test_default_match_comes_from_the_params(tmp_path: Path) -> None:
    """benchmark.params.match holds where a task says nothing."""
    (tmp_path / "t.jsonl").write_text('{"id":"a","question":"q","answer":"x"}\n{"id":"b","question":"q","answer":"y"}')
    params = {"path": str(tmp_path / "t.jsonl"), "match": "normalized"}
    tasks = TasksBenchmark().load_tasks(RunRequest(benchmark=BenchmarkSpec(id="tasks", params=params)))
    assert [task.metadata[KEY]["match"] for task in tasks if isinstance(task, TaskSpec)] == ["normalized"] * 2
    with pytest.raises(ValueError, match="did you mean 'exact'"):
        TasksParams(path="x", match="exac")


@needs_cases
def test_case_ids_as_paths() -> None:
    """Ids that look like paths or options are kept as given; empty and blank ones are refused."""
    expected = json.loads((CASES / "01-ids-as-paths/expected.json").read_text())
    tasks, problems = load(CASES / "01-ids-as-paths/paths.suite.yaml")
    ids = {task.task_id for task in tasks}
    assert set(expected["accepted_and_run"]) <= ids
    assert not ids & set(expected["rejected_at_collection"])
    assert len(problems) == len(expected["rejected_at_collection"])


@needs_cases
def test_case_odd_characters() -> None:
    """All ids that can be represented load; NUL and lone surrogates are refused with their row."""
    tasks, problems = load(CASES / "03-odd-characters/odd.jsonl")
    assert len({task.task_id for task in tasks}) == len(tasks) == 22
    assert [problem.source.rpartition(":")[2] for problem in problems] == ["11", "17"]


@needs_cases
def test_case_yaml_typing() -> None:
    """Ids are the text as written; null is an error; doubled keys are an error with key and line."""
    tasks, problems = load(CASES / "11-yaml-typing/typing.suite.yaml")
    assert [task.task_id for task in tasks] == ["no", "007", "1_2", "12:30:45", "2024-01-01", "1.10", "1e3"]
    assert len(problems) == 1
    with pytest.raises(TaskLoadError, match=r"dupkeys.suite.yaml:6.*verify"):
        load(CASES / "11-yaml-typing/dupkeys.suite.yaml")
