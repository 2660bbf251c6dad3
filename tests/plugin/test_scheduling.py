"""xdist: each worker gets one attempt at a time, in declared order; crashes, fixtures, mixed runs, `-n auto`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_agentcompass.plugin.scheduling import auto_workers, make_units

from .helpers import TASKS, Result, Suite, task

PAUSE, CHAIN = "agentcompass-pause", "agentcompass-pause-chain"


# -- what travels together ----------------------------------------------------------------------


def test_attempts_travel_alone() -> None:
    """Each attempt is a unit of its own, with the pause of its request behind it."""
    ids = ["agentcompass::r::a::attempt1", "agentcompass::r::a::attempt2", "agentcompass::r::b::attempt1"]
    assert make_units(ids, [f"agentcompass::r::{PAUSE}", PAUSE]) == [([0], 3), ([1], 3), ([2], 3)]


def test_attempts_in_sequence_travel_by_task() -> None:
    """Where a strategy runs a task's attempts one after another, they go to one worker."""
    ids = [f"agentcompass::r::{name}::attempt{number}" for name in ("a", "b") for number in (1, 2)]
    assert make_units(ids, [f"agentcompass::r::{CHAIN}", PAUSE]) == [([0, 1], 4), ([2, 3], 4)]


def test_tests_of_the_user_s_own_travel_by_file() -> None:
    """Plain tests go in small groups of neighbours of one file, so that their module's fixtures serve them."""
    ids = [f"test_a.py::test_{number}" for number in range(12)] + ["test_b.py::test_0"]
    assert make_units(ids, [PAUSE]) == [(list(range(10)), 13), ([10, 11], 13), ([12], 13)]


def test_units_of_several_requests_keep_their_pauses() -> None:
    """A request whose name begins like another's has its own pause; order is never changed."""
    ids = ["s.yaml::r::a::attempt1", "test_a.py::test_x", "s.yaml::r2::a::attempt1", "test_a.py::test_y"]
    pauses = [f"s.yaml::r::{PAUSE}", f"s.yaml::r2::{CHAIN}", PAUSE]
    assert make_units(ids, pauses) == [([0], 4), ([1], 6), ([2], 5), ([3], 6)]


def test_no_items_no_units() -> None:
    """An empty collection has nothing to hand out."""
    assert make_units([], [PAUSE]) == []


@pytest.mark.parametrize(("asked", "most"), [(1, 1), (3, 3), (8, 8)])
def test_auto_follows_concurrency(monkeypatch: pytest.MonkeyPatch, asked: int, most: int) -> None:
    """`-n auto` starts as many workers as attempts may be in flight."""
    monkeypatch.delenv("PYTEST_XDIST_AUTO_NUM_WORKERS", raising=False)
    assert auto_workers(asked) == most


def test_auto_is_bounded_and_obeys_xdist_s_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of workers are never started; without `concurrency`, or with xdist's own variable, xdist decides."""
    monkeypatch.delenv("PYTEST_XDIST_AUTO_NUM_WORKERS", raising=False)
    bound = auto_workers(10_000)
    assert bound is not None
    assert bound < 10_000
    assert auto_workers(None) is auto_workers(0) is None
    monkeypatch.setenv("PYTEST_XDIST_AUTO_NUM_WORKERS", "2")
    assert auto_workers(5) is None


# -- whole runs ---------------------------------------------------------------------------------


def spans(folder: Path) -> dict[str, list[tuple[float, float, str]]]:
    """Return when each process worked: pid -> (begin, end, name)."""
    found: dict[str, list[tuple[float, float, str]]] = {}
    for path in folder.glob("span-*"):
        row = json.loads(path.read_text())
        found.setdefault(row["pid"], []).append((row["begin"], row["end"], path.name.removeprefix("span-")))
    return {pid: sorted(rows) for pid, rows in found.items()}


WATCH = """
import json, os, time
from pathlib import Path
import pytest

HERE = Path(__file__).parent

@pytest.fixture(autouse=True, scope="module")
def once_per_request():
    with open(HERE / f"modules-{os.getpid()}", "a") as file:
        file.write("x")
    yield

@pytest.hookimpl(tryfirst=True, wrapper=True)
def pytest_runtest_protocol(item):
    begin = time.time()
    result = yield
    if "attempt" in item.name:
        name = item.nodeid.split("::", 2)[-1].replace("::", ".")
        row = {"pid": str(os.getpid()), "begin": begin, "end": time.time()}
        (HERE / f"span-{name}").write_text(json.dumps(row))
    return result
"""


