"""The words of `--agentcompass` and its companions."""

from __future__ import annotations

import json

import pytest

from .helpers import TASKS, Suite, task

SETTINGS = ["benchmark=tasks", "benchmark.path=tasks.yaml", "harness=nop"]


def test_words_may_stand_anywhere(suite: Suite) -> None:
    """A setting counts wherever it stands: before the option, behind another option, over several uses."""
    suite.tasks(task("a"), task("b"))
    result = suite.run("harness=nop", "--agentcompass", *SETTINGS[:2], "-q", "attempts=2", "--agentcompass", "limit=1")
    assert result.ret == 0
    assert list(result.records()) == ["a::1", "a::2"]


@pytest.mark.parametrize("more", [[], ["-n2"], ["--own"]])
def test_paths_bring_their_conftest_files_from_anywhere(suite: Suite, more: list[str]) -> None:
    """Started in another folder, a run has the plugins and options of its suite's conftest.py, as pytest's own has."""
    suite.tasks(task("a"))
    suite.requests({"name": "r"})
    suite.write("own_plugin.py", "def pytest_report_header(): return 'own plugin here'")
    add = "def pytest_addoption(parser): parser.addoption('--own', action='store_true')"
    suite.write("conftest.py", f"pytest_plugins = ['own_plugin']\n{add}\n")
    suite.write("elsewhere/note.txt", "")
    words = ("--agentcompass", "../s.agentcompass.yaml", f"--rootdir={suite.path}", *more)
    result = suite.run(*words, cwd="elsewhere", PYTHONPATH=str(suite.path))
    assert result.counts == {"passed": 1}, result.out + result.err
    assert "own plugin here" in result.out


def test_settings_without_a_path_leave_the_projects_tests_alone(suite: Suite) -> None:
    """With settings and no path only the request is collected; with a path its tests run too."""
    suite.tasks(task("a"))
    suite.write("test_own.py", "def test_own(): pass\n")
    assert suite.collect(*TASKS, "harness=nop").out.count("::") == 2 + 1  # two separators of one id
    both = suite.run(*TASKS, "harness=nop", "test_own.py", "-v")
    assert both.ret == 0
    assert both.counts == {"passed": 2}
    assert "test_own.py::test_own PASSED" in both.out


def test_a_file_named_like_a_setting_is_a_path(suite: Suite) -> None:
    """A word with `=` that names an existing file is that file."""
    suite.tasks(task("a"))
    suite.write("x=1.py", "def test_odd(): pass\n")
    result = suite.run(*TASKS, "harness=nop", "x=1.py", "-o", "python_files=*.py")
    assert result.ret == 0
    assert result.counts == {"passed": 2}


@pytest.mark.parametrize(
    ("words", "needles"),
    [
        (["benchmark=tasks", "harnes=nop"], ["harnes=nop", "did you mean 'harness'?"]),
        (["benchmark=taks"], ["taks", "did you mean 'tasks'?"]),
        ([*SETTINGS[:2], "harness=nopp"], ["nopp", "did you mean 'nop'?"]),
        ([*SETTINGS, "attempts=none"], ["attempts"]),
        ([*SETTINGS, "attempts=0"], ["attempts"]),
        ([*SETTINGS, "attempts=2", "execution.attempts.k=3"], ["attempts.k", "2", "3"]),
        (["harness=nop"], ["which benchmark?", "benchmark=ID", "tasks"]),
        ([*SETTINGS, "no_such_file.py"], ["no_such_file.py"]),
        ([*SETTINGS, "--agentcompass-config", "no.yaml"], ["no.yaml"]),
        ([*SETTINGS, "--agentcompass-resume=gone"], ["gone"]),
        ([*SETTINGS, "model.api_keyy=x"], ["api_keyy"]),
    ],
    ids=lambda value: None if isinstance(value, list) and " " in value[0] else str(value[-1]),
)
def test_a_wrong_word_is_a_usage_error(suite: Suite, words: list[str], needles: list[str]) -> None:
    """A word that cannot be used ends the run with status 4, one message and no run directory."""
    suite.tasks(task("a"))
    result = suite.run("--agentcompass", *words)
    assert result.ret == 4
    for needle in needles:
        assert needle in result.out + result.err
    result.check_clean()
    assert not list(suite.path.glob("agentcompass-results/*/*"))


