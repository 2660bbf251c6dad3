"""Stored tasks: loaded once, the same in every process."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_agentcompass import redaction
from pytest_agentcompass.contracts.task import Artifact, TaskProblem, TaskSpec
from pytest_agentcompass.errors import AgentCompassError, EvaluationError, ResultsError, TaskLoadError
from pytest_agentcompass.results.rundir import RunDirectory
from pytest_agentcompass.results.taskfile import LoadedTasks, read_task_file, write_task_file

ANY_TEXT = st.text(st.characters(), max_size=30)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=10,
)
TASKS = st.lists(
    st.builds(
        TaskSpec,
        task_id=ANY_TEXT,
        question=ANY_TEXT,
        ground_truth=JSON,
        metadata=st.dictionaries(ANY_TEXT, JSON, max_size=3),
        tags=st.lists(ANY_TEXT, max_size=2).map(tuple),
        artifacts=st.just((Artifact("/a", exclude=("*.pyc",)),)) | st.just(()),
        run_timeout_seconds=st.none() | st.floats(1, 1000),
    ),
    max_size=5,
)


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A fresh run."""
    return RunDirectory.create(tmp_path / "results", "main", "r1")


@given(TASKS, st.lists(st.builds(TaskProblem, ANY_TEXT, ANY_TEXT, ANY_TEXT), max_size=2))
def test_tasks_come_back_exactly(tasks: list[TaskSpec], problems: list[TaskProblem]) -> None:
    """Order, odd characters, lone surrogates and every field survive."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tasks.jsonl"
        write_task_file(path, "main", LoadedTasks(tasks, problems))
        assert read_task_file(path) == LoadedTasks(tasks, problems)


def test_separators_inside_texts_do_not_cut_rows(run: RunDirectory) -> None:
    """Rows end at a newline byte only, also for other readers: the file is ASCII."""
    tasks = [TaskSpec("a", question="x\u2028y\x85z\x0b\x0c\x1c\r\n"), TaskSpec("b")]
    run.write_tasks("main", tasks, [TaskProblem("c", "row 3: no id")], {"warnings": ["w"]})
    loaded = run.read_tasks("main")
    assert (loaded.tasks, loaded.problems[0].message, loaded.extra) == (tasks, "row 3: no id", {"warnings": ["w"]})
    assert run.task_file("main").read_bytes().isascii()


def test_requests_have_files_of_their_own(run: RunDirectory) -> None:
    """Requests do not meet, and the run's own task file lists all of them in planned order."""
    run.write_tasks("b/x", [TaskSpec("1")])
    run.write_tasks("B/x", [TaskSpec("2")], [TaskProblem("3", "broken")])
    run.write_planned([("B/x", "2", 1), ("b/x", "1", 1)])
    rows = [json.loads(line) for line in (run.path / "tasks.jsonl").read_bytes().split(b"\n") if line]
    assert [(row["request"], row.get("task", row.get("problem"))["task_id"]) for row in rows] == [
        ("B/x", "2"),
        ("B/x", "3"),
        ("b/x", "1"),
    ]


def test_unknown_requests_are_an_error(run: RunDirectory) -> None:
    """Tasks that were never stored are named."""
    with pytest.raises(ResultsError, match="no tasks of request 'main'"):
        run.read_tasks("main")


@pytest.mark.parametrize("value", [float("nan"), datetime.date(2026, 1, 1), b"x", {1, 2}, Path("/a")])
def test_what_json_cannot_carry_names_the_task(run: RunDirectory, value: Any) -> None:
    """A task with other data is refused with its id and place, not changed silently."""
    with pytest.raises(TaskLoadError, match=r"task 'odd' \(rows\.jsonl:3\) holds a value"):
        run.write_tasks("main", [TaskSpec("fine"), TaskSpec("odd", ground_truth=value, source="rows.jsonl:3")])
    assert not run.task_file("main").exists()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"[]\n",
        b"{}\n",
        b'{"tasks": 2, "problems": 0, "extra": {}}\n{"task": {"task_id": "a"}}\n',
        b'{"tasks": 1, "problems": 0, "extra": {}}\n{"task": {"task_id": "a", "invented": 1}}\n',
        b'{"tasks": 1, "problems": 0, "extra": {}}\n{"task": {"task_id": "a',
        b'{"tasks": 1, "problems": 0, "extra": {}}\n{"task": [1]}\n',
    ],
)
def test_a_damaged_task_file_is_an_error(run: RunDirectory, content: bytes) -> None:
    """Fewer tasks than were stored are never taken for all of them."""
    path = run.task_file("main")
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    with pytest.raises(ResultsError, match=r"tasks\.jsonl"):
        run.read_tasks("main")


