"""`run_tests_in_same_shell`: the test script is typed into the agent's own shell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...components.terminal import TerminalSession, TerminalTimeout
from ...contracts.outcome import ExecResult, FailureMode, RunResult
from ...errors import EnvironmentGone, EvaluationError, SandboxError
from .verifier import OUTPUT_LIMIT, Script, keep_output, over_limit

if TYPE_CHECKING:
    from ...components.environment import EnvironmentSession

__all__ = ["end_pane_children", "run_in_same_shell"]

_PROMPT_TRIES = 3
_PROMPT_SECONDS = 10.0  # for a shell to run an empty line

# Ends all descendants of a process, children first found by their parent's id (no procps needed). The shell has no
# local variables: a subshell keeps `d` what it is while the children of a child are ended.
_DESCENDANTS = """
down() {
  for d in /proc/[0-9]*; do
    if grep -qx "PPid:	$1" "$d/status" 2>/dev/null; then (down "${d#/proc/}"); kill -9 "${d#/proc/}" 2>/dev/null; fi
  done
}
down %d
true
"""

# Ends what left the shell's family (`setsid`, a parent that ended): it still has the terminal's own variable.
_STRAYS = """
for d in /proc/[0-9]*; do
  [ "$d" = /proc/%d ] || ! grep -qs 'TMUX=[^,]*/%s,' "$d/environ" || kill -9 "${d#/proc/}" 2>/dev/null
done
true
"""


async def end_pane_children(env: EnvironmentSession, terminal: TerminalSession) -> None:
    """End whatever was started in the agent's shell, but not the shell."""
    pid = await terminal.pane_pid()
    if pid is not None:
        await env.exec(_DESCENDANTS % pid, shell=True, user="root", timeout=30)
        # By the shell's own user: root in a container may not read the variables of others.
        await env.exec(_STRAYS % (pid, terminal.socket), shell=True, user=terminal.user, timeout=30)


async def run_in_same_shell(
    env: EnvironmentSession, script: Script, private: str, result: RunResult
) -> ExecResult | None:
    """Type the script into the terminal `agent`; None when its limit was over (which is on *result*).

    Its output and status go to files, so that neither the pane's width nor its history matters. Raises
    EvaluationError (`verifier_not_started`) when the agent's shell did not run it.
    """
    terminal = await TerminalSession.open(env, "agent")
    if result.failure_mode is FailureMode.AGENT_TIMEOUT:
        await end_pane_children(env, terminal)
    await env.write_bytes(f"{private}/run.sh", _wrapper(script, private).encode(), mode=0o755)
    timed_out = False
    try:
        await _reach_prompt(terminal)
        await terminal.send_keys(f"bash {private}/run.sh", block=True, max_timeout=script.timeout or 86_400.0)
    except TerminalTimeout:
        timed_out = True
        await end_pane_children(env, terminal)
    except EnvironmentGone:
        raise
    except SandboxError as error:
        raise EvaluationError(f"the agent's shell takes no tests: {error.message}", "verifier_not_started") from error
    done = await _collect(env, private, timed_out)
    keep_output(done.output, script.log, result)
    return None if over_limit(done, script.timeout, result) else done


async def _reach_prompt(terminal: TerminalSession) -> None:
    """Interrupt what the agent left in the foreground, and wait until its shell takes lines.

    On a busy machine the interrupt may reach the shell only after the next keys: half of a line is then lost.
    A shell that never answers (a full-screen program, say) gets the tests typed all the same.
    """
    for _ in range(_PROMPT_TRIES):
        await terminal.send_keys("C-c", min_timeout=0.3)
        try:
            await terminal.send_keys("", block=True, max_timeout=_PROMPT_SECONDS)
            return
        except TerminalTimeout:
            continue


def _wrapper(script: Script, private: str) -> str:
    lines = [f"export {name}='{value}'" for name, value in {"PYTHONNOUSERSITE": "1", **script.env}.items()]
    if script.report:
        lines.append(f'export PYTEST_ADDOPTS="--junitxml={script.report} -o junit_family=xunit1 ${{PYTEST_ADDOPTS:-}}"')
    lines += [f"bash /tests/{script.name} > {private}/output 2>&1", f"echo $? > {private}/status"]
    return "\n".join(lines) + "\n"


async def _collect(env: EnvironmentSession, private: str, timed_out: bool) -> ExecResult:
    try:
        output = (await env.read_bytes(f"{private}/output", limit=OUTPUT_LIMIT)).decode("utf-8", "replace")
        if timed_out:
            return ExecResult(-1, output, timed_out=True)
        status = (await env.read_bytes(f"{private}/status", limit=100)).decode("ascii", "replace").strip()
        return ExecResult(int(status), output)
    except (FileNotFoundError, ValueError):
        raise EvaluationError("the agent's shell did not run the test script", "verifier_not_started") from None
