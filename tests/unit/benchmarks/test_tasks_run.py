"""Rules of preparing and grading tasks, on real host_process environments."""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path

import pytest

from pytest_agentcompass.benchmarks.tasks import TasksBenchmark
from pytest_agentcompass.contracts.environment import EnvironmentSpec
from pytest_agentcompass.contracts.outcome import FailureMode, RunResult
from pytest_agentcompass.contracts.plan import BenchmarkPlan, ExecutionPlan
from pytest_agentcompass.contracts.request import BenchmarkSpec, RunRequest
from pytest_agentcompass.contracts.task import PreparedTask, TaskProblem, TaskSpec
from pytest_agentcompass.environments.host_process import HostProcessEnvironment
from pytest_agentcompass.errors import EvaluationError, SetupError

BENCHMARK = TasksBenchmark()
EXAMPLES = Path(__file__).parents[3] / "example_suites"


def request_for(path: Path) -> RunRequest:
    """Return a request for the tasks in *path*."""
    return RunRequest(benchmark=BenchmarkSpec(id="tasks", params={"path": str(path)}))


def tasks_of(path: Path) -> list[TaskSpec]:
    """Return the tasks in *path*, all of which must be sound."""
    items = BENCHMARK.load_tasks(request_for(path))
    assert not [item for item in items if isinstance(item, TaskProblem)]
    return [item for item in items if isinstance(item, TaskSpec)]


async def attempt(
    task: TaskSpec,
    root: Path,
    agent: str = "",
    *,
    answer: str | None = None,
    timed_out: bool = False,
    solve: bool = False,
) -> RunResult:
    """Make one attempt: *agent* is a shell command, or the reference solution with *solve*."""
    req = request_for(root)
    environment = EnvironmentSpec.model_validate({**task.environment, "params": {"root": str(root / "boxes")}})
    plan = ExecutionPlan(environment=environment, evaluation_timeout_seconds=task.evaluation_timeout_seconds)
    session = await HostProcessEnvironment().open(req, plan)
    try:
        prepared = await BENCHMARK.prepare_task(task, session, req, BenchmarkPlan())
        result = RunResult(task.task_id, final_answer=answer)
        if solve:
            agent, result.final_answer = solution(prepared)
        if agent:
            result.agent_output = (await session.exec(agent, shell=True, timeout=60)).output
        if timed_out:
            result.fail(FailureMode.AGENT_TIMEOUT, "run", "too slow")
        await BENCHMARK.collect_artifacts(task, prepared, result, req, plan, session)
        return await BENCHMARK.evaluate(task, prepared, result, req, plan, session)
    finally:
        await session.close()


def solution(prepared: PreparedTask) -> tuple[str, str | None]:
    """Return the reference command and answer of a task."""
    assert prepared.solution is not None
    command = prepared.solution.command
    assert command is None or isinstance(command, str)
    return command or "", prepared.solution.answer


def one(tmp_path: Path, fields: str, agent: str = "", **options: object) -> RunResult:
    """Make one attempt at a task with *fields*."""
    body = "".join(f"    {line}\n" for line in fields.splitlines())
    (tmp_path / "t.yaml").write_text(f"tasks:\n  - id: t\n    instruction: do\n{body}")
    return asyncio.run(attempt(tasks_of(tmp_path / "t.yaml")[0], tmp_path, agent, **options))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["first_steps.yaml", "questions.jsonl"])
def test_examples_pass_with_their_solutions_and_fail_without(tmp_path: Path, name: str) -> None:
    """Every example is solved by its reference solution and by nothing else."""
    folder = tmp_path / "examples"
    shutil.copytree(EXAMPLES, folder)
    tasks = tasks_of(folder / name)
    assert len(tasks) >= 4
    for task in tasks:
        assert task.has_solution
        assert asyncio.run(attempt(task, tmp_path, solve=True)).metrics == {"correct": True}, task.task_id
        assert asyncio.run(attempt(task, tmp_path)).metrics == {"correct": False}, task.task_id


@pytest.mark.parametrize(
    ("verify", "note"),
    [("exit 1", "status 1"), ("exit 124", "status 124"), ("kill -9 $$", "status 137, as after signal 9")],
)
def test_failing_verifier_is_a_score_of_zero(tmp_path: Path, verify: str, note: str) -> None:
    """Any status of a verifier that ran is failed, with its output; a quick 124 is no timeout."""
    result = one(tmp_path, f"verify: 'echo why; {verify}'")
    assert result.metrics == {"correct": False}
    assert result.failure_mode is FailureMode.NONE
    assert "why" in result.verifier_output
    assert [issue.message for issue in result.issues] == [f"the verifier ended with {note}"]


