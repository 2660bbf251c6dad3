"""Commands in real containers: output, status, time limits, what is left behind, and losing the container."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import docker
import pytest

from pytest_agentcompass.components.context import AttemptContext
from pytest_agentcompass.contracts.environment import EnvironmentSpec, Resources
from pytest_agentcompass.contracts.outcome import ExecResult
from pytest_agentcompass.environments.docker import DockerSession
from pytest_agentcompass.errors import EnvironmentGone, SandboxError

pytestmark = pytest.mark.docker
Run = Callable[[Any], Any]


def _alive(run: Run, sandbox: DockerSession, *words: str) -> list[str]:
    """Return the command lines in the sandbox that hold one of *words*."""
    lines = run(sandbox.exec(["ps", "-eo", "args"])).stdout.splitlines()
    return [line for line in lines if any(word in line for word in words) and "docker-init" not in line]


def test_argument_vector_and_shell(run: Run, sandbox: DockerSession) -> None:
    """A vector is passed word by word; a string needs shell=True and is one for `sh -c`."""
    assert run(sandbox.exec(["printf", "%s|", "a b", "$HOME"])).stdout == "a b|$HOME|"
    result = run(sandbox.exec("echo out; echo err >&2; exit 3", shell=True))
    assert (result.returncode, result.stdout, result.stderr) == (3, "out\n", "err\n")
    with pytest.raises(TypeError):
        run(sandbox.exec("echo no"))


def test_folder_user_and_variables(run: Run, sandbox: DockerSession) -> None:
    """cwd, user and env hold for one command; phase variables for all, a command's own win."""
    sandbox.phase_env = {"A": "phase", "B": "phase"}
    result = run(sandbox.exec('echo "$PWD $(id -u) $A $B"', shell=True, cwd="/usr/lib", user="1000", env={"A": "own"}))
    assert result.stdout == "/usr/lib 1000 own phase\n"


@pytest.mark.parametrize("command", ["cat", 'read x; echo "got:$x:$?"', "python3", "python3 -c 'input()'"])
def test_standard_input_is_empty(run: Run, sandbox: DockerSession, command: str) -> None:
    """A command that reads gets the end of file at once."""
    result = run(sandbox.exec(command, shell=True, timeout=10))
    assert not result.timed_out


def test_output_is_capped_and_decoded(run: Run, sandbox: DockerSession) -> None:
    """Head and tail of endless output are kept; bytes that are no text are replaced."""
    result = run(sandbox.exec("echo first; yes | head -c 3000000; echo last", shell=True, output_limit=1000))
    assert result.truncated
    assert result.stdout.startswith("first\n")
    assert result.stdout.endswith("last\n")
    assert len(result.stdout) < 1100
    binary = run(sandbox.exec(r"printf 'a\377\000b'", shell=True))
    assert binary.stdout == "a\ufffd\0b"
    assert not binary.truncated


@pytest.mark.parametrize(
    ("command", "options"),
    [
        (["nosuch"], {}),
        (["./nosuch.sh"], {}),
        (["/etc/passwd"], {}),
        (["true"], {"cwd": "/nosuch"}),
        (["true"], {"user": "nosuch"}),
    ],
)
def test_what_cannot_start_is_an_error(run: Run, sandbox: DockerSession, command: list[str], options: Any) -> None:
    """A missing program, folder or user is the sandbox's error and names it, never a status."""
    with pytest.raises(SandboxError, match=options.get("cwd") or options.get("user") or command[0]) as caught:
        run(sandbox.exec(command, **options))
    assert not isinstance(caught.value, EnvironmentGone)


def test_a_removed_working_directory_is_made_again(run: Run, sandbox: DockerSession) -> None:
    """An agent that removes its working directory leaves a sandbox in which a verifier still starts."""
    folder = sandbox.default_workdir = "/gone/for good"
    assert run(sandbox.exec(["pwd"])).stdout == f"{folder}\n"
    run(sandbox.exec(["rm", "-rf", folder]))
    assert run(sandbox.exec(["sh", "-c", "pwd; ls -A"], user="1000")).stdout == f"{folder}\n"
    with pytest.raises(SandboxError, match="nosuch"):
        run(sandbox.exec(["nosuch"]))


@pytest.mark.parametrize(
    ("command", "status"),
    [("nosuchcmd", 127), ("exit 124", 124), ("exit 126", 126), ("kill -9 $$", 137), ("exit 137", 137), ("exit 5", 5)],
)
def test_statuses_are_the_commands_own(run: Run, sandbox: DockerSession, command: str, status: int) -> None:
    """A status that looks like a time limit, a missing program or a kill is only a status."""
    result = run(sandbox.exec(command, shell=True))
    assert (result.returncode, result.timed_out, result.out_of_memory) == (status, False, False)


