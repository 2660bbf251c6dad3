"""Sandboxes: the provider that opens them and the session that an attempt works in."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ..contracts.network import NetworkMode, NetworkPolicy
from ..errors import PlanningError

if TYPE_CHECKING:
    from pydantic import BaseModel

    from ..contracts.environment import EnvironmentSpec
    from ..contracts.outcome import ExecResult
    from ..contracts.plan import ExecutionPlan
    from ..contracts.request import RunRequest
    from .terminal import TerminalSession

__all__ = ["BaseEnvironment", "EnvironmentSession"]


class EnvironmentSession(abc.ABC):
    """One open sandbox.

    Paths in the sandbox are absolute, or relative to `default_workdir`. All methods raise
    `EnvironmentGone` when the sandbox has vanished and `SandboxError` when the provider cannot do
    what was asked; a command's own failure is an `ExecResult`, never an exception.

    `info` is what the record tells of the sandbox (image id, limits, notes): plain data, no secrets.
    `terminals` holds the tmux sessions of the attempt by name.
    """

    default_workdir: str | None = None
    default_user: str | None = None
    #: a folder for an adapter's own files (the instruction, say), outside of the working directory
    scratch_dir: str = "/tmp"
    #: the working directory's path on the runner's machine, where it has one
    local_workdir: str | None = None
    network_policy: NetworkPolicy = NetworkPolicy()

    def __init__(self) -> None:
        self.info: dict[str, Any] = {}
        self.terminals: dict[str, TerminalSession] = {}
        self.phase_env: dict[str, str] = {}

    @abc.abstractmethod
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
        """Run *command* to its end: an argument vector, or with `shell=True` one string for `sh -c`.

        Standard input is empty. *env* is added to the sandbox's own variables and `phase_env`.
        *timeout* is in seconds: when it is over, everything that the command started is killed and the
        result says `timed_out`. The return does not wait for background children that keep the output
        open. A command that the provider could not start (no such program, directory or user) raises
        `SandboxError`, except for a plain "not found" of a shell, which is status 126 or 127.
        """

    @abc.abstractmethod
    async def upload(self, src: str | Path, dst: str, *, user: str | None = None, mode: int | None = None) -> None:
        """Copy the local file *src* to the path *dst* (parents are made; links are not followed)."""

    @abc.abstractmethod
    async def download(self, src: str, dst: str | Path) -> None:
        """Copy the file *src* of the sandbox to the local path *dst*; FileNotFoundError when it is missing."""

    @abc.abstractmethod
    async def upload_dir(self, src: str | Path, dst: str, *, user: str | None = None) -> None:
        """Copy the contents of the local folder *src* into *dst*, dotfiles and modes included."""

    @abc.abstractmethod
    async def download_dir(self, src: str, dst: str | Path) -> list[str]:
        """Copy the contents of the folder *src* into the local folder *dst* and return notes on what was left out.

        Raises FileNotFoundError when *src* is no folder. Nothing is ever written outside *dst*.
        """

    @abc.abstractmethod
    async def read_bytes(self, path: str, *, limit: int | None = None) -> bytes:
        """Return the content of a regular file (at most *limit* bytes); FileNotFoundError when it is missing."""

    @abc.abstractmethod
    async def write_bytes(self, path: str, content: bytes, *, user: str | None = None, mode: int | None = None) -> None:
        """Write a file; parents are made, a link at *path* is replaced and not followed."""

    @abc.abstractmethod
    async def close(self) -> None:
        """Remove the sandbox and everything that was started in it; safe to call twice."""

    async def read_text(self, path: str) -> str:
        """Return the text of a file, decoded as UTF-8 with replacement."""
        return (await self.read_bytes(path)).decode("utf-8", "replace")

    async def write_text(self, path: str, content: str) -> None:
        """Write a UTF-8 text file."""
        await self.write_bytes(path, content.encode("utf-8", "surrogateescape"))

    async def is_dir(self, path: str) -> bool:
        """Whether *path* is a folder."""
        return (await self.exec(["test", "-d", path], timeout=30)).ok

    async def is_file(self, path: str) -> bool:
        """Whether *path* is a regular file."""
        return (await self.exec(["test", "-f", path], timeout=30)).ok

    async def endpoint(self) -> str | None:
        """Return the address under which the sandbox can be reached, where there is one."""
        return None

    @property
    def network_variables(self) -> Mapping[str, str]:
        """What commands of the sandbox are told of its network's proxy; changes with the policy."""
        return {}

    async def machine_address(self) -> str | None:
        """Return this machine's address as an egress proxy of the sandbox reaches it; None without a proxy."""
        return None

    async def set_network_policy(self, policy: NetworkPolicy) -> None:
        """Switch what the sandbox may reach; providers that cannot refuse any change."""
        if policy != self.network_policy:
            raise PlanningError(f"{type(self).__name__} cannot switch its network policy to {policy}")

    async def observe(self) -> None:
        """Put into `info` what the sandbox's surroundings saw of the agent; called when its work is over."""

    async def reset_dir(self, path: str, *, user: str | None = None) -> None:
        """Make *path* a fresh empty folder owned by *user* (default: root or the runner), whatever stood there.

        A link at *path* is removed, not followed; attributes that forbid removal are lifted.
        """
        raise PlanningError(f"{type(self).__name__} cannot reset folders")

    async def reset_dirs(self, folders: Sequence[tuple[str, str | None]]) -> None:
        """Do `reset_dir` for several pairs of path and user; providers may need one call for all."""
        for path, user in folders:
            await self.reset_dir(path, user=user)

    async def kill_leftovers(self, *, keep_services: bool = True) -> list[str]:
        """End what the agent left running and return one line per process that stayed.

        With *keep_services* a process that listens on a socket stays (and so do its parents and
        children); what the sandbox itself started always stays.
        """
        return []


