"""Making the sandbox ready: the repository at its base commit, nothing of its future, the tests' Python."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import SandboxError, SetupError
from .git import git
from .history import scrub_history
from .patches import write_tree

if TYPE_CHECKING:
    from ...components.environment import EnvironmentSession
    from .params import SwebenchParams
    from .rows import Row

__all__ = ["Start", "activate_conda", "ensure_repository", "prepare_repository"]

_CONDA = "/opt/miniconda3"
_CLONE_SECONDS = 900.0


@dataclass(slots=True)
class Start:
    """What an agent starts from: *reference* is the commit or tree that its changes are counted from."""

    reference: str
    notes: list[tuple[str, str, str]]  # severity, code, message


async def prepare_repository(env: EnvironmentSession, row: Row, params: SwebenchParams, *, scrub: bool) -> Start:
    """Check the base commit, remove later history where *scrub* says so, and remember the tree as it is.

    Raises SetupError when the sandbox does not hold the repository at the base commit.
    """
    notes = await _check_base(env, row)
    if scrub:
        notes += await _without_future(env, params)
    base_tree = (await git(env, None, ["rev-parse", f"{row.base_commit}^{{tree}}"])).strip()
    try:
        tree = await write_tree(env, None)
    except SandboxError as error:
        raise SetupError(f"the repository cannot be read: {error.message}") from error
    if tree == base_tree:
        return Start(row.base_commit, notes)
    message = "the sandbox's files differ from the base commit; the patch is taken against what the agent was given"
    return Start(tree, [*notes, ("info", "start_differs", message)])


async def _check_base(env: EnvironmentSession, row: Row) -> list[tuple[str, str, str]]:
    where = env.info.get("image") or env.default_workdir
    try:
        head = (await git(env, None, ["rev-parse", "HEAD"])).strip()
        await git(env, None, ["cat-file", "-e", f"{row.base_commit}^{{commit}}"])
    except SandboxError as error:
        raise SetupError(
            f"{where} does not hold the repository of {row.instance_id} with its base commit {row.base_commit} "
            f"in {env.default_workdir}: {error.message}"
        ) from error
    try:
        ahead = int(await git(env, None, ["rev-list", "--count", f"{row.base_commit}..HEAD"]))
        await git(env, None, ["merge-base", "--is-ancestor", row.base_commit, "HEAD"])
    except SandboxError as error:
        raise SetupError(
            f"{where} is at commit {head}, which does not come after the base commit "
            f"{row.base_commit} of {row.instance_id}"
        ) from error
    if ahead > 1:  # the official images have one commit of their own on top
        text = f"{where} is {ahead} commits past the base commit; the fix may be among them"
        return [("warning", "later_history", text)]
    return []


async def _without_future(env: EnvironmentSession, params: SwebenchParams) -> list[tuple[str, str, str]]:
    where = env.info.get("image") or env.default_workdir
    if params.history == "keep":
        text = f"what {where} knows beyond the base commit was left in (benchmark.history=keep)"
        return [("warning", "later_history", text)]
    history = await scrub_history(env, None)
    if history.left:
        text = (
            f"{history.left} of {history.found} later commits and tags in {where} could not be removed: "
            "the agent may read the fix"
        )
        return [("warning", "later_history", text)]
    if history.found:
        text = f"{history.found} commits and tags beyond the base commit were removed from {where} for the agent"
        return [("info", "history_removed", text)]
    return []


async def activate_conda(env: EnvironmentSession) -> bool:
    """Put the conda environment `testbed` first on the agent's PATH, where the image has one."""
    folder = f"{_CONDA}/envs/testbed"
    done = await env.exec(f'[ -d {folder}/bin ] && printf %s "$PATH"', shell=True, timeout=60)
    if not done.ok or "PATH" in env.phase_env:
        return False
    env.phase_env.update(
        PATH=f"{folder}/bin:{_CONDA}/bin:{done.stdout}", CONDA_PREFIX=folder, CONDA_DEFAULT_ENV="testbed"
    )
    return True


async def ensure_repository(env: EnvironmentSession, row: Row, params: SwebenchParams) -> None:
    """Clone the repository into a sandbox that has no image (one with `local_workdir`), at the base commit."""
    if env.local_workdir is None or params.repositories_dir is None:
        return
    source = Path(params.repositories_dir).expanduser().absolute() / row.repo.replace("/", "__")
    if not source.exists():
        raise SetupError(f"benchmark.repositories_dir: there is no clone of {row.repo} at {source}")
    quoted = shlex.quote(str(source))
    script = (
        f"git clone -q --no-hardlinks --no-checkout {quoted} . && git checkout -q --detach {row.base_commit} && "
        "git config user.email agent@example.invalid && git config user.name agent"
    )
    done = await env.exec(script, shell=True, timeout=_CLONE_SECONDS)
    if not done.ok:
        raise SetupError(f"{source} cannot be cloned at {row.base_commit}: {done.output[-2000:].strip()}")
