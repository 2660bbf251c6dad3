"""Terminal-Bench attempts in real containers: right verdicts, and none that an agent can forge."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_agentcompass.components.context import AttemptContext, set_current_attempt
from pytest_agentcompass.components.registry import Registry
from pytest_agentcompass.contracts.outcome import FailureMode, RunResult
from pytest_agentcompass.contracts.record import AttemptRecord
from pytest_agentcompass.contracts.request import RunRequest
from pytest_agentcompass.contracts.task import TaskSpec
from pytest_agentcompass.errors import AgentFailure, EvaluationError
from pytest_agentcompass.planning.planner import Planner

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("base_image")]

TASKS = Path(__file__).parents[2].parent / "shared" / "tasks"
BASE = "pytest-agentcompass-test:bookworm"
CONFORMANCE_BASE = "agentcompass-base:bookworm"
REGISTRY = Registry()


@dataclass
class Done:
    """What became of an attempt."""

    outcome: str
    result: RunResult
    directory: Path

    @property
    def codes(self) -> list[str]:
        """The codes of the notes."""
        return [issue.code for issue in self.result.issues]


def load(folder: Path, harness: str, **params: Any) -> tuple[RunRequest, TaskSpec]:
    """Return a request for one task folder, and its task."""
    request = RunRequest.model_validate(
        {
            "benchmark": {"id": "terminal_bench", "params": {"path": str(folder), **params}},
            "harness": {"id": harness},
            "environment": {"id": "docker"},
        }
    )
    task = REGISTRY.make("benchmark", "terminal_bench").load_tasks(request)[0]
    assert isinstance(task, TaskSpec), task
    return request, task


def attempt(folder: Path, directory: Path, harness: str = "oracle", **params: Any) -> Done:
    """Make one attempt at the task in *folder*."""
    request, task = load(folder, harness, **params)
    return asyncio.run(_attempt(request, task, directory))


async def _attempt(request: RunRequest, task: TaskSpec, directory: Path) -> Done:
    bench = REGISTRY.make("benchmark", "terminal_bench")
    set_current_attempt(AttemptContext("tests", "main", task.task_id, 1, directory))
    plan = Planner(REGISTRY).plan(request, task)
    env = await REGISTRY.make("environment", "docker").open(request, plan)
    result = RunResult(task_id=task.task_id)
    try:
        prepared = await bench.prepare_task(task, env, request, plan.benchmark_plan)
        while True:
            prepared.run_timeout_seconds = prepared.run_timeout_seconds or plan.run_timeout_seconds
            await _run(request, env, prepared, plan, result)
            following = await bench.next_step(task, prepared, result, request, plan, env)
            if following is None:
                break
            prepared = following
        try:
            await bench.evaluate(task, prepared, result, request, plan, env)
        except EvaluationError as error:
            result.fail(error.failure_mode, "evaluate", error.message)
            return Done("error", result, directory)
        bench.metric_contract.check(result.metrics)
        return Done("passed" if result.metrics["correct"] else "failed", result, directory)
    finally:
        for terminal in list(env.terminals.values()):
            await terminal.close()
        await env.close()


async def _run(request: RunRequest, env: Any, prepared: Any, plan: Any, result: RunResult) -> None:
    harness = REGISTRY.make("harness", request.harness.id)
    session = await harness.start_session(env, request, plan.harness_plan)
    try:
        run = await harness.run_task(session, prepared, request, plan.harness_plan)
    except AgentFailure as failure:
        run = failure.result  # type: ignore[attr-defined]
        result.fail(failure.failure_mode, "run", failure.message)
    result.issues += run.issues
    result.agent_output += run.agent_output


def run_whole(folder: Path, results: Path, harness: str = "oracle", **params: Any) -> AttemptRecord:
    """Make one attempt with the whole engine and return its record."""
    from pytest_agentcompass.scripts import run_evaluation

    request, _ = load(folder, harness, **params)
    return asyncio.run(run_evaluation(request, results_dir=results)).requests[0].records[0]


def write(folder: Path, **files: str) -> Path:
    """Write the files of a task folder; `__` stands for a slash and a trailing name part keeps its dot."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return folder


def tb2(
    folder: Path, solution: str, test: str, toml: str = "", dockerfile: str = "WORKDIR /app\n", **more: str
) -> Path:
    """Write a TB2 task."""
    return write(
        folder,
        **{
            "task.toml": f'version = "1.0"\n[agent]\ntimeout_sec = 60\n{toml}',
            "instruction.md": "Do it.\n",
            "environment/Dockerfile": f"FROM {BASE}\n{dockerfile}",
            "tests/test.sh": test,
            "solution/solve.sh": solution,
            **more,
        },
    )


