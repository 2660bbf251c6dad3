"""The run directory."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pytest_agentcompass.contracts.outcome import Status
from pytest_agentcompass.contracts.record import AttemptRecord
from pytest_agentcompass.errors import ResultsError
from pytest_agentcompass.results.rundir import RunDirectory

CASES = Path(__file__).parents[4] / "shared" / "cases"


def make(task_id: str = "t", attempt: int = 1, request: str = "main", **changes: Any) -> AttemptRecord:
    """Return a graded record."""
    values: dict[str, Any] = {"status": Status.COMPLETED, "passed": True, "score": 1.0, **changes}
    return AttemptRecord(request=request, task_id=task_id, attempt=attempt, **values)


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A fresh run."""
    return RunDirectory.create(tmp_path / "results", "main", "r1")


def test_a_new_run_has_its_place_and_description(tmp_path: Path, run: RunDirectory) -> None:
    """`<results>/<run name>/<run id>/run.json` tells versions, host, start and status from the start."""
    assert run.path == tmp_path / "results" / "main" / "r1"
    info = run.read_run_info()
    assert (info["run_name"], info["run_id"], info["status"], info["schema_version"]) == ("main", "r1", "running", 1)
    assert set(info["versions"]) == {"python", "pytest", "pytest-xdist", "pytest-agentcompass"}
    run.finish("finished")
    assert run.read_run_info()["status"] == "finished"
    assert run.read_run_info()["finished_at"] >= info["started_at"]


def test_runs_of_one_second_do_not_share_a_directory(tmp_path: Path) -> None:
    """Runs without an id of their own never meet, however many start at once."""
    with ThreadPoolExecutor(8) as pool:
        runs = list(pool.map(lambda _: RunDirectory.create(tmp_path / "results").path, range(40)))
    assert len(set(runs)) == 40


def test_an_id_is_used_once(tmp_path: Path, run: RunDirectory) -> None:
    """The second run of an id is refused and told what is there and what to do."""
    with pytest.raises(ResultsError, match=r"'r1' exists already: .*status running.*--agentcompass-resume=r1"):
        RunDirectory.create(tmp_path / "results", "main", "r1")
    RunDirectory.create(tmp_path / "results", "other", "r1")


def test_only_one_of_many_gets_an_id(tmp_path: Path) -> None:
    """Of several runs that start with one id at once exactly one begins."""

    def attempt(_: int) -> bool:
        try:
            RunDirectory.create(tmp_path / "results", "main", "same")
        except ResultsError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(attempt, range(16))) == 1


@pytest.mark.parametrize("name", ["../../escape", "/abs", "..", "con", "a\0b", "A", ""])
def test_names_never_lead_outside(tmp_path: Path, name: str) -> None:
    """Run names and ids are encoded; the exact ones stand in run.json."""
    run = RunDirectory.create(tmp_path / "results", name, name or None)
    assert run.path.parents[1] == tmp_path / "results"
    assert run.read_run_info()["run_name"] == name
    assert [entry.name for entry in tmp_path.iterdir()] == ["results"]


def test_results_are_ignored_by_git(tmp_path: Path) -> None:
    """A folder made for results ignores itself; one of a user's own is not hidden."""
    RunDirectory.create(tmp_path / "new", "main", "r")
    assert (tmp_path / "new" / ".gitignore").read_text() == "*\n"
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "code.py").write_text("")
    RunDirectory.create(tmp_path / "project", "main", "r")
    assert not (tmp_path / "project" / ".gitignore").exists()
    assert (tmp_path / "project" / "main" / ".gitignore").read_text() == "*\n"


def test_a_users_gitignore_stays(tmp_path: Path) -> None:
    """An existing file is never rewritten."""
    (tmp_path / ".gitignore").write_text("mine\n")
    RunDirectory.create(tmp_path, "main", "r")
    RunDirectory.create(tmp_path, "main", "r2")
    assert (tmp_path / ".gitignore").read_text() == "mine\n"


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """A file in the way is an error that names it."""
    (tmp_path / "results").write_text("")
    with pytest.raises(ResultsError, match=r"results.*choose another --agentcompass-results"):
        RunDirectory.create(tmp_path / "results")


def test_opening_needs_a_run(tmp_path: Path, run: RunDirectory) -> None:
    """A run opens; a folder without one is an error."""
    assert RunDirectory.open(run.path).path == run.path
    with pytest.raises(ResultsError, match=r"not a run directory: run\.json: there is none"):
        RunDirectory.open(tmp_path)


