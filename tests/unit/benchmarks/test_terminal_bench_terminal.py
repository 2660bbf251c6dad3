"""Rules of terminal sessions, driven over a sandbox's exec alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from terminal_bench_fakes import FakeSandbox

from pytest_agentcompass.components.context import AttemptContext, set_current_attempt
from pytest_agentcompass.components.terminal import TerminalSession, TerminalTimeout
from pytest_agentcompass.contracts.outcome import ExecResult
from pytest_agentcompass.errors import SandboxError, SetupError


@pytest.fixture(autouse=True)
def _attempt(tmp_path: Path) -> None:
    set_current_attempt(AttemptContext("run", "main", "t", 1, tmp_path))


def answers(**known: ExecResult) -> Any:
    """Answer by a word of the command (underscores stand for dashes) or, for shell texts, by `shell`."""

    def answer(command: Sequence[str] | str, options: dict[str, Any]) -> ExecResult | None:
        if isinstance(command, str):
            return known.get("shell")
        return next((result for word, result in known.items() if word.replace("_", "-") in command), None)

    return answer


def test_history_limit_comes_before_the_pane() -> None:
    """The limit is set before the session is made, on a socket of its own."""
    env = FakeSandbox()
    asyncio.run(TerminalSession.open(env, "agent", history=123))
    words = list(env.commands[-1][0])
    assert words.index("history-limit") < words.index("new-session")
    assert words[words.index("history-limit") + 1] == "123"
    assert words[words.index("-L") + 1].startswith("agentcompass-")


def test_open_twice_is_one_session() -> None:
    """A terminal is opened once per name; a closed one is opened anew."""

    async def run() -> None:
        env = FakeSandbox()
        first = await TerminalSession.open(env, "agent")
        assert await TerminalSession.open(env, "agent") is first
        await first.close()
        assert await TerminalSession.open(env, "agent") is not first

    asyncio.run(run())


def test_no_tmux() -> None:
    """An image without tmux is a setup error that says what to do."""
    env = FakeSandbox(answers(shell=ExecResult(0, "no-tmux\n")))
    with pytest.raises(SetupError, match="install tmux"):
        asyncio.run(TerminalSession.open(env, "agent"))


def send(keys: Any, answer: Any = None, **options: Any) -> FakeSandbox:
    """Send keys to a new terminal and return its sandbox."""

    async def run() -> FakeSandbox:
        env = FakeSandbox(answer)
        await (await TerminalSession.open(env, "agent")).send_keys(keys, **options)
        return env

    return asyncio.run(run())


def typed(env: FakeSandbox) -> list[str]:
    """Return what was typed, argument by argument."""
    return [words[-1] for words in env.sent("send-keys")]


def test_keys_and_enter() -> None:
    """Text and key names go as they are; Enter follows when asked."""
    assert typed(send(["ls", "C-d"], enter=True)) == ["ls", "C-d", "Enter"]
    assert typed(send("ls")) == ["ls"]


def test_a_last_semicolon_is_typed() -> None:
    """A semicolon at the end of the keys is not taken by tmux for itself."""
    assert typed(send("SELECT 1;", enter=True)) == ["SELECT 1\\;", "Enter"]


@pytest.mark.parametrize(
    ("keys", "start"),
    [("make", "make; tmux wait-for -S "), ("sleep 9 &", "sleep 9 & tmux wait-for -S "), ("", "tmux wait-for -S ")],
)
def test_blocking_waits_for_a_signal_of_its_own(keys: str, start: str) -> None:
    """The shell signals a channel that nobody else knows, and exactly that one is waited for."""
    env = send(keys, enter=True, block=True)
    line, enter = typed(env)
    assert line.startswith(start)
    assert enter == "Enter"
    channel = line.rpartition(" ")[2]
    assert env.sent("wait-for")[-1] == [channel]
    other = typed(send(keys, block=True))[0].rpartition(" ")[2]
    assert channel != other


@pytest.mark.parametrize("keys", ["cat <<X\na\nX", "ls # all", "a\nb"])
def test_signal_on_a_line_of_its_own(keys: str) -> None:
    """Behind a comment, a here-document or several lines the signal stands on its own line."""
    assert typed(send(keys, block=True))[1:2] == ["Enter"]


def test_timeout_of_a_blocking_command() -> None:
    """A command that does not end in time raises, naming the command."""
    with pytest.raises(TerminalTimeout, match="sleep 99"):
        send("sleep 99", answers(wait_for=ExecResult(-1, timed_out=True)), block=True, max_timeout=1)


def test_a_dead_terminal() -> None:
    """Keys for a session that has ended are a sandbox error."""
    with pytest.raises(SandboxError, match="no keys"):
        send("ls", answers(send_keys=ExecResult(1, "no server running")))


def test_long_keys_are_sent_in_pieces() -> None:
    """A very long text is typed literally, in pieces that one argument can hold."""
    pieces = typed(send("x" * 40_000))
    assert "".join(pieces) == "x" * 40_000
    assert len(pieces) == 3


def closed(*, recorder: ExecResult, cast: bytes | None = None) -> FakeSandbox:
    """Open a terminal that is to be recorded, type into it and close it twice; return its sandbox."""

    async def run() -> FakeSandbox:
        env = FakeSandbox(lambda command, _: recorder if "asciinema" in command else None)
        terminal = await TerminalSession.open(env, "agent", record=True)
        await terminal.send_keys("ls", enter=True)
        if cast is not None:
            env.files[f"/tmp/.{terminal.socket}.cast"] = cast
        await terminal.close()
        await terminal.close()
        with pytest.raises(SandboxError, match="closed"):
            await terminal.send_keys("ls")
        return env

    return asyncio.run(run())


def test_close_keeps_commands_and_recording(tmp_path: Path) -> None:
    """Closing writes the log of commands and the whole lines of the recording, and may be repeated."""
    env = closed(recorder=ExecResult(0), cast=b'{"version": 2}\n[1, "o", "\xff"]\n[2, "o", "cu')
    assert "'ls Enter'" in (tmp_path / "commands.txt").read_text()
    assert (tmp_path / "recording.cast").read_text() == '{"version": 2}\n[1, "o", "\ufffd"]\n'
    assert len(env.sent("kill-server")) == 1


def test_the_recorder_is_outside_of_the_shell() -> None:
    """The pane's own process is the shell; asciinema runs on another socket, as a client that takes no keys."""
    env = closed(recorder=ExecResult(0))
    assert env.sent("new-session")[0][-1] == "bash --login"
    (script,) = [command for command, _ in env.commands if "asciinema rec" in command]
    assert "attach-session -r -t agent" in script
    assert "-recorder -f /dev/null start-server" in script


@pytest.mark.parametrize(
    ("recorder", "log"),
    [(ExecResult(0, "no-asciinema\n"), ""), (ExecResult(1, "needs a UTF-8 locale\n"), "needs a UTF-8 locale")],
    ids=["missing", "broken"],
)
def test_no_recorder(tmp_path: Path, recorder: ExecResult, log: str) -> None:
    """Without asciinema, or with one that does not work, the terminal works unrecorded; the latter's words are kept."""
    env = closed(recorder=recorder)
    assert len(env.sent("kill-server")) == 1
    assert not (tmp_path / "recording.cast").exists()
    logged = tmp_path / "logs" / "recorder.txt"
    assert log in (logged.read_text() if logged.exists() else "")
    assert logged.exists() is bool(log)


def test_a_recording_that_is_gone_keeps_nothing_back(tmp_path: Path) -> None:
    """Where the agent removed the recording the terminal is ended all the same."""
    env = closed(recorder=ExecResult(0))
    assert len(env.sent("kill-server")) == 1
    assert not (tmp_path / "recording.cast").exists()