def tb1(
    folder: Path, solution: str, script: str, yaml_text: str = "", dockerfile: str = "WORKDIR /app\n", **more: str
) -> Path:
    """Write a TB1 task."""
    return write(
        folder,
        **{
            "task.yaml": f"instruction: Do it.\ndifficulty: easy\nmax_agent_timeout_sec: 30\n{yaml_text}",
            "Dockerfile": f"FROM {BASE}\n{dockerfile}",
            "run-tests.sh": script,
            "solution.sh": solution,
            **more,
        },
    )


PYTEST = 'python3 -m pytest -rA -p no:cacheprovider "$TEST_DIR"/test_outputs.py\n'
FAILING = {"tests/test_outputs.py": "def test_it():\n    assert 0\n"}
PASSING = {"tests/test_outputs.py": "def test_it():\n    assert 1\n"}


def conformance() -> list[Any]:
    """Return format, task and harness of all conformance tasks."""
    if not TASKS.is_dir():
        return []
    return [
        pytest.param(form, path.stem, harness, id=f"{form}-{path.stem}-{harness}")
        for form in ("tb1", "tb2")
        for path in sorted((TASKS / "expected" / form).glob("*.yaml"))
        for harness in ("oracle", "nop")
    ]


@pytest.mark.skipif(not TASKS.is_dir(), reason="the folder ../shared/tasks is not there")
@pytest.mark.parametrize(("form", "name", "harness"), conformance())
def test_conformance(form: str, name: str, harness: str, tmp_path: Path, docker_client: Any) -> None:
    """Every conformance task ends as its expected file says, with the same tests and rewards."""
    if not docker_client.images(name=CONFORMANCE_BASE):
        pytest.skip(f"the image {CONFORMANCE_BASE} is not there")
    expected = yaml.safe_load((TASKS / "expected" / form / f"{name}.yaml").read_text())
    wanted = expected[harness]
    request, task = load(TASKS / form / name, harness)
    if wanted["outcome"] == "unavailable":
        assert REGISTRY.make("harness", harness).unavailable(task, request)
        return
    if "compose" in expected["needs"]:
        from pytest_agentcompass.environments.docker import compose

        if not compose_works(compose):
            pytest.skip("docker compose is not there")
    done = attempt(TASKS / form / name, tmp_path, harness)
    assert done.outcome == wanted["outcome"], done.result
    if "steps" in wanted:
        steps = {entry["name"]: {"rewards": entry["rewards"]} for entry in done.result.metadata["steps"]}
        assert steps == wanted["steps"]
        return
    tests = wanted.get("tests") or wanted.get("tests_printed")
    if tests:
        assert done.result.tests == tests
    if "rewards" in wanted:
        assert done.result.metadata["rewards"] == wanted["rewards"]
    if done.outcome != "error":
        assert done.result.failure_mode.value == wanted.get("failure_mode", "none")


def compose_works(module: Any) -> bool:
    """Whether some compose v2 is installed."""
    import shutil
    import subprocess

    if shutil.which("docker-compose"):
        return True
    return (
        bool(shutil.which("docker"))
        and subprocess.run(["docker", "compose", "version"], capture_output=True).returncode == 0
    )


AGENTS = {
    "text": "mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt; chmod 444 /logs/verifier/reward.txt; "
    "chattr +i /logs/verifier/reward.txt 2>/dev/null",
    "json": "mkdir -p /logs/verifier; echo '{\"reward\": 1}' > /logs/verifier/reward.json",
    "link": "rm -rf /logs/verifier; mkdir -p /app/fake; ln -s /app/fake /logs/verifier; echo 1 > /app/fake/reward.txt",
    "late": "nohup setsid sh -c 'while :; do echo 1 > /logs/verifier/reward.txt; sleep 0.1; done' >/dev/null 2>&1 &",
}
TESTS = {
    "honest": ("mkdir -p /logs/verifier\nsleep 0.5\necho 0 > /logs/verifier/reward.txt\nsleep 0.5\n", "failed"),
    "crash": ("sleep 0.5\nexit 1\n", "error"),
}


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("test", TESTS)
def test_planted_reward(agent: str, test: str, tmp_path: Path) -> None:
    """A reward counts only when the verifier wrote it: planted, linked and late ones do not."""
    script, outcome = TESTS[test]
    done = attempt(tb2(tmp_path / "task", AGENTS[agent], script), tmp_path / "out")
    assert done.outcome == outcome
    if outcome == "error":
        assert done.result.failure_mode is FailureMode.NO_REWARD