@pytest.mark.parametrize(
    "command",
    [
        "sleep 300 & echo started; exit 4",
        "setsid nohup sleep 300 & echo started; exit 4",
        """python3 -c "import subprocess; subprocess.Popen(['sleep','300'])"; echo started; exit 4""",
    ],
)
def test_background_child_does_not_hold_the_return(run: Run, sandbox: DockerSession, command: str) -> None:
    """The return waits for the foreground process alone; what is left behind goes on, and the cut is said."""
    begun = time.monotonic()
    result = run(sandbox.exec(command, shell=True, timeout=200))
    assert time.monotonic() - begun < 100
    assert (result.returncode, result.stdout, result.timed_out) == (4, "started\n", False)
    assert result.truncated
    assert _alive(run, sandbox, "sleep 300")


_FAMILIES = {
    "children": "sleep 301 & sleep 302",
    "new session": "setsid sleep 301 & setsid sh -c 'sleep 302; :' & sleep 303",
    "orphans": "(setsid sleep 301 &) ; (sleep 302 &); sleep 303",
    "wiped environment": "(env -i setsid sleep 301 &) ; sleep 302",
    "ignores signals": "trap '' TERM INT HUP; (trap '' TERM; sleep 301 & wait) & while :; do sleep 302; done",
}


@pytest.mark.parametrize("user", [None, "1000"])
@pytest.mark.parametrize("family", list(_FAMILIES))
def test_time_limit_ends_the_whole_tree(run: Run, sandbox: DockerSession, family: str, user: str | None) -> None:
    """At the time limit everything that the command started is dead, wherever it moved."""
    result = run(sandbox.exec(_FAMILIES[family], shell=True, timeout=1.0, user=user))
    assert (result.timed_out, result.returncode) == (True, -1)
    assert _alive(run, sandbox, "sleep 30") == []


def test_time_limit_spares_other_commands(run: Run, sandbox: DockerSession) -> None:
    """A service of an earlier command and one that runs beside it survive another's time limit."""
    run(sandbox.exec("setsid sleep 401 >/dev/null 2>&1 &", shell=True))

    async def both() -> ExecResult:
        other = asyncio.ensure_future(sandbox.exec(["sleep", "4"]))
        await asyncio.sleep(0.3)
        await sandbox.exec(["sleep", "402"], timeout=1.0)
        return await other

    assert run(both()).returncode == 0
    assert len(_alive(run, sandbox, "sleep 40")) == 1


def test_output_before_the_time_limit_is_kept(run: Run, sandbox: DockerSession) -> None:
    """What was printed before the time limit is in the result."""
    result = run(sandbox.exec("echo early; sleep 60", shell=True, timeout=1.0))
    assert result.timed_out
    assert result.stdout == "early\n"


def test_fork_storm_is_ended(run: Run, sandboxes: Any, base_image: str) -> None:
    """A command that uses up the process limit is ended all the same, and the sandbox can be used again."""
    sandbox = sandboxes.open(EnvironmentSpec(image=base_image, resources=Resources(pids=40)))
    storm = "import os,time\nwhile 1:\n try:\n  os.fork() or time.sleep(501)\n except OSError:\n  pass"
    result = run(sandbox.exec(["python3", "-c", storm], timeout=2.0))
    assert result.timed_out
    assert _alive(run, sandbox, "sleep(501)") == []


