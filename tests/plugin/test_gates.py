"""Gates in whole runs: exit codes in every mode, early errors, shards, JUnit, GitHub, early stop, the demonstration."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from .helpers import TASKS, Result, Suite, task

NOP = (*TASKS, "harness=nop")
HALF = "--agentcompass-gate=pass@1 >= 0.5"
MODES = pytest.mark.parametrize("mode", [[], ["-n2"], ["concurrency=2"]], ids=["serial", "n2", "engine"])
ROOT = Path(__file__).parents[2]


def mixed(passing: int, failing: int) -> list[dict[str, Any]]:
    """Return tasks p0, p1, ... that pass and f0, f1, ... that fail."""
    return [task(f"p{n}") for n in range(passing)] + [task(f"f{n}", "false") for n in range(failing)]


def verdicts(result: Result) -> list[str]:
    """Return the verdicts that a run stored."""
    return [gate["verdict"] for gate in result.summary()["gates"]]


def verb(suite: Suite, *args: str) -> subprocess.CompletedProcess[str]:
    """Run a verb in the suite's folder."""
    return subprocess.run(
        [sys.executable, "-m", "pytest_agentcompass", *args], cwd=suite.path, env=suite.env,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip


# -- exit codes ---------------------------------------------------------------------------------


@MODES
def test_green_although_tasks_failed_and_red_although_they_passed(suite: Suite, mode: list[str]) -> None:
    """The gate decides, not the number of failed attempts: 3 of 4 hold `>= 0.5` and miss `>= 0.8`."""
    suite.tasks(*mixed(3, 1))
    green = suite.run(*NOP, *mode, HALF)
    assert green.ret == 0, green.out
    assert green.counts == {"passed": 3, "failed": 1}
    red = suite.run(*NOP, *mode, HALF, "--agentcompass-gate=pass@1 >= 0.8")
    assert red.ret == 1
    assert verdicts(red) == ["PASS", "FAIL"]
    for result in (green, red):
        result.check_clean()


@MODES
def test_inconclusive_and_warn(suite: Suite, mode: list[str]) -> None:
    """Four tasks prove nothing: 11, and 0 where the gate only warns."""
    suite.tasks(*mixed(3, 1))
    gate = "--agentcompass-gate=pass@1 >= 0.7; confidence: 0.95"
    assert suite.run(*NOP, *mode, gate).ret == 11
    assert suite.run(*NOP, *mode, f"{gate}; policy: warn").ret == 0


@MODES
def test_a_partial_run_is_invalid(suite: Suite, mode: list[str]) -> None:
    """`-k` that leaves something out: 12, with what was left out and the way to allow it."""
    suite.tasks(*mixed(3, 1))
    result = suite.run(*NOP, *mode, HALF, "-k", "p0 or p1")
    assert result.ret == 12, result.out
    assert "2 attempts were deselected (-k 'p0 or p1')" in result.out
    assert suite.run(*NOP, *mode, f"{HALF}; allow_partial: true", "-k", "p0 or p1").ret == 0


@pytest.mark.parametrize(
    "selection",
    [
        ["limit=2"],
        ["sample_ids=[p0]"],
        ["--lf"],
        ["--deselect", "agentcompass::tasks::f0"],
        ["agentcompass::tasks::p0"],
    ],
    ids=str,
)
def test_every_selection_of_the_command_line_is_partial(suite: Suite, selection: list[str]) -> None:
    """Nobody ships on three tasks by mistake, however they were selected."""
    suite.tasks(*mixed(3, 1))
    suite.run(*NOP)  # so that --lf has something to run
    assert suite.run(*NOP, HALF, *selection).ret == 12


def test_a_selection_that_leaves_nothing_out_is_not_partial(suite: Suite) -> None:
    """`addopts = -m "not slow"` in a project's ini must not spoil its gates."""
    suite.tasks(*mixed(2, 0))
    assert suite.run(*NOP, HALF, "-k", "p0 or p1").ret == 0


def test_limits_in_a_suite_define_the_suite(suite: Suite) -> None:
    """`limit` in a file is no partial run; on the command line it is."""
    suite.tasks(*mixed(3, 1))
    suite.requests({"name": "a", "limit": 2}, gates=["pass@1 >= 0.5"])
    assert suite.run("--agentcompass", "s.agentcompass.yaml").ret == 0
    assert suite.run("--agentcompass", "s.agentcompass.yaml", "limit=1").ret == 12


@pytest.mark.parametrize("mode", [[], ["-n2"]], ids=["serial", "n2"])
def test_a_collection_error_is_invalid(suite: Suite, mode: list[str]) -> None:
    """B1: a gate never turns a broken task into a green run, with and without workers."""
    suite.tasks(task("a"), {"id": "bad", "instruction": "x", "verify": "true", "timeuot": "3"})
    result = suite.run(*NOP, *mode, HALF)
    assert result.ret == 12, result.out
    assert "1 collection error" in result.out


@pytest.mark.parametrize(("mode", "code"), [([], 12), (["-n2"], 2)], ids=["serial", "n2"])
def test_maxfail_leaves_nothing_to_judge(suite: Suite, mode: list[str], code: int) -> None:
    """A run that was stopped is INVALID; pytest's own 2 (with workers) stays."""
    suite.tasks(*mixed(0, 3), *mixed(3, 0))
    result = suite.run(*NOP, *mode, HALF, "--maxfail=1")
    assert result.ret == code
    assert verdicts(result) == ["INVALID"]
    assert "stopped early" in result.out


def test_nothing_collected_keeps_pytests_code(suite: Suite) -> None:
    """5 stays 5, and no gate passes."""
    suite.tasks(*mixed(1, 0))
    result = suite.run(*NOP, HALF, "-k", "nothing")
    assert result.ret == 5
    assert "INVALID" in result.out


def test_infrastructure_errors(suite: Suite) -> None:
    """Over max_infra_errors nothing can be said, and the tasks are named; below it both bounds must agree."""
    tasks = [*mixed(8, 1), task("broken", setup="exit 3")]
    suite.tasks(*tasks)
    result = suite.run(*NOP, HALF)
    assert result.ret == 12
    assert "setup_error" in result.out
    assert "broken" in result.out
    assert suite.run(*NOP, f"{HALF}; max_infra_errors: 10%").ret == 0
    assert suite.run(*NOP, "--agentcompass-gate=pass@1 >= 0.85; max_infra_errors: 10%").ret == 11
    assert suite.run(*NOP, "--agentcompass-gate=pass@1 >= 0.95; max_infra_errors: 10%").ret == 1


@pytest.mark.parametrize("mode", [[], ["-n2"]], ids=["serial", "n2"])
def test_no_gate_excuses_other_failures(suite: Suite, mode: list[str]) -> None:
    """A failing test of the user's own keeps 1 although every gate holds, and is named below the gates."""
    suite.tasks(*mixed(2, 0))
    suite.write("test_own.py", "def test_own():\n    assert False\n")
    result = suite.run(*NOP, *mode, HALF, "test_own.py")
    assert result.ret == 1, result.out
    assert verdicts(result) == ["PASS"]
    assert "test_own.py::test_own: not an attempt's verdict" in result.out


@pytest.mark.parametrize("mode", [[], ["-n2"]], ids=["serial", "n2"])
def test_a_broken_teardown_keeps_1(suite: Suite, mode: list[str]) -> None:
    """A fixture of the user's that fails at teardown is no verdict of an attempt."""
    suite.tasks(*mixed(2, 0))
    suite.write(
        "conftest.py",
        "import pytest\n@pytest.fixture(autouse=True)\ndef own():\n    yield\n    raise RuntimeError('x')\n",
    )
    result = suite.run(*NOP, *mode, HALF)
    assert result.ret == 1, result.out
    assert verdicts(result) == ["PASS"]


def test_a_dying_worker_is_an_infrastructure_error(suite: Suite) -> None:
    """A crashed attempt has no verdict; the gate must not look past it."""
    suite.tasks(*mixed(3, 0))
    suite.write(
        "conftest.py",
        "import os, pytest\n@pytest.fixture\ndef environment_session(environment_session, agentcompass_task):\n"
        "    if agentcompass_task.task_id == 'p1':\n        os.kill(os.getpid(), 9)\n    return environment_session\n",
    )
    result = suite.run(*NOP, "-n1", HALF)
    assert result.ret == 12, result.out
    assert "infrastructure error" in result.out


# -- before anything runs -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--agentcompass-gate=pass@1 => 0.5"], "column 8"),
        (["--agentcompass-gate=pas@1 >= 0.5"], "did you mean 'pass@1'"),
        (["--agentcompass-gate=pass@1[tusks] >= 0.5"], "did you mean 'tasks'"),
        (["--agentcompass-gate=pass@3 >= 0.5"], "needs 3 attempts per task"),
        (["--agentcompass-gate=korrect >= 0.5"], "did you mean 'correct'"),
        (["--agentcompass-gate=pass@1 >= baseline"], "needs a margin"),
        (["--agentcompass-gate=no_regression(pass@1)"], "--agentcompass-baseline"),
        ([HALF, "--agentcompass-baseline=nowhere"], "there is no such file"),
        ([HALF, "--agentcompass-baseline=."], "not a run directory"),
        ([HALF, "--agentcompass-baseline=tasks.yaml"], "not a summary.json"),
        ([HALF, "--agentcompass-gate-unresolved=green"], "failure, skipped, passed"),
        (["--agentcompass-shard=3/2"], "shards count from 1 to 2"),
        (["--agentcompass-shard=two"], "write I/N"),
        (["--agentcompass-shard=1/2", "--agentcompass-shard-timings=nowhere.json"], "no such file"),
    ],
)
def test_what_cannot_be_used_is_a_usage_error(suite: Suite, args: list[str], message: str) -> None:
    """A typing error costs no run: exit 4, before any attempt, no traceback."""
    suite.tasks(*mixed(1, 0))
    result = suite.run(*NOP, *args)
    assert result.ret == 4, result.out + result.err
    assert message in result.out + result.err
    assert not list(suite.path.glob("agentcompass-results/*/*/attempts"))
    result.check_clean()


