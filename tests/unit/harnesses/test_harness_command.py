"""Rules of the harness command: how a program is told what to do, and how its end is read."""

from __future__ import annotations

import asyncio
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from pytest_agentcompass.contracts.environment import EnvironmentSpec
from pytest_agentcompass.contracts.outcome import ExecResult, RunResult
from pytest_agentcompass.contracts.plan import ExecutionPlan, HarnessPlan
from pytest_agentcompass.contracts.request import BenchmarkSpec, HarnessSpec, ModelSpec, RunRequest
from pytest_agentcompass.contracts.task import OutputFileSpec, PreparedTask, TaskInput, TaskOutput
from pytest_agentcompass.environments.host_process import HostProcessEnvironment, HostProcessSession
from pytest_agentcompass.errors import AgentFailure, EnvironmentGone, HarnessError, SetupError
from pytest_agentcompass.harnesses.command import CommandHarness, CommandParams, _result
from pytest_agentcompass.redaction import scrub

WHERE = pytest.mark.parametrize("where", ["sandbox", "host"])


def prepared_task(prompt: str = "do it", **options: object) -> PreparedTask:
    """Return a task that is ready for an agent."""
    return PreparedTask("t/1 x", "c", None, TaskInput(prompt), **options)  # type: ignore[arg-type]


def run(
    tmp_path: Path,
    command: object,
    *,
    task: PreparedTask | None = None,
    model: ModelSpec | None = None,
    **params: object,
) -> tuple[RunResult, list[str]]:
    """Run the harness in a new environment; return its result and the files of the working directory."""
    harness = HarnessSpec(id="command", params={"command": command, **params})
    req = RunRequest(benchmark=BenchmarkSpec(id="tasks"), harness=harness, model=model or ModelSpec())
    plan = ExecutionPlan(environment=EnvironmentSpec(params={"root": str(tmp_path / "boxes")}))

    async def main() -> tuple[RunResult, list[str]]:
        session: HostProcessSession = await HostProcessEnvironment().open(req, plan)
        try:
            agent = CommandHarness()
            started = await agent.start_session(session, req, HarnessPlan())
            result = await agent.run_task(started, task or prepared_task(), req, HarnessPlan())
            return result, sorted(os.listdir(session.default_workdir))
        finally:
            await session.close()

    return asyncio.run(main())


@WHERE
def test_instruction_reaches_the_agent_by_file_and_variable(tmp_path: Path, where: str) -> None:
    """The instruction is in a file and a variable, never among the arguments; the working folder stays clean."""
    prompt = "say 'hi' $(touch pwned)\nand `id`"
    command = (
        'cmp "$AGENTCOMPASS_INSTRUCTION_FILE" - <<E\n$AGENTCOMPASS_INSTRUCTION\nE\ncat "$AGENTCOMPASS_INSTRUCTION_FILE"'
    )
    result, files = run(
        tmp_path, f"{command}; tr '\\0' ' ' < /proc/$PPID/cmdline", task=prepared_task(prompt + "\n"), where=where
    )
    assert prompt in result.agent_output
    assert files == []


@WHERE
def test_agent_works_in_the_working_directory(tmp_path: Path, where: str) -> None:
    """Relative paths of the agent are those of the task, in the sandbox and on the host."""
    result, files = run(
        tmp_path, 'touch made; test "$PWD" = "$AGENTCOMPASS_WORKDIR" && echo "$AGENTCOMPASS_TASK_ID"', where=where
    )
    assert files == ["made"]
    assert result.final_answer == "t/1 x"


@WHERE
def test_argument_lists_are_run_without_a_shell(tmp_path: Path, where: str) -> None:
    """A list is an argument vector: nothing in it is expanded."""
    assert run(tmp_path, ["printf", "%s", "$HOME"], where=where)[0].final_answer == "$HOME"


def test_too_long_instruction_is_in_the_file_only(tmp_path: Path) -> None:
    """What does not fit into a variable is left out of it, and that is said."""
    result, _ = run(
        tmp_path,
        'echo "${AGENTCOMPASS_INSTRUCTION-unset}"; wc -c < "$AGENTCOMPASS_INSTRUCTION_FILE"',
        task=prepared_task("x" * 200_000),
    )
    assert result.agent_output.split() == ["unset", "200000"]
    assert [issue.code for issue in result.issues] == ["instruction_too_long"]


