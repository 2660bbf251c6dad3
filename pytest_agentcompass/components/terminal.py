"""A tmux session inside of a sandbox, driven over `EnvironmentSession.exec` alone.

Each attempt has a tmux server of its own (a private socket), so that neither a server of the task's nor
one that the agent starts can be mistaken for it.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ..errors import AgentCompassError, EnvironmentGone, SandboxError, SetupError
from ..redaction import clean_text
from .context import current_attempt
from .recorder import Recorder

if TYPE_CHECKING:
    from ..contracts.outcome import ExecResult
    from .environment import EnvironmentSession

__all__ = ["TerminalSession", "TerminalTimeout"]

_SHELL = "bash --login"
_QUICK = 30.0  # seconds that a tmux command itself may take
_CHUNK = 16_000  # characters per send-keys call: far below what one argument may hold


class TerminalTimeout(AgentCompassError):
    """A blocking command did not come to its end in time; it goes on in the terminal."""

    failure_mode = "agent_timeout"


class TerminalSession:
    """One tmux session with one pane. Make it with `open`; `closed` sessions take no more keys.

    *name* is the session's name; *log* holds what was typed (seconds since the opening, keys).
    """

    def __init__(self, env: EnvironmentSession, name: str, socket: str, user: str | None) -> None:
        self.env = env
        self.name = name
        self.socket = socket
        self.user = user
        self.log: list[tuple[float, str]] = []
        self.closed = False
        self._recorder: Recorder | None = None
        self._variables = dict(env.network_variables)
        self._started = time.monotonic()

    @classmethod
    async def open(
        cls,
        env: EnvironmentSession,
        name: str,
        *,
        user: str | None = None,
        width: int = 160,
        height: int = 40,
        history: int = 100_000,
        record: bool = False,
    ) -> TerminalSession:
        """Return the terminal *name* of the attempt, started when it is not there yet.

        *history* lines are kept (the limit is set before the pane exists). With *record* the session is
        recorded where the image has asciinema. Raises SetupError when the image has no tmux.
        """
        known = env.terminals.get(name)
        if known is not None and not known.closed:
            await known.renew()
            return known
        session = cls(env, name, f"agentcompass-{secrets.token_hex(6)}", user)
        await session._need_tmux()
        # bash in any case: the login shell of a service user may be none that takes keys.
        result = await session._tmux(
            "start-server", ";", "set-option", "-g", "history-limit", str(history), ";",
            "set-option", "-g", "status", "off", ";",
            "new-session", "-d", "-s", name, "-x", str(width), "-y", str(height), _SHELL,
        )  # fmt: skip
        if not result.ok:
            raise SetupError(f"the terminal {name!r} could not be started: {result.output.strip()[-500:]}")
        env.terminals[name] = session
        if record:
            recorder = Recorder(env, session.socket, name, user)
            session._recorder = recorder if await recorder.start(width, height) else None
        return session

    async def renew(self) -> None:
        """Start the shell again where nothing was typed yet and the sandbox's network was switched meanwhile.

        Variables lead programs to the network's proxy; a shell has those of its start.
        """
        variables = dict(self.env.network_variables)
        if variables == self._variables or self.log:
            return
        words: list[str] = []
        for name in sorted({*variables, *self._variables}):
            words += ["set-environment", "-g", *([name, variables[name]] if name in variables else ["-u", name]), ";"]
        result = await self._tmux(*words, "respawn-pane", "-k", "-t", self.name, _SHELL)
        if not result.ok:
            raise SetupError(f"the terminal {self.name!r} could not be started again: {result.output.strip()[-500:]}")
        self._variables = variables

    async def _need_tmux(self) -> None:
        script = "command -v tmux >/dev/null || echo no-tmux"
        try:
            result = await self.env.exec(script, shell=True, user=self.user, timeout=_QUICK)
        except EnvironmentGone:
            raise
        except SandboxError as error:
            raise SetupError(f"no terminal can be opened: {error.message}") from error
        if "no-tmux" in result.stdout:
            raise SetupError("the image has no tmux, which a terminal needs; install tmux in the task's image")

    async def _tmux(self, *words: str, timeout: float = _QUICK) -> ExecResult:
        command = ["tmux", "-u", "-L", self.socket, "-f", "/dev/null", *words]
        return await self.env.exec(command, user=self.user, timeout=timeout, output_limit=20_000_000)

    async def send_keys(
        self,
        keys: str | Sequence[str],
        *,
        enter: bool = False,
        block: bool = False,
        min_timeout: float = 0.0,
        max_timeout: float = 180.0,
    ) -> None:
        """Type *keys*: each is text or a tmux key name (`C-d`, `Escape`); *enter* types Enter after them.

        With *block* wait until the shell has run the line (at most *max_timeout* seconds, then raise
        TerminalTimeout); without, return after *min_timeout* seconds.
        """
        if self.closed:
            raise SandboxError(f"the terminal {self.name!r} is closed")
        words = [keys] if isinstance(keys, str) else list(keys)
        start = time.monotonic()
        self.log.append((round(start - self._started, 3), " ".join(words) + (" Enter" if enter else "")))
        if block:
            await self._send_blocking(words, max_timeout)
            return
        await self._type([*words, "Enter"] if enter else words)
        rest = min_timeout - (time.monotonic() - start)
        if rest > 0:
            await asyncio.sleep(rest)

    async def _type(self, words: Sequence[str]) -> None:
        for word in words:
            for piece in [word[at : at + _CHUNK] for at in range(0, len(word), _CHUNK)]:
                await self._send(piece, literal=len(word) > _CHUNK)

    async def _send(self, piece: str, *, literal: bool) -> None:
        # tmux takes a semicolon at the very end of an argument for the end of its own command.
        text = piece[:-1] + "\\;" if piece.endswith(";") else piece
        result = await self._tmux("send-keys", "-t", self.name, *(["-l"] if literal else []), "--", text)
        if not result.ok:
            raise SandboxError(f"the terminal {self.name!r} takes no keys any more: {result.output.strip()[-300:]}")

    async def _send_blocking(self, words: list[str], limit: float) -> None:
        channel = f"agentcompass-{secrets.token_hex(8)}"
        while words and words[-1] in ("Enter", "C-m", "\n", "\r", ""):
            words = words[:-1]
        text = (words[-1] if words else "").rstrip("\r\n")
        signal = f"tmux wait-for -S {channel}"
        if "\n" in text or "<<" in text or "#" in text:
            await self._type([*words[:-1], text, "Enter", signal, "Enter"])
        else:
            glue = " " if text.rstrip().endswith("&") else "; " if text.strip() else ""
            await self._type([*words[:-1], text + glue + signal, "Enter"])
        result = await self._tmux("wait-for", channel, timeout=limit)
        if result.timed_out:
            raise TerminalTimeout(f"the command was still running after {limit:g} s: {text[:200]!r}")
        if not result.ok:
            raise SandboxError(f"the terminal {self.name!r} ended: {result.output.strip()[-300:]}")

    async def capture(self, *, history: bool = True) -> str:
        """Return the pane's text with wrapped lines joined; the whole *history* or the screen alone."""
        since = ["-S", "-"] if history else []
        result = await self._tmux("capture-pane", "-p", "-J", *since, "-t", self.name)
        return result.stdout.rstrip() + "\n" if result.ok else ""

    async def pane_pid(self) -> int | None:
        """Return the process id of the pane's first process, None when the session has ended."""
        result = await self._tmux("display-message", "-p", "-t", self.name, "#{pane_pid}")
        text = result.stdout.strip()
        return int(text) if result.ok and text.isdecimal() else None

    async def save_pane(self, moment: str) -> None:
        """Write the pane's text to the attempt's `panes/<moment>.txt`."""
        folder = current_attempt().directory / "panes"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{moment}.txt").write_text(clean_text(await self.capture()), encoding="utf-8", newline="")

    async def close(self) -> None:
        """End the session and all that runs in it; keep its recording and the log of commands."""
        if self.closed:
            return
        self.closed = True
        self._save_commands()
        try:
            if self._recorder is not None:
                await self._recorder.stop()
        except (EnvironmentGone, FileNotFoundError):
            pass
        finally:
            with suppress(EnvironmentGone):
                await self._tmux("kill-server")

    def _save_commands(self) -> None:
        if not self.log:
            return
        directory = current_attempt().directory
        directory.mkdir(parents=True, exist_ok=True)
        with open(directory / "commands.txt", "a", encoding="utf-8", newline="") as stream:
            for seconds, keys in self.log:
                stream.write(clean_text(f"{seconds:10.3f} {self.name}: {keys!r}\n"))
