"""Going on with a run: finished attempts are kept, the rest is made, differences are refused."""

from __future__ import annotations

import json
import shutil

import pytest

from .helpers import TASKS, Suite, task

RUN = (*TASKS, "harness=nop")
RESUME = "--agentcompass-resume=last"
DRIVERS = pytest.mark.parametrize("words", [[], ["-n2"], ["concurrency=3"]], ids=["serial", "n2", "engine"])


def counted(suite: Suite, name: str, more: str = "true") -> dict[str, object]:
    """Return a task whose verifier writes down that it ran."""
    return task(name, verify=f"echo {name} >> {suite.path}/ran; {more}")


def ran(suite: Suite) -> list[str]:
    """Return the tasks whose verifier ran, sorted."""
    path = suite.path / "ran"
    return sorted(path.read_text().split()) if path.exists() else []


@DRIVERS
def test_only_what_is_missing_is_made(suite: Suite, words: list[str]) -> None:
    """A resume reports kept attempts with their stored outcome and makes the missing and the errored ones alone."""
    go = suite.path / "go"
    steps = {"flaky": [{"fail": "environment_error", "fail_times": 1}]}
    suite.tasks(counted(suite, "good"), counted(suite, "bad", "false"), counted(suite, "flaky"), counted(suite, "gone"))
    command = (*TASKS, "harness=scripted", f"harness.tasks={json.dumps(steps)}", *words)
    first = suite.run(*command)
    assert first.counts == {"passed": 2, "failed": 1, "error": 1}
    shutil.rmtree(first.run_dir / "attempts/tasks/gone")
    go.touch()
    second = suite.run(*command, RESUME)
    assert second.ret == 1, second.out
    assert len(second.run_dirs) == 1
    assert second.counts == {"passed": 2, "failed": 1, "error": 1}  # a new process counts its tries anew
    assert ran(suite) == ["bad", "gone", "gone", "good"]
    report = second.request_summary()["report"]["attempts"]
    assert (report["planned"], report["finished"], report["passed"], report["failed"]) == (4, 4, 2, 1)
    assert len(second.events("reuse_loaded")) == 2
    assert len(list(second.run_dir.glob("attempts/tasks/*/*/record.json"))) == 4


def test_a_resume_needs_no_words(suite: Suite) -> None:
    """Without settings the words and paths of the run are taken again; `last`, the id and the directory name it."""
    suite.tasks(counted(suite, "a"))
    first = suite.run(*RUN, "attempts=2")
    for name in ("last", first.run_dir.name, str(first.run_dir)):
        again = suite.run("--agentcompass", f"--agentcompass-resume={name}")
        assert again.ret == 0, again.out + again.err
        assert again.counts == {"passed": 2}
    assert ran(suite) == ["a", "a"]


def test_more_attempts_are_added(suite: Suite) -> None:
    """With a higher k only the new attempts are made."""
    suite.tasks(counted(suite, "a"), counted(suite, "b"))
    suite.run(*RUN)
    again = suite.run(*RUN, "attempts=3", RESUME)
    assert again.ret == 0, again.out
    assert again.counts == {"passed": 6}
    assert ran(suite) == ["a"] * 3 + ["b"] * 3


@pytest.mark.parametrize("words", [["harness=oracle"], ["model=other"], ["run_timeout=9"], ["environment.workdir=x"]])
def test_another_request_is_refused(suite: Suite, words: list[str]) -> None:
    """Resuming with other settings is refused with a table of what changed; nothing is overwritten."""
    suite.tasks(counted(suite, "a"))
    words = [word.replace("run_timeout", "execution.run_timeout_seconds") for word in words]
    suite.run(*RUN, "model=mine")
    again = suite.run(*RUN[:-1], *(["harness=nop"] if words != ["harness=oracle"] else []), *words, RESUME)
    assert again.ret != 0
    assert "was" in again.out + again.err
    assert "--agentcompass-resume-anyway" in again.out + again.err
    assert ran(suite) == ["a"]
    again.check_clean()


def test_a_changed_task_is_made_again(suite: Suite) -> None:
    """When a task's content changed its old record does not stand; the others do."""
    suite.tasks(counted(suite, "a"), counted(suite, "b"))
    suite.run(*RUN)
    suite.tasks(counted(suite, "a"), counted(suite, "b", "test 1 = 1"))
    again = suite.run(*RUN, RESUME)
    assert again.ret == 0, again.out
    assert ran(suite) == ["a", "b", "b"]


