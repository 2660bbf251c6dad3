"""Copying into and out of real containers."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_agentcompass.contracts.environment import EnvironmentSpec
from pytest_agentcompass.contracts.request import ExecutionSpec
from pytest_agentcompass.environments.docker import DockerSession
from pytest_agentcompass.errors import PlanningError, SandboxError

pytestmark = pytest.mark.docker
Run = Callable[[Any], Any]


def _out(run: Run, sandbox: DockerSession, command: str) -> str:
    return str(run(sandbox.exec(command, shell=True)).stdout)


def test_write_and_read(run: Run, sandbox: DockerSession) -> None:
    """Bytes come back as they were; parents are made; relative paths start at the working directory."""
    content = b"a\r\nb\0\xff"
    run(sandbox.write_bytes("/new/deep/er/file.bin", content))
    assert run(sandbox.read_bytes("/new/deep/er/file.bin")) == content
    assert run(sandbox.read_bytes("/new/deep/er/file.bin", limit=3)) == content[:3]
    run(sandbox.write_text("relative.txt", "x\udcffy"))
    assert run(sandbox.read_bytes("/relative.txt")) == b"x\xffy"
    assert _out(run, sandbox, "stat -c '%a %u %g' /new/deep/er/file.bin") == "644 0 0\n"


def test_missing_and_odd_files(run: Run, sandbox: DockerSession) -> None:
    """A missing file, a folder and a pipe are no regular files; a link is followed inside the sandbox."""
    run(sandbox.exec("mkfifo /pipe; ln -s /etc/hostname /link; ln -s /nowhere /dangling", shell=True))
    for path in ("/nosuch", "/nosuch/file", "/etc", "/pipe", "/dangling", "/etc/hostname/below"):
        with pytest.raises(FileNotFoundError):
            run(sandbox.read_bytes(path))
    assert run(sandbox.read_bytes("/link")) == run(sandbox.read_bytes("/etc/hostname"))
    assert run(sandbox.is_file("/etc/hostname"))
    assert run(sandbox.is_dir("/etc"))
    assert not run(sandbox.is_file("/etc"))


def test_user_and_mode(run: Run, sandbox: DockerSession, tmp_path: Path) -> None:
    """A user's name or number decides the owner, parents included; a mode overrides the file's own."""
    source = tmp_path / "run.sh"
    source.write_text("true")
    source.chmod(0o750)
    run(sandbox.upload(source, "/data/run.sh", user="www-data"))
    assert (
        _out(run, sandbox, "stat -c '%a %U %G' /data/run.sh; stat -c %U /data") == "750 www-data www-data\nwww-data\n"
    )
    run(sandbox.upload(source, "/data/other.sh", user="1234:5", mode=0o600))
    assert _out(run, sandbox, "stat -c '%a %u %g' /data/other.sh") == "600 1234 5\n"
    with pytest.raises(SandboxError, match="nosuchuser"):
        run(sandbox.upload(source, "/data/x.sh", user="nosuchuser"))


def test_readable_by_the_tasks_user(run: Run, sandboxes: Any, base_image: str, tmp_path: Path) -> None:
    """Root-owned uploads can be read by a sandbox user that is not root, whatever their modes were."""
    (tmp_path / "in").mkdir(mode=0o700)
    (tmp_path / "in" / "secretive").mkdir(mode=0o700)
    (tmp_path / "in" / "secretive" / "file").write_text("read me")
    (tmp_path / "in" / "secretive" / "file").chmod(0o600)
    sandbox = sandboxes.open(EnvironmentSpec(image=base_image, user="1000"))
    run(sandbox.upload_dir(tmp_path / "in", "/given"))
    assert _out(run, sandbox, "id -u; cat /given/secretive/file") == "1000\nread me"


def test_folder_keeps_everything(run: Run, sandbox: DockerSession, tmp_path: Path) -> None:
    """Dotfiles, modes, CRLF, odd and long names, dangling links and empty folders arrive and come back."""
    source = tmp_path / "in"
    deep = source / "/".join(["d" * 50] * 4)
    deep.mkdir(parents=True)
    (deep / ("n" * 120)).write_text("long")
    (source / ".hidden").write_text("h")
    (source / "é ü.sh").write_bytes(b"#!/bin/sh\r\n")
    (source / "é ü.sh").chmod(0o755)
    (source / "empty").mkdir()
    (source / "dangling").symlink_to("nowhere")
    Path(os.fsdecode(os.fsencode(source) + b"/bad\xff")).write_text("b")
    run(sandbox.upload_dir(source, "/made/here"))
    assert _out(
        run, sandbox, "stat -c %a '/made/here/é ü.sh'; readlink /made/here/dangling; ls -a /made/here | wc -l"
    ) == ("755\nnowhere\n8\n")
    notes = run(sandbox.download_dir("/made/here", tmp_path / "out"))
    out = tmp_path / "out"
    assert (out / "é ü.sh").read_bytes() == b"#!/bin/sh\r\n"
    assert (out / deep.relative_to(source) / ("n" * 120)).read_text() == "long"
    assert (out / "dangling").is_symlink()
    assert (out / "empty").is_dir()
    assert (out / "bad%FF").read_text() == "b"
    assert len(notes) == 1


@pytest.mark.parametrize("path", ["/tests", "/tests/sub"])
def test_planted_link_is_not_followed(run: Run, sandbox: DockerSession, tmp_path: Path, path: str) -> None:
    """A link that was planted in the sandbox is replaced at the end of a path and refused within it."""
    (tmp_path / "planted.txt").write_text("x")
    run(sandbox.exec("mkdir /victim; ln -s /victim /tests", shell=True))
    if path == "/tests":
        run(sandbox.upload_dir(tmp_path, path))
        assert _out(run, sandbox, "test -L /tests || cat /tests/planted.txt") == "x"
    else:
        for work in (sandbox.upload_dir(tmp_path, path), sandbox.upload(tmp_path / "planted.txt", path)):
            with pytest.raises(SandboxError, match="/tests in the sandbox is a link to /victim"):
                run(work)
    assert _out(run, sandbox, "ls -A /victim") == ""


def test_link_of_the_image_is_a_folder(run: Run, sandbox: DockerSession) -> None:
    """A link that the image itself has within a path (/bin, say) is used."""
    run(sandbox.write_bytes("/bin/tool", b"#!/bin/sh\necho ran\n", mode=0o755))
    assert run(sandbox.exec(["/usr/bin/tool"])).stdout == "ran\n"


def test_link_inside_of_a_folder_is_replaced(run: Run, sandbox: DockerSession, tmp_path: Path) -> None:
    """Links that stand where uploaded folders and files belong are replaced, not followed."""
    (tmp_path / "in" / "sub").mkdir(parents=True)
    (tmp_path / "in" / "sub" / "f").write_text("new")
    (tmp_path / "in" / "g").write_text("new")
    run(
        sandbox.exec(
            "mkdir /app /victim; echo old > /victim/g; ln -s /victim /app/sub; ln -s /victim/g /app/g", shell=True
        )
    )
    run(sandbox.upload_dir(tmp_path / "in", "/app"))
    assert _out(run, sandbox, "cat /app/sub/f /app/g; ls /victim; cat /victim/g") == "newnewg\nold\n"


def test_file_does_not_replace_a_folder(run: Run, sandbox: DockerSession) -> None:
    """A file is not put in the place of a folder, nor below a file."""
    with pytest.raises(SandboxError, match="/etc in the sandbox is a folder"):
        run(sandbox.write_bytes("/etc", b""))
    with pytest.raises(SandboxError, match="/etc/passwd in the sandbox is no folder"):
        run(sandbox.write_bytes("/etc/passwd/x", b""))


def test_unreadable_source_changes_nothing(run: Run, sandbox: DockerSession, tmp_path: Path) -> None:
    """All or nothing: a source that cannot be packed leaves the sandbox as it was."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text("x")
    os.mkfifo(tmp_path / "in" / "pipe")
    with pytest.raises(SandboxError, match="pipe"):
        run(sandbox.upload_dir(tmp_path / "in", "/in"))
    with pytest.raises(SandboxError, match="nosuch"):
        run(sandbox.upload(tmp_path / "nosuch", "/in/x"))
    assert not run(sandbox.is_dir("/in"))