class BaseEnvironment(abc.ABC):
    """A provider of sandboxes.

    Class attributes state what it can do; the planner and the preflight read them.
    """

    id: ClassVar[str] = ""
    params_model: ClassVar[type[BaseModel] | None] = None
    supported_network_modes: ClassVar[frozenset[NetworkMode]] = frozenset({NetworkMode.PUBLIC})
    supports_network_switch: ClassVar[bool] = False
    supported_resources: ClassVar[frozenset[str]] = frozenset()
    supports_images: ClassVar[bool] = False

    def check(self, environment: EnvironmentSpec) -> list[str]:
        """Return what this provider cannot do of *environment*, one sentence each."""
        problems = []
        for phase in ("baseline", "run", "evaluation"):
            policy = getattr(environment, f"{phase}_network_policy")
            if policy is not None and policy.mode not in self.supported_network_modes:
                modes = ", ".join(sorted(mode.value for mode in self.supported_network_modes))
                problems.append(
                    f"environment {self.id!r} cannot enforce the {phase} network policy {policy} (it can: {modes})"
                )
        if not self.supports_images and (environment.image or environment.build or environment.compose):
            problems.append(f"environment {self.id!r} has no images; the task asks for one")
        return problems

    def notes(self, environment: EnvironmentSpec) -> list[str]:
        """Return what is asked for but only a note when it is missing (limits that cannot be enforced)."""
        wanted = {name for name, value in environment.resources if value is not None}
        return [
            f"{name} is not enforced by environment {self.id!r}" for name in sorted(wanted - self.supported_resources)
        ]

    def sweep(self) -> list[str]:
        """Remove what dead owners left, on this machine, and return one line for each thing removed."""
        return []

    def remove_run(self, run_id: str, owner: int | None = None) -> None:
        """Remove every sandbox of a run (of the process *owner*) at once; sync, within five seconds."""

    async def preflight(self, req: RunRequest) -> str | None:
        """Return why no sandbox could be opened now (engine gone, extra missing), or None."""
        return None

    @abc.abstractmethod
    async def open(self, req: RunRequest, plan: ExecutionPlan) -> EnvironmentSession:
        """Open a sandbox under the plan's baseline policy; whatever was half made is removed on failure.

        Raises `SandboxError` or `SetupError` (image missing, engine gone, build failed).
        """
