"""Suite files: several named requests, run in order, each with its own results."""

from __future__ import annotations

import pytest

from .helpers import TASKS, Suite, task

SUITE = "s.agentcompass.yaml"


def test_a_suite_is_collected_only_when_asked_for(suite: Suite) -> None:
    """Plain pytest never collects a suite; with the option and a path it does."""
    suite.tasks(task("a"))
    suite.requests({"name": "one"})
    assert suite.run().ret == 5
    assert suite.run("--agentcompass", SUITE).ret == 0
    assert suite.run("--agentcompass", ".").ret == 0


@pytest.mark.parametrize("workers", [[], ["-n2"], ["concurrency=2"]], ids=["serial", "n2", "engine"])
def test_requests_run_in_order_with_results_of_their_own(suite: Suite, workers: list[str]) -> None:
    """Two requests over one task: two results, keyed by request; ids and JUnit names stay apart."""
    suite.tasks(task("a"), task("b", verify="false"))
    suite.requests({"name": "one"}, {"name": "two words", "attempts": 2})
    result = suite.run("--agentcompass", SUITE, *workers, "-v", "--junitxml=own.xml")
    assert result.ret == 1, result.out
    assert len(result.records()) == 6
    assert [request["name"] for request in result.summary()["requests"]] == ["one", "two words"]
    for cases in (result.junit(), result.junit(suite.path / "own.xml")):
        assert len({(case.get("classname"), case.get("name")) for case in cases}) == len(cases) == 6
    assert f"{SUITE}::two+20words::b::attempt2" in result.out
    result.check_clean()


def test_a_suite_path_can_be_pasted(suite: Suite) -> None:
    """A node id inside a suite selects: the request, the task, the attempt."""
    suite.tasks(task("a"), task("b"))
    suite.requests({"name": "one", "attempts": 2}, {"name": "two"})
    for pasted, count in ((f"{SUITE}::one", 4), (f"{SUITE}::one::b", 2), (f"{SUITE}::two::a::attempt1", 1)):
        result = suite.run("--agentcompass", pasted)
        assert result.ret == 0, result.out
        assert result.counts == {"passed": count}


@pytest.mark.parametrize("workers", [[], ["-n2"]], ids=["serial", "n2"])
def test_a_broken_request_does_not_stop_the_rest(suite: Suite, workers: list[str]) -> None:
    """A request that cannot be prepared is a collection error with file and line; the others run; exit 1."""
    suite.tasks(task("a"))
    suite.requests(
        {"name": "bad", "harness": {"id": "nopp"}},
        {"name": "gone", "benchmark": {"id": "tasks", "params": {"path": "no.yaml"}}},
        {"name": "good"},
    )
    result = suite.run("--agentcompass", SUITE, *workers)
    assert result.ret == 1
    assert result.verdicts() == {"a::1": True}
    assert "did you mean 'nop'?" in result.out
    assert f"{SUITE}:" in result.out
    assert "no.yaml" in result.out
    result.check_clean()


@pytest.mark.parametrize(
    ("text", "needles"),
    [
        ("version: 1\nrequests: [\n", [f"{SUITE}:"]),
        ("version: 1\nname: a\nname: b\n", [f"{SUITE}:3", "name"]),
        ("version: 1\nrequets: []\n", ["did you mean 'requests'?"]),
        ("version: 2\nrequests: []\n", ["version must be 1"]),
        (
            "version: 1\nrequests:\n- {name: x, benchmark: {id: tasks, params: {path: tasks.yaml}}}\n"
            "- {name: x, benchmark: {id: tasks, params: {path: tasks.yaml}}}\n",
            ["'x'"],
        ),
        ("", ["version: 1"]),
        ("version: 1\n", ["requests"]),
        ("\x00\x01", [SUITE]),
    ],
    ids=["yaml", "twice", "key", "version", "names", "empty", "none", "binary"],
)
def test_a_suite_that_cannot_be_read_is_one_error(suite: Suite, text: str, needles: list[str]) -> None:
    """A broken suite is one collection error with file and line; another suite still runs; exit 1."""
    suite.tasks(task("a"))
    suite.write(SUITE, text)
    suite.requests({"name": "good"}, name="t.agentcompass.yaml")
    result = suite.run("--agentcompass", SUITE, "t.agentcompass.yaml")
    assert result.ret == 1, result.out
    assert "a::1" in result.records() or "good::a::1" in result.records()
    for needle in needles:
        assert needle in result.out
    result.check_clean()


def test_the_command_line_wins_over_the_suite(suite: Suite) -> None:
    """A word changes every request of a suite."""
    suite.tasks(task("a"))
    suite.requests({"name": "one", "attempts": 1}, {"name": "two"}, defaults={"attempts": 3})
    assert suite.run("--agentcompass", SUITE).counts == {"passed": 1 + 3}
    assert suite.run("--agentcompass", SUITE, "attempts=2").counts == {"passed": 4}