def test_download(run: Run, sandbox: DockerSession, tmp_path: Path) -> None:
    """A file comes whole or not at all; a missing one leaves nothing behind."""
    run(sandbox.write_bytes("/f", b"x" * 100_000))
    run(sandbox.download("/f", tmp_path / "new" / "f"))
    assert (tmp_path / "new" / "f").stat().st_size == 100_000
    with pytest.raises(FileNotFoundError):
        run(sandbox.download("/nosuch", tmp_path / "nosuch"))
    with pytest.raises(FileNotFoundError):
        run(sandbox.download_dir("/nosuch", tmp_path / "nosuch"))
    assert not (tmp_path / "nosuch").exists()


def test_downloads_are_limited(run: Run, sandboxes: Any, base_image: str, tmp_path: Path) -> None:
    """What is over the request's artifact limits is left out with a note; small files are kept."""
    limited = ExecutionSpec(artifact_limit_bytes=1_000_000, artifact_limit_files=20)
    sandbox = sandboxes.open(EnvironmentSpec(image=base_image), execution=limited)
    run(sandbox.exec("mkdir /a /b; echo 1 > /a/1; truncate -s 10G /a/huge; cd /b; touch $(seq 100)", shell=True))
    notes = run(sandbox.download_dir("/a", tmp_path / "a"))
    assert any("huge" in note and "limit" in note for note in notes)
    assert not (tmp_path / "a" / "huge").exists()
    notes = run(sandbox.download_dir("/b", tmp_path / "b"))
    assert len(list((tmp_path / "b").iterdir())) <= 20
    assert any("more than 20 files" in note for note in notes)
    with pytest.raises(SandboxError, match="the limit is 1000000"):
        run(sandbox.download("/a/huge", tmp_path / "huge"))