@pytest.mark.parametrize(
    "verify", ["[./nosuch.sh]", "[./plain.txt]", "./nosuch.sh", "nosuchcmd", "sh -c nosuchcmd", "./plain.txt"]
)
def test_verifier_that_did_not_start_is_no_score(tmp_path: Path, verify: str) -> None:
    """A missing verifier is an error that names it, never a 0."""
    with pytest.raises(EvaluationError) as caught:
        one(tmp_path, f"verify: {verify}\nfiles: {{plain.txt: x}}")
    assert caught.value.failure_mode == "verifier_not_started"
    assert verify.strip("[]").split()[-1] in caught.value.message


def test_slow_verifier_is_a_test_timeout(tmp_path: Path) -> None:
    """A verifier that takes too long fails the attempt and is stopped."""
    result = one(tmp_path, "verify: sleep 60\nverify_timeout: 0.3")
    assert result.metrics == {"correct": False}
    assert result.failure_mode is FailureMode.TEST_TIMEOUT
    assert "0.3 s" in result.issues[-1].message


def test_pytest_without_tests_verified_nothing(tmp_path: Path) -> None:
    """Status 5 of pytest is no verdict; the same status of anything else is a failure."""
    python = sys.executable
    with pytest.raises(EvaluationError) as caught:
        one(tmp_path, f"verify: {python} -m pytest -p no:cacheprovider -q")
    assert caught.value.failure_mode == "no_tests"
    assert one(tmp_path, "verify: exit 5").metrics == {"correct": False}


def test_hidden_files_come_after_the_agent(tmp_path: Path) -> None:
    """The agent does not see verify_files; what it planted in their place is replaced."""
    fields = "verify_files: {check.sh: 'exit 1', data/x: right}\nverify: grep -q right data/x && sh check.sh"
    agent = (
        "test ! -e check.sh && mkdir -p check.sh/x data && echo wrong > data/x && ln -s /dev/null data/y && echo clean"
    )
    result = one(tmp_path, fields, agent)
    assert result.agent_output == "clean\n"
    assert result.metrics == {"correct": False}
    assert "status 1" in result.issues[-1].message


def test_files_and_setup_are_there_before_the_agent(tmp_path: Path) -> None:
    """Files are written with their modes, then setup runs, with the task's variables."""
    (tmp_path / "folder/sub").mkdir(parents=True)
    (tmp_path / "folder/sub/f").write_text("copied")
    fields = (
        "files: {run.sh: {content: '#!/bin/sh\\necho ran', executable: true}, copy: {source: folder}}\n"
        'setup: ["./run.sh > ran.txt", \'echo "$NAME" >> ran.txt\']\nenv: {NAME: x y}\nverify: cat ran.txt copy/sub/f'
    )
    fields = fields.replace("'#!/bin/sh\\necho ran'", '"#!/bin/sh\\necho ran"')
    assert one(tmp_path, fields).verifier_output == "ran\nx y\ncopied"


def test_failing_setup_is_the_tasks_fault(tmp_path: Path) -> None:
    """A setup command that fails is an infrastructure error with its output."""
    with pytest.raises(SetupError, match=r"(?s)'echo oh; exit 2' ended with status 2.*oh"):
        one(tmp_path, "setup: echo oh; exit 2\nverify: 'true'")


def test_services_live_for_the_verifier_unless_time_was_up(tmp_path: Path) -> None:
    """What listens stays for the verifier; after a timeout of the agent everything is ended first."""
    server = "import socket, time\ns = socket.socket(socket.AF_UNIX)\ns.bind('sock')\ns.listen()\ntime.sleep(600)\n"
    (tmp_path / "server.py").write_text(server)
    check = "import socket\nsocket.socket(socket.AF_UNIX).connect('sock')\n"
    (tmp_path / "check.py").write_text(check)
    fields = (
        "files: {server.py: {source: server.py}}\n"
        "verify_files: {check.py: {source: check.py}}\n"
        "verify: python3 check.py"
    )
    agent = "python3 server.py & while [ ! -e sock ]; do sleep 0.05; done; sleep 0.3"
    kept = one(tmp_path, fields, agent)
    assert kept.metrics == {"correct": True}
    assert any("server.py" in issue.message for issue in kept.issues)
    ended = one(tmp_path, fields, agent, timed_out=True)
    assert ended.metrics == {"correct": False}
    assert ended.failure_mode is FailureMode.AGENT_TIMEOUT


