"""Rules of the environment host_process: own folder, own processes, nothing outside, nothing left."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from pytest_agentcompass.components.context import AttemptContext, set_current_attempt
from pytest_agentcompass.components.owner import boot_id, host_name
from pytest_agentcompass.contracts.environment import EnvironmentSpec
from pytest_agentcompass.contracts.network import NetworkPolicy
from pytest_agentcompass.contracts.plan import ExecutionPlan
from pytest_agentcompass.contracts.request import BenchmarkSpec, ExecutionSpec, RunRequest
from pytest_agentcompass.environments.host_folders import remove_run, sweep
from pytest_agentcompass.environments.host_process import (
    HostProcessEnvironment,
    HostProcessSession,
)
from pytest_agentcompass.errors import EnvironmentGone, PlanningError, SandboxError, SetupError

T = TypeVar("T")
REQUEST = RunRequest(benchmark=BenchmarkSpec(id="tasks"))


def make_plan(root: Path, **spec: object) -> ExecutionPlan:
    """Return a plan whose folders are made under *root*."""
    return ExecutionPlan(environment=EnvironmentSpec.model_validate({"params": {"root": str(root / "root")}, **spec}))


def with_session(root: Path, work: Callable[[HostProcessSession], Awaitable[T]], **spec: object) -> T:
    """Return what *work* makes of an open session; afterwards nothing of it may be left."""

    async def main() -> T:
        session = await HostProcessEnvironment().open(REQUEST, make_plan(root, **spec))
        try:
            return await work(session)
        finally:
            await session.close()
            assert os.listdir(root / "root") == []

    return asyncio.run(main())


def test_commands_run_in_a_folder_of_their_own(tmp_path: Path) -> None:
    """Working directory, HOME and TMPDIR are new, empty and inside the attempt's folder."""

    async def work(session: HostProcessSession) -> list[str]:
        done = await session.exec(
            'pwd; echo "$HOME"; echo "$TMPDIR"; ls -A . "$HOME" "$TMPDIR" | grep -v :', shell=True
        )
        return done.stdout.split()

    folders = with_session(tmp_path, work)
    assert len(set(folders)) == 3
    assert all(item.startswith(str(tmp_path / "root")) for item in folders)


def test_environment_of_the_caller_is_not_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets and settings of the caller stay outside; what the plan names is there, later layers win."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-for-agents")
    monkeypatch.setenv("HTTP_PROXY", "http://user:pass@proxy")

    async def work(session: HostProcessSession) -> str:
        session.phase_env = {"B": "phase"}
        return (await session.exec(["env"], env={"C": "exec"})).stdout

    lines = with_session(tmp_path, work, env_variables={"A": "plan", "B": "plan", "C": "plan"}).splitlines()
    assert {"A=plan", "B=phase", "C=exec"} <= set(lines)
    assert not [line for line in lines if line.startswith(("AWS_", "HTTP_PROXY"))]


def test_files_go_in_and_out(tmp_path: Path) -> None:
    """Bytes, modes, dotfiles and links survive the way in and out."""
    source = tmp_path / "source"
    (source / "sub/empty").mkdir(parents=True)
    (source / ".hidden").write_bytes(b"a\r\nb\xff")
    (source / "sub/run.sh").write_text("#!/bin/sh\n")
    (source / "sub/run.sh").chmod(0o755)
    (source / "dangling").symlink_to("nowhere")
    (source / "inside").symlink_to("sub/run.sh")

    async def work(session: HostProcessSession) -> list[str]:
        await session.upload_dir(source, "copy")
        await session.upload(source / "sub/run.sh", "deep/er/run.sh")
        assert (await session.exec(["deep/er/run.sh"])).ok
        assert await session.read_bytes("copy/.hidden") == b"a\r\nb\xff"
        await session.download("copy/.hidden", tmp_path / "one")
        return await session.download_dir("copy", tmp_path / "back")

    notes = with_session(tmp_path, work)
    back = tmp_path / "back"
    assert notes == []
    assert (tmp_path / "one").read_bytes() == b"a\r\nb\xff"
    assert (back / "sub/run.sh").stat().st_mode & 0o777 == 0o755
    assert (back / "sub/empty").is_dir()
    assert os.readlink(back / "inside") == "sub/run.sh"
    assert os.readlink(back / "dangling") == "nowhere"


