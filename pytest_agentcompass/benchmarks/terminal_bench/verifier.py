"""Running a verifier script: fresh ground, files uploaded late, a clean environment, a limit that bites."""

from __future__ import annotations

import re
import secrets
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ...components.context import current_attempt
from ...contracts.outcome import ExecResult, FailureMode, RunResult
from ...errors import EnvironmentGone, EvaluationError, SandboxError
from .guard import Guard
from .verdicts import tail

if TYPE_CHECKING:
    from ...components.environment import EnvironmentSession

__all__ = ["OUTPUT_LIMIT", "Script", "report_options", "run_script"]

OUTPUT_LIMIT = 20_000_000
_SHOWN = 20_000
_TESTS = "/tests"
_OVERRIDES = re.compile(r"PYTEST_ADDOPTS|no:junitxml")
_UNRELIABLE = re.compile(
    r"env +-[iu-]|\b(sudo|su|runuser|gosu|setpriv|su-exec|docker|ssh|chroot|unshare|nsenter|tox|nox)\b|--junit-?xml"
)


@dataclass(slots=True)
class Script:
    """A verifier script in the sandbox and what it needs.

    *folders* are uploaded into `/tests` one after the other, then *files*; *user* None is the sandbox's own
    user; *fresh* are folders (path, owner) that are made anew; *report*: write a JUnit report beside it.
    """

    name: str
    folders: list[Path]
    files: list[Path]
    user: str | None
    timeout: float | None
    env: Mapping[str, str] = field(default_factory=dict)
    fresh: list[tuple[str, str | None]] = field(default_factory=list)
    report: str | None = None
    log: str = "verifier.txt"


def report_options(folders: list[Path], files: list[Path]) -> tuple[bool, bool]:
    """Return whether pytest can be asked for a report by PYTEST_ADDOPTS, and whether it then must be there."""
    texts = list(_texts(folders, files))
    wanted = not any(_OVERRIDES.search(text) for text in texts)
    return wanted, wanted and not any(_UNRELIABLE.search(text) for text in texts)


def _texts(folders: list[Path], files: list[Path]) -> Iterator[str]:
    """Yield the scripts and settings that decide how pytest is started."""
    found = [*files, *(path for folder in folders if folder.is_dir() for path in sorted(folder.rglob("*")))]
    for path in found:
        if (
            path.suffix in (".sh", ".bash", ".ini", ".cfg", ".toml")
            and path.is_file()
            and path.stat().st_size < 1_000_000
        ):
            yield path.read_text(encoding="utf-8", errors="replace")


def private_dir() -> str:
    """Return a folder name in the sandbox that an agent cannot know beforehand."""
    return f"/.agentcompass-{secrets.token_hex(8)}"


async def lay_ground(env: EnvironmentSession, script: Script, guard: Guard, private: str, result: RunResult) -> None:
    """Make the verifier's folders anew, upload its files, and set planted files aside.

    Raises EvaluationError (`verifier_not_started`) when the sandbox does not allow that.
    """
    try:
        await _lay(env, script, guard, private, result)
    except EnvironmentGone:
        raise
    except SandboxError as error:
        raise EvaluationError(f"the verifier could not be set up: {error.message}", "verifier_not_started") from error


async def _lay(env: EnvironmentSession, script: Script, guard: Guard, private: str, result: RunResult) -> None:
    await env.reset_dirs([(_TESTS, None), *script.fresh, (private, None)])
    for folder in script.folders:
        if folder.is_dir():
            await env.upload_dir(folder, _TESTS)
    for file in script.files:
        await env.upload(file, f"{_TESTS}/{file.name}")
    command = guard.script(private, opened=[_TESTS], shared=private if script.report else None)
    done = await env.exec(command, shell=True, user="root", timeout=60)
    for name in guard.planted(done.stdout):
        result.note("evaluate", "planted", f"{name} was not there before the agent and was set aside for the verifier")


async def run_script(env: EnvironmentSession, script: Script, result: RunResult) -> ExecResult | None:
    """Run the script; None when its limit was over (which is on *result*).

    Raises EvaluationError (`verifier_not_started`) when it could not be started.
    """
    environment = {"PYTHONNOUSERSITE": "1", **script.env}
    words = f"exec bash {shlex.quote(_TESTS + '/' + script.name)} 2>&1"
    if script.report:
        options = f"--junitxml={script.report} -o junit_family=xunit1"
        words = f'export PYTEST_ADDOPTS="{options} ${{PYTEST_ADDOPTS:-}}"; {words}'
    try:
        done = await env.exec(
            ["bash", "-c", words], env=environment, user=script.user, timeout=script.timeout, output_limit=OUTPUT_LIMIT
        )
    except EnvironmentGone:
        raise
    except SandboxError as error:
        raise EvaluationError(f"the verifier could not be started: {error.message}", "verifier_not_started") from error
    keep_output(done.output, script.log, result)
    return None if over_limit(done, script.timeout, result) else done


def keep_output(output: str, log: str, result: RunResult) -> None:
    """Store the verifier's output: all of it as a log, its end on the result."""
    current_attempt().write_log(log, output)
    result.verifier_output = output[-_SHOWN:]


def over_limit(done: ExecResult, limit: float | None, result: RunResult) -> bool:
    """Whether the verifier was stopped at its limit; then the result says so."""
    if done.timed_out:
        message = f"the tests were stopped at their limit of {limit or 0:g} s; {tail(done.output)}"
        result.fail(FailureMode.TEST_TIMEOUT, "evaluate", message)
    return done.timed_out
