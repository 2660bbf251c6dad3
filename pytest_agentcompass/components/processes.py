"""Running commands on this machine: capped output, time limits, nothing left behind.

Made for one event loop in any thread: exits are seen through a pidfd and output through
non-blocking pipes, so a waiting command costs neither a thread nor a signal handler.
"""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import subprocess
import threading
import time
from collections.abc import Collection, Coroutine, Mapping, Sequence
from typing import IO, Any, TypeVar

from ..contracts.outcome import ExecResult
from ..errors import SandboxError
from .process_tree import MARK, ProcessTree

__all__ = ["ProcessRunner", "minimal_environment", "shielded"]

_GRACE_SECONDS = 0.2  # how long output may still come after the foreground process has ended
_CHUNK = 1 << 16
_READS_PER_EVENT = 16  # so that one loud command does not hold up the others on the loop
_T = TypeVar("_T")


def minimal_environment(home: str, tmp: str, *, base: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the few variables that every command gets: nothing else of the caller's environment is passed on."""
    import getpass

    source = os.environ if base is None else base
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a uid without a name
        user = str(os.getuid())
    return {
        "PATH": source.get("PATH") or os.defpath,
        "LANG": "C.UTF-8",
        "HOME": home,
        "TMPDIR": tmp,
        "USER": user,
        "LOGNAME": user,
        "TERM": "dumb",
    }


async def shielded(work: Coroutine[Any, Any, _T]) -> _T:
    """Await *work* to its end also when the caller is cancelled; the cancellation is raised afterwards."""
    task = asyncio.ensure_future(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        if not task.cancelled():
            task.exception()  # seen: the cancellation goes first
        raise asyncio.CancelledError
    return task.result()


class ProcessRunner:
    """Starts the commands of one attempt and knows everything that they started.

    *root* is a folder of the attempt alone (see `ProcessTree`). `close` must be called at the end.
    """

    def __init__(self, *, root: str | None = None, output_limit: int = 1_000_000) -> None:
        self.tree = ProcessTree(secrets.token_hex(8), root)
        self._output_limit = output_limit
        self._lingering: list[_Stream] = []

    @property
    def token(self) -> str:
        """What marks the attempt's processes: unique on the machine."""
        return self.tree.token

    async def run(
        self,
        command: Sequence[str] | str,
        *,
        shell: bool = False,
        cwd: str,
        env: Mapping[str, str],
        timeout: float | None = None,
        output_limit: int | None = None,
    ) -> ExecResult:
        """Run *command* to its end as `EnvironmentSession.exec` describes; *env* is the whole environment.

        Raises SandboxError when it cannot be started. On cancellation everything it started is killed first.
        """
        argv = _arguments(command, shell)
        mark = self.tree.new_mark()
        began = time.monotonic()
        child = _spawn(argv, cwd, {**env, MARK: mark})
        self.tree.started(child.pid, mark)
        loop = asyncio.get_running_loop()
        limit = output_limit or self._output_limit
        streams = [_Stream(loop, pipe, limit) for pipe in (child.stdout, child.stderr) if pipe is not None]
        exited = _exit_of(loop, child, self.tree)
        try:
            timed_out = not (await asyncio.wait((exited,), timeout=timeout))[0]
            if timed_out:
                await self._end(child, mark, exited)
            # Once the foreground is over, a background child that holds the pipes is not waited for.
            _, open_ends = await asyncio.wait([item.ended for item in streams], timeout=_GRACE_SECONDS)
        except asyncio.CancelledError:
            try:
                await shielded(self._end(child, mark, exited))
            finally:
                self._release(streams)
            raise
        return self._result(exited, streams, timed_out, bool(open_ends), time.monotonic() - began)

    async def kill(
        self, *, keep_services: bool = False, spare: Collection[int] = (), seconds: float = 2.0
    ) -> list[int]:
        """Kill all that is left of the attempt (see `ProcessTree.kill`); return what could not be killed."""
        return await self.tree.kill(keep_services=keep_services, spare=spare, seconds=seconds)

    async def close(self) -> list[int]:
        """Kill everything and let go of all pipes; return the pids that could not be killed."""
        try:
            return await self.tree.kill(seconds=5.0)
        finally:
            self._release(self._lingering)
            self._lingering = []

    async def _end(self, child: subprocess.Popen[bytes], mark: str, exited: asyncio.Future[int]) -> None:
        if not exited.done():
            try:
                os.killpg(child.pid, 9)
            except (ProcessLookupError, PermissionError):
                pass
        await self.tree.kill(mark)
        await asyncio.wait((exited,), timeout=2.0)

    def _result(
        self, exited: asyncio.Future[int], streams: list[_Stream], timed_out: bool, still_open: bool, seconds: float
    ) -> ExecResult:
        texts = [item.text() for item in streams]
        # Services of the agent may write on: their pipe is read, and forgotten, until the end.
        self._lingering += [item for item in streams if item.discard()]
        if timed_out:
            if exited.done():
                exited.exception()
            code = -1
        else:
            code = exited.result()
        return ExecResult(
            returncode=code,
            stdout=texts[0],
            stderr=texts[1],
            timed_out=timed_out,
            truncated=still_open or any(item.cut for item in streams),
            duration_seconds=seconds,
        )

    @staticmethod
    def _release(streams: Sequence[_Stream]) -> None:
        for item in streams:
            item.close()


class _Stream:
    """One pipe of a command: keeps the head and the tail of what comes, up to *limit* bytes."""

    def __init__(self, loop: asyncio.AbstractEventLoop, pipe: IO[bytes], limit: int) -> None:
        self._loop = loop
        self._pipe = pipe
        self._head = bytearray()
        self._tail = bytearray()
        self._head_limit = limit - limit // 2
        self._tail_limit = limit // 2
        self._dropped = 0
        self._keep = True
        self._open = True
        self.ended: asyncio.Future[None] = loop.create_future()
        self._fd = pipe.fileno()
        os.set_blocking(self._fd, False)
        loop.add_reader(self._fd, self._readable)

    @property
    def cut(self) -> bool:
        """Whether something was left out."""
        return self._dropped > 0

    def text(self) -> str:
        """Return what was kept; the cut is stated where it was made."""
        self._trim()
        head, tail = bytes(self._head), bytes(self._tail)
        if not self._dropped:
            return (head + tail).decode("utf-8", "replace")
        note = f"\n[... {self._dropped} bytes left out ...]\n"
        return head.decode("utf-8", "replace") + note + tail.decode("utf-8", "replace")

    def discard(self) -> bool:
        """Keep nothing from now on; return whether the pipe is still open."""
        self._keep = False
        self._head, self._tail = bytearray(), bytearray()
        return self._open

    def close(self) -> None:
        """Let go of the pipe."""
        if not self._open:
            return
        self._open = False
        if not self._loop.is_closed():
            self._loop.remove_reader(self._fd)
        self._pipe.close()
        if not self.ended.done() and not self._loop.is_closed():
            self.ended.set_result(None)

    def _readable(self) -> None:
        for _ in range(_READS_PER_EVENT):
            try:
                data = os.read(self._fd, _CHUNK)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self.close()
                return
            if self._keep:
                self._store(data)

    def _store(self, data: bytes) -> None:
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._tail_limit + _CHUNK:
            self._trim()

    def _trim(self) -> None:
        extra = len(self._tail) - self._tail_limit
        if extra > 0:
            del self._tail[:extra]
            self._dropped += extra


def _arguments(command: Sequence[str] | str, shell: bool) -> list[str]:
    if shell:
        if not isinstance(command, str):
            raise SandboxError(f"exec: with shell=True the command is one string, not {command!r}")
        return ["/bin/sh", "-c", command]
    if isinstance(command, str):
        raise SandboxError(f"exec: without shell=True the command is a list of arguments, not {command!r}")
    if not command or not command[0]:
        raise SandboxError("exec: the command is empty")
    return list(command)


def _spawn(argv: list[str], cwd: str, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start *argv* as the leader of a new session; without preexec_fn, which keeps the fast vfork path."""
    try:
        return subprocess.Popen(
            argv,
            bufsize=0,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=env,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise SandboxError(_why_not_started(argv, cwd, error), program=argv[0]) from error


def _why_not_started(argv: list[str], cwd: str, error: OSError | ValueError) -> str:
    if not os.path.isdir(cwd):
        return f"the working directory {cwd!r} does not exist; {argv[0]!r} was not started"
    if isinstance(error, FileNotFoundError):
        return f"{argv[0]!r} was not started: there is no such program (or the interpreter of its #! line is missing)"
    if isinstance(error, PermissionError):
        return f"{argv[0]!r} was not started: it is not executable"
    if isinstance(error, OSError) and error.errno == errno.ENOEXEC:
        return f"{argv[0]!r} was not started: it is no program and has no #! line"
    if isinstance(error, OSError) and error.errno == errno.E2BIG:
        return f"{argv[0]!r} was not started: arguments and environment are longer than the system takes"
    return f"{argv[0]!r} was not started: {error}"


def _exit_of(loop: asyncio.AbstractEventLoop, child: subprocess.Popen[bytes], tree: ProcessTree) -> asyncio.Future[int]:
    """Return the future exit status of *child*, which is reaped when it is known."""
    future: asyncio.Future[int] = loop.create_future()

    def settle() -> None:
        try:
            status = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG)
        except ChildProcessError:
            child.returncode = -1  # tells Popen that there is nothing left to wait for
            error = SandboxError("the exit status of a command was lost: something else in this process reaps children")
            tree.reaped(child.pid)
            if not future.done():
                future.set_exception(error)
            return
        if status is None:
            loop.call_later(0.01, settle)
            return
        signalled = status.si_code != os.CLD_EXITED
        code = 128 + status.si_status if signalled else status.si_status
        child.returncode = code
        tree.reaped(child.pid)
        if not future.done():
            future.set_result(code)

    _when_ended(loop, child.pid, settle)
    return future


def _when_ended(loop: asyncio.AbstractEventLoop, pid: int, settle: Any) -> None:
    """Call *settle* on the loop when *pid* has ended: by pidfd, or by a thread where there is none."""
    try:
        fd = os.pidfd_open(pid)
    except (AttributeError, OSError):
        threading.Thread(target=_wait_in_thread, args=(loop, pid, settle), daemon=True).start()
        return

    def ended() -> None:
        loop.remove_reader(fd)
        os.close(fd)
        settle()

    loop.add_reader(fd, ended)


def _wait_in_thread(loop: asyncio.AbstractEventLoop, pid: int, settle: Any) -> None:
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    except ChildProcessError:
        pass  # settle() finds out and says so
    try:
        loop.call_soon_threadsafe(settle)
    except RuntimeError:
        pass  # the loop is closed: nobody waits any more