@pytest.mark.parametrize(
    ("gates", "message", "mode"),
    [
        (["pass@1 = 1"], "s.agentcompass.yaml: gate", []),
        (["pass@1 = 1"], "s.agentcompass.yaml: gate", ["-n2"]),
        ([{"gate": "pass@1 >= 0.5", "polici": "warn"}], "did you mean 'policy'", []),
        (["pass@1[bb] >= 0.5"], "did you mean 'b'", []),
        ({"require": ["pass@1 >= 0.5"], "baseline": "missing"}, "missing", []),
    ],
)
def test_faulty_gates_of_a_suite_are_usage_errors(suite: Suite, mode: list[str], gates: Any, message: str) -> None:
    """They name the suite, and nothing runs."""
    suite.tasks(*mixed(1, 0))
    suite.requests({"name": "a"}, {"name": "b"}, gates=gates)
    result = suite.run("--agentcompass", "s.agentcompass.yaml", *mode)
    assert result.ret == 4, result.out + result.err
    assert message in result.out + result.err
    result.check_clean()


def test_a_summary_of_a_newer_schema_is_refused(suite: Suite) -> None:
    """A baseline that a newer version wrote is no baseline: the way out is named."""
    suite.tasks(*mixed(1, 0))
    first = suite.run(*NOP)
    data = {**first.summary(), "schema_version": 99}
    suite.write("new.json", json.dumps(data))
    result = suite.run(*NOP, "--agentcompass-gate=no_regression(pass@1)", "--agentcompass-baseline=new.json")
    assert result.ret == 4
    assert "update pytest-agentcompass" in result.out + result.err


