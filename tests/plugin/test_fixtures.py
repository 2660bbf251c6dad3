"""The fixtures: scopes, and overriding each one from a conftest.py."""

from __future__ import annotations

import pytest

from .helpers import TASKS, Suite, task

RUN = (*TASKS, "harness=nop")
WORKERS = pytest.mark.parametrize("workers", [[], ["-n2"], ["concurrency=2"]], ids=["serial", "n2", "engine"])


@WORKERS
def test_each_fixture_can_be_overridden(suite: Suite, workers: list[str]) -> None:
    """A conftest.py may wrap every fixture; what it yields is what the attempt uses; records stay right."""
    suite.tasks(task("a", verify="test -f from-conftest"), task("b", verify="test ! -f from-conftest"))
    suite.write(
        "conftest.py",
        "import pytest\n"
        "@pytest.fixture(scope='module')\ndef agentcompass_request(agentcompass_request):\n"
        "    print('M', agentcompass_request.name)\n    return agentcompass_request\n"
        "@pytest.fixture(scope='class')\ndef agentcompass_task(agentcompass_task):\n"
        "    print('C', agentcompass_task.task_id)\n    return agentcompass_task\n"
        "@pytest.fixture\ndef execution_plan(execution_plan, agentcompass_task):\n"
        "    print('P', agentcompass_task.task_id)\n    return execution_plan\n"
        "@pytest.fixture\ndef environment_session(environment_session, request):\n"
        "    from pathlib import Path\n"
        "    (Path(environment_session.info['workdir']) / 'from-conftest').write_text('x')\n"
        "    yield environment_session\n    print('E closed')\n"
        "@pytest.fixture\ndef harness_session(harness_session):\n    yield harness_session\n    print('H closed')\n"
        "@pytest.fixture\ndef agentcompass_attempt(agentcompass_attempt):\n"
        "    yield agentcompass_attempt\n    print('A', agentcompass_attempt.record.passed)\n",
    )
    result = suite.run(*RUN, *workers, "-rA")
    assert result.verdicts() == {"a::1": True, "b::1": False}, result.out
    assert result.counts == {"passed": 1, "failed": 1}
    for text in ("M tasks", "C a", "P a", "A True\n", "A False\n", "H closed\nE closed\n"):
        assert text in result.out
    result.check_clean()


def test_a_users_environment_is_used_and_left_to_its_owner(suite: Suite) -> None:
    """An environment that a fixture opened itself is worked in, and not closed by us."""
    suite.tasks(task("a", verify="test -f mine"), task("b", verify="test -f mine"))
    suite.write(
        "conftest.py",
        "import pytest\n"
        "@pytest.fixture(scope='module')\ndef shared(agentcompass_request):\n"
        "    print('opened')\n    yield []\n    print('closed')\n"
        "@pytest.fixture\ndef environment_session(environment_session, agentcompass_task, shared):\n"
        "    from pathlib import Path\n"
        "    (Path(environment_session.info['workdir']) / 'mine').touch()\n"
        "    shared.append(agentcompass_task.task_id)\n"
        "    print('shared', *shared)\n"
        "    return environment_session\n",
    )
    result = suite.run(*RUN, "-rA")
    assert result.ret == 0, result.out
    assert "shared a b" in result.out
    assert (result.out.count("opened\n"), result.out.count("closed\n")) == (1, 1)


@pytest.mark.parametrize("engine", [[], ["concurrency=4"]], ids=["serial", "engine"])
def test_scopes_hold(suite: Suite, engine: list[str]) -> None:
    """B8: fixtures of session, module (request), class (task) and function (attempt) are made as often as that says.

    With concurrency=N such items stay item-driven, before whose attempt the user's fixtures run.
    """
    suite.tasks(task("a"), task("b"))
    suite.requests({"name": "one"}, {"name": "two"}, defaults={"attempts": 3})
    suite.write(
        "conftest.py",
        "import pytest\ndef note(text):\n    with open('log', 'a') as file:\n        file.write(text + '\\n')\n"
        + "".join(
            f"@pytest.fixture(scope='{scope}', autouse=True)\ndef my_{scope}(request):\n"
            f"    note('+{scope}')\n    yield\n    note('-{scope}')\n"
            for scope in ("session", "module", "class", "function")
        ),
    )
    result = suite.run("--agentcompass", "s.agentcompass.yaml", *engine)
    assert result.ret == 0, result.out
    log = (suite.path / "log").read_text().split()
    made = {scope: log.count(f"+{scope}") for scope in ("session", "module", "class", "function")}
    assert made == {"session": 1, "module": 2, "class": 4, "function": 12}
    assert made == {scope: log.count(f"-{scope}") for scope in made}
    if engine:
        assert "12 attempts run one after another" in result.out
        assert "my_class" in result.out
        assert "agentcompass_harmless_fixtures" in result.out
    result.check_clean()


