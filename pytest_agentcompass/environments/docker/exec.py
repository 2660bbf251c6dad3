"""Running one command in a container: start, output, time limit, end."""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from docker.errors import APIError, NotFound

from ...components.calls import in_thread
from ...contracts.outcome import ExecResult
from ...errors import EnvironmentGone, SandboxError
from .engine import Engine, engine_errors
from .processes import MARKER, parse, tree
from .scripts import KILL, SNAPSHOT
from .stream import ExecStream, open_stream

__all__ = ["Command", "Runner", "finish", "new_marker"]

T = TypeVar("T")

# A background child may hold the output open after the command's end. The engine (20.10) itself tells
# the end up to 2 s late then; so where the process can be seen on this machine it is looked at every
# _TICK seconds and the engine asked only when it is gone (and every _MAX_POLL seconds), else the engine
# is asked every _POLL seconds. _DRAIN is how long the rest of the output is waited for.
_TICK, _POLL, _MAX_POLL, _DRAIN = 0.25, 0.4, 5.0, 0.2
# What the runtime says of a start in a container whose main process has just ended, and how often (every 0.1 s)
# the engine is asked before it knows of that end.
_ENDED = re.compile(r"(deleted|stopped) state|has stopped|not running|ttrpc: closed")
_NOTICING = 20
_KILL_ROUNDS = 8
_SCRIPT_SECONDS = 20.0
_SCRIPT_OUTPUT = 8_000_000
_MARKER_LENGTH = 24
_STATUS = "#status="
_STATUS_END = re.compile(rb"#status=\d+\.$")


@dataclass(frozen=True, slots=True)
class Command:
    """What to run: nothing of *env* ever stands in a process's arguments. *limit* is bytes per stream."""

    argv: Sequence[str]
    cwd: str
    user: str
    env: dict[str, str] = field(default_factory=dict)
    timeout: float | None = None
    limit: int = 1_000_000
    marker: str = ""


def new_marker(prefix: str = "") -> str:
    """Return a marker for one exec; all have one length."""
    return (prefix + secrets.token_hex(_MARKER_LENGTH))[:_MARKER_LENGTH]


async def finish(awaitable: Awaitable[T]) -> T:
    """Await something that must not be left half done; a cancellation meanwhile is raised afterwards."""
    task = asyncio.ensure_future(awaitable)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.cancelled():
                raise
            cancelled = error
        except BaseException:  # the task's own failure: raised by result() below
            break
    if cancelled is not None:
        if not task.cancelled():
            task.exception()
        raise cancelled
    return task.result()