# -- suites, baselines --------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [[], ["-n2"]], ids=["serial", "n2"])
def test_gates_of_a_suite_are_about_its_requests(suite: Suite, mode: list[str]) -> None:
    """Two suites in one run: each is judged by its own gates; all are in the reports."""
    suite.tasks(*mixed(2, 0))
    suite.tasks(*mixed(0, 2), name="bad.yaml")
    suite.requests({"name": "good"}, gates=["pass@1 >= 0.9"], name="good.agentcompass.yaml")
    bad = {"id": "tasks", "params": {"path": "bad.yaml"}}
    suite.requests({"name": "bad", "benchmark": bad}, gates=["pass@1 >= 0.1"], name="bad.agentcompass.yaml")
    result = suite.run("--agentcompass", "good.agentcompass.yaml", "bad.agentcompass.yaml", *mode)
    assert result.ret == 1
    assert {gate["source"].rpartition("/")[2]: gate["verdict"] for gate in result.summary()["gates"]} == {
        "good.agentcompass.yaml": "PASS",
        "bad.agentcompass.yaml": "FAIL",
    }
    assert suite.run("--agentcompass", "good.agentcompass.yaml", *mode).ret == 0


def test_a_baseline_of_other_tasks_is_invalid(suite: Suite) -> None:
    """The task's text changed since: said by name, never compared."""
    suite.tasks(task("a"), task("b"))
    first = suite.run(*NOP)
    suite.tasks(task("a"), task("b", "true; true"))
    result = suite.run(*NOP, "--agentcompass-gate=no_regression(pass@1)", f"--agentcompass-baseline={first.run_dir}")
    assert result.ret == 12
    assert "not the baseline's" in result.out
    assert "b;" in result.out


# -- reports ------------------------------------------------------------------------------------