def test_text_and_kinds(tmp_path: Path) -> None:
    """Text is written and read as UTF-8; files, folders and missing paths are told apart."""

    async def work(session: HostProcessSession) -> None:
        await session.write_text("a/b.txt", "grüße")
        await session.write_text("a/b.txt", "grüße 2")
        assert await session.read_text("a/b.txt") == "grüße 2"
        assert await session.read_bytes("a/b.txt", limit=2) == b"gr"
        assert await session.is_dir("a")
        assert not await session.is_file("a")
        assert await session.is_file("a/b.txt")
        assert not await session.is_dir("none")
        with pytest.raises(FileNotFoundError):
            await session.read_bytes("none")
        with pytest.raises(FileNotFoundError):
            await session.download_dir("a/b.txt", tmp_path / "x")
        with pytest.raises(SandboxError, match="no regular file"):
            await session.read_bytes("a")
        with pytest.raises(SandboxError, match="is a folder"):
            await session.write_bytes("a", b"")
        with pytest.raises(SandboxError, match="could not be made"):
            await session.write_bytes("a/b.txt/c", b"")

    with_session(tmp_path, work)


@pytest.mark.parametrize("path", ["/etc/hosts", "../../../x", "a/../../../../x", "link/x", "", "a\0b"])
def test_paths_outside_are_refused(tmp_path: Path, path: str) -> None:
    """Nothing outside the attempt's folder is read or written, also not through a link."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x").write_text("secret")

    async def work(session: HostProcessSession) -> None:
        os.symlink(outside, Path(session.default_workdir, "link"))
        for call in (session.read_bytes(path), session.write_bytes(path, b"!"), session.upload(__file__, path)):
            with pytest.raises(SandboxError):
                await call
        with pytest.raises(SandboxError):
            await session.upload_dir(outside, path + "/y" if path else path)
        with pytest.raises(SandboxError):
            await session.reset_dir(path)

    with_session(tmp_path, work)
    assert (outside / "x").read_text() == "secret"
    assert os.listdir(outside) == ["x"]


def test_planted_links_are_replaced_not_followed(tmp_path: Path) -> None:
    """A link in place of the target of a write, a folder upload or a reset is removed itself."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "keep").write_text("keep")

    async def work(session: HostProcessSession) -> None:
        base = Path(session.default_workdir)
        for name in ("file", "folder", "reset"):
            os.symlink(outside / "keep" if name == "file" else outside, base / name)
        await session.write_text("file", "mine")
        await session.upload_dir(Path(__file__).parent, "folder")
        await session.reset_dir("reset")
        assert not any((base / name).is_symlink() for name in ("file", "folder", "reset"))

    with_session(tmp_path, work)
    assert os.listdir(outside) == ["keep"]
    assert (outside / "keep").read_text() == "keep"


def test_download_leaves_out_what_is_unsafe(tmp_path: Path) -> None:
    """Links that lead out, fifos and what is beyond the limits are left out with a note; the rest comes."""
    limits = ExecutionSpec(artifact_limit_bytes=1000, artifact_limit_files=3)

    async def main() -> list[str]:
        plan = make_plan(tmp_path)
        plan.execution = limits
        session = await HostProcessEnvironment().open(REQUEST, plan)
        script = (
            "mkdir d; cd d; echo a > a; chmod 4755 a; ln -s /etc/hosts abs; ln -s ../../.. up; mkfifo pipe; "
            "truncate -s 1T sparse; echo z > z; for n in 1 2 3 4; do echo $n > m$n; done"
        )
        try:
            assert (await session.exec(script, shell=True)).ok
            return await session.download_dir("d", tmp_path / "out")
        finally:
            await session.close()

    notes = "\n".join(asyncio.run(main()))
    assert sorted(os.listdir(tmp_path / "out")) == ["a", "m1", "m2"]
    assert (tmp_path / "out/a").stat().st_mode & 0o7777 == 0o755
    for name in ("abs", "up", "pipe", "sparse", "z", "m3", "m4"):
        assert f"'{name}'" in notes