def test_agents_own_site_packages_do_not_reach_the_verifier(tmp_path: Path) -> None:
    """A usercustomize in the agent's home cannot make every python exit with 0."""
    agent = (
        'd=$(python3 -c "import site; print(site.getusersitepackages())"); mkdir -p "$d"; '
        'echo "import os; os._exit(0)" > "$d/usercustomize.py"'
    )
    assert one(tmp_path, "verify: python3 -c 'raise SystemExit(1)'", agent).metrics == {"correct": False}


@pytest.mark.parametrize(
    ("answer", "correct"), [("42", True), (" 42\n", True), ("41", False), ("", False), (None, False)]
)
def test_answers_are_compared(tmp_path: Path, answer: str | None, correct: bool) -> None:
    """A question is graded by the final answer; none at all is a failure that says so."""
    result = one(tmp_path, "answer: 42", answer=answer)
    assert result.metrics == {"correct": correct}
    assert result.ground_truth == "42"
    if not correct:
        assert "expected '42' (match: exact), got " in result.issues[-1].message
        assert (answer or "no answer") in result.issues[-1].message


def test_question_is_graded_without_a_sandbox(tmp_path: Path) -> None:
    """Grading again from a record needs the answer alone; a verify command refuses it."""
    (tmp_path / "t.yaml").write_text(
        "tasks: [{id: q, question: x, answer: [a, b]}, {id: v, instruction: x, verify: 'true'}]"
    )
    question, verified = tasks_of(tmp_path / "t.yaml")
    req = request_for(tmp_path)
    plan = ExecutionPlan(environment=EnvironmentSpec())
    prepared = BENCHMARK.prepare_evaluation(question, req, BenchmarkPlan())
    result = asyncio.run(BENCHMARK.evaluate(question, prepared, RunResult("q", final_answer="b"), req, plan, None))
    assert result.metrics == {"correct": True}
    with pytest.raises(EvaluationError, match="cannot be graded again"):
        BENCHMARK.prepare_evaluation(verified, req, BenchmarkPlan())
    with pytest.raises(EvaluationError, match="needs a sandbox"):
        asyncio.run(BENCHMARK.evaluate(verified, prepared, RunResult("v"), req, plan, None))


@pytest.mark.parametrize(
    ("agent", "answer"),
    [
        ("printf 'yes\\n' > out.txt", "yes"),
        ("mkdir out.txt", "said"),
        ("mkfifo out.txt", "said"),
        ("ln -s /etc/hostname out.txt", "said"),
        ("printf 'y\\377' > out.txt", "y\ufffd"),
        ("true", "said"),
    ],
)
def test_answer_file_goes_before_what_the_agent_said(tmp_path: Path, agent: str, answer: str) -> None:
    """The answer is read from the file where there is a regular one; nothing outside is read."""
    result = one(tmp_path, "answer: yes\nanswer_file: out.txt", agent, answer="said")
    assert result.final_answer.strip() == answer


def test_command_and_answer_must_both_hold(tmp_path: Path) -> None:
    """A task with verify and answer is solved when both say so."""
    fields = "answer: a\nverify: test -e done"
    assert one(tmp_path, fields, "touch done", answer="a").metrics == {"correct": True}
    assert one(tmp_path, fields, "touch done", answer="b").metrics == {"correct": False}
    assert one(tmp_path, fields, "true", answer="a").metrics == {"correct": False}


def test_agent_is_given_nothing_of_the_check(tmp_path: Path) -> None:
    """What an adapter sees of a task holds neither the verifier nor its files."""
    fields = "files: {a: x}\nverify: grep SECRETCHECK a\nverify_files: {check: SECRETFILE}\nmetadata: {level: 1}"
    body = "".join(f"    {line}\n" for line in fields.splitlines())
    (tmp_path / "t.yaml").write_text(f"tasks:\n  - id: t\n    instruction: do\n{body}")
    task = tasks_of(tmp_path / "t.yaml")[0]
    prepared = asyncio.run(BENCHMARK.prepare_task(task, None, request_for(tmp_path), BenchmarkPlan()))
    assert "SECRET" not in repr(prepared)
    assert prepared.metadata == {"level": 1}
    assert [item.path for item in prepared.input.files] == ["a"]
    assert prepared.solution is None