def test_a_harmless_fixture_does_not_slow_the_engine(suite: Suite) -> None:
    """An autouse fixture that is listed as harmless leaves the engine on, and still runs for its item."""
    suite.tasks(task("a"), task("b"))
    suite.write("pytest.ini", "[pytest]\nagentcompass_harmless_fixtures = mine\n")
    suite.write("conftest.py", "import pytest\n@pytest.fixture(autouse=True)\ndef mine():\n    print('ran mine')\n")
    result = suite.run(*RUN, "concurrency=2", "-rA")
    assert result.ret == 0
    assert "up to 2 attempts at once" in result.out
    assert "one after another" not in result.out
    assert result.out.count("ran mine") == 2


@WORKERS
def test_a_failing_fixture_is_an_error_of_the_attempt(suite: Suite, workers: list[str]) -> None:
    """An exception in a user's fixture is an error with the user's own text, recorded, and not the agent's fault."""
    suite.tasks(task("a"), task("b"))
    suite.write(
        "conftest.py",
        "import pytest\n@pytest.fixture\ndef environment_session(environment_session, agentcompass_task):\n"
        "    if agentcompass_task.task_id == 'a':\n        raise RuntimeError('no database')\n"
        "    return environment_session\n",
    )
    result = suite.run(*RUN, *workers)
    assert result.ret == 1
    assert result.counts == {"passed": 1, "error": 1}
    assert result.verdicts() == {"a::1": None, "b::1": True}
    assert "no database" in result.out
    assert "no database" in str(result.records()["a::1"]["issues"])


def test_a_failing_teardown_does_not_hide_the_result(suite: Suite) -> None:
    """What breaks at teardown is an error beside the attempt's own outcome."""
    suite.tasks(task("a"))
    suite.write(
        "conftest.py",
        "import pytest\n@pytest.fixture\ndef harness_session(harness_session):\n"
        "    yield harness_session\n    raise RuntimeError('left open')\n",
    )
    result = suite.run(*RUN)
    assert result.ret == 1
    assert result.counts == {"passed": 1, "error": 1}
    assert result.verdicts() == {"a::1": True}
    assert "left open" in result.out


def test_the_fixtures_without_the_option_say_what_is_missing(suite: Suite) -> None:
    """A test that asks for our fixture in a run without --agentcompass is told how to get it."""
    suite.write("test_x.py", "def test_x(agentcompass_attempt): pass\n")
    result = suite.run()
    assert result.ret == 1
    assert "agentcompass_attempt" in result.out


def test_a_skip_in_a_fixture_is_a_skip(suite: Suite) -> None:
    """pytest.skip() in a fixture skips the attempt with the user's reason and no score."""
    suite.tasks(task("a"), task("b"))
    suite.write(
        "conftest.py",
        "import pytest\n@pytest.fixture(autouse=True)\ndef only_b(agentcompass_task):\n"
        "    if agentcompass_task.task_id == 'a':\n        pytest.skip('not today')\n",
    )
    result = suite.run(*RUN, "-rs")
    assert result.ret == 0
    assert result.counts == {"passed": 1, "skipped": 1}
    assert "not today" in result.out
    assert result.records()["a::1"]["status"] == "skipped"


@WORKERS
@pytest.mark.parametrize("option", ["--setup-only", "--setup-plan", "--setup-show"])
def test_options_that_show_fixtures(suite: Suite, option: str, workers: list[str]) -> None:
    """pytest's options about fixtures work as elsewhere; what makes no attempts is no failure."""
    suite.tasks(task("a"), task("b"))
    result = suite.run(*RUN, option, *workers)
    assert result.ret == 0, result.out + result.err
    assert "LOST" not in result.out
    result.check_clean()