def test_reset_removes_whatever_stood_there(tmp_path: Path) -> None:
    """A reset folder is new and empty, also when modes forbade removing the old one."""

    async def work(session: HostProcessSession) -> None:
        await session.exec("mkdir -p r/s; touch r/s/f; chmod 0 r/s; chmod 500 r", shell=True)
        await session.reset_dir("r")
        await session.write_text("f", "")
        await session.reset_dir("f")
        assert (await session.exec("ls -A r f | wc -w", shell=True)).stdout.split() == ["2"]
        with pytest.raises(SandboxError, match="working directory itself"):
            await session.reset_dir(".")

    with_session(tmp_path, work)


def test_close_removes_read_only_folders(tmp_path: Path) -> None:
    """Whatever modes the agent set, the folder is gone after close, which may be called twice."""

    async def work(session: HostProcessSession) -> None:
        await session.exec('mkdir -p a/b; touch a/b/c; chmod 0 a/b a; chmod 500 . "$HOME"', shell=True)
        await session.close()
        await session.close()
        with pytest.raises(EnvironmentGone):
            await session.exec(["true"])
        with pytest.raises(EnvironmentGone):
            await session.read_bytes("x")

    with_session(tmp_path, work)


def test_vanished_folder_is_an_environment_error(tmp_path: Path) -> None:
    """When the whole folder is gone the error says so; a removed working directory alone is made anew."""

    async def work(session: HostProcessSession) -> None:
        await session.exec('rm -rf "$PWD"', shell=True)
        assert (await session.exec(["ls", "-A"])).output == ""
        box = Path(session.default_workdir).parent
        box.rename(tmp_path / "elsewhere")
        with pytest.raises(EnvironmentGone, match="removed"):
            await session.exec(["true"])

    with_session(tmp_path, work)


def test_other_users_are_refused(tmp_path: Path) -> None:
    """Only the runner's own user exists here."""

    async def work(session: HostProcessSession) -> None:
        assert (await session.exec(["true"], user=session.default_user)).ok
        assert (await session.exec(["true"], user=str(os.getuid()))).ok
        with pytest.raises(SandboxError, match="not as 'someone-else'"):
            await session.exec(["true"], user="someone-else")
        with pytest.raises(SandboxError, match="someone-else"):
            await session.write_bytes("x", b"", user="someone-else")

    with_session(tmp_path, work)


def test_working_directories_of_commands(tmp_path: Path) -> None:
    """cwd is relative to the working directory; a missing one is an error of the sandbox, one outside too."""

    async def work(session: HostProcessSession) -> None:
        await session.write_text("sub/x", "")
        assert (await session.exec(["ls"], cwd="sub")).stdout == "x\n"
        with pytest.raises(SandboxError, match="does not exist"):
            await session.exec(["true"], cwd="none")
        with pytest.raises(SandboxError, match="outside"):
            await session.exec(["true"], cwd="/")

    with_session(tmp_path, work)


def test_leftovers_die_and_services_stay(tmp_path: Path) -> None:
    """What listens on a socket stays with its parents and children, all else is killed; close ends all."""
    server = (
        "import socket, subprocess, time, pathlib\n"
        "child = subprocess.Popen(['sleep', '7601'])\n"
        "s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()\n"
        "pathlib.Path('port').write_text(str(s.getsockname()[1]))\n"
        "time.sleep(600)\n"
    )

    async def work(session: HostProcessSession) -> tuple[list[str], list[str], int]:
        await session.write_text("server.py", server)
        script = "setsid sleep 7602 & setsid sh -c 'python3 server.py; true' & while [ ! -s port ]; do sleep 0.1; done"
        assert (await session.exec(script, shell=True, timeout=60)).ok
        port = int(await session.read_text("port"))
        stayed = await session.kill_leftovers(keep_services=True)
        with socket.create_connection(("127.0.0.1", port)):
            pass
        return stayed, await session.kill_leftovers(keep_services=False), port

    stayed, rest, port = with_session(tmp_path, work)
    text = "\n".join(stayed)
    assert all(word in text for word in ("server.py", "sleep 7601", "service"))
    assert "7602" not in text
    assert rest == []
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_what_setup_started_is_spared(tmp_path: Path) -> None:
    """Processes of the environment's own setup are no leftovers of the agent; close ends them too."""

    async def work(session: HostProcessSession) -> list[str]:
        await session.exec("setsid sleep 7701 &", shell=True)
        return await session.kill_leftovers(keep_services=False)

    lines = with_session(tmp_path, work, setup=["setsid sleep 7702 & echo up"])
    assert len(lines) == 1
    assert "sleep 7702" in lines[0]
    assert "setup" in lines[0]