def test_tmpfs_is_seen(run: Run, sandboxes: Any, base_image: str, tmp_path: Path) -> None:
    """Files go into and come out of a tmpfs, which the engine's archive calls do not see."""
    sandbox = sandboxes.open(EnvironmentSpec(image=base_image, tmpfs=("/scratch:size=10m",)))
    run(sandbox.write_bytes("/scratch/deep/f", b"x"))
    (tmp_path / "f").write_text("dir")
    run(sandbox.upload_dir(tmp_path, "/scratch/dir"))
    assert _out(run, sandbox, "cat /scratch/deep/f /scratch/dir/f; ls -A / | grep agentcompass") == "xdir"
    assert run(sandbox.read_bytes("/scratch/deep/f")) == b"x"
    assert run(sandbox.download_dir("/scratch/dir", tmp_path / "out")) == []
    assert (tmp_path / "out" / "f").read_text() == "dir"
    with pytest.raises(FileNotFoundError):
        run(sandbox.read_bytes("/scratch/nosuch"))


def test_reset_dirs(run: Run, sandbox: DockerSession) -> None:
    """Several folders are made anew at once, each for its owner; one that cannot be is named."""
    run(sandbox.exec("mkdir -p /one/x /t; touch /two; ln -s /t /link", shell=True, user="root"))
    run(sandbox.reset_dirs([("/one", "1000"), ("/two", None), ("/link", "0")]))
    state = run(sandbox.exec("stat -c '%n %F %u' /one /two /link; ls /one /two /link", shell=True)).stdout
    assert state.splitlines()[:3] == ["/one directory 1000", "/two directory 0", "/link directory 0"]
    assert "x" not in state.split("/link directory 0")[1]
    with pytest.raises(SandboxError, match="/proc/self/no"):
        run(sandbox.reset_dirs([("/one", None), ("/proc/self/no", None)]))


def test_reset_dir(run: Run, sandbox: DockerSession) -> None:
    """A folder is made anew for its user, whatever stood there: files, a link, a file, or nothing."""
    run(
        sandbox.exec(
            "mkdir -p /old/sub /victim; touch /old/.h /old/sub/f /victim/keep /file; ln -s /victim /link", shell=True
        )
    )
    for path in ("/old", "/link", "/file", "/new/deep"):
        run(sandbox.reset_dir(path, user="1000"))
        assert _out(run, sandbox, f"test -L {path} || stat -c '%F %u' {path}; ls -A {path}") == "directory 1000\n"
    assert _out(run, sandbox, "ls /victim") == "keep\n"
    with pytest.raises(PlanningError):
        run(sandbox.reset_dir("/"))
    run(sandbox.exec(["ln", "-s", "/victim", "/planted"]))
    with pytest.raises(SandboxError, match="link"):
        run(sandbox.reset_dir("/planted/below"))
