"""Rules of loading task folders: good ones become plain data, bad ones name file, line and field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_agentcompass.benchmarks.terminal_bench import TerminalBench, TerminalBenchParams
from pytest_agentcompass.benchmarks.terminal_bench.content import content_hash
from pytest_agentcompass.benchmarks.terminal_bench.loading import load_folder
from pytest_agentcompass.contracts.environment import EnvironmentSpec
from pytest_agentcompass.contracts.task import TaskProblem, TaskSpec
from pytest_agentcompass.errors import TaskLoadError

SHARED = Path(__file__).parents[3].parent / "shared" / "tasks"
needs_tasks = pytest.mark.skipif(not SHARED.is_dir(), reason="the folder ../shared/tasks is not there")

TASK_YAML = "instruction: Do it.\ndifficulty: easy\n"
TASK_TOML = 'version = "1.0"\n[agent]\ntimeout_sec = 60\n[verifier]\ntimeout_sec = 30\n'


def write(folder: Path, files: dict[str, str | None]) -> Path:
    """Write files below *folder*; None leaves one out."""
    for name, content in files.items():
        if content is not None:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
    return folder


def tb1(folder: Path, text: str = TASK_YAML, **files: str | None) -> Path:
    """Write a TB1 task."""
    return write(folder, {"task.yaml": text, "Dockerfile": "FROM x\n", "run-tests.sh": "true\n", **files})


def tb2(folder: Path, text: str = TASK_TOML, **files: str | None) -> Path:
    """Write a TB2 task."""
    base = {
        "task.toml": text,
        "instruction.md": "Do it.",
        "environment/Dockerfile": "FROM x\n",
        "tests/test.sh": "true\n",
    }
    return write(folder, {**base, **files})


def load(path: Path, **params: Any) -> list[TaskSpec | TaskProblem]:
    """Load a folder."""
    return load_folder(TerminalBenchParams(path=str(path), **params))


def one(path: Path, **params: Any) -> TaskSpec:
    """Load the one good task of a folder; its hints and its row must be valid."""
    task = load(path, **params)[0]
    assert isinstance(task, TaskSpec), task
    EnvironmentSpec.model_validate(task.environment)
    assert TaskSpec.from_row(json.loads(json.dumps(task.to_row()))) == task
    return task


def problem(path: Path, **params: Any) -> str:
    """Return the message of the one broken task of a folder."""
    task = load(path, **params)[0]
    assert isinstance(task, TaskProblem), task
    assert task.task_id in task.message
    return task.message


@needs_tasks
@pytest.mark.parametrize("form", ["tb1", "tb2"])
def test_conformance_tasks(form: str) -> None:
    """All conformance tasks load, in order, with the warnings that are expected."""
    tasks = load(SHARED / form)
    assert [task.task_id for task in tasks] == sorted(path.name for path in (SHARED / form).iterdir())
    for task in tasks:
        assert isinstance(task, TaskSpec), task
        EnvironmentSpec.model_validate(task.environment)
        expected = yaml.safe_load((SHARED / "expected" / form / f"{task.task_id}.yaml").read_text())
        later = [text for text in expected["warnings"] if "not enforced" in text or "was not there" in text]
        assert len(task.warnings) == len(expected["warnings"]) - len(later), task.warnings
        assert task.has_solution is (expected["oracle"]["outcome"] != "unavailable")


@needs_tasks
@pytest.mark.parametrize("name", ["missing-test-script", "bad-yaml", "unknown-parser", "bad-toml"])
def test_broken_tasks(name: str) -> None:
    """Each broken task is a problem of its own whose message holds what a person needs."""
    problems = {item.task_id: item for item in load(SHARED / "broken") if isinstance(item, TaskProblem)}
    expected = yaml.safe_load((SHARED / "expected" / "broken" / f"{name}.yaml").read_text())
    message = problems[name].message
    assert all(part in message for part in expected["message_contains"]), message
    any_of = expected.get("message_contains_one_of")
    assert any_of is None or any(part in message for part in any_of), message


def test_tb1_defaults(tmp_path: Path) -> None:
    """A bare task.yaml takes the format's defaults."""
    task = one(tb1(tmp_path / "t"))
    assert (task.run_timeout_seconds, task.evaluation_timeout_seconds, task.estimated_seconds) == (360, 60, 210)
    assert (task.category, task.metadata["parser"], task.has_solution) == ("software_engineering", "pytest", False)