def test_another_schema_is_refused_with_both_versions(run: RunDirectory) -> None:
    """A run of a later version is not half read."""
    run.update_run_info(schema_version=2, versions={"pytest-agentcompass": "9.9"})
    with pytest.raises(
        ResultsError, match=r"written by pytest-agentcompass 9\.9 in schema 2; version .* reads schema 1"
    ):
        RunDirectory.open(run.path)


def test_another_version_is_noted(run: RunDirectory) -> None:
    """A run of another version in the same schema is read with a note."""
    assert run.version_note() == ""
    run.update_run_info(versions={"pytest-agentcompass": "0.0.1"})
    assert "0.0.1" in RunDirectory.open(run.path).version_note()


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'{"a": NaN}', b"\xff"])
def test_a_damaged_run_json_does_not_cost_the_records(run: RunDirectory, content: bytes) -> None:
    """The records are the truth: the run opens, with the damage noted."""
    run.write_record(make())
    (run.path / "run.json").write_bytes(content)
    again = RunDirectory.open(run.path)
    assert [record.task_id for record in again.records()] == ["t"]
    assert [damage.path.name for damage in again.damaged] == ["run.json"]
    again.update_run_info(status="finished")
    assert again.read_run_info() == {"status": "finished"}


def test_updates_from_all_sides_are_kept(run: RunDirectory) -> None:
    """No update of run.json is lost to another one."""
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: RunDirectory(run.path).update_run_info(**{f"k{n}": n}), range(30)))
    assert {f"k{n}" for n in range(30)} <= set(run.read_run_info())


ODD_IDS = [
    "django/django-1",
    "/abs/id",
    "-rf",
    "a b",
    "con",
    "x:y",
    "a\\b",
    "trail.",
    "trail ",
    "../../escape",
    "..",
    ".",
    "T",
    "t",
]


def test_case_01_ids_as_paths(tmp_path: Path, run: RunDirectory) -> None:
    """Every id has a directory of its own inside the run and comes back exactly."""
    for task_id in ODD_IDS:
        path = run.write_record(make(task_id))
        assert path.resolve().is_relative_to(run.path / "attempts" / "main")
    assert len(list((run.path / "attempts" / "main").iterdir())) == len(ODD_IDS)
    assert [run.read_record("main", task_id, 1).task_id for task_id in ODD_IDS] == ODD_IDS  # type: ignore[union-attr]
    assert {record.task_id for record in run.records()} == set(ODD_IDS)
    assert [entry.name for entry in tmp_path.iterdir()] == ["results"]


@pytest.mark.skipif(not CASES.exists(), reason="the handed cases are not there")
@pytest.mark.parametrize("name", ["record-half.json", "record-zero-length.json"])
def test_case_50_damaged_records(run: RunDirectory, name: str) -> None:
    """A half or empty record is not done, is named once, and stays as a copy when the attempt is made again."""
    path = run.write_record(make())
    damaged = (CASES / "50-torn-records" / name).read_bytes()
    path.write_bytes(damaged)
    run.write_planned([("main", "t", 1)])
    assert run.read_record("main", "t", 1) is None
    assert list(run.records()) == []
    assert [damage.path for damage in run.damaged] == [path]
    assert run.damaged[0].reason in str(run.damaged[0])
    assert run.status_counts()["missing"] == 1
    run.write_record(make())
    assert (path.parent / "superseded" / "1.json").read_bytes() == damaged
    assert run.status_counts()["finished"] == 1


def test_records_come_in_planned_order(run: RunDirectory) -> None:
    """The plan decides which records count and their order; without a plan all on disk count."""
    for task_id in ("a", "b", "c"):
        for attempt in (2, 1, 10):
            run.write_record(make(task_id, attempt))
    run.write_record(make("x", request="other"))
    found = [(record.request, record.task_id, record.attempt) for record in run.records()]
    assert found == [("main", t, n) for t in ("a", "b", "c") for n in (1, 2, 10)] + [("other", "x", 1)]
    assert [record.task_id for record in run.records("other")] == ["x"]
    plan = [("main", "c", 1), ("main", "a", 2), ("main", "missing", 1), ("other", "x", 1)]
    run.write_planned(plan)
    assert [(record.task_id, record.attempt) for record in run.records("main")] == [("c", 1), ("a", 2)]
    assert run.planned() == plan