@WHERE
def test_only_named_variables_of_the_host_are_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """pass_env and env reach the agent; all else of the caller's environment does not; values become secrets."""
    monkeypatch.setenv("HBUG_KEY", "hbugFAKE0123456789")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "other-secret")
    result, _ = run(tmp_path, "env", where=where, pass_env=["HBUG_KEY"], env={"MODE": "fast"})
    lines = result.agent_output.splitlines()
    assert "HBUG_KEY=hbugFAKE0123456789" in lines
    assert "MODE=fast" in lines
    assert not [line for line in lines if line.startswith("AWS_")]
    assert "hbugFAKE" not in scrub(result.agent_output)


def test_missing_variable_is_named(tmp_path: Path) -> None:
    """A variable that is to be passed on but is not set stops the attempt with its name."""
    with pytest.raises(SetupError, match="'NO_SUCH_VARIABLE_HERE' is not set"):
        run(tmp_path, "true", pass_env=["NO_SUCH_VARIABLE_HERE"])


@WHERE
def test_model_is_told(tmp_path: Path, where: str) -> None:
    """Model id, base URL and key are variables of the agent; without a model there are none."""
    model = ModelSpec(id="m", base_url="http://x/v1", api_key=SecretStr("sk-FAKEFAKE1"))
    result, _ = run(tmp_path, "env | grep ^AGENTCOMPASS_ | sort", model=model, where=where)
    lines = result.agent_output.splitlines()
    assert {"AGENTCOMPASS_MODEL=m", "AGENTCOMPASS_BASE_URL=http://x/v1", "AGENTCOMPASS_API_KEY=sk-FAKEFAKE1"} <= set(
        lines
    )
    assert "sk-FAKE" not in scrub(result.agent_output)
    plain, _ = run(tmp_path, "env", where=where)
    assert "AGENTCOMPASS_MODEL" not in plain.agent_output


@WHERE
def test_key_is_in_no_argument_list(tmp_path: Path, where: str) -> None:
    """While the agent runs no process of the machine shows the key in its command line."""
    key = "sk-argvFAKE987654"
    lines = "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline 2>/dev/null; echo; done"
    command = f"({lines}) | grep -e cmdline -e 'argv[F]AKE' | tail -n 5"
    result, _ = run(tmp_path, command, where=where, model=ModelSpec(id="m", api_key=SecretStr(key)))
    assert "cmdline" in result.agent_output
    assert key not in result.agent_output


@WHERE
@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ('echo log; echo " Paris "; echo', "Paris"),
        ('echo log; printf "two\\nlines" > "$AGENTCOMPASS_ANSWER_FILE"', "two\nlines"),
        ("true", ""),
        ('mkdir "$AGENTCOMPASS_ANSWER_FILE"; echo last', "last"),
        ("echo err >&2", ""),
    ],
)
def test_final_answer(tmp_path: Path, where: str, command: str, answer: str) -> None:
    """The answer file goes first, then the last line of standard output that is not blank."""
    assert run(tmp_path, command, where=where)[0].final_answer == answer


@WHERE
def test_answer_file_is_the_tasks_own(tmp_path: Path, where: str) -> None:
    """Where the task wants one file, that is the answer file."""
    task = prepared_task(output=TaskOutput(files=[OutputFileSpec("out/a.txt")]))
    result, files = run(tmp_path, "mkdir out; echo yes > out/a.txt", where=where, task=task)
    assert (result.final_answer, files) == ("yes", ["out"])


@WHERE
def test_failing_agent_is_the_agents_fault_with_what_it_left(tmp_path: Path, where: str) -> None:
    """A status other than 0 is an agent error that carries the result, also through pickle."""
    with pytest.raises(AgentFailure) as caught:
        run(tmp_path, "echo reason; exit 3", where=where)
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.failure_mode, error.result.final_answer) == ("agent_error", "reason")
    assert "status 3" in str(error)
    assert "reason" in str(error)