def test_failing_setup_names_command_and_output(tmp_path: Path) -> None:
    """A setup command that fails stops the attempt with its output, and nothing is left."""
    with pytest.raises(SetupError, match=r"(?s)'echo reason; exit 3' ended with status 3.*reason"):
        with_session(tmp_path, lambda session: session.exec(["true"]), setup=["true", "echo reason; exit 3"])
    assert os.listdir(tmp_path / "root") == []


def test_cancelled_setup_leaves_nothing(tmp_path: Path) -> None:
    """A cancellation during open removes what was half made."""

    async def main() -> None:
        opening = asyncio.ensure_future(
            HostProcessEnvironment().open(REQUEST, make_plan(tmp_path, setup=["touch up; sleep 60"]))
        )
        while not list(tmp_path.glob("root/*/work/up")):
            await asyncio.sleep(0.02)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening

    asyncio.run(main())
    assert os.listdir(tmp_path / "root") == []


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"image": "python"}, "no images"),
        ({"run_network_policy": NetworkPolicy.model_validate("no-network")}, "network policy no-network"),
        ({"workdir": "/app"}, "relative"),
        ({"workdir": "a/../../b"}, "relative"),
        ({"user": "someone-else"}, "someone-else"),
        ({"tmpfs": ["/x"]}, "tmpfs"),
        ({"command": ["x"]}, "command"),
    ],
)
def test_what_it_cannot_do_is_refused(tmp_path: Path, spec: dict[str, object], message: str) -> None:
    """A plan that needs more than a folder and processes is refused in words, before anything is made."""
    plan = make_plan(tmp_path, **spec)
    assert message in "; ".join(HostProcessEnvironment().check(plan.environment))
    with pytest.raises(SandboxError, match=message):
        asyncio.run(HostProcessEnvironment().open(REQUEST, plan))
    assert not (tmp_path / "root").exists()


def test_limits_are_noted(tmp_path: Path) -> None:
    """Resources that cannot be enforced are said in the record, not silently dropped."""

    async def work(session: HostProcessSession) -> object:
        return session.info["notes"]

    assert "memory_mb is not enforced" in str(with_session(tmp_path, work, resources={"memory_mb": 100}))


def test_workdir_is_made_inside(tmp_path: Path) -> None:
    """A relative workdir is a folder below the working directory."""

    async def work(session: HostProcessSession) -> str:
        return (await session.exec(["pwd"])).stdout.strip()

    assert with_session(tmp_path, work, workdir="repo/src").endswith("/work/repo/src")


def test_network_policy_cannot_be_switched(tmp_path: Path) -> None:
    """A switch is refused: it never silently allows more."""

    async def work(session: HostProcessSession) -> None:
        await session.set_network_policy(NetworkPolicy())
        with pytest.raises(PlanningError):
            await session.set_network_policy(NetworkPolicy.model_validate("no-network"))

    with_session(tmp_path, work)


def test_root_that_is_no_folder_of_ours_is_named(tmp_path: Path) -> None:
    """The preflight says why no folder can be made."""
    (tmp_path / "root").symlink_to(tmp_path)
    request = REQUEST.model_copy(update={"environment": make_plan(tmp_path).environment})
    assert "not a folder of this user" in str(asyncio.run(HostProcessEnvironment().preflight(request)))
    (tmp_path / "root").unlink()
    assert asyncio.run(HostProcessEnvironment().preflight(request)) is None
    assert (tmp_path / "root").stat().st_mode & 0o777 == 0o700


LEAVE = """
import asyncio, os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_host_process import REQUEST, HostProcessEnvironment, make_plan
async def main():
    session = await HostProcessEnvironment().open(REQUEST, make_plan(Path(sys.argv[1])))
    await session.exec("setsid sleep 7801 &", shell=True)
    os._exit(9)
asyncio.run(main())
"""


