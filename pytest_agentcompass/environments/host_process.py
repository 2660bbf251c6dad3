"""Environment `host_process`: attempts run as processes of this machine, in folders of their own.

Made for trusted tasks: it keeps attempts apart from each other and cleans up after them, but an agent
has the rights of the user who runs pytest. Untrusted tasks belong into `docker`.
"""

from __future__ import annotations

import os
import pwd
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from ..components.calls import in_thread
from ..components.environment import BaseEnvironment, EnvironmentSession
from ..components.processes import ProcessRunner, minimal_environment, shielded
from ..contracts.environment import EnvironmentSpec
from ..contracts.outcome import ExecResult
from ..contracts.plan import ExecutionPlan
from ..contracts.request import RunRequest
from ..errors import EnvironmentGone, SandboxError, SetupError
from .host_files import HostFiles, remove_tree
from .host_folders import default_root, make_box, private_folder, remove_run, sweep

__all__ = ["HostProcessEnvironment", "HostProcessParams", "HostProcessSession"]

_SETUP_SECONDS = 600.0
_LAST_CHARACTERS = 2000
#: fields of an EnvironmentSpec that only a container can give, and what they are called in messages
_CONTAINER_FIELDS = ("mounts", "tmpfs", "extra_hosts", "healthcheck", "command")


class HostProcessParams(BaseModel):
    """`environment.params` of host_process: *root* is where the attempts' folders are made."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    root: str | None = None


class HostProcessSession(EnvironmentSession):
    """One attempt's folder on this machine: `work` (the working directory), `home` and `tmp`.

    Commands get a minimal environment, and every path must lie inside the folder.
    """

    def __init__(self, runner: ProcessRunner, files: HostFiles, variables: Mapping[str, str]) -> None:
        super().__init__()
        self.default_workdir: str = files.work
        self.default_user = _own_name()
        self.scratch_dir = os.path.join(files.box, "tmp")
        self.local_workdir = files.work
        self._runner = runner
        self._files = files
        self._variables = dict(variables)
        self._spared: frozenset[int] = frozenset()
        self._closed = False

    async def exec(
        self,
        command: Sequence[str] | str,
        *,
        shell: bool = False,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        timeout: float | None = None,
        output_limit: int | None = None,
    ) -> ExecResult:
        """Run a command; see `EnvironmentSession.exec`. *user* may only be the one who runs pytest."""
        self._check_open()
        _check_user(user)
        return await self._runner.run(
            command,
            shell=shell,
            cwd=self._folder(cwd),
            env={**self._variables, **self.phase_env, **(env or {})},
            timeout=timeout,
            output_limit=output_limit,
        )

    async def upload(self, src: str | Path, dst: str, *, user: str | None = None, mode: int | None = None) -> None:
        """Copy a local file into the attempt's folder."""
        self._check_open()
        _check_user(user)
        await in_thread(self._files.upload, str(src), dst, mode)

    async def download(self, src: str, dst: str | Path) -> None:
        """Copy a file of the attempt's folder to a local path."""
        self._check_open()
        await in_thread(self._files.download, src, str(dst))

    async def upload_dir(self, src: str | Path, dst: str, *, user: str | None = None) -> None:
        """Copy a local folder's contents into the attempt's folder."""
        self._check_open()
        _check_user(user)
        await in_thread(self._files.upload_dir, str(src), dst)

    async def download_dir(self, src: str, dst: str | Path) -> list[str]:
        """Copy a folder's contents out; return notes on what was left out."""
        self._check_open()
        notes: list[str] = await in_thread(self._files.download_dir, src, str(dst))
        return notes

    async def read_bytes(self, path: str, *, limit: int | None = None) -> bytes:
        """Return the content of a regular file."""
        self._check_open()
        return self._files.read(path, limit)

    async def write_bytes(self, path: str, content: bytes, *, user: str | None = None, mode: int | None = None) -> None:
        """Write a file at once or not at all."""
        self._check_open()
        _check_user(user)
        self._files.write(path, content, mode)

    async def is_dir(self, path: str) -> bool:
        """Whether *path* is a folder."""
        self._check_open()
        return self._files.is_dir(path)

    async def is_file(self, path: str) -> bool:
        """Whether *path* is a regular file."""
        self._check_open()
        return self._files.is_file(path)

    async def reset_dir(self, path: str, *, user: str | None = None) -> None:
        """Make *path* a fresh empty folder."""
        self._check_open()
        _check_user(user)
        await in_thread(self._files.reset, path)

    async def kill_leftovers(self, *, keep_services: bool = True) -> list[str]:
        """End what the agent left running; return one line per process that stayed."""
        self._check_open()
        alive = await self._runner.kill(keep_services=keep_services, spare=self._spared)
        lines = [f"pid {pid} ({_command_of(pid)}) could not be killed" for pid in alive]
        for pid in self._runner.tree.find():
            if pid not in alive:
                reason = "was started by the task's setup" if pid in self._spared else "is a service or belongs to one"
                lines.append(f"pid {pid} ({_command_of(pid)}) stays: it {reason}")
        return lines

    async def close(self) -> None:
        """End everything and remove the folder; SandboxError tells what is left."""
        if self._closed:
            return
        self._closed = True
        await shielded(self._close())

    async def run_setup(self, commands: Sequence[str]) -> None:
        """Run the setup commands of the environment; what they leave running is spared later on."""
        for command in commands:
            result = await self.exec(command, shell=True, timeout=_SETUP_SECONDS)
            if not result.ok:
                how = (
                    f"took longer than {_SETUP_SECONDS:g} s"
                    if result.timed_out
                    else f"ended with status {result.returncode}"
                )
                raise SetupError(f"setup command {command!r} {how}:\n{result.output[-_LAST_CHARACTERS:]}")
        if commands:
            self._spared = frozenset(self._runner.tree.find())

    async def _close(self) -> None:
        try:
            alive = await self._runner.close()
        finally:
            await in_thread(remove_tree, self._files.box)
        if alive:
            names = ", ".join(f"{pid} ({_command_of(pid)})" for pid in alive)
            raise SandboxError(f"processes of the attempt could not be killed: {names}")

    def _folder(self, cwd: str | None) -> str:
        if cwd is not None:
            return self._files.resolve(cwd)
        if not os.path.isdir(self._files.work):
            # An agent that removed its working directory is graded like any other: there is nothing in it.
            self._files.resolve(".")
            os.makedirs(self._files.work, exist_ok=True)
        return self._files.work

    def _check_open(self) -> None:
        if self._closed:
            raise EnvironmentGone("the attempt's host_process environment is closed")