class Runner:
    """Runs commands in one container."""

    def __init__(self, engine: Engine, container: str) -> None:
        self.engine = engine
        self.container = container
        self.started = time.monotonic()

    async def run(self, command: Command) -> ExecResult:
        """Run *command* to its end or its time limit; see `EnvironmentSession.exec` for the rules."""
        begun = time.monotonic()
        exec_id, stream = await self._start(command, begun)
        reading = asyncio.ensure_future(stream.read())
        try:
            state, cut = await asyncio.wait_for(self._wait(exec_id, reading), command.timeout)
            return await self._ended(command, stream, state, cut, begun)
        except EnvironmentGone as error:
            raise EnvironmentGone(error.message, partial=self._result(stream, -1, begun, cut=True)) from error
        except TimeoutError:
            await finish(self._stop(command.marker, begun))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(reading, _DRAIN)
            return self._result(stream, -1, begun, timed_out=True)
        except asyncio.CancelledError:
            await finish(self._stop(command.marker, begun))
            raise
        finally:
            reading.cancel()
            stream.close()

    async def _start(self, command: Command, begun: float) -> tuple[str, ExecStream]:
        starting = asyncio.ensure_future(self._create_and_open(command))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            # The engine may have begun already: wait until it has, then end what was started.
            await finish(self._abandon(starting, command, begun))
            raise

    async def _abandon(self, starting: asyncio.Future[tuple[str, ExecStream]], command: Command, begun: float) -> None:
        with contextlib.suppress(SandboxError):
            _, stream = await starting
            stream.close()
            await self._stop(command.marker, begun)

    async def _create_and_open(self, command: Command) -> tuple[str, ExecStream]:
        exec_id: str = await in_thread(self._create, command)
        try:
            return exec_id, await open_stream(self.engine, exec_id, command.limit)
        except SandboxError as error:
            if getattr(error, "status", None) in (404, 409):
                raise await self.gone() from error
            if _ENDED.search(error.message):  # its end is known to the engine a moment later
                for _ in range(_NOTICING):
                    cause = await in_thread(self.cause)
                    if cause:
                        raise EnvironmentGone(cause) from error
                    await asyncio.sleep(0.1)
            raise SandboxError(self._refused(command, error.message)) from error

    def _create(self, command: Command) -> str:
        with engine_errors(self._refused(command, ""), self.cause):
            made: dict[str, str] = self.engine.client.exec_create(
                self.container,
                list(command.argv),
                stdin=False,
                user=command.user,
                workdir=command.cwd,
                environment={**command.env, MARKER: command.marker},
            )
        return made["Id"]

    def _refused(self, command: Command, reason: str) -> str:
        who = f"user {command.user!r}" if command.user else "the image's user"
        program = command.argv[0] if command.argv else ""
        tail = f": {reason}" if reason else ""
        return f"the program {program!r} could not be started in folder {command.cwd!r} as {who}{tail}"

    async def _wait(self, exec_id: str, reading: asyncio.Future[None]) -> tuple[dict[str, Any], bool]:
        """Return the exec's end state, and whether something still held the output open then."""
        settle = 0.01
        seen: Path | None = None
        while True:
            done = await self._until_end(reading, seen)
            state: dict[str, Any] = await in_thread(self._inspect, exec_id)
            if not state["Running"]:
                cut = not done and not (await asyncio.wait({reading}, timeout=_DRAIN))[0]
                return state, cut
            if done:
                # Only the process's end is missing: a moment, or it has closed its output and goes on.
                settle = min(settle * 2, 0.5)
                await asyncio.sleep(settle)
            seen = self._host_process(state)

    def _host_process(self, state: dict[str, Any]) -> Path | None:
        """Return where this machine shows the command's process; None when it does not."""
        path = Path(f"/proc/{state.get('Pid') or 0}")
        return path if self.engine.local and path.exists() else None

    async def _until_end(self, reading: asyncio.Future[None], seen: Path | None) -> bool:
        """Wait until the engine should be asked again; return whether the output has ended."""
        deadline = time.monotonic() + (_MAX_POLL if seen is not None else _POLL)
        while not reading.done() and time.monotonic() < deadline and (seen is None or seen.exists()):
            await asyncio.wait({reading}, timeout=_TICK)
        return reading.done()

    def _inspect(self, exec_id: str) -> dict[str, Any]:
        with engine_errors("asking for a command's state", self.cause):
            try:
                state: dict[str, Any] = self.engine.client.exec_inspect(exec_id)
            except NotFound as error:
                raise EnvironmentGone(self.cause()) from error
        return state

    async def _ended(
        self, command: Command, stream: ExecStream, state: dict[str, Any], cut: bool, begun: float
    ) -> ExecResult:
        code = state["ExitCode"]
        if not state.get("Pid") and code in (126, 127):
            # The engine could not start it and says why in place of output.
            raise SandboxError(self._refused(command, stream.stdout.text().strip()[:1000]))
        if code is None or code == 137:
            await self._check_alive()
        if code is None:
            raise SandboxError(f"the engine tells no exit status of {command.argv[0]!r}")
        return self._result(stream, int(code), begun, cut=cut)

    def _result(
        self, stream: ExecStream, code: int, begun: float, *, timed_out: bool = False, cut: bool = False
    ) -> ExecResult:
        return ExecResult(
            returncode=code,
            stdout=stream.stdout.text(),
            stderr=stream.stderr.text(),
            timed_out=timed_out,
            truncated=cut or stream.stdout.truncated or stream.stderr.truncated,
            duration_seconds=time.monotonic() - begun,
        )

    # ------------------------------------------------------------ loss

    async def _check_alive(self, *, try_out: bool = True) -> None:
        """Raise EnvironmentGone when the container does not run.

        When it stops, its commands are killed a moment before the engine knows that it has: *try_out*
        looks whether something can be started in it.
        """
        cause = await in_thread(self.cause)
        if not cause and try_out:
            try:
                await self.script("true")
            except EnvironmentGone:
                raise
            except SandboxError:
                await asyncio.sleep(1.0)
                cause = await in_thread(self.cause)
        if cause:
            raise EnvironmentGone(cause)

    async def gone(self) -> EnvironmentGone:
        """Return the error that says why the container is no more."""
        return EnvironmentGone(await in_thread(self.cause) or "the container did not run for a moment")

    def cause(self) -> str:
        """Return why the container does not run; empty when it does."""
        name = self.container[:12]
        try:
            state = self.engine.client.inspect_container(self.container)["State"]
        except APIError as error:
            if error.response is not None and error.response.status_code == 404:
                return f"container {name} was removed from outside while the attempt ran"
            return f"container {name} is lost: {error.explanation or error}"
        if state.get("Paused"):
            return f"container {name} was paused from outside"
        if state.get("Running") and not state.get("Restarting"):
            return ""
        memory = " (killed for memory)" if state.get("OOMKilled") else ""
        return (
            f"container {name} stopped: its main process ended with status {state.get('ExitCode')}{memory} "
            f"{state.get('Error') or ''}{self._log_tail()}".rstrip()
        )

    def _log_tail(self) -> str:
        with contextlib.suppress(APIError):
            text = self.engine.client.logs(self.container, tail=10).decode("utf-8", "replace").strip()
            return f"; its last output: {text[-500:]}" if text else ""
        return ""

    # ------------------------------------------------------------ scripts and killing

    async def script(self, script: str, *arguments: str, user: str = "0:0") -> ExecResult:
        """Run one of our own shell scripts; they take less than seconds.

        The script tells its status behind its output: the engine may be seconds late with it while an
        earlier command's background child holds that one's output. SandboxError when it cannot run.
        """
        told = f"(\n{script}\n)\nprintf '{_STATUS}%s.' $?"
        argv = ["sh", "-c", told, "sh", *arguments]
        command = Command(argv, cwd="/", user=user, limit=_SCRIPT_OUTPUT, marker=new_marker())
        begun = time.monotonic()
        exec_id, stream = await self._create_and_open(command)
        try:
            await asyncio.wait_for(stream.read(_STATUS_END), _SCRIPT_SECONDS)
        except TimeoutError as error:
            raise SandboxError(f"a script in container {self.container[:12]} does not end") from error
        finally:
            stream.close()
        output, found, status = stream.stdout.text().rpartition(_STATUS)
        if found and status[:-1].isdigit():
            return ExecResult(int(status[:-1]), output, stream.stderr.text(), duration_seconds=time.monotonic() - begun)
        state: dict[str, Any] = await in_thread(self._inspect, exec_id)
        await self._ended(command, stream, state, False, begun)
        await self._check_alive(try_out=False)
        raise SandboxError(f"a script in container {self.container[:12]} was stopped: {stream.stderr.text()[-500:]}")

    async def snapshot(self) -> dict[int, Any]:
        """Return the container's processes, seen with the eyes of root and of every other user there."""
        processes = parse((await self.script(SNAPSHOT)).stdout)
        hidden = {(item.uid, item.gid) for item in processes.values() if not item.readable and item.uid != "0"}
        for uid, gid in sorted(hidden)[:8]:
            seen = parse((await self.script(SNAPSHOT, user=f"{uid}:{gid}")).stdout)
            for pid, item in seen.items():
                if item.readable and pid in processes and not processes[pid].readable:
                    processes[pid] = item
        return processes

    async def kill(self, keys: Sequence[str]) -> None:
        """Kill processes named `pid:start`."""
        await self.script(KILL, *keys)

    async def _stop(self, marker: str, begun: float) -> None:
        """End every process that the exec with *marker* started; restart the container if nothing else helps."""
        try:
            for _ in range(_KILL_ROUNDS):
                processes = await self.snapshot()
                since = self.ticks(processes, begun)
                found = tree(processes, marker, since)
                if not found:
                    return
                await self.kill([processes[pid].key for pid in sorted(found)])
        except EnvironmentGone:
            return
        except SandboxError:
            pass  # no process can be started in it any more (a process limit used up): the hard way
        await in_thread(self._restart)

    def ticks(self, processes: dict[int, Any], moment: float) -> int:
        """Return *moment* (monotonic seconds of this machine) in the container's clock ticks, a little early."""
        first = processes[1].start if 1 in processes else 0
        return int(first + (moment - self.started) * 100)

    def _restart(self) -> None:
        with engine_errors("restarting the container to end its processes", self.cause):
            self.engine.client.restart(self.container, timeout=0)
        self.started = time.monotonic()