def test_options_can_be_set_in_the_ini_file(suite: Suite) -> None:
    """Each option has an ini value of the same name; the command line wins."""
    suite.tasks(task("a"))
    suite.write("more.yaml", "execution: {attempts: {k: 2}}\n")
    suite.write("pytest.ini", "[pytest]\nagentcompass_run_id = fixed\nagentcompass_config = more.yaml\n")
    assert list(suite.run(*TASKS, "harness=nop").records()) == ["a::1", "a::2"]
    assert (suite.path / "agentcompass-results/run/fixed").is_dir()
    assert suite.run(*TASKS, "harness=nop", "--agentcompass-run-id", "other").ret == 0
    again = suite.run(*TASKS, "harness=nop")
    assert again.ret == 4
    assert "exists already" in again.err
    assert "--agentcompass-resume=fixed" in again.err


def test_show_config_says_where_each_value_came_from(suite: Suite) -> None:
    """`show-config` prints the resolved requests with origins and no secret, and runs nothing."""
    suite.tasks(task("a"))
    suite.write("agentcompass.yaml", "execution: {max_retries: 3}\n")
    result = suite.run(
        *TASKS, "harness=nop", "model=m", "model.api_key=${KEY}", "--agentcompass-show-config", KEY="s3cret-value-123"
    )
    assert result.ret == 0
    assert "s3cret-value-123" not in result.out + result.err
    for line, origin in (("harness.id", "command line"), ("max_retries", "agentcompass.yaml")):
        assert any(line in text and origin in text for text in result.out.splitlines()), result.out
    assert not (suite.path / "agentcompass-results").exists()


def test_show_config_names_a_broken_suite(suite: Suite) -> None:
    """`show-config` of a suite shows its good requests, names the broken one and ends with 4."""
    suite.tasks(task("a"))
    suite.requests({"name": "good"}, {"name": "bad", "harness": {"id": "nopp"}})
    result = suite.run("--agentcompass", "s.agentcompass.yaml", "--agentcompass-show-config")
    assert result.ret == 4
    assert "good" in result.out
    assert "did you mean 'nop'?" in result.out


def test_configuration_files_are_layered(suite: Suite) -> None:
    """The nearest agentcompass.yaml, then each --agentcompass-config in order, then the words."""
    suite.tasks(task("a"))
    suite.write("agentcompass.yaml", "execution: {attempts: {k: 5}, max_retries: 1, timeout_multiplier: 2}\n")
    suite.write("c.yaml", "execution: {attempts: {k: 4}, max_retries: 2}\n")
    result = suite.run(*TASKS, "harness=nop", "--agentcompass-config", "c.yaml", "attempts=1")
    assert result.ret == 0
    execution = result.run_info()["requests"][0]["execution"]
    assert (execution["attempts"]["k"], execution["max_retries"], execution["timeout_multiplier"]) == (1, 2, 2.0)


def test_a_secret_on_the_command_line_is_not_stored(suite: Suite) -> None:
    """A key given as a word or by a variable is in no file and in no line of the run."""
    key = "Zq8kexample0key0of040random0characters00"
    suite.tasks(task("a", verify=f"echo {key}; false"))
    words = (*TASKS, "harness=nop", "model=m")
    for result in (
        suite.run(*words, "model.api_key=${KEY}", KEY=key),
        suite.run(*words, f"model.api_key={key}"),
    ):
        assert result.ret == 1
        assert key not in result.out + result.err
        # tasks.jsonl and tasks.yaml are data of the user's own; the key stands there as a mark
        for path in result.run_dir.rglob("*"):
            assert not path.is_file() or key.encode() not in path.read_bytes(), path
        assert json.loads((result.run_dir / "run.json").read_bytes())["status"] == "finished"