def test_a_long_attempt_holds_up_no_other(suite: Suite) -> None:
    """While one worker makes a long attempt the other makes all the rest: none waits behind the long one."""
    names = ["long", *(f"short{number}" for number in range(6))]
    suite.tasks(*(task(name) for name in names))
    suite.write("conftest.py", WATCH)
    release = suite.path / "release"
    steps = {"long": [{"run": f"for i in $(seq 600); do [ -e {release} ] && exit; sleep 0.05; done"}]}
    run = suite.start(*TASKS, "harness=scripted", f"harness.tasks={json.dumps(steps)}", "-n2")
    run.wait_for(lambda: len(list(suite.path.glob("span-short*"))) == 6, 60)
    release.touch()
    result = run.end()
    assert (result.ret, result.counts) == (0, {"passed": 7}), result.out
    by_worker = sorted(len(rows) for rows in spans(suite.path).values())
    assert by_worker == [1, 6]


def test_module_fixtures_live_as_long_as_the_request(suite: Suite) -> None:
    """A module-scoped fixture of the user's own is set up once per request and worker, not once per attempt."""
    suite.tasks(*(task(f"t{number}") for number in range(6)))
    suite.write("conftest.py", WATCH)
    result = suite.run(*TASKS, "harness=nop", "-n2")
    assert (result.ret, result.counts) == (0, {"passed": 6}), result.out
    assert [path.read_text() for path in suite.path.glob("modules-*")] == ["x", "x"]


def test_mixed_with_tests_of_the_user_s_own(suite: Suite) -> None:
    """Attempts of two requests and plain tests in one run: all outcomes arrive, none twice, names unchanged."""
    suite.tasks(*(task(f"t{number}") for number in range(3)))
    suite.requests({"name": "one"}, {"name": "two"})
    suite.write(
        "test_plain.py", "import pytest\n@pytest.mark.parametrize('n', range(15))\ndef test_n(n): assert n != 7\n"
    )
    result = suite.run("--agentcompass", "s.agentcompass.yaml", "test_plain.py", "-n3", "-v")
    result.check_clean()
    assert result.ret == 1
    assert result.counts == {"passed": 20, "failed": 1}, result.out
    assert PAUSE not in result.out
    assert "3 workers [21 items]" in result.out


def test_sequential_attempts_run_on_one_worker(suite: Suite) -> None:
    """Under strategy `pass` the attempts of a task follow each other, and stop at the first success."""
    suite.tasks(task("a"), task("b"), task("c", verify="false"))
    suite.write("conftest.py", WATCH)
    result = suite.run(*TASKS, "harness=nop", "attempts=3", "strategy=pass", "-n3")
    assert result.counts == {"passed": 2, "failed": 3, "skipped": 4}, result.out
    owners: dict[str, set[str]] = {}
    for pid, rows in spans(suite.path).items():
        for _, _, name in rows:
            owners.setdefault(name.split(".")[0], set()).add(pid)
    assert {name: len(pids) for name, pids in owners.items()} == {"a": 1, "b": 1, "c": 1}


KILL = """
import os, signal
import pytest

@pytest.hookimpl(tryfirst=True)
def pytest_agentcompass_attempt_started(request, task_id, attempt):
    if task_id == "killer" and "PYTEST_XDIST_WORKER" in os.environ:
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_worker_that_dies_loses_only_its_attempt(suite: Suite) -> None:
    """The attempt is an error with a record; everything else is made, by the worker that takes its place."""
    suite.tasks(*(task(name) for name in ("a", "killer", "b", "c", "d")))
    suite.write("conftest.py", KILL)
    result = suite.run(*TASKS, "harness=nop", "-n2")
    assert result.ret == 1
    assert {name: passed for name, passed in result.verdicts().items() if name != "killer::1"} == {
        f"{name}::1": True for name in "abcd"
    }
    assert result.verdicts()["killer::1"] is None
    assert "LOST" not in result.out


def test_without_restarts_the_rest_is_named(suite: Suite) -> None:
    """When the only worker dies and may not be replaced, what was never made is named and the run fails."""
    suite.tasks(*(task(name) for name in ("killer", "b", "c")))
    suite.write("conftest.py", KILL)
    result = suite.run(*TASKS, "harness=nop", "-n1", "--max-worker-restart=0")
    assert result.ret == 1
    assert result.out.count("LOST") == 2, result.out


@pytest.mark.parametrize("extra", [["-x"], ["--maxfail=1"]])
def test_stop_at_the_first_failure(suite: Suite, extra: list[str]) -> None:
    """After the first failure no attempt is started that was not under way."""
    suite.tasks(task("bad", verify="false"), *(task(f"t{number}") for number in range(8)))
    result = suite.run(*TASKS, "harness=nop", "-n1", *extra)
    assert result.ret == 2
    assert result.counts == {"failed": 1}, result.out


@pytest.mark.parametrize("mode", ["loadscope", "worksteal", "loadgroup", "loadfile"])
def test_another_way_of_distributing_is_left_alone(suite: Suite, mode: str) -> None:
    """An explicit `--dist` is the user's choice."""
    suite.tasks(*(task(f"t{number}") for number in range(4)))
    result = suite.run(*TASKS, "harness=nop", "-n2", "--dist", mode, "-v")
    assert (result.ret, result.counts) == (0, {"passed": 4}), result.out
    assert "OneByOne" not in result.out