def test_tasks_are_loaded_once(run: RunDirectory) -> None:
    """The second caller reads what the first stored; a resumed run loads again on demand."""
    calls: list[int] = []

    def load() -> tuple[list[TaskSpec], list[TaskProblem]]:
        calls.append(1)
        return [TaskSpec(f"t{len(calls)}", metadata={"pair": (1, 2)})], []

    first = run.load_tasks_once("main", load)
    assert first == run.load_tasks_once("main", load)
    assert first.tasks == [TaskSpec("t1", metadata={"pair": [1, 2]})]
    assert run.load_tasks_once("main", load, reload=True).tasks[0].task_id == "t2"
    assert len(calls) == 2


def test_a_load_error_is_the_same_for_all(run: RunDirectory) -> None:
    """Kind, message and data of the error reach every process; the loader is not tried again."""

    def load() -> tuple[list[TaskSpec], list[TaskProblem]]:
        raise TaskLoadError("rows.jsonl:3: no id", line=3)

    for loader in (load, lambda: pytest.fail("loaded again")):
        with pytest.raises(TaskLoadError, match=r"rows\.jsonl:3: no id") as caught:
            run.load_tasks_once("main", loader)
        assert caught.value.line == 3  # type: ignore[attr-defined]
    assert run.load_tasks_once("main", lambda: ([], []), reload=True).tasks == []


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (EvaluationError("x", "no_tests"), EvaluationError),
        (type("Own", (AgentCompassError,), {})("x"), AgentCompassError),
    ],
)
def test_stored_errors_keep_their_kind(
    run: RunDirectory, error: AgentCompassError, kind: type[AgentCompassError]
) -> None:
    """An error of the tree comes back as its class, one of an extension as the base."""

    def load() -> tuple[list[TaskSpec], list[TaskProblem]]:
        raise error

    with pytest.raises(AgentCompassError):
        run.load_tasks_once("main", load)
    with pytest.raises(AgentCompassError) as caught:
        run.read_tasks("main")
    assert type(caught.value) is kind
    assert caught.value.failure_mode == error.failure_mode


def test_a_bug_of_the_loader_is_not_stored(run: RunDirectory) -> None:
    """Only errors of ours are results of loading; another one leaves no lock behind."""
    with pytest.raises(ZeroDivisionError):
        run.load_tasks_once("main", lambda: 1 // 0)  # type: ignore[arg-type,return-value]
    assert run.load_tasks_once("main", lambda: ([TaskSpec("t")], [])).tasks == [TaskSpec("t")]


def test_many_processes_load_once(run: RunDirectory, tmp_path: Path) -> None:
    """Processes that start together call the loader once and see the same tasks."""
    code = (
        "import sys, os\nfrom pathlib import Path\nfrom pytest_agentcompass.contracts.task import TaskSpec\n"
        "from pytest_agentcompass.results.rundir import RunDirectory\n"
        "def load():\n    open(sys.argv[2], 'a').write('x')\n    return [TaskSpec(str(os.getpid()))], []\n"
        "print(RunDirectory(Path(sys.argv[1])).load_tasks_once('main', load).tasks[0].task_id)"
    )
    command = [sys.executable, "-c", code, str(run.path), str(tmp_path / "calls")]
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert len({process.communicate(timeout=60)[0] for process in runs}) == 1
    assert (tmp_path / "calls").read_text() == "x"


def test_secrets_stay_off_the_disk_and_tasks_stay_exact(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that knows the secret reads the task as it was loaded; the file holds a mark only."""
    for name, value in (("_values", set()), ("_pattern", None), ("_bytes_pattern", None)):
        monkeypatch.setattr(redaction, name, value, raising=False)
    redaction.add_secret('sk-"quoted"-key')
    redaction.add_secret("password")
    task = TaskSpec(
        "password-recovery", question="the password", environment={"env_variables": {"K": 'sk-"quoted"-key'}}
    )
    run.write_tasks("main", [task])
    stored = run.task_file("main").read_text()
    assert "quoted" not in stored
    assert "password" not in stored
    assert run.read_tasks("main").tasks == [task]
    monkeypatch.setattr(redaction, "_values", set())
    assert "[secret:" in run.read_tasks("main").tasks[0].question