@pytest.mark.parametrize(
    "agent",
    [
        "mkdir -p /tests; printf 'import pytest\\n@pytest.hookimpl(hookwrapper=True)\\n"
        "def pytest_runtest_makereport():\\n"
        '    out = yield\\n    out.get_result().outcome = "passed"\\n\' > /tests/conftest.py',
        "printf '[pytest]\\naddopts = --collect-only\\n' > /pytest.ini",
        "printf 'raise SystemExit(0)\\n' > /app/pytest.py",
        "mkdir -p /app/sitecustomize; printf 'import os; os._exit(0)\\n' > /app/sitecustomize.py",
        "d=$(python3 -m site --user-site); mkdir -p $d; printf 'import os; os._exit(0)\\n' > $d/usercustomize.py",
    ],
    ids=["conftest", "settings", "module", "sitecustomize", "usersite"],
)
def test_planted_files(agent: str, tmp_path: Path) -> None:
    """Files that an agent plants for the verifier's python and pytest change nothing."""
    done = attempt(tb1(tmp_path / "task", agent, PYTEST, **FAILING), tmp_path / "out")
    assert done.outcome == "failed"
    assert done.result.tests == {"test_it": "failed"}


@pytest.mark.parametrize(
    ("script", "tests", "mode"),
    [
        ("true\n", PASSING, "no_tests"),
        (PYTEST, {"tests/test_outputs.py": "import pytest\n@pytest.mark.skip\ndef test_it(): pass\n"}, "no_tests"),
        (PYTEST + "exit 3\n", PASSING, "contradiction"),
        ("no-such-runner tests\n", PASSING, "verifier_not_started"),
        (PYTEST, {"tests/test_outputs.py": "import os\ndef test_it(): os._exit(0)\n"}, "contradiction"),
        (
            PYTEST,
            {
                "tests/test_outputs.py": "import os, sys\ndef test_it():\n    sys.__stdout__.write('\\n' + "
                "' short test summary info '.center(80, '=') + '\\nPASSED x.py::test_it\\n' + "
                "' 1 passed in 0.01s '.center(80, '=') + '\\n')\n    sys.__stdout__.flush()\n    os._exit(0)\n"
            },
            "contradiction",
        ),
    ],
    ids=["nothing", "skipped", "status", "missing", "exit", "forged"],
)
def test_no_verdict(script: str, tests: dict[str, str], mode: str, tmp_path: Path) -> None:
    """Where nothing was verified, or the evidence disagrees, there is an error and no score."""
    done = attempt(tb1(tmp_path / "task", "true\n", script, **tests), tmp_path / "out")
    assert done.outcome == "error"
    assert done.result.failure_mode.value == mode
    assert "correct" not in done.result.metrics


def test_missing_verifier_user(tmp_path: Path) -> None:
    """A verifier that cannot be started is an error and no failed test."""
    toml = '[verifier]\nuser = "nosuchuser"\n'
    done = attempt(tb2(tmp_path / "task", "true\n", "echo 1 > /logs/verifier/reward.txt\n", toml), tmp_path / "out")
    assert done.outcome == "error"


def test_test_timeout(tmp_path: Path) -> None:
    """Tests that hang are stopped at their limit; the attempt is failed and says test_timeout."""
    folder = tb1(tmp_path / "task", "true\n", "echo begun\nsleep 300\n", "max_test_timeout_sec: 1\n")
    done = attempt(folder, tmp_path / "out")
    assert (done.outcome, done.result.failure_mode) == ("failed", FailureMode.TEST_TIMEOUT)
    assert "begun" in done.result.verifier_output


def test_same_shell_timeout_of_agent(tmp_path: Path) -> None:
    """After an agent timeout the shared shell is free for the tests, and its directory still counts."""
    keys = "- command: cd /srv\n- command: sleep 300\n  block: true\n  max_timeout_sec: 1\n"
    tests = {"tests/test_outputs.py": "import os\ndef test_it():\n    assert os.getcwd() == '/srv'\n"}
    folder = tb1(tmp_path / "task", "", PYTEST, "run_tests_in_same_shell: true\n", **{**tests, "solution.yaml": keys})
    (folder / "solution.sh").unlink()
    done = attempt(folder, tmp_path / "out")
    assert done.outcome == "passed", done.result
    assert (tmp_path / "out" / "panes" / "pre-agent.txt").is_file()
    assert (tmp_path / "out" / "panes" / "post-test.txt").is_file()
    assert "sleep 300" in (tmp_path / "out" / "commands.txt").read_text()


