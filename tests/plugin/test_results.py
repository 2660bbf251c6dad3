"""What a run leaves on disk and on the last screen."""

from __future__ import annotations

import json

from .helpers import TASKS, Suite, task

RUN = (*TASKS, "harness=nop")


def test_the_run_directory_is_whole(suite: Suite) -> None:
    """Every file of the run directory is there, strict JSON or XML, with no temporary left."""
    suite.tasks(task("a", artifacts=["out.txt"], setup="echo hi > out.txt"), task("b", verify="echo seen; false"))
    result = suite.run(*RUN, "attempts=2")
    names = {path.relative_to(result.run_dir).as_posix() for path in result.run_dir.rglob("*") if path.is_file()}
    for name in ("run.json", "tasks.jsonl", "events.jsonl", "summary.json", "summary.md", "junit.xml", "report.html"):
        assert name in names
    assert "attempts/tasks/a/2/artifacts/out.txt" in names
    assert not [name for name in names if "tmp" in name]
    assert result.run_info()["status"] == "finished"
    assert len(result.junit()) == 4
    kinds = [event["kind"] for event in result.events()]
    assert kinds[0] == "run_started"
    assert kinds[-1] == "run_finished"
    for kind in ("tasks_loaded", "execution_plan_resolved", "attempt_finished", "request_finalized"):
        assert kind in kinds
    record = result.records()["b::1"]
    for name in ("schema_version", "started_at", "finished_at", "durations", "plan", "environment", "fingerprint"):
        assert record[name]
    assert "seen" in record["verifier_output"]
    ignored = suite.path / "agentcompass-results/.gitignore"
    assert ignored.read_text() == "*\n"


def test_the_last_screen(suite: Suite) -> None:
    """The screen says how many of what, where the results are and how to go on."""
    suite.tasks(task("a"), task("b", verify="false"))
    result = suite.run(*RUN)
    tail = result.out.partition("= agentcompass =")[2]
    assert "50.0% of 2 tasks" in tail
    assert str(result.run_dir) in tail
    assert "--lf" in tail
    assert "FAILED agentcompass::tasks::b::attempt1" in tail


def test_names_in_junit_hold_from_run_to_run(suite: Suite) -> None:
    """(classname, name) is distinct for every attempt of every request, and equal in the next run."""
    suite.tasks(task("a"), task("b/c d"))
    suite.requests({"name": "one", "attempts": 3}, {"name": "two"})
    pairs = []
    for words in ([], ["-n2"]):
        result = suite.run("--agentcompass", "s.agentcompass.yaml", *words)
        pairs.append([(case.get("classname"), case.get("name")) for case in result.junit()])
    assert pairs[0] == pairs[1]
    assert len(set(pairs[0])) == 8


def test_quiet_and_no_terminal(suite: Suite) -> None:
    """-q keeps the result lines; without a terminal plugin the reports are written all the same."""
    suite.tasks(task("a"))
    quiet = suite.run(*RUN, "-q")
    assert "results: " in quiet.out
    silent = suite.run(*RUN, "-p", "no:terminal")
    assert silent.ret == 0
    assert silent.summary()["complete"] is True


def test_a_results_place_that_cannot_be_written(suite: Suite) -> None:
    """A results directory that cannot be made is a usage error that names it; nothing runs."""
    suite.tasks(task("a"))
    suite.write("taken", "a file")
    result = suite.run(*RUN, "--agentcompass-results", "taken/below")
    assert result.ret == 4, result.out
    assert "taken" in result.err + result.out
    result.check_clean()


def test_secrets_are_nowhere(suite: Suite) -> None:
    """A key that agent and verifier print, plainly or JSON-escaped, is in no file and in no line."""
    key = 'sk-"quoted\\key"-0123456789abcdefghijklmn'
    suite.tasks(task("a", verify='printf "%s" "$LEAK"; false', env={"LEAK": key}), task("b"))
    for words in ([], ["-n2"], ["concurrency=2"]):
        result = suite.run(
            *TASKS, "harness=command", 'harness.command=printf "%s" "$LEAK"; echo "$LEAK" > out.txt', "model=m",
            "model.api_key=${MY_KEY}", *words, "--junitxml=own.xml", MY_KEY=key,
        )  # fmt: skip
        assert result.counts == {"passed": 1, "failed": 1}, result.out
        places = [result.out.encode(), (suite.path / "own.xml").read_bytes()]
        places += [path.read_bytes() for path in result.run_dir.rglob("*") if path.is_file()]
        for form in (key.encode(), json.dumps(key)[1:-1].encode()):
            assert not [place for place in places if form in place]


def test_a_run_of_plain_tests_is_no_benchmark(suite: Suite) -> None:
    """With --agentcompass and plain tests alone nothing of ours is shown and pytest's outcome stands."""
    suite.write("test_x.py", "def test_x(): pass\n")
    result = suite.run("--agentcompass", "test_x.py")
    assert result.ret == 0
    assert "= agentcompass =" not in result.out