def test_a_record_in_a_foreign_place_does_not_count(run: RunDirectory) -> None:
    """A copied attempt folder is damage, not a second result."""
    path = run.write_record(make("a"))
    other = run.attempt_dir("main", "b", 1) / "record.json"
    other.parent.mkdir(parents=True)
    other.write_bytes(path.read_bytes())
    assert run.read_record("main", "b", 1) is None
    assert [record.task_id for record in RunDirectory(run.path).records()] == ["a"]
    assert "another attempt" in run.damaged[0].reason


@pytest.mark.parametrize("plant", ["mkdir", "mkfifo", "link"])
def test_a_record_that_is_no_file_does_not_block(run: RunDirectory, plant: str) -> None:
    """Folders, pipes and links in the place of a record are damage."""
    path = run.attempt_dir("main", "t", 1) / "record.json"
    path.parent.mkdir(parents=True)
    plants: dict[str, Callable[[], None]] = {
        "mkdir": path.mkdir,
        "mkfifo": lambda: os.mkfifo(path),
        "link": lambda: path.symlink_to("/etc/passwd"),
    }
    plants[plant]()
    assert run.read_record("main", "t", 1) is None
    assert [damage.path for damage in run.damaged] == [path]


def test_a_later_try_keeps_the_earlier_record(run: RunDirectory) -> None:
    """The record of another try stays visible; a second state of the same try replaces the first."""
    run.write_record(make(passed=None, score=None, status=Status.RUN_ERROR, started_at="1"))
    run.write_record(make(passed=False, score=0.0, started_at="2"))
    path = run.write_record(make(passed=False, score=0.0, started_at="2", issues=({"phase": "close"},)))
    kept = list((path.parent / "superseded").iterdir())
    assert [json.loads(entry.read_bytes())["status"] for entry in kept] == ["run_error"]
    stored = run.read_record("main", "t", 1)
    assert stored is not None
    assert stored.issues == ({"phase": "close"},)


def test_writing_a_record_leaves_one_file(run: RunDirectory) -> None:
    """An attempt costs one file; nothing that grows with the run changes."""
    run.write_planned([("main", "t", 1)])
    before = {path: path.stat().st_mtime_ns for path in run.path.rglob("*") if path.is_file()}
    path = run.write_record(make())
    after = {path: path.stat().st_mtime_ns for path in run.path.rglob("*") if path.is_file()}
    assert {entry for entry in after if after[entry] != before.get(entry)} == {path}


def test_counts_are_on_disk_at_all_times(run: RunDirectory) -> None:
    """Planned, finished, running and missing can be asked for by anyone, per request too."""
    assert run.status_counts() == {"planned": 0, "finished": 0, "running": 0, "missing": 0}
    run.write_planned([("main", f"t{n}", 1) for n in range(10)] + [("other", "t0", 1)])
    run.write_record(make("t0"))
    with run.claim("main", "t1", 1) as claim:  # type: ignore[union-attr]
        assert claim is not None
        assert RunDirectory(run.path).status_counts("main") == {
            "planned": 10,
            "finished": 1,
            "running": 1,
            "missing": 8,
        }
    assert run.status_counts() == {"planned": 11, "finished": 1, "running": 0, "missing": 10}


def test_a_plan_can_grow(run: RunDirectory) -> None:
    """A process that joins adds what it plans; an attempt is planned once. A new plan replaces the old."""
    run.write_planned([("main", "b", 1), ("main", "b", 1)])
    run.write_planned([("main", "a", 1), ("main", "b", 1)], add=True)
    assert run.planned() == [("main", "b", 1), ("main", "a", 1)]
    run.write_planned([("main", "a\udcff", 1)])
    assert run.planned() == [("main", "a\udcff", 1)]


def test_a_damaged_plan_is_an_error(run: RunDirectory) -> None:
    """Without its plan a run's figures could only look better than they are."""
    (run.path / "planned.jsonl").write_text('{"request": "main", "task_id"')
    with pytest.raises(ResultsError, match=r"planned\.jsonl: damaged"):
        run.status_counts()


WRITER = """
import sys
from pathlib import Path
from pytest_agentcompass.contracts.record import AttemptRecord
from pytest_agentcompass.results.rundir import RunDirectory
run = RunDirectory(Path(sys.argv[1]))
print("writing", flush=True)
n = 0
while True:
    n += 1
    text = chr(97 + n % 26) * 400_000
    record = AttemptRecord(request="main", task_id=f"t{n % 3}", attempt=1, status="completed", passed=True, score=1.0,
                           started_at=str(n), final_answer=text, details={"text": text})
    run.write_record(record)
    print(n, flush=True)
"""