def test_the_recorder_is_no_leftover(tmp_path: Path) -> None:
    """After an agent timeout the agent's processes in the shared shell are ended; its recording goes on."""
    keys = (
        "- command: sleep 7123 & (setsid sleep 7123 &)\n- command: sleep 7123\n  block: true\n  max_timeout_sec: 90\n"
    )
    test = (
        "import subprocess\n"
        "def found(*words):\n    return subprocess.run(['pgrep', *words], stdout=subprocess.DEVNULL).returncode == 0\n"
        "def test_ended():\n    assert not found('-fx', 'sleep 7123')\n"
        "def test_recorded():\n    assert found('-f', '^[^ ]*python3? [^ ]*asciinema rec')\n"
    )
    more = {"solution.yaml": keys, "tests/test_outputs.py": test}
    folder = tb1(tmp_path / "task", "", PYTEST, "run_tests_in_same_shell: true\n", **more)
    (folder / "solution.sh").unlink()
    (folder / "task.yaml").write_text((folder / "task.yaml").read_text().replace("_sec: 30", "_sec: 3"))
    record = run_whole(folder, tmp_path / "out")
    assert record.failure_mode is FailureMode.AGENT_TIMEOUT
    assert record.tests == {"test_ended": "passed", "test_recorded": "passed"}, (record.issues, record.verifier_output)
    (cast,) = tmp_path.glob("out/**/recording.cast")
    assert "sleep 7123" in cast.read_text()
    assert "run.sh" in cast.read_text()


def test_same_shell_left_by_the_agent(tmp_path: Path) -> None:
    """An agent that ends the shared shell leaves no verdict, and nobody waits for the limit."""
    folder = tb1(tmp_path / "task", "", PYTEST, "run_tests_in_same_shell: true\n", **PASSING)
    (folder / "solution.sh").unlink()
    write(folder, **{"solution.yaml": "- command: exit\n  min_timeout_sec: 0.5\n"})
    done = attempt(folder, tmp_path / "out")
    assert (done.outcome, done.result.failure_mode.value) == ("error", "verifier_not_started")


def test_two_files_with_one_name(tmp_path: Path) -> None:
    """Two tests with one name in two files stay two: a pass in one cannot hide a failure in the other."""
    tests = {"tests/test_a.py": "def test_it(): assert 0\n", "tests/test_b.py": "def test_it(): pass\n"}
    done = attempt(tb1(tmp_path / "task", "true\n", 'python3 -m pytest -rA "$TEST_DIR"\n', **tests), tmp_path / "out")
    assert done.outcome == "failed"
    assert sorted(done.result.tests.values()) == ["failed", "passed"]


def test_made_up_summary(tmp_path: Path) -> None:
    """A summary that a script prints after pytest's own adds no test."""
    own = PYTEST + 'echo "=========== short test summary info ==========="\necho "PASSED test_outputs.py::all"\n'
    done = attempt(tb1(tmp_path / "task", "true\n", own, **PASSING), tmp_path / "out")
    assert (done.outcome, done.result.tests) == ("passed", {"test_it": "passed"})


def test_service_stays_for_the_verifier(tmp_path: Path) -> None:
    """A server that the agent started is there for the tests; it is on the record; `kill` ends it."""
    solve = "cd /srv && setsid python3 -m http.server 8123 >/dev/null 2>&1 &\nsleep 1\n"
    test = "curl -sf http://127.0.0.1:8123/ >/dev/null && r=1 || r=0\necho $r > /logs/verifier/reward.txt\n"
    folder = tb2(tmp_path / "task", solve, test)
    kept = attempt(folder, tmp_path / "kept")
    assert (kept.outcome, "leftover" in kept.codes) == ("passed", True)
    assert attempt(folder, tmp_path / "killed", verifier={"leftovers": "kill"}).outcome == "failed"


def test_reward_of_a_link_is_not_read(tmp_path: Path) -> None:
    """A reward file that is a link is refused."""
    test = "echo 1 > /tmp/r; ln -s /tmp/r /logs/verifier/reward.txt\n"
    done = attempt(tb2(tmp_path / "task", "true\n", test), tmp_path / "out")
    assert (done.outcome, done.result.failure_mode.value) == ("error", "evaluation_error")