def test_nothing_selected_is_nothing_collected(suite: Suite) -> None:
    """Pauses do not make an empty selection look like work: exit status 5 as without workers."""
    suite.tasks(task("a"))
    assert suite.run(*TASKS, "harness=nop", "-n2", "-k", "nothing").ret == 5


def test_auto_in_a_run(suite: Suite) -> None:
    """`-n auto` takes the number of workers from `concurrency`."""
    suite.tasks(*(task(f"t{number}") for number in range(4)))
    result = suite.run(*TASKS, "harness=nop", "concurrency=3", "-n", "auto")
    assert "3 workers [4 items]" in result.out
    assert result.counts == {"passed": 4}


def test_concurrency_is_a_cap_over_all_workers(suite: Suite) -> None:
    """Four workers with `concurrency=2` never have more than two attempts in flight."""
    suite.tasks(*(task(f"t{number}") for number in range(8)))
    log = suite.path / "log"
    steps = [{"run": f"echo + >> {log}; sleep 0.2; echo - >> {log}"}]
    result = suite.run(*TASKS, "harness=scripted", f"harness.steps={json.dumps(steps)}", "concurrency=2", "-n4")
    assert (result.ret, result.counts) == (0, {"passed": 8}), result.out
    level = most = 0
    for sign in log.read_text().split():
        level += 1 if sign == "+" else -1
        most = max(most, level)
    assert most == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-n2", "concurrency=8"], "2 workers make one attempt each at a time; for concurrency=8 in one process"),
        (["-n1", "concurrency=0"], "1 worker makes one attempt each at a time; for concurrency=0 in one process"),
        (["-n2", "concurrency=2"], ""),
        (["-n2"], ""),
        (["-n0", "concurrency=8"], ""),
    ],
)
def test_fewer_workers_than_wanted_attempts_are_told(suite: Suite, words: list[str], said: str) -> None:
    """A worker makes one attempt at a time: the run says so where `concurrency` asks for more."""
    suite.tasks(task("a"), task("b"))
    result = suite.run(*TASKS, "harness=nop", *words)
    assert result.counts == {"passed": 2}
    assert said in result.out
    assert ("one attempt each at a time" in result.out) == bool(said)


@pytest.mark.parametrize("mode", [[], ["-n2"], ["concurrency=2"]], ids=["serial", "n2", "engine"])
def test_longest_first_from_an_earlier_run(suite: Suite, mode: list[str]) -> None:
    """With `runtime.order=longest_first` what took long in the last run (or says so itself) is begun first."""
    suite.tasks(task("quick"), task("unknown"), task("slow"), task("says", estimated_seconds=3600))
    suite.write("conftest.py", WATCH)
    steps = {"slow": [{"sleep": 1.0}]}
    words = (*TASKS, "harness=scripted", f"harness.tasks={json.dumps(steps)}", "runtime.order=longest_first")
    first = suite.run(*words, *mode)
    assert "says" in _begun(first)[: 2 if mode else 1]  # two begin at once
    second = suite.run(*words, *mode)
    assert second.ret == 0, second.out
    assert "slow" in _begun(second)[: 2 if mode else 1]
    assert second.counts == {"passed": 4}


@pytest.mark.parametrize("mode", [[], ["-n1"]], ids=["serial", "n1"])
def test_longest_first_of_a_suite_in_a_folder(suite: Suite, mode: list[str]) -> None:
    """A suite that is found in a folder has its order too."""
    suite.tasks(task("quick"), task("says", estimated_seconds=3600))
    suite.requests({"name": "r"}, runtime={"order": "longest_first"})
    result = suite.run("--agentcompass", ".", *mode)
    assert result.counts == {"passed": 2}, result.out
    assert _begun(result) == ["says", "quick"]


def _begun(result: Result) -> list[str]:
    """Return the tasks in the order in which they were begun."""
    return list(dict.fromkeys(event["task"] for event in result.events("phase_changed")))
