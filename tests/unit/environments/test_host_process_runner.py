"""Rules of running commands on this machine: output, exit status, time limits, nothing left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from pytest_agentcompass.components.process_tree import MARK, ProcessTree
from pytest_agentcompass.components.processes import ProcessRunner, minimal_environment, shielded
from pytest_agentcompass.contracts.outcome import ExecResult
from pytest_agentcompass.errors import SandboxError

T = TypeVar("T")


def with_runner(folder: Path, work: Callable[[ProcessRunner], Awaitable[T]]) -> T:
    """Return what *work* makes of a runner that is closed at the end, with nothing left alive."""

    async def main() -> T:
        runner = ProcessRunner(root=str(folder))
        try:
            return await work(runner)
        finally:
            assert await runner.close() == []
            assert runner.tree.find() == []

    return asyncio.run(main())


def run(folder: Path, command: list[str] | str, **options: object) -> ExecResult:
    """Run one command, a text in a shell."""

    async def work(runner: ProcessRunner) -> ExecResult:
        env = minimal_environment(str(folder), str(folder))
        return await runner.run(command, shell=isinstance(command, str), cwd=str(folder), env=env, **options)  # type: ignore[arg-type]

    return with_runner(folder, work)


def sleepers(argument: str) -> list[int]:
    """Return the living processes that were started as `sleep ARGUMENT`."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[:2] == [b"sleep", argument.encode()]:
                found.append(int(name))
    return found


def test_output_and_status_are_the_foregrounds(tmp_path: Path) -> None:
    """Both streams and the exit status come from the command itself."""
    result = run(tmp_path, "echo out; echo err >&2; exit 3")
    assert (result.returncode, result.stdout, result.stderr) == (3, "out\n", "err\n")
    assert not result.timed_out
    assert not result.truncated


@pytest.mark.parametrize(
    ("command", "code"),
    [("exit 124", 124), ("kill -9 $$", 137), ("kill -TERM $$", 143), ("nosuchcmd", 127), ("exit 0", 0)],
)
def test_exit_status(tmp_path: Path, command: str, code: int) -> None:
    """A signal is 128 + its number; a quick 124 is no timeout, a kill is no memory fault."""
    result = run(tmp_path, command)
    assert (result.returncode, result.timed_out, result.out_of_memory) == (code, False, False)


@pytest.mark.parametrize("command", ["cat", 'read x; echo "got:$x:$?"', "python3", "python3 -c 'input()'"])
def test_standard_input_is_at_its_end(tmp_path: Path, command: str) -> None:
    """A command that reads its input gets the end of file instead of waiting."""
    result = run(tmp_path, command, timeout=30)
    assert not result.timed_out
    assert "typed" not in result.output


@pytest.mark.parametrize(
    "command",
    [
        "sleep 300 & echo started",
        "setsid nohup sleep 300 & echo started",
        "(sleep 300; echo late) & echo started",
        "python3 -c \"import subprocess;subprocess.Popen(['sleep','300'])\"; echo started",
    ],
)
def test_background_child_does_not_hold_the_return(tmp_path: Path, command: str) -> None:
    """The status of the foreground comes at once, and the result says that output may be cut."""
    began = time.monotonic()
    result = run(tmp_path, command, timeout=200)
    assert time.monotonic() - began < 100  # far from the 300 s of the child
    assert (result.returncode, result.stdout) == (0, "started\n")
    assert result.truncated


def test_service_may_go_on_writing(tmp_path: Path) -> None:
    """A background process that writes after the return is not ended by a broken pipe."""

    async def work(runner: ProcessRunner) -> bytes:
        env = minimal_environment(str(tmp_path), str(tmp_path))
        script = "(for i in 1 2 3 4 5 6 7 8; do sleep 0.1; echo noise; done; echo end > end.txt) & echo up"
        await runner.run(script, shell=True, cwd=str(tmp_path), env=env)
        for _ in range(100):
            if (tmp_path / "end.txt").exists():
                break
            await asyncio.sleep(0.1)
        return (tmp_path / "end.txt").read_bytes()

    assert with_runner(tmp_path, work) == b"end\n"