def test_order_and_stray_files(tmp_path: Path) -> None:
    """Tasks are sorted by name; files and hidden folders beside them are no tasks; a foreign folder is a problem."""
    tb1(tmp_path / "b")
    tb2(tmp_path / "A task")
    write(tmp_path, {"README.md": "x", ".git/config": "x", "notes/x.txt": "x"})
    assert [(item.task_id, type(item).__name__) for item in load(tmp_path)] == [
        ("A task", "TaskSpec"),
        ("b", "TaskSpec"),
        ("notes", "TaskProblem"),
    ]


def test_one_task_folder(tmp_path: Path) -> None:
    """The path may be a task folder itself."""
    assert one(tb2(tmp_path / "alone")).task_id == "alone"


@pytest.mark.parametrize("kind", ["missing", "empty", "file"])
def test_no_dataset(kind: str, tmp_path: Path) -> None:
    """A path without any task is one clear error."""
    path = tmp_path / "data"
    if kind == "file":
        path.write_text("x")
    elif kind == "empty":
        path.mkdir()
    with pytest.raises(TaskLoadError, match=r"benchmark\.path"):
        load(path)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ["task.yaml", "empty"]),
        ("- a\n", ["task.yaml", "mapping"]),
        ("difficulty: easy\n", ["instruction", "required"]),
        ("description: x\ndifficulty: easy\n", ["instruction", "'description'"]),
        ("instruction: x\ndifficulty: 4\n", ["line 2", "difficulty", "easy, hard"]),
        (
            "instruction: x\ndifficulty: easy\nmax_agent_timeout_sec: -1\n",
            ["line 3", "max_agent_timeout_sec", "above 0", "-1"],
        ),
        ("instruction: x\ndifficulty: easy\nmax_agent_timeout_sec: .nan\n", ["max_agent_timeout_sec"]),
        (
            "instruction: x\ndifficulty: easy\nmax_test_timeout_sec: soon\n",
            ["line 3", "max_test_timeout_sec", "'soon'"],
        ),
        ("instruction: x\ndifficulty: easy\ntags: many\n", ["line 3", "tags", "list"]),
        (
            "instruction: x\ndifficulty: easy\nrun_tests_in_same_shell: maybe\n",
            ["run_tests_in_same_shell", "true or false"],
        ),
        ("instruction: x\ninstruction: y\n", ["task.yaml", "instruction"]),
        ("instruction: [x\n", ["task.yaml", "line"]),
    ],
)
def test_bad_task_yaml(text: str, parts: list[str], tmp_path: Path) -> None:
    """A bad field names the file, the line, the key, what came and what is allowed."""
    message = problem(tb1(tmp_path / "t", text))
    assert all(part in message for part in parts), message


@pytest.mark.parametrize(
    ("files", "parts"),
    [
        ({"run-tests.sh": None}, ["run-tests.sh", "cannot be graded"]),
        ({"Dockerfile": None}, ["docker-compose.yaml", "Dockerfile"]),
        ({"docker-compose.yaml": "services: {}\n"}, ["docker-compose.yaml", "services"]),
        ({"docker-compose.yaml": "services:\n  a: {image: x}\n  b: {image: y}\n"}, ["client", "a, b"]),
        ({"docker-compose.yaml": "services:\n  client: {command: x}\n"}, ["neither build nor image"]),
        (
            {"docker-compose.yaml": "services:\n  client:\n    image: x\n    volumes: ['/etc:/x']\n"},
            ["/etc", "outside"],
        ),
        (
            {"docker-compose.yaml": "services:\n  client:\n    image: x\n    volumes: ['../a:/x']\n"},
            ["../a", "outside"],
        ),
        ({"docker-compose.yaml": "services:\n  client:\n    build: {dockerfile: no}\n"}, ["there is no no"]),
        ({"solution.yaml": "- command: [1]\n"}, ["solution.yaml", "[0].command"]),
    ],
)
def test_bad_tb1_files(files: dict[str, str | None], parts: list[str], tmp_path: Path) -> None:
    """Missing and unusable files of a TB1 task are named."""
    message = problem(tb1(tmp_path / "t", **files))
    assert all(part in message for part in parts), message