def test_two_suites_may_use_the_same_names(suite: Suite) -> None:
    """Requests of one name in two suites stay apart, or are refused with both places named."""
    suite.tasks(task("a"))
    suite.requests({"name": "one"})
    suite.requests({"name": "one", "attempts": 2}, name="t.agentcompass.yaml")
    result = suite.run("--agentcompass", SUITE, "t.agentcompass.yaml")
    assert result.ret == 1
    assert "two requests are called 'one'" in result.out
    assert SUITE in result.out
    assert "t.agentcompass.yaml" in result.out
    result.check_clean()


def test_a_suite_and_a_request_of_the_command_line(suite: Suite) -> None:
    """Words for a request and a suite's path run both only when that can be told apart from overriding."""
    suite.tasks(task("a"))
    suite.requests({"name": "one"})
    result = suite.run("--agentcompass", SUITE, "harness=oracle")
    assert result.ret == 0
    assert result.run_info()["requests"][0]["harness"]["id"] == "oracle"


FINALIZED = """
import pytest

def pytest_agentcompass_request_finalized(request, report):
    with open("finalized", "a") as file:
        file.write(f"{request} {report['status']}\\n")
    if request == BROKEN:
        raise ValueError("no room on the board")
"""


@pytest.mark.parametrize("mode", [[], ["-n2"], ["concurrency=2"]], ids=["serial", "n2", "engine"])
def test_a_request_is_finalized_before_the_run_ends(suite: Suite, mode: list[str]) -> None:
    """Event and hook come as soon as a request is over, once, in every mode."""
    suite.tasks(task("a"), task("b", verify="false"))
    suite.requests({"name": "one"}, {"name": "two"})
    suite.write("conftest.py", FINALIZED.replace("BROKEN", "None"))
    result = suite.run("--agentcompass", SUITE, *mode)
    assert result.counts == {"passed": 2, "failed": 2}, result.out
    assert (suite.path / "finalized").read_text() == "one completed\ntwo completed\n"
    kinds = [event["kind"] for event in result.events()]
    assert kinds.count("request_finalized") == 2
    if not mode:
        assert kinds.index("request_finalized") < len(kinds) - 1 - kinds[::-1].index("attempt_finished")


def test_a_hook_that_fails_at_a_finalized_request_is_told_at_the_end(suite: Suite) -> None:
    """All attempts are made all the same, and the run is not green."""
    suite.tasks(task("a"))
    suite.requests({"name": "one"}, {"name": "two"})
    suite.write("conftest.py", FINALIZED.replace("BROKEN", "'one'"))
    result = suite.run("--agentcompass", SUITE)
    assert (result.ret, result.counts) == (1, {"passed": 2}), result.out
    assert "ValueError: no room on the board" in result.out
    result.check_clean()


def test_concurrency_of_a_suite(suite: Suite) -> None:
    """`task_concurrency` of a suite drives the engine."""
    suite.tasks(*(task(f"t{n}", verify="sleep 1") for n in range(4)))
    suite.requests({"name": "one"}, task_concurrency=4)
    result = suite.run("--agentcompass", SUITE)
    assert result.ret == 0
    assert "up to 4 attempts at once" in result.out
    starts = [event for event in result.events("phase_changed") if event["phase"] == "evaluate"]
    ends = result.events("attempt_finished")
    assert max(event["time"] for event in starts) < min(event["time"] for event in ends)
    assert TASKS[0] == "--agentcompass"


@pytest.mark.parametrize(
    ("suites", "words", "said"),
    [
        ({"a": 4}, [], 4),
        ({"a": 4, "b": 2}, [], 2),
        ({"a": 4, "b": None}, [], 3),
        ({"a": 0, "b": 4}, [], 4),
        ({"a": 2}, ["concurrency=5"], 5),
        ({"a": 2}, ["concurrency=0"], 6),
    ],
)
def test_the_suite_s_concurrency_beats_the_file_s(
    suite: Suite, suites: dict[str, int | None], words: list[str], said: int
) -> None:
    """Command line before suite before configuration file; of several suites the one that limits most counts."""
    suite.tasks(*(task(f"t{n}") for n in range(6)))
    suite.write("agentcompass.yaml", "execution: {task_concurrency: 3}\n")
    for name, value in suites.items():
        given = {} if value is None else {"task_concurrency": value}
        suite.requests({"name": name}, name=f"{name}.agentcompass.yaml", **given)
    paths = [f"{name}.agentcompass.yaml" for name in suites]
    result = suite.run("--agentcompass", *paths, *words)
    assert f"up to {said} attempts at once" in result.out
    workers = suite.run("--agentcompass", *paths, *words, "-n", "auto")
    assert workers.ret == 0, workers.out
    assert f"{said} workers" in workers.out or words == ["concurrency=0"]