def test_time_limit_ends_the_whole_tree(tmp_path: Path) -> None:
    """Also children that left the session, lost their parent or threw their environment away are dead."""
    script = (
        "sleep 7101 & setsid sleep 7102 & (setsid sleep 7103 &) & (env -i /bin/sh -c 'setsid sleep 7104 &') & "
        "(env -i sleep 7105 &) ; nohup sleep 7106 & sleep 7107"
    )
    result = run(tmp_path, script, timeout=1.0)
    assert result.timed_out
    assert result.returncode == -1
    assert [pid for n in range(7101, 7108) for pid in sleepers(str(n))] == []


def test_time_limit_ignores_ignored_signals(tmp_path: Path) -> None:
    """A command that ignores signals is ended all the same, and what it printed is kept."""
    result = run(tmp_path, "trap '' TERM INT HUP; echo before; sleep 60", timeout=0.5)
    assert result.timed_out
    assert result.stdout == "before\n"


def test_cancellation_ends_the_tree_and_goes_on(tmp_path: Path) -> None:
    """A cancelled run kills what it started before the cancellation is raised."""

    async def work(runner: ProcessRunner) -> list[int]:
        env = minimal_environment(str(tmp_path), str(tmp_path))
        script = "setsid sleep 7201 & touch up; sleep 7202"
        task = asyncio.ensure_future(runner.run(script, shell=True, cwd=str(tmp_path), env=env))
        while not (tmp_path / "up").exists():
            await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return sleepers("7201") + sleepers("7202")

    assert with_runner(tmp_path, work) == []


def test_output_is_capped_and_decoded(tmp_path: Path) -> None:
    """Head and tail of a huge output are kept, the cut is stated, bad bytes are replaced."""
    script = "printf 'head\\377'; head -c 5000000 /dev/zero | tr '\\0' 'x'; printf tail"
    result = run(tmp_path, script, output_limit=1000)
    assert result.truncated
    assert result.stdout.startswith("head\ufffdx")
    assert result.stdout.endswith("xtail")
    assert "bytes left out" in result.stdout
    assert len(result.stdout) < 1100