def test_yes_and_ints(tmp_path: Path) -> None:
    """Older YAML booleans and whole numbers are taken."""
    text = (
        TASK_YAML + "run_tests_in_same_shell: yes\ndisable_asciinema: on\nmax_agent_timeout_sec: 5\ntags: [2024, x]\n"
    )
    task = one(tb1(tmp_path / "t", text))
    assert task.metadata["same_shell"] is True
    assert task.metadata["record"] is False
    assert (task.run_timeout_seconds, task.tags) == (5.0, ("2024", "x"))


def test_misspelt_keys_are_noted(tmp_path: Path) -> None:
    """An unknown key is ignored; one that looks like a known key is pointed out."""
    task = one(tb1(tmp_path / "t", TASK_YAML + "max_agent_timeout_secs: 5\nlanguage: C\n"))
    assert len(task.warnings) == 1
    assert "max_agent_timeout_sec'" in task.warnings[0]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ('[agent]\ntimeout_sec = "x"\n', ["task.toml, line 2", "agent.timeout_sec", "'x'"]),
        ("[agent]\ntimeout_sec = 0\n", ["agent.timeout_sec", "above 0"]),
        ("[environment]\nmemory_mb = true\n", ["line 2", "environment.memory_mb"]),
        ('[environment]\nmemory = "much"\n', ["environment.memory", "'4G'"]),
        ('[environment]\nnetwork_mode = "none"\n', ["environment.network_mode", "no-network"]),
        ('[environment]\nnetwork_mode = "allowlist"\n', ["environment.network_mode", "needs hosts"]),
        ('[environment]\nallowed_hosts = ["a.example"]\n', ["allowed_hosts", "allowlist"]),
        ('[environment]\nos = "windows"\n', ["Windows"]),
        (
            '[environment.env]\nA = "${AGENTCOMPASS_NOT_SET}"\n',
            ["task.toml", "environment.env.A", "AGENTCOMPASS_NOT_SET"],
        ),
        ('[verifier.env]\nA = "x ${AGENTCOMPASS_NOT_SET}"\n', ["verifier.env.A"]),
        ("[environment]\nenv = [1]\n", ["environment.env", "table"]),
        ("[[steps]]\n", ["steps[0].name"]),
        ('[[steps]]\nname = "no"\n', ["steps[0].name", "steps/no"]),
        ('multi_step_reward_strategy = "max"\n', ["multi_step_reward_strategy", "mean"]),
        ("artifacts = [1]\n", ["artifacts[0].source"]),
        ('[verifier]\nenvironment_mode = "separate"\n', ["separate", "no artifacts"]),
        ("reward_range = [1, 0]\n", ["reward_range"]),
        ("a = \n", ["task.toml, line 1"]),
        ("a = 1\na = 2\n", ["task.toml, line 2"]),
    ],
)
def test_bad_task_toml(text: str, parts: list[str], tmp_path: Path) -> None:
    """A bad field of task.toml names the file, the key and what is allowed."""
    message = problem(tb2(tmp_path / "t", text))
    assert all(part in message for part in parts), message


@pytest.mark.parametrize(
    ("files", "parts"),
    [
        ({"tests/test.sh": None, "tests/test_ok.py": ""}, ["tests/test.sh", "test_ok.py"]),
        ({"instruction.md": None}, ["instruction.md"]),
        ({"instruction.md": " \n"}, ["instruction.md", "empty"]),
        ({"environment/Dockerfile": None}, ["environment", "docker_image"]),
        (
            {"environment/Dockerfile": None, "environment/docker-compose.yml": "services: {main: {image: x}}"},
            ["docker_image"],
        ),
    ],
)
def test_bad_tb2_files(files: dict[str, str | None], parts: list[str], tmp_path: Path) -> None:
    """Missing files of a TB2 task are named; docker-compose.yml is no compose file."""
    message = problem(tb2(tmp_path / "t", **files))
    assert all(part in message for part in parts), message