@DRIVERS
def test_torn_and_foreign_files_are_redone(suite: Suite, words: list[str]) -> None:
    """A torn record is counted, said and made again; the rest stands."""
    suite.tasks(counted(suite, "a"), counted(suite, "b"))
    first = suite.run(*RUN)
    record = first.run_dir / "attempts/tasks/b/1/record.json"
    record.write_bytes(record.read_bytes()[:100])
    again = suite.run(*RUN, RESUME, *words)
    assert again.ret == 0, again.out
    assert ran(suite) == ["a", "b", "b"]
    assert again.verdicts() == {"a::1": True, "b::1": True}
    assert again.out.count(f"agentcompass: note: {record}: ") == 1
    assert len(again.summary()["problems"]) == 1


def test_a_run_in_use_is_refused(suite: Suite) -> None:
    """Two processes do not work in one run: the second is told who holds it."""
    suite.tasks(task("a", verify=f"touch {suite.path}/started; sleep 5"))
    run = suite.start(*RUN)
    run.wait_for((suite.path / "started").exists)
    second = suite.run(*RUN, RESUME)
    assert second.ret == 4, second.out
    assert str(run.process.pid) in second.err
    assert run.end().ret == 0


@DRIVERS
def test_selections_and_deselections_of_a_resume(suite: Suite, words: list[str]) -> None:
    """A resume of one task leaves the records of the others alone; the whole is counted."""
    suite.tasks(*(counted(suite, name) for name in ("first", "second", "third")))
    suite.run(*RUN, "-k", "first", *words)
    again = suite.run(*RUN, "-k", "second", RESUME, *words)
    assert again.ret == 0, again.out
    assert sorted(again.records()) == ["first::1", "second::1"]
    report = again.request_summary()["report"]["attempts"]
    assert (report["planned"], report["finished"]) == (2, 2)


def test_strategy_pass_goes_on_where_it_was(suite: Suite) -> None:
    """Under strategy pass a resume skips what an earlier success makes needless."""
    suite.tasks(counted(suite, "a"))
    suite.run(*RUN, "strategy=pass", "attempts=3")
    for words in ([], ["concurrency=2"]):
        again = suite.run(*RUN, "strategy=pass", "attempts=3", RESUME, *words)
        assert again.counts == {"passed": 1, "skipped": 2}
    assert ran(suite) == ["a"]


@DRIVERS
def test_a_new_run_may_reuse_graded_attempts_of_an_older_one(suite: Suite, words: list[str]) -> None:
    """`runtime.reuse` takes records with the same fingerprint into a new run; another model's results never count."""
    suite.tasks(counted(suite, "a"), counted(suite, "b", "false"))
    suite.run(*RUN)
    again = suite.run(*RUN, "runtime.reuse=true", *words)
    assert again.counts == {"passed": 1, "failed": 1}, again.out
    assert ran(suite) == ["a", "b"]
    assert len(again.run_dirs) == 2
    suite.run(*RUN, "runtime.reuse=true", "model=other", *words)
    assert ran(suite) == ["a", "a", "b", "b"]
    refused = suite.run(*RUN, "runtime.reuse=true", "runtime.reuse_run_id=lost", *words)
    assert refused.ret == 1
    assert "no run 'lost'" in refused.out


@pytest.mark.parametrize("damage", [b"{\n", b"\xff\xfe\n", b'{"request": "tasks"}\n', b"[]\n", b"\x00" * 40])
def test_a_damaged_plan_is_named(suite: Suite, damage: bytes) -> None:
    """A resume of a run whose plan cannot be read names the file and what to do; records are not touched."""
    suite.tasks(counted(suite, "a"))
    first = suite.run(*RUN)
    plan = first.run_dir / "planned.jsonl"
    plan.write_bytes(plan.read_bytes() + damage)
    for words in ([], ["-n2"], ["concurrency=2"]):
        again = suite.run(*RUN, RESUME, *words)
        assert again.ret == 4, again.out + again.err
        assert f"{plan}: damaged" in again.err
        again.check_clean()
    assert ran(suite) == ["a"]
    assert first.verdicts() == {"a::1": True}


@pytest.mark.parametrize(
    ("version", "said"), [("0.0.1", "0.0.1"), ("99.0", "99.0"), (None, "an unknown version"), ("", "")]
)
def test_a_run_of_another_version(suite: Suite, version: str | None, said: str) -> None:
    """A resume says which version began the run, where it is another one; what that finished is kept."""
    suite.tasks(counted(suite, "a"), counted(suite, "b"))
    first = suite.run(*RUN)
    shutil.rmtree(first.run_dir / "attempts/tasks/b")
    info = first.run_info()
    if version is None:
        del info["versions"]
    elif version:
        info["versions"]["pytest-agentcompass"] = version
    (first.run_dir / "run.json").write_text(json.dumps(info))
    for words in ([], ["-n2"]):
        again = suite.run(*RUN, RESUME, *words)
        assert again.ret == 0, again.out + again.err
        note = f"the run was begun by pytest-agentcompass {said}"
        assert again.out.count(note) == bool(said)
        assert again.counts == {"passed": 2}
    assert ran(suite) == ["a", "b", "b"]