def test_gates_stand_in_every_report(suite: Suite) -> None:
    """summary.json, summary.md, junit.xml, report.html and events hold the verdicts, and `report` rebuilds them."""
    suite.tasks(*mixed(1, 1))
    result = suite.run(*NOP, HALF, "--agentcompass-gate=pass@1 >= 0.9")
    assert verdicts(result) == ["PASS", "FAIL"]
    assert "## Gates: FAIL" in (result.run_dir / "summary.md").read_text()
    assert [event["status"] for event in result.events("gate_evaluated")] == ["PASS", "FAIL"]
    names = ("summary.json", "summary.md", "junit.xml", "report.html")
    before = {name: (result.run_dir / name).read_bytes() for name in names}
    assert verb(suite, "report", "last").returncode == 0
    assert {name: (result.run_dir / name).read_bytes() for name in before} == before
    suites = {item.get("name"): item for item in ElementTree.parse(result.run_dir / "junit.xml").iter("testsuite")}
    gates = suites["agentcompass.gates"]
    assert (gates.get("tests"), gates.get("failures")) == ("2", "1")
    assert [case.get("name") for case in gates.iter("testcase")] == ["pass@1 >= 0.5", "pass@1 >= 0.9"]


@pytest.mark.parametrize(
    ("choice", "failed", "broken"),
    [
        (None, "failure", "error"),
        ("failure", "failure", "error"),
        ("skipped", "skipped", "skipped"),
        ("passed", None, "skipped"),
    ],
)
def test_unresolved_attempts_in_junit(suite: Suite, choice: str | None, failed: str | None, broken: str) -> None:
    """A dashboard shows what the team wants where gates decide; missing data never looks passed."""
    suite.tasks(task("p"), task("f", "false"), task("e", setup="exit 3"))
    more = [f"--agentcompass-gate-unresolved={choice}"] if choice else []
    result = suite.run(*NOP, "--agentcompass-gate=pass@1 >= 0.1; max_infra_errors: 50%", *more)
    shown = {}
    for case in result.junit():
        kinds = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
        shown[str(case.get("classname")).rpartition(".")[2]] = kinds[0] if kinds else None
    assert (shown["p"], shown["f"], shown["e"]) == (None, failed, broken)


def test_without_gates_unresolved_stay_failures(suite: Suite) -> None:
    """The choice is only about runs that gates decide."""
    suite.tasks(task("f", "false"))
    result = suite.run(*NOP, "--agentcompass-gate-unresolved=passed")
    assert result.ret == 1
    assert [child.tag for child in result.junit()[0] if child.tag == "failure"] == ["failure"]


def test_the_gates_are_the_last_screen(suite: Suite) -> None:
    """Below pytest's own last line: verdict, gate, figure with interval, and the exit code."""
    suite.tasks(*mixed(1, 1))
    lines = suite.run(*NOP, HALF).out.strip().splitlines()
    assert lines[-1] == "PASS: every gate holds -> exit code 0"
    assert lines[-3].startswith("PASS          pass@1 >= 0.5: 50.0% (95% interval ")


@pytest.mark.parametrize("mode", [[], ["-n2"]], ids=["serial", "n2"])
def test_github_actions(suite: Suite, mode: list[str]) -> None:
    """A step summary and annotations for gates and infrastructure errors; only on GitHub."""
    suite.tasks(*mixed(1, 1), task("e", setup="exit 3"))
    summary = suite.path / "step.md"
    quiet = suite.run(*NOP, *mode, HALF)
    assert "::error" not in quiet.out
    result = suite.run(*NOP, *mode, HALF, GITHUB_ACTIONS="true", GITHUB_STEP_SUMMARY=str(summary))
    assert "::error title=gate INVALID%3A pass@1 >= 0.5::" in result.out
    assert "::warning title=1 infrastructure error::setup_error" in result.out
    assert "## Gates: INVALID" in summary.read_text()


# -- early stop ---------------------------------------------------------------------------------


@MODES
@pytest.mark.parametrize(("gate", "code"), [("pass@1 >= 0.3", 0), ("pass@1 >= 0.9", 1)])
def test_stop_when_decided(suite: Suite, mode: list[str], gate: str, code: int) -> None:
    """Futility and success both end the run; the verdict is what the whole run's would have been."""
    order = [item for pair in zip(mixed(8, 0), mixed(0, 8), strict=True) for item in pair]
    suite.tasks(*[{**item, "id": f"{place:02}"} for place, item in enumerate(order)])
    assert suite.run(*NOP, *mode, f"--agentcompass-gate={gate}").ret == code
    result = suite.run(*NOP, *mode, f"--agentcompass-gate={gate}; stop_when_decided: true")
    assert result.ret == code, result.out
    saved = [name for name, how in result.modes().items() if how == "gate_decided"]
    assert saved
    assert "the rest was not made" in result.out