class HostProcessEnvironment(BaseEnvironment):
    """Opens a private folder per attempt on this machine; no images, no network limits, no resource limits."""

    id: ClassVar[str] = "host_process"
    params_model: ClassVar[type[BaseModel] | None] = HostProcessParams

    def __init__(self) -> None:
        self._roots = {default_root()}

    def sweep(self) -> list[str]:
        """Remove folders and processes of attempts whose owner is dead; return one line for each."""
        return [line for root in sorted(self._roots) for line in sweep(root)]

    def remove_run(self, run_id: str, owner: int | None = None) -> None:
        """Remove every attempt of a run (of the process *owner*) at once, without an event loop."""
        for root in sorted(self._roots):
            remove_run(run_id, root, owner=owner)

    def check(self, environment: EnvironmentSpec) -> list[str]:
        """Return what this provider cannot do of *environment*."""
        problems = super().check(environment)
        for name in _CONTAINER_FIELDS:
            if getattr(environment, name):
                problems.append(f"environment {self.id!r} cannot give {name}; use environment=docker")
        if environment.workdir is not None and not _is_inside(environment.workdir):
            problems.append(
                f"environment {self.id!r} takes a workdir relative to the attempt's own folder, "
                f"not {environment.workdir!r}; write it without leading / and without .."
            )
        if not _is_self(environment.user):
            problems.append(
                f"environment {self.id!r} runs commands as {_own_name()!r} only, not as {environment.user!r}"
            )
        return problems

    async def preflight(self, req: RunRequest) -> str | None:
        """Return why no folder could be made, or None."""
        try:
            private_folder(self._root(req.environment))
        except SandboxError as error:
            return error.message
        return None

    async def open(self, req: RunRequest, plan: ExecutionPlan) -> HostProcessSession:
        """Make the attempt's folder and run the setup commands in it."""
        spec = plan.environment
        limits = plan.execution
        problems = self.check(spec)
        if problems:
            raise SandboxError("; ".join(problems))
        runner = ProcessRunner(output_limit=limits.output_limit_bytes)
        keep = req.execution.keep_environment
        box = make_box(self._root(spec), runner.token, keep=keep)
        session = self._session(runner, box, spec, plan)
        if keep:
            session.info |= {
                "enter": f"cd {shlex.quote(session.default_workdir)}",
                "remove": f"rm -rf {shlex.quote(box)}",
            }
        try:
            await session.run_setup(spec.setup)
        except BaseException:
            await session.close()
            raise
        return session

    def _session(
        self, runner: ProcessRunner, box: str, spec: EnvironmentSpec, plan: ExecutionPlan
    ) -> HostProcessSession:
        runner.tree.watch(box)
        work = os.path.join(box, "work", spec.workdir or "").rstrip("/")
        os.makedirs(work, exist_ok=True)
        limits = plan.execution
        files = HostFiles(box, work, byte_limit=limits.artifact_limit_bytes, file_limit=limits.artifact_limit_files)
        variables = minimal_environment(os.path.join(box, "home"), os.path.join(box, "tmp"))
        session = HostProcessSession(runner, files, {**variables, **spec.env_variables})
        session.info = {"provider": self.id, "workdir": work, "user": session.default_user, "notes": self.notes(spec)}
        return session

    def _root(self, spec: EnvironmentSpec) -> str:
        given = HostProcessParams.model_validate(spec.params).root
        root = os.path.abspath(os.path.expanduser(given)) if given else default_root()
        self._roots.add(root)
        return root


def _own_name() -> str:
    """Return the name of the user who runs this process (the number when there is no name)."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _is_self(user: str | None) -> bool:
    return user is None or user in (_own_name(), str(os.getuid()))


def _check_user(user: str | None) -> None:
    if not _is_self(user):
        raise SandboxError(
            f"environment 'host_process' works as {_own_name()!r} only, not as {user!r}; use environment=docker"
        )


def _is_inside(path: str) -> bool:
    return not os.path.isabs(path) and ".." not in path.split("/") and "\0" not in path


def _command_of(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
    except OSError:
        return "gone"
    return words[:200].decode("utf-8", "replace").strip() or "no command line"