def test_file_that_is_no_text(tmp_path: Path) -> None:
    """A task file that is no UTF-8 names its line."""
    folder = tb2(tmp_path / "t")
    (folder / "task.toml").write_bytes(b"a = 1\nb = '\xff'\n")
    assert "line 2" in problem(folder)


def test_tb2_fields(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits, users, policies, health checks, templates and artifacts arrive as hints."""
    monkeypatch.setenv("AGENTCOMPASS_HOST", "db")
    text = """
artifacts = ["/app/a", {source = "/app/b", destination = "b", exclude = ["*.tmp"]}]
[metadata]
difficulty = "hard"
category = "data"
tags = ["a", 1]
[agent]
user = 1000
network_mode = "allowlist"
allowed_hosts = ["a.example"]
[verifier]
user = "root"
timeout_sec = 5
[verifier.env]
V = "${AGENTCOMPASS_HOST}"
[environment]
cpus = 2
memory = "4G"
storage_mb = 100
build_timeout_sec = 7
workdir = "/w"
network_mode = "no-network"
mcp_servers = [{name = "x"}]
gpus = 0
[environment.env]
A = "${AGENTCOMPASS_HOST}-${AGENTCOMPASS_NONE:-x}"
N = 3
[environment.healthcheck]
command = "true"
interval = 1
start_period_sec = 0
"""
    task = one(tb2(tmp_path / "t", text))
    hints = EnvironmentSpec.model_validate(task.environment)
    assert (hints.resources.cpus, hints.resources.memory_mb, hints.resources.storage_mb) == (2, 4096, 100)
    assert (task.metadata["agent_user"], hints.workdir, hints.env_variables) == ("1000", "/w", {"A": "db-x", "N": "3"})
    assert [str(getattr(hints, f"{phase}_network_policy")) for phase in ("baseline", "run", "evaluation")] == [
        "no-network",
        "allowlist(a.example)",
        "no-network",
    ]
    assert hints.build is not None
    assert hints.build.timeout_seconds == 7
    assert hints.healthcheck is not None
    assert (hints.healthcheck.interval, hints.healthcheck.start_period) == (1, 0)
    assert (task.run_timeout_seconds, task.evaluation_timeout_seconds) == (None, 5)
    assert [item.source for item in task.artifacts] == ["/app/a", "/app/b"]
    assert task.metadata["verifier_env"] == {"V": "${AGENTCOMPASS_HOST}"}
    assert {note.split(": ")[1].split(" ")[0] for note in task.warnings} == {
        "environment.memory",
        "environment.mcp_servers",
    }


def test_values_of_verifier_secrets_are_not_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Templates of the verifier stay templates in the task's row: a key is put in only when it is used."""
    monkeypatch.setenv("AGENTCOMPASS_JUDGE_KEY", "sk-secret-value")
    task = one(tb2(tmp_path / "t", '[verifier.env]\nKEY = "${AGENTCOMPASS_JUDGE_KEY}"\n'))
    assert "sk-secret-value" not in json.dumps(task.to_row())


def test_published_image(tmp_path: Path) -> None:
    """A Dockerfile is built unless the request asks for the published image; the choice is said."""
    folder = tb2(tmp_path / "t", '[environment]\ndocker_image = "org/x:1"\n')
    assert "build" in one(folder).environment
    assert "org/x:1" in one(folder).warnings[0]
    assert one(folder, image="published").environment == {"image": "org/x:1"}


def test_separate_verifier(tmp_path: Path) -> None:
    """A separate verifier becomes a fresh evaluation sandbox where artifacts say what it gets."""
    text = 'artifacts = ["/app/a"]\n[verifier]\nenvironment_mode = "separate"\n'
    folder = tb2(tmp_path / "t", text)
    assert one(folder).environment["evaluation_environment_mode"] == "fresh"
    assert "evaluation_environment_mode" not in one(folder, verifier={"mode": "shared"}).environment
    write(folder, {"tests/Dockerfile": "FROM x\n"})
    assert "tests/Dockerfile" in problem(folder)


def test_wrong_format_asked(tmp_path: Path) -> None:
    """A format that is asked for is not replaced by the other."""
    assert "benchmark.format=tb1" in problem(tb1(tmp_path / "t"), format="tb2")


def test_content_hash(tmp_path: Path) -> None:
    """Names, bytes, links and the executable bit change the hash; dates and the umask do not."""
    folder = tb1(tmp_path / "t")
    first = content_hash(folder)
    (folder / "run-tests.sh").chmod(0o600)
    assert content_hash(folder) == first
    seen = {first}
    (folder / "run-tests.sh").chmod(0o755)
    seen.add(content_hash(folder))
    (folder / "run-tests.sh").write_text("false\n")
    seen.add(content_hash(folder))
    (folder / "run-tests.sh").rename(folder / "other.sh")
    seen.add(content_hash(folder))
    (folder / "link").symlink_to("/nowhere")
    seen.add(content_hash(folder))
    assert len(seen) == 5


def test_problem_does_not_stop_the_rest(tmp_path: Path) -> None:
    """A broken task beside a good one leaves the good one."""
    tb1(tmp_path / "a", "instruction: [")
    tb1(tmp_path / "b")
    assert [type(item) for item in load(tmp_path)] == [TaskProblem, TaskSpec]


def test_benchmark_reads_params() -> None:
    """The benchmark's class states its default environment and its metrics."""
    assert TerminalBench.default_environment == "docker"
    assert TerminalBench.metric_contract.primary == "correct"


VALUES = [None, True, 0, -1, 1.5, "", "x", "4G", "${A}", [], ["a"], [1], {}, {"a": "b"}, [{}], [["x"]], "a\0b", 10**30]
ODD: list[Any] = ['sh -c "x', [":"], ["/x"], {"test": 3}]
SERVICE = [
    *("build", "image", "command", "environment", "volumes", "working_dir", "user", "extra_hosts", "tmpfs", "shm_size"),
    *("platform", "deploy", "cpus", "mem_limit", "pids_limit", "network_mode", "healthcheck", "networks", "env_file"),
]
TASK = [
    "instruction",
    "difficulty",
    "tags",
    "parser_name",
    "max_agent_timeout_sec",
    "run_tests_in_same_shell",
    "descriptions",
]


def test_instruction_that_names_a_description(tmp_path: Path) -> None:
    """An instruction that is only the key of a description is not what the agent is asked: all descriptions are."""
    text = (
        "instruction: base\ndifficulty: easy\ndescriptions:\n"
        "  - {key: base, description: Be fast.}\n  - {key: problem, description: Sort it.}\n"
    )
    task = one(tb1(tmp_path / "t", text))
    assert task.question == "Be fast.\n\nSort it."
    assert "line 1" in task.warnings[0]
    assert "'base' is only the key" in task.warnings[0]
    assert one(tb1(tmp_path / "u", text.replace("instruction: base", "instruction: Base it."))).question == "Base it."


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    task=st.dictionaries(st.sampled_from(TASK), st.sampled_from(VALUES), max_size=2),
    service=st.dictionaries(st.sampled_from(SERVICE), st.sampled_from([*VALUES, *ODD]), max_size=3),
)
def test_odd_values_never_crash(
    task: dict[str, Any], service: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever stands in a field, the folder is a task with valid hints or a problem that names a file."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    text = yaml.safe_dump({"instruction": "x", "difficulty": "easy", **task})
    compose = yaml.safe_dump({"services": {"client": {"build": ".", **service}}})
    found = load(tb1(tmp_path / "t", text, **{"docker-compose.yaml": compose}))[0]
    if isinstance(found, TaskProblem):
        assert ".yaml" in found.message
    else:
        EnvironmentSpec.model_validate(found.environment)
