"""One open container, as attempts see it."""

from __future__ import annotations

import asyncio
import contextlib
import posixpath
import secrets
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from ...components.calls import in_thread
from ...components.environment import EnvironmentSession
from ...contracts.environment import Healthcheck
from ...contracts.network import NetworkPolicy
from ...contracts.outcome import ExecResult
from ...errors import EnvironmentGone, PlanningError, SandboxError, SetupError
from ..archive import Limits, Ownership, pack_bytes, pack_file, pack_tree
from .engine import Engine
from .exec import Command, Runner, finish, new_marker
from .files import Place, Transfers
from .memory import OomCounter
from .network import Network
from .processes import Baseline, leftovers
from .release import Opened, release
from .scripts import RESET, UPTIME, WORKDIR

__all__ = ["DockerSession"]

_OUT_OF_MEMORY = 137
_TEXT_TAIL = 2000


class DockerSession(EnvironmentSession):
    """A container that an attempt works in."""

    def __init__(
        self,
        engine: Engine,
        opened: Opened,
        *,
        workdir: str,
        user: str,
        network: Network,
        hidden_env: dict[str, str] | None = None,
        output_limit: int = 1_000_000,
        limits: Limits | None = None,
        tmpfs: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.default_workdir = workdir
        self.default_user = user or None
        self.network_policy = network.policy
        self._network = network
        self._opened = opened
        self._engine = engine
        self._runner = Runner(engine, opened.container)
        self._files = Transfers(engine, opened.container, self._runner.cause)
        self._oom = OomCounter(engine, opened.container)
        self._hidden_env = hidden_env or {}
        self._output_limit = output_limit
        self._limits = limits or Limits()
        self._tmpfs = tuple(posixpath.normpath(path) for path in tmpfs)
        self._token = secrets.token_hex(6)
        self._opened_at: float | None = None
        self._opened_ticks: int | None = None
        self._closing: asyncio.Future[None] | None = None

    # ------------------------------------------------------------ commands

    def _path(self, path: str) -> str:
        return posixpath.normpath(posixpath.join(self.default_workdir or "/", path))

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
        """See `EnvironmentSession.exec`; a process killed for memory is told by the kernel's own counter."""
        prefix = "" if self._opened_at is not None else self._token
        order = Command(
            _argv(command, shell),
            cwd=self._path(cwd or ""),
            user=user or self.default_user or "",
            env={**self._hidden_env, **self.network_variables, **self.phase_env, **(env or {})},
            timeout=timeout,
            limit=output_limit or self._output_limit,
            marker=new_marker(prefix),
        )
        self._oom.remember()
        try:
            result = await self._runner.run(order)
        except EnvironmentGone:
            raise
        except SandboxError:
            if cwd is not None or not await self._workdir_again():
                raise
            result = await self._runner.run(order)
        if result.returncode == _OUT_OF_MEMORY:
            result.out_of_memory = await self._oom.rose(self._runner)
        return result

    async def _workdir_again(self) -> bool:
        """Make the working directory again where an agent removed it; return whether that was so.

        Such an agent is graded like any other: there is nothing in the folder.
        """
        return (await self._runner.script(WORKDIR, self.default_workdir or "/", self.default_user or "0")).ok

    async def run_setup(self, commands: Sequence[str]) -> None:
        """Run the task's setup commands; SetupError with the output of one that fails."""
        for command in commands:
            result = await self.exec(command, shell=True)
            if not result.ok:
                tail = result.output[-_TEXT_TAIL:]
                raise SetupError(f"setup command {command!r} ended with status {result.returncode}:\n{tail}")

    async def wait_healthy(self, check: Healthcheck) -> None:
        """Run the health check until it succeeds; SetupError after its retries."""
        grace = time.monotonic() + check.start_period
        failures = 0
        while True:
            result = await self.exec(check.command, shell=True, timeout=check.timeout)
            if result.ok:
                return
            starting = time.monotonic() < grace
            failures += 0 if starting else 1
            if failures >= check.retries:
                why = "timed out" if result.timed_out else f"ended with status {result.returncode}"
                tail = result.output[-_TEXT_TAIL:]
                raise SetupError(f"health check {check.command!r} {why} {failures} times in a row:\n{tail}")
            await asyncio.sleep(check.start_interval if starting else check.interval)

    async def settled(self, *, measure: bool = False) -> None:
        """Say that the sandbox is open: what runs now is its own. *measure* asks the container's clock."""
        if measure:
            up = (await self._runner.script(UPTIME)).stdout.strip()
            self._opened_ticks = int(float(up) * 100)
        self._opened_at = time.monotonic()

    # ------------------------------------------------------------ files

    async def upload(self, src: str | Path, dst: str, *, user: str | None = None, mode: int | None = None) -> None:
        """Copy a local file in; SandboxError when *dst* is a folder or lies behind a planted link."""
        await in_thread(self._upload, Path(src), self._path(dst), user, mode)
        await self._into_tmpfs(self._path(dst))

    def _upload(self, src: Path, dst: str, user: str | None, mode: int | None) -> None:
        owner = self._owner(user)
        place = self._file_place(dst)
        data = _packed(lambda: pack_file(src, place.name, owner, mode=mode, parents=place.parents))
        self._files.put(place.folder, data)

    def _owner(self, user: str | None) -> Ownership:
        return self._files.owner(user, readable=self.default_user not in (None, "root", "0", "0:0"))

    def _file_place(self, dst: str) -> Place:
        place = self._files.place(self._staged(dst))
        if place.state is not None and place.state.kind == "folder":
            raise SandboxError(f"{dst} in the sandbox is a folder: a file cannot be put in its place")
        return place

    async def write_bytes(self, path: str, content: bytes, *, user: str | None = None, mode: int | None = None) -> None:
        """Write a file (0644 unless *mode* says otherwise)."""
        await in_thread(self._write, self._path(path), content, user, mode)
        await self._into_tmpfs(self._path(path))

    def _write(self, path: str, content: bytes, user: str | None, mode: int | None) -> None:
        owner = self._owner(user)
        place = self._file_place(path)
        mode = 0o644 if mode is None else mode
        self._files.put(place.folder, pack_bytes(place.name, content, owner, mode=mode, parents=place.parents))

    async def upload_dir(self, src: str | Path, dst: str, *, user: str | None = None) -> None:
        """Copy a folder's contents; a link or a file at *dst* is replaced by a folder."""
        await in_thread(self._upload_dir, Path(src), self._path(dst), user)
        await self._into_tmpfs(self._path(dst))

    def _upload_dir(self, src: Path, dst: str, user: str | None) -> None:
        owner = self._owner(user)
        place = self._files.place(self._staged(dst))
        if place.state is not None and place.state.kind == "folder":
            folder = posixpath.join(place.folder, place.name)
            data = _packed(lambda: pack_tree(src, owner))
        else:
            folder = place.folder
            data = _packed(lambda: pack_tree(src, owner, prefix=place.name, parents=place.parents, root=True))
        self._files.put(folder, data)

    async def download(self, src: str, dst: str | Path) -> None:
        """Copy a regular file out."""
        path = await self._from_tmpfs(self._path(src))
        await in_thread(self._files.download, path, Path(dst), self._limits.max_bytes)

    async def download_dir(self, src: str, dst: str | Path) -> list[str]:
        """Copy a folder's contents out, within the request's artifact limits."""
        path = await self._from_tmpfs(self._path(src))
        return list(await in_thread(self._files.download_dir, path, Path(dst), self._limits))

    async def is_dir(self, path: str) -> bool:
        """Whether *path* is a folder; also told of a sandbox that stopped."""
        if not self._on_tmpfs(self._path(path)):
            state = await in_thread(self._files.state, self._path(path))
            if state is None or state.kind != "link":
                return state is not None and state.kind == "folder"
        return await super().is_dir(path)

    async def read_bytes(self, path: str, *, limit: int | None = None) -> bytes:
        """Return a regular file's content; a link is followed inside the sandbox."""
        content: bytes = await in_thread(self._files.read, await self._from_tmpfs(self._path(path)), limit)
        return content

    # The engine's archive calls do not see what is mounted inside the container: a path on a tmpfs
    # goes through a staging folder and one `cp` in the container.

    def _on_tmpfs(self, path: str) -> bool:
        return any(path == root or path.startswith(root + "/") for root in self._tmpfs)

    def _staged(self, path: str) -> str:
        return f"/.agentcompass-{self._token}{path}" if self._on_tmpfs(path) else path

    async def _into_tmpfs(self, path: str) -> None:
        if not self._on_tmpfs(path):
            return
        staging, parent = f"/.agentcompass-{self._token}", posixpath.dirname(path)
        source = shlex.quote(staging + path)
        target = shlex.quote(path)
        script = (
            f"set -e; mkdir -p {shlex.quote(parent)}; [ ! -L {target} ] || rm -f {target}; "
            f"if [ -d {source} ]; then mkdir -p {target}; cp -a {source}/. {target}; else cp -a {source} {target}; fi; "
            f"rm -rf {staging}"
        )
        result = await self._runner.script(script)
        if not result.ok:
            raise SandboxError(f"copying to {path} (a tmpfs) failed: {result.output[-_TEXT_TAIL:]}")

    async def _from_tmpfs(self, path: str) -> str:
        if not self._on_tmpfs(path):
            return path
        staged = f"/.agentcompass-{self._token}{path}"
        quoted, source = shlex.quote(staged), shlex.quote(path)
        script = (
            f"rm -rf {quoted}; [ -e {source} ] || exit 9; mkdir -p {shlex.quote(posixpath.dirname(staged))} && "
            f"cp -aL {source} {quoted}"
        )
        result = await self._runner.script(script)
        if result.returncode == 9:
            raise FileNotFoundError(f"{path} does not exist in the sandbox")
        return staged

    async def reset_dir(self, path: str, *, user: str | None = None) -> None:
        """Make *path* a fresh empty folder of *user*."""
        await self.reset_dirs([(path, user)])

    async def reset_dirs(self, folders: Sequence[tuple[str, str | None]]) -> None:
        """Make fresh empty folders with one command."""
        words: list[str] = []
        for path, user in folders:
            words += await in_thread(self._reset_words, self._path(path), user)
        result = await self._runner.script(RESET, *words)
        if not result.ok:
            names = ", ".join(words[::2])
            raise SandboxError(f"{names} in the sandbox cannot be made anew: {result.output[-_TEXT_TAIL:]}")

    def _reset_words(self, path: str, user: str | None) -> tuple[str, str]:
        if path == "/":
            raise PlanningError("the sandbox's root folder cannot be reset")
        self._files.place(path)
        owner = self._files.owner(user, readable=False)
        return path, f"{owner.uid}:{owner.gid}"

    # ------------------------------------------------------------ processes

    async def kill_leftovers(self, *, keep_services: bool = True) -> list[str]:
        """End what the agent left running; see `processes.leftovers` for whose a process is."""
        stayed: list[Any] = []
        for _ in range(5):
            processes = await self._runner.snapshot()
            kill, stayed = leftovers(processes, self._baseline(processes), keep_services=keep_services)
            if not kill:
                break
            await self._runner.kill([processes[pid].key for pid in sorted(kill)])
        return [f"{item.name} (pid {item.pid}, uid {item.uid}) stayed" for item in stayed]

    def _baseline(self, processes: dict[int, Any]) -> Baseline:
        if self._opened_ticks is not None:
            return Baseline(self._opened_ticks, self._token)
        opened = self._opened_at if self._opened_at is not None else time.monotonic()
        return Baseline(self._runner.ticks(processes, opened), self._token)

    # ------------------------------------------------------------ network

    async def set_network_policy(self, policy: NetworkPolicy) -> None:
        """Put the sandbox under *policy*; connections that are open die at the switch.

        The services of a compose project keep their networks: they can only change from one restricted policy
        to another.
        """
        if policy == self.network_policy:
            return
        if not self._network.can_switch(policy):
            await super().set_network_policy(policy)
        await finish(in_thread(self._network.switch, policy, self._runner.cause))
        self.network_policy = policy

    @property
    def network_variables(self) -> Mapping[str, str]:
        """Where the proxy is, for the policies that have one."""
        return self._network.variables

    async def machine_address(self) -> str | None:
        """Return the address of this machine on the engine's bridge, which a proxy of the sandbox can reach."""
        address: str | None = await in_thread(self._network.machine_address)
        return address

    async def observe(self) -> None:
        """Put into `info` which targets the sandbox asked its egress proxies for; what is gone tells nothing."""
        with contextlib.suppress(SandboxError):
            targets = await in_thread(self._network.targets)
            if targets:
                self.info["network_targets"] = targets

    # ------------------------------------------------------------ end

    async def close(self) -> None:
        """Remove the container (or the whole compose project) and the attempt's private folders."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(release(self._engine, self._opened))
        await finish(self._closing)


def _argv(command: Sequence[str] | str, shell: bool) -> list[str]:
    if shell != isinstance(command, str):
        raise TypeError("exec takes an argument vector, or with shell=True one string")
    return ["sh", "-c", command] if isinstance(command, str) else [str(part) for part in command]


def _packed(pack: Any) -> IO[bytes]:
    try:
        data: IO[bytes] = pack()
    except OSError as error:
        raise SandboxError(f"nothing was copied into the sandbox: {error}") from error
    return data