def test_agent_user_of_its_own(tmp_path: Path) -> None:
    """`[agent].user` is the agent's alone: the verifier runs as the image's user."""
    toml = 'user = "dev"\n'
    solve = "id -un > /tmp/who\n"
    test = '[ "$(cat /tmp/who)" = dev ] && [ "$(id -un)" = root ] && r=1 || r=0\necho $r > /logs/verifier/reward.txt\n'
    docker = "RUN useradd -m dev\nWORKDIR /app\n"
    done = attempt(tb2(tmp_path / "task", solve, test, toml, docker), tmp_path / "out")
    assert done.outcome == "passed", done.result


def test_failing_solution_is_graded(tmp_path: Path) -> None:
    """A solution that ends with an error is noted and graded all the same."""
    done = attempt(tb2(tmp_path / "task", "exit 7\n", "echo 1 > /logs/verifier/reward.txt\n"), tmp_path / "out")
    assert (done.outcome, "solution_status" in done.codes) == ("passed", True)


STEP = '[[steps]]\nname = "%s"\n%s'


def test_gate_and_mean_of_steps(tmp_path: Path) -> None:
    """The mean counts a step that was not reached as 0; shared tests are merged under a step's own."""
    toml = STEP % ("one", "min_reward = 0.5\n") + STEP % ("two", "min_reward = 1.0\n") + STEP % ("three", "")
    files = {
        "tests/lib.sh": "give() { echo $1 > /logs/verifier/reward.txt; }\n",
        "task.toml": 'version = "1.0"\n' + toml,
    }
    for name, reward in (("one", "0.5"), ("two", "0.4"), ("three", "1")):
        files[f"steps/{name}/instruction.md"] = name
        files[f"steps/{name}/solution/solve.sh"] = "[ ! -e /tests/lib.sh ] && true\n"
        files[f"steps/{name}/tests/test.sh"] = f". /tests/lib.sh\ngive {reward}\n"
    done = attempt(tb2(tmp_path / "task", "", "", **files), tmp_path / "out")
    assert done.outcome == "failed"
    assert [entry["name"] for entry in done.result.metadata["steps"]] == ["one", "two"]
    assert done.result.metrics["reward"] == pytest.approx(0.3)


def test_single_image_without_dockerfile(tmp_path: Path) -> None:
    """A task that names an image and has no Dockerfile runs in that image."""
    folder = tb2(
        tmp_path / "task", "true\n", "echo 1 > /logs/verifier/reward.txt\n", f'[environment]\ndocker_image = "{BASE}"\n'
    )
    (folder / "environment" / "Dockerfile").unlink()
    assert attempt(folder, tmp_path / "out").outcome == "passed"


def test_task_folder_is_not_changed(tmp_path: Path) -> None:
    """A task folder that is mounted into the sandbox is copied before."""
    compose = (
        "services:\n  client:\n    build: .\n    command: [sleep, infinity]\n    volumes:\n      - ./:/app\n"
        "      - ${T_BENCH_TASK_LOGS_PATH}:${T_BENCH_CONTAINER_LOGS_PATH}\n"
    )
    solve = "touch /app/new; rm /app/task.yaml; touch /logs/x\n"
    folder = tb1(tmp_path / "task", solve, PYTEST, **PASSING, **{"docker-compose.yaml": compose})
    before = sorted(folder.rglob("*"))
    assert attempt(folder, tmp_path / "out").outcome == "passed"
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize(
    ("agent", "outcome"), [("echo 42 > /app/answer", "passed"), ("echo 41 > /app/answer", "failed")]
)
def test_separate_verifier(agent: str, outcome: str, tmp_path: Path) -> None:
    """A separate verifier sees the artifacts alone, in a container that the agent never touched."""
    toml = '[verifier]\nenvironment_mode = "separate"\n'
    files = {"task.toml": f'version = "1.0"\nartifacts = ["/app/answer"]\n{toml}'}
    solve = f"echo 'raise SystemExit(0)' > /app/pytest.py\n{agent}\n"
    test = (
        '[ ! -e /app/pytest.py ] && [ "$(cat /app/answer)" = 42 ] && r=1 || r=0\necho $r > /logs/verifier/reward.txt\n'
    )
    folder = tb2(tmp_path / "task", solve, test, **files)
    record = run_whole(folder, tmp_path / "results")
    assert record.outcome == outcome, record.issues