@WHERE
@pytest.mark.parametrize("limit", ["task", "params"])
def test_time_limit(tmp_path: Path, where: str, limit: str) -> None:
    """The shorter of the task's limit and the harness's ends the agent: an agent timeout."""
    task = prepared_task(run_timeout_seconds=0.5 if limit == "task" else 500.0)
    params: dict[str, Any] = {} if limit == "task" else {"timeout": 0.5}
    with pytest.raises(AgentFailure, match=r"within 0\.5 s") as caught:
        run(tmp_path, "echo begun; sleep 60", where=where, task=task, **params)
    assert caught.value.failure_mode == "agent_timeout"
    assert caught.value.result.agent_output == "begun\n"  # type: ignore[attr-defined]


@WHERE
def test_command_that_cannot_start_is_the_harnesses_fault(tmp_path: Path, where: str) -> None:
    """A missing agent program is no failure of the agent."""
    with pytest.raises(HarnessError, match="no such program"):
        run(tmp_path, ["./no-such-agent"], where=where)


def test_host_agent_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes and files of an agent on the host are gone when it has ended, and it has a HOME of its own."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    result, _ = run(tmp_path, 'setsid sleep 8101 & cd "$HOME"; (env -i setsid sleep 8102 &); pwd', where="host")
    assert result.final_answer.startswith(str(tmp_path / "tmp"))
    assert os.listdir(tmp_path / "tmp") == []
    living = {path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if os.access(path, os.R_OK)}
    assert not {b"sleep\x008101\0", b"sleep\x008102\0"} & living


def test_sandbox_needs_an_environment() -> None:
    """Without an environment the agent can only run on the host."""
    harness = HarnessSpec(id="command", params={"command": "echo here"})
    req = RunRequest(benchmark=BenchmarkSpec(id="tasks"), harness=harness)
    with pytest.raises(HarnessError, match="where: host"):
        asyncio.run(CommandHarness().run_task(None, prepared_task(), req, HarnessPlan()))
    harness = HarnessSpec(id="command", params={"command": "echo here", "where": "host"})
    result = asyncio.run(
        CommandHarness().run_task(None, prepared_task(), req.model_copy(update={"harness": harness}), HarnessPlan())
    )
    assert result.final_answer == "here"


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"command": ""},
        {"command": []},
        {"command": "x", "where": "moon"},
        {"command": "x", "timeout": 0},
        {"command": "x", "pas_env": []},
    ],
)
def test_wrong_params_are_refused(params: dict[str, object]) -> None:
    """Params are checked before anything runs."""
    with pytest.raises(ValidationError):
        CommandParams.model_validate(params)


class _Gone(HostProcessSession):
    """A sandbox that vanishes under the agent."""

    def __init__(self) -> None:  # nothing of a real sandbox is needed
        self.scratch_dir = "/tmp"
        self.default_workdir = "/work"

    async def write_bytes(self, path: str, content: bytes, *, user: str | None = None, mode: int | None = None) -> None:
        """Take the instruction."""

    async def exec(self, *args: object, **options: object) -> ExecResult:
        """Vanish."""
        raise EnvironmentGone("the container was removed", partial=ExecResult(-1, "step 1\nstep 2\n"))


def test_output_before_the_sandbox_went_away_is_kept() -> None:
    """What the agent printed until its sandbox vanished goes to the record with the error."""
    harness = HarnessSpec(id="command", params={"command": "work"})
    req = RunRequest(benchmark=BenchmarkSpec(id="tasks"), harness=harness)
    with pytest.raises(EnvironmentGone) as caught:
        asyncio.run(CommandHarness().run_task(_Gone(), prepared_task(), req, HarnessPlan()))
    result: RunResult = caught.value.result  # type: ignore[attr-defined]
    assert result.agent_output == "step 1\nstep 2\n"


@pytest.mark.parametrize(
    ("done", "mode", "text"),
    [
        (ExecResult(137, out_of_memory=True), "out_of_memory", "no memory left (status 137)"),
        (ExecResult(137), "agent_error", "the agent ended with status 137, as after signal 9"),
        (ExecResult(3, "log\n", "why\n"), "agent_error", "the agent ended with status 3:\nlog\nwhy\n"),
    ],
)
def test_how_an_agent_ended_is_said(done: ExecResult, mode: str, text: str) -> None:
    """The message tells the status, a signal, a lack of memory, and the last output if there is any."""
    with pytest.raises(AgentFailure) as caught:
        _result(prepared_task(), done, "", None)
    assert caught.value.failure_mode == mode
    assert caught.value.message.endswith(text)