def test_cancelled_command_is_ended(run: Run, sandbox: DockerSession) -> None:
    """A cancelled exec ends what it started and raises CancelledError."""

    async def cancel() -> None:
        task = asyncio.ensure_future(sandbox.exec("sleep 601 & sleep 602", shell=True))
        await asyncio.sleep(0.5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(cancel())
    assert _alive(run, sandbox, "sleep 60") == []


def test_killed_for_memory_is_marked(run: Run, sandboxes: Any, base_image: str) -> None:
    """A command over the memory limit returns 137, marked; a plain kill afterwards is not; the sandbox lives on."""
    sandbox = sandboxes.open(EnvironmentSpec(image=base_image, resources=Resources(memory_mb=64)))
    result = run(sandbox.exec(["python3", "-c", "x = bytearray(300_000_000)"]))
    assert (result.returncode, result.out_of_memory) == (137, True)
    assert not run(sandbox.exec("kill -9 $$", shell=True)).out_of_memory
    assert run(sandbox.exec(["echo", "alive"])).stdout == "alive\n"


def test_removed_while_a_command_runs(
    run: Run, sandbox: DockerSession, docker_client: docker.APIClient, attempt: AttemptContext
) -> None:
    """A container that is removed from outside ends the command with EnvironmentGone, which holds its output."""

    async def lose() -> None:
        task = asyncio.ensure_future(sandbox.exec("echo first; sleep 300; echo last", shell=True))
        while not (await sandbox.exec(["pgrep", "sleep"])).ok:
            await asyncio.sleep(0.1)
        docker_client.remove_container(sandbox.info["container"], force=True)
        with pytest.raises(EnvironmentGone, match="removed from outside") as caught:
            await asyncio.wait_for(task, 60)  # far from the end of the command
        assert caught.value.partial.stdout == "first\n"  # type: ignore[attr-defined]

    run(lose())
    for work in (sandbox.exec(["true"]), sandbox.read_bytes("/etc/passwd"), sandbox.write_bytes("/x", b"")):
        with pytest.raises(EnvironmentGone, match="removed from outside"):
            run(work)


def test_main_process_that_ends_is_named(run: Run, sandboxes: Any, base_image: str) -> None:
    """When the image's main process ends, a running command says so, with its status and last output."""
    command = ("sh", "-c", "sleep 2; echo bye; exit 7")
    sandbox = sandboxes.open(EnvironmentSpec(image=base_image, command=command))
    with pytest.raises(EnvironmentGone, match=r"main process ended with status 7.*bye"):
        run(asyncio.wait_for(sandbox.exec(["sleep", "300"]), 60))
    with pytest.raises(EnvironmentGone, match="status 7"):
        run(sandbox.exec(["true"]))
    assert run(sandbox.read_bytes("/etc/hostname"))
    assert [run(sandbox.is_dir(path)) for path in ("/etc", "/etc/hostname", "/etc/none")] == [True, False, False]


def test_a_start_in_the_moment_of_the_end(
    run: Run, sandbox: DockerSession, docker_client: docker.APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that the runtime cannot start any more tells of the container's end, also when the engine lags."""

    async def too_late(*given: Any) -> Any:
        timer = threading.Timer(0.3, docker_client.kill, [sandbox.info["container"]])
        timer.start()
        raise SandboxError("OCI runtime exec failed: cannot exec in a deleted state: unknown")

    monkeypatch.setattr("pytest_agentcompass.environments.docker.exec.open_stream", too_late)
    with pytest.raises(EnvironmentGone, match="main process ended with status 137"):
        run(sandbox.exec(["true"]))


def test_leftovers_are_ended_and_services_stay(run: Run, sandbox: DockerSession) -> None:
    """What an agent left is ended, except what listens on a socket, with its parents."""
    run(sandbox.exec("setsid sleep 701 >/dev/null 2>&1 &", shell=True))
    run(sandbox.exec("setsid sh -c 'python3 -m http.server 8123; :' >/dev/null 2>&1 &", shell=True))
    unix = "import socket,time; s=socket.socket(socket.AF_UNIX); s.bind('/tmp/s'); s.listen(); time.sleep(702)"
    run(sandbox.exec(["sh", "-c", f'setsid python3 -c "{unix}" >/dev/null 2>&1 &'], user="1000"))
    run(sandbox.exec(["sleep", "1"]))
    stayed = run(sandbox.kill_leftovers())
    assert len(stayed) == 3
    assert _alive(run, sandbox, "sleep 701") == []
    assert len(_alive(run, sandbox, "8123", "sleep(702)")) == 3
    assert run(sandbox.kill_leftovers(keep_services=False)) == []
    assert _alive(run, sandbox, "8123", "sleep(702)") == []


def test_the_sandboxes_own_processes_stay(run: Run, sandboxes: Any, base_image: str) -> None:
    """What the entrypoint and the setup commands started stays, their later children too."""
    sandbox = sandboxes.open(
        EnvironmentSpec(
            image=base_image,
            command=("sh", "-c", "setsid sleep 801 & while :; do sleep 2; done"),
            setup=("setsid sleep 802 >/dev/null 2>&1 &",),
        )
    )
    run(sandbox.exec("setsid sleep 803 >/dev/null 2>&1 & sleep 2.5", shell=True))
    assert run(sandbox.kill_leftovers(keep_services=False)) == []
    lines = _alive(run, sandbox, "sleep 80")
    assert sorted(lines) == ["sh -c setsid sleep 801 & while :; do sleep 2; done", "sleep 801", "sleep 802"]


def test_key_in_no_argument_and_no_configuration(
    run: Run, sandbox: DockerSession, docker_client: docker.APIClient
) -> None:
    """A key given to a command is in its environment alone: no arguments, no configuration, no later command."""
    key = "sk-test-FAKE0123456789"

    async def look() -> ExecResult:
        task = asyncio.ensure_future(sandbox.exec("sleep 2; printenv KEY", shell=True, env={"KEY": key}))
        await asyncio.sleep(0.5)
        arguments = await sandbox.exec("cat /proc/[0-9]*/cmdline", shell=True)
        assert key not in arguments.stdout
        assert key not in str(docker_client.inspect_container(sandbox.info["container"]))
        return await task

    assert run(look()).stdout == f"{key}\n"
    assert run(sandbox.exec(["printenv", "KEY"])).returncode == 1