def test_output_at_the_limit_is_whole(tmp_path: Path) -> None:
    """What fits is not cut."""
    result = run(tmp_path, "head -c 1000 /dev/zero | tr '\\0' 'x'", output_limit=1000)
    assert result.stdout == "x" * 1000
    assert not result.truncated


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["./nosuch.sh"], "no such program"),
        (["no-such-program-anywhere"], "no such program"),
        (["./plain.txt"], "not executable"),
        (["./noheader"], "no #! line"),
        (["./nointerpreter"], "interpreter"),
        ([], "empty"),
        (["a\0b"], "null byte"),
        (["true", "x" * 200_000], "longer than the system takes"),
    ],
)
def test_command_that_cannot_start(tmp_path: Path, command: list[str], message: str) -> None:
    """What was never started is an error of the sandbox that names the reason, not an exit status."""
    (tmp_path / "plain.txt").write_text("x")
    for name, text in (("noheader", "echo x\n"), ("nointerpreter", "#!/no/such/interpreter\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    with pytest.raises(SandboxError, match=message):
        run(tmp_path, command)


def test_missing_working_directory_is_named(tmp_path: Path) -> None:
    """A missing working directory is told apart from a missing program."""

    async def work(runner: ProcessRunner) -> None:
        await runner.run(["true"], cwd=str(tmp_path / "gone"), env={"PATH": os.defpath})

    with pytest.raises(SandboxError, match=r"working directory .*gone"):
        with_runner(tmp_path, work)


def test_shell_and_argument_forms_are_not_mixed(tmp_path: Path) -> None:
    """A text without shell, or a list with it, is refused instead of guessed."""

    async def work(runner: ProcessRunner) -> None:
        with pytest.raises(SandboxError, match="list of arguments"):
            await runner.run("true", cwd=str(tmp_path), env={})
        with pytest.raises(SandboxError, match="one string"):
            await runner.run(["true"], shell=True, cwd=str(tmp_path), env={})

    with_runner(tmp_path, work)


def test_two_attempts_do_not_end_each_other(tmp_path: Path) -> None:
    """Killing one attempt's processes leaves another's alone."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()

    async def main() -> tuple[list[int], list[int]]:
        runners = [ProcessRunner(root=str(folder)) for folder in (first, second)]
        for runner, folder, number in zip(runners, (first, second), ("7301", "7302"), strict=True):
            await runner.run(f"sleep {number} &", shell=True, cwd=str(folder), env={"PATH": os.defpath})
        await runners[0].close()
        left = sleepers("7301"), sleepers("7302")
        await runners[1].close()
        return left

    killed, kept = asyncio.run(main())
    assert killed == []
    assert len(kept) == 1
    assert sleepers("7302") == []


def test_time_limit_of_one_command_spares_earlier_ones(tmp_path: Path) -> None:
    """A service that an earlier command started outlives the timeout of a later one."""

    async def work(runner: ProcessRunner) -> list[int]:
        env = minimal_environment(str(tmp_path), str(tmp_path))
        await runner.run("sleep 7401 &", shell=True, cwd=str(tmp_path), env=env)
        await runner.run("sleep 60", shell=True, cwd=str(tmp_path), env=env, timeout=0.3)
        return sleepers("7401")

    assert len(with_runner(tmp_path, work)) == 1


def test_lost_exit_status_is_an_error(tmp_path: Path) -> None:
    """Where something else reaps our children, the status is unknown: never read as 0."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with pytest.raises(SandboxError, match="exit status of a command was lost"):
            run(tmp_path, "exit 1")
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_works_on_a_loop_in_another_thread(tmp_path: Path) -> None:
    """No part needs the main thread (signal handlers, child watchers)."""
    import threading

    results: list[ExecResult] = []
    thread = threading.Thread(target=lambda: results.append(run(tmp_path, "exit 5")))
    thread.start()
    thread.join()
    assert results[0].returncode == 5


def test_many_at_once(tmp_path: Path) -> None:
    """Results of commands that run side by side are not mixed up."""

    async def work(runner: ProcessRunner) -> list[ExecResult]:
        env = {"PATH": os.defpath}
        commands = [f"echo {n}; exit {n}" for n in range(40)]
        return await asyncio.gather(*(runner.run(item, shell=True, cwd=str(tmp_path), env=env) for item in commands))

    results = with_runner(tmp_path, work)
    assert [(item.returncode, item.stdout) for item in results] == [(n, f"{n}\n") for n in range(40)]


def test_minimal_environment_hands_nothing_else_on(tmp_path: Path) -> None:
    """Of the caller's environment only PATH is passed on."""
    base = {"PATH": "/bin", "AWS_SECRET_ACCESS_KEY": "s", "HOME": "/root", "SSH_AUTH_SOCK": "x", "PYTHONPATH": "y"}
    env = minimal_environment("/h", "/t", base=base)
    assert env["PATH"] == "/bin"
    assert (env["HOME"], env["TMPDIR"], env["TERM"]) == ("/h", "/t", "dumb")
    assert not {"AWS_SECRET_ACCESS_KEY", "SSH_AUTH_SOCK", "PYTHONPATH"} & set(env)


def test_adopting_tree_finds_older_processes(tmp_path: Path) -> None:
    """The processes of a dead owner are found by its token alone."""

    async def work(runner: ProcessRunner) -> list[int]:
        await runner.run("sleep 7501 &", shell=True, cwd=str(tmp_path), env={"PATH": os.defpath})
        assert ProcessTree(runner.token).find() == []
        return ProcessTree(runner.token, adopt=True).find()

    assert len(with_runner(tmp_path, work)) == 1


def test_mark_differs_per_command(tmp_path: Path) -> None:
    """Every command carries a mark of its own."""
    tree = ProcessTree("token")
    assert tree.new_mark() != tree.new_mark()
    assert MARK in run(tmp_path, "env").stdout


def test_shielded_work_ends_before_the_cancellation(tmp_path: Path) -> None:
    """Clean-up under `shielded` is finished although its caller is cancelled twice."""
    done: list[str] = []

    async def clean() -> None:
        await asyncio.sleep(0.05)
        done.append("cleaned")

    async def main() -> None:
        task = asyncio.ensure_future(shielded(clean()))
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert done == ["cleaned"]


def test_program_is_looked_up_in_the_given_path(tmp_path: Path) -> None:
    """The PATH of the command's own environment decides, not the caller's."""
    program = tmp_path / "only-here"
    program.write_text("#!/bin/sh\necho found\n")
    program.chmod(0o755)

    async def work(runner: ProcessRunner) -> ExecResult:
        return await runner.run(["only-here"], cwd=str(tmp_path), env={"PATH": str(tmp_path)})

    assert with_runner(tmp_path, work).stdout == "found\n"