def _kill_while_writing(run: RunDirectory, seconds: float) -> int:
    """Kill a writer after *seconds* and return the number of its last finished record."""
    command = [sys.executable, "-c", WRITER, str(run.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        time.sleep(seconds)
        process.kill()
        return int((process.stdout.read().split() or ["0"])[-1])


def test_a_killed_writer_leaves_whole_records_only(run: RunDirectory) -> None:
    """Whatever reads as a record is one, and none that was reported as written is lost."""
    rng = random.Random(50)
    written = 0
    for _ in range(20):
        last = _kill_while_writing(run, rng.uniform(0.0, 0.08))
        written += last
        records = list(run.records())
        assert run.damaged == []
        assert all(
            record.final_answer == record.details["text"] and len(record.final_answer) == 400_000 for record in records
        )
        if last:
            newest = run.read_record("main", f"t{last % 3}", 1)
            assert newest is not None
            assert int(newest.started_at) >= last
        kept = run.path.glob("attempts/main/*/1/superseded/*.json")
        assert all(json.loads(path.read_bytes())["task_id"] for path in kept)
    assert written > 0  # how many there are in that time is the machine's affair


def test_a_run_goes_on_after_a_kill(run: RunDirectory) -> None:
    """The interrupted attempt is free again, and leftovers of the killed writer go with the next claim."""
    _kill_while_writing(run, 0.02)
    folder = run.attempt_dir("main", "t0", 1)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".record.json.ffffffffffff.tmp").write_text("{")
    with run.claim("main", "t0", 1) as claim:  # type: ignore[union-attr]
        assert claim is not None
        assert not list(folder.glob(".*.tmp"))


@pytest.mark.parametrize(
    "use", [lambda run: list(run.records()), lambda run: run.status_counts(), lambda run: run.planned()]
)
def test_reading_changes_nothing(run: RunDirectory, use: Callable[[RunDirectory], object]) -> None:
    """A report may be made of a directory that others are writing to."""
    run.write_planned([("main", "t", 1), ("main", "u", 1)])
    run.write_record(make())
    before = sorted(str(path) for path in run.path.rglob("*"))
    use(run)
    assert sorted(str(path) for path in run.path.rglob("*")) == before


@pytest.mark.parametrize("change", ["rewritten", "tampered", "removed", "damaged"])
def test_a_kept_record_counts_only_while_its_file_is_the_same(run: RunDirectory, change: str) -> None:
    """Whatever happened to the file since it was read, reports show what the disk has."""
    run.write_planned([("main", "a", 1)])
    path = run.write_record(make("a"))
    assert run.read_record("main", "a", 1, keep=True) is not None
    assert [record.passed for record in run.records()] == [True]
    if change == "rewritten":
        run.write_record(make("a", passed=False, score=0.0))
    elif change == "tampered":
        path.write_bytes(path.read_bytes().replace(b'"passed":true', b'"passed":null'))
    elif change == "removed":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-20])
    expected: dict[str, list[bool | None]] = {"rewritten": [False], "tampered": [None], "removed": [], "damaged": []}
    assert [record.passed for record in run.records()] == expected[change]


def test_a_plan_that_changed_is_read_again(run: RunDirectory) -> None:
    """Another process may add attempts; a caller's list is its own."""
    run.write_planned([("main", "a", 1)])
    run.planned().clear()
    assert run.planned() == [("main", "a", 1)]
    RunDirectory(run.path).write_planned([("main", "b", 1)], add=True)
    assert run.planned() == [("main", "a", 1), ("main", "b", 1)]


@pytest.mark.parametrize("kind", ["folder", "link", "dangling", "pipe"])
def test_what_is_no_file_does_not_bar_a_record(run: RunDirectory, tmp_path: Path, kind: str) -> None:
    """Something else in the place of a record is damage: it is put aside, and the attempt is stored."""
    path = run.attempt_dir("main", "t", 1) / "record.json"
    path.parent.mkdir(parents=True)
    if kind == "folder":
        (path / "inside").mkdir(parents=True)
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        target = tmp_path / "elsewhere"
        if kind == "link":
            target.write_text("of another")
        path.symlink_to(target)
    assert run.read_record("main", "t", 1) is None
    run.write_record(make())
    assert run.read_record("main", "t", 1) == make()
    assert not path.is_symlink()
    if kind == "link":
        assert (tmp_path / "elsewhere").read_text() == "of another"