def test_sweep_removes_what_a_dead_owner_left(tmp_path: Path) -> None:
    """Folder and processes of a killed run are removed by the next one; those of the living stay."""
    subprocess.run([sys.executable, "-c", LEAVE, str(tmp_path), str(Path(__file__).parent)], check=False, timeout=60)
    assert len(os.listdir(tmp_path / "root")) == 1

    async def work(session: HostProcessSession) -> list[str]:
        lines = sweep(str(tmp_path / "root"))
        assert (await session.exec(["true"])).ok
        return lines

    lines = with_session(tmp_path, work)
    assert len(lines) == 1
    assert lines[0].startswith("removed ")
    living = [Path(item, "cmdline").read_bytes() for item in Path("/proc").glob("[0-9]*") if _readable(item)]
    assert b"sleep\x007801\0" not in living


def _readable(folder: Path) -> bool:
    try:
        (folder / "cmdline").read_bytes()
    except OSError:
        return False
    return True


@pytest.mark.parametrize(
    ("owner", "removed"),
    [
        ({"pid": 1, "start": "0", "boot": "?", "host": "?"}, False),
        ({"pid": os.getpid(), "start": "", "boot": "", "host": ""}, False),
        ({"pid": 2**22 + 1, "start": "1", "boot": boot_id(), "host": host_name()}, True),
        ({"pid": os.getpid(), "start": "1", "boot": boot_id(), "host": host_name()}, True),
        ("no json", False),
    ],
)
def test_sweep_touches_only_what_is_surely_dead(tmp_path: Path, owner: object, removed: bool) -> None:
    """Another host's, a living owner's or a half made folder stays; a reused pid does not protect."""
    box = tmp_path / "box"
    box.mkdir()
    (box / "owner.json").write_text(owner if isinstance(owner, str) else json.dumps(owner))
    assert bool(sweep(str(tmp_path))) is removed
    assert box.exists() is not removed


def test_sweep_without_a_root_does_nothing(tmp_path: Path) -> None:
    """A machine on which nothing ever ran is clean."""
    assert sweep(str(tmp_path / "none")) == []


def test_run_is_removed_by_force(tmp_path: Path) -> None:
    """remove_run removes what is open of one run and owner, without an event loop, and nothing of others."""
    pid = os.getpid()
    for name, run, owner in (("mine", "run-1", pid), ("other", "run-2", pid), ("worker", "run-1", pid + 1)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "owner.json").write_text(json.dumps({"pid": owner, "run": run, "token": name * 3}))
    assert remove_run("run-1", str(tmp_path), owner=pid) == [f"removed {tmp_path / 'mine'}"]
    assert sorted(os.listdir(tmp_path)) == ["other", "worker"]
    assert remove_run("run-1", str(tmp_path)) == [f"removed {tmp_path / 'worker'}"]


def test_provider_removes_an_open_attempt_with_its_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the provider opened itself is ended and removed by run id, also under a root of its own."""

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    async def main() -> list[int]:
        provider = HostProcessEnvironment()
        set_current_attempt(AttemptContext("run-9", "main", "t", 1, tmp_path / "attempt"))
        session = await provider.open(REQUEST, make_plan(tmp_path))
        try:
            await session.exec("setsid sleep 7901 &", shell=True)
            provider.remove_run("another run")
            assert len(os.listdir(tmp_path / "root")) == 1
            assert provider.sweep() == []
            provider.remove_run("run-9", os.getpid())
            assert os.listdir(tmp_path / "root") == []
            return session._runner.tree.find()
        finally:
            set_current_attempt(None)
            await session.close()

    assert asyncio.run(main()) == []


def test_kept_folder_outlives_its_owner(tmp_path: Path) -> None:
    """keep_environment: the folder says how to enter and remove it, and no sweep takes it."""
    request = REQUEST.model_copy(update={"execution": ExecutionSpec(keep_environment=True)})

    async def main() -> dict[str, object]:
        return (await HostProcessEnvironment().open(request, make_plan(tmp_path))).info

    info = asyncio.run(main())
    box = next((tmp_path / "root").iterdir())
    owner = json.loads((box / "owner.json").read_text())
    (box / "owner.json").write_text(json.dumps({**owner, "start": "1"}))
    assert sweep(str(tmp_path / "root")) == []
    assert info["enter"] == f"cd {box / 'work'}"
    assert subprocess.run(str(info["remove"]), shell=True, check=True).returncode == 0
    assert not box.exists()