# -- shards -------------------------------------------------------------------------------------


def _figures(summary: dict[str, Any]) -> str:
    """Return everything of a summary that does not tell time or place."""

    def timeless(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: timeless(item) for key, item in value.items() if key not in ("seconds", "durations", "run")}
        return [timeless(item) for item in value] if isinstance(value, list) else value

    return json.dumps(timeless(summary))


def test_four_shards_on_four_processes_are_one_run(suite: Suite) -> None:
    """Merged, their summary has byte for byte the figures of one run, and the gates are judged once."""
    suite.tasks(*[task(f"t{n}", "true" if n % 3 else "false", category="ab"[n % 2]) for n in range(10)])
    suite.requests({"name": "one", "attempts": 2}, {"name": "two"}, gates=["pass@1 >= 0.5", "pass@2[one] >= 0.5"])
    run = ("--agentcompass", "s.agentcompass.yaml")
    whole = suite.run(*run)
    assert whole.ret == 0, whole.out
    shards = [
        suite.start(*run, f"--agentcompass-shard={n}/4", f"--agentcompass-results=shard{n}", "-p", "no:cacheprovider")
        for n in range(1, 5)
    ]
    ended = [shard.end() for shard in shards]
    assert [shard.ret for shard in ended] == [12] * 4, ended[0].out
    folders = [str(path.parent) for path in sorted(suite.path.glob("shard*/run/*/run.json"))]
    merged = verb(suite, "merge", *folders, "--results", "merged")
    assert merged.returncode == 0, merged.stdout + merged.stderr
    assert merged.stdout.splitlines()[-1] == "PASS: every gate holds -> exit code 0"
    summary = json.loads(next(suite.path.glob("merged/*/*/summary.json")).read_bytes())
    assert _figures(summary) == _figures(whole.summary())
    assert len(summary["run"]["merged_from"]) == 4

    gap = verb(suite, "merge", *folders[:3], "--results", "gap")
    assert gap.returncode == 4
    assert "shard 4/4 is missing" in gap.stderr
    assert not (suite.path / "gap").exists()
    allowed = verb(suite, "merge", *folders[:3], "--results", "gap", "--allow-gaps")
    assert allowed.returncode == 12


def test_shards_balance_by_recorded_durations(suite: Suite) -> None:
    """With an earlier run's durations the slow task has a shard for itself."""
    suite.tasks(task("slow", "sleep 1"), *mixed(4, 0))
    first = suite.run(*NOP)
    split = [
        set(suite.run(*NOP, f"--agentcompass-shard={n}/2", f"--agentcompass-shard-timings={first.run_dir}").records())
        for n in (1, 2)
    ]
    assert {"slow::1"} in split
    assert split[0] | split[1] == set(first.records())


def test_compare_names_what_changed(suite: Suite) -> None:
    """`compare A B`: newly broken and newly fixed by name, both denominators, Markdown on request."""
    suite.tasks(task("a", "test -e a"), task("b", "test -e b"), task("c"))
    words = (*TASKS, "harness=command")
    suite.run(*words, "harness.command=touch a", "--agentcompass-run-id=old")
    suite.run(*words, "harness.command=touch b", "--agentcompass-run-id=new")
    result = verb(suite, "compare", "old", "new", "--output", "c.md")
    assert result.returncode == 0, result.stderr
    assert "new: newly broken: 1: a" in result.stdout
    assert "new: newly fixed: 1: b" in result.stdout
    assert "| new |" in (suite.path / "c.md").read_text()
    assert verb(suite, "compare", "old").returncode == 4
    assert "no run 'older'" in verb(suite, "compare", "old", "older").stderr


# -- the demonstration --------------------------------------------------------------------------


def test_the_demonstration_holds(suite: Suite) -> None:
    """docs/gates_demo.sh runs as documented: six runs, their exit codes, a comparison."""
    for folder in ("example_suites", "docs"):
        shutil.copytree(ROOT / folder, suite.path / folder)
    done = subprocess.run(
        ["sh", "docs/gates_demo.sh", "results"], cwd=suite.path, env={**suite.env, "PYTHON": sys.executable},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    for name, code in {"baseline": 0, "equal": 0, "worse": 1, "unsure": 11, "outage": 12, "partial": 12}.items():
        part = done.stdout.partition(f"##### {name}\n")[2].partition("#####")[0]
        assert f"-> exit code {code}\n" in part, part
