"""Removing what a repository knows beyond the commit that an agent starts from.

Branches, tags, remote and pull refs, notes, the stash, reflogs and objects that nothing names: the fix may be
read from any of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import SetupError
from .git import GIT_SETTINGS

if TYPE_CHECKING:
    from ...components.environment import EnvironmentSession

__all__ = ["History", "later_commits", "scrub_history"]

_LOOK_SECONDS = 120.0
_SCRUB_SECONDS = 900.0

# Prints one line per commit or tag object that HEAD does not lead to, and per ref and log beside it.
_LOOK = r"""
cd "$(git rev-parse --git-dir)" || exit 3
export GIT_OPTIONAL_LOCKS=0
git rev-list HEAD 2>/dev/null | LC_ALL=C sort >"$1/agentcompass-kept"
git cat-file --batch-all-objects --batch-check='%(objecttype) %(objectname)' --unordered |
  sed -n 's/^commit //p; s/^tag //p' | LC_ALL=C sort >"$1/agentcompass-all"
LC_ALL=C comm -13 "$1/agentcompass-kept" "$1/agentcompass-all"
rm -f "$1/agentcompass-kept" "$1/agentcompass-all"
"""

# The branch that HEAD is on stays; everything else that could lead further goes, then whatever nothing names.
_SCRUB = r"""
set -u
own=$(git symbolic-ref -q HEAD || true)
git for-each-ref --format='%(refname)' | while IFS= read -r ref; do
  [ "$ref" = "$own" ] || git update-ref --no-deref -d "$ref" || exit 4
done || exit 4
for remote in $(git remote); do git remote remove "$remote"; done
dir=$(cd "$(git rev-parse --git-common-dir)" && pwd) || exit 3
rm -rf "$dir/logs" "$dir/lost-found"
rm -f "$dir/FETCH_HEAD" "$dir/ORIG_HEAD" "$dir/MERGE_HEAD" "$dir/CHERRY_PICK_HEAD" "$dir/REVERT_HEAD" \
  "$dir/REBASE_HEAD" "$dir/AUTO_MERGE" "$dir/objects/info/commit-graph"
rm -rf "$dir/rebase-merge" "$dir/rebase-apply" "$dir/sequencer" "$dir/objects/info/commit-graphs"
[ "$dir" != "$(cd "$(git rev-parse --git-dir)" && pwd)" ] || rm -rf "$dir/worktrees"
git reflog expire --expire=now --all
# Packs of a partial clone, or kept ones, are never cleaned by a repack.
rm -f "$dir"/objects/pack/*.promisor "$dir"/objects/pack/*.keep "$dir"/objects/pack/*.bitmap
git config --unset extensions.partialClone
git repack -a -d -q && rm -f "$dir/objects/info/alternates" && git prune --expire=now && git pack-refs --all
"""


@dataclass(frozen=True, slots=True)
class History:
    """How many commits and tags beyond HEAD were found, and how many are still there."""

    found: int
    left: int


async def later_commits(env: EnvironmentSession, workdir: str | None) -> list[str]:
    """Return the commits and tags in the repository's store that HEAD does not lead to."""
    done = await env.exec(
        ["sh", "-c", _LOOK, "sh", env.scratch_dir], cwd=workdir, env=GIT_SETTINGS, timeout=_LOOK_SECONDS
    )
    if not done.ok:
        raise SetupError(f"the repository's history cannot be looked at: {done.output[-2000:].strip()}")
    return done.stdout.split()


async def scrub_history(env: EnvironmentSession, workdir: str | None) -> History:
    """Remove what lies beyond HEAD and say what was found; the working tree and HEAD stay as they are.

    A repository that holds nothing more is only looked at. What cannot be removed is counted in `left`.
    """
    found = await later_commits(env, workdir)
    names = await _other_refs(env, workdir)
    if not found and not names:
        return History(0, 0)
    await env.exec(["sh", "-c", _SCRUB], cwd=workdir, env=GIT_SETTINGS, timeout=_SCRUB_SECONDS)
    left = await later_commits(env, workdir) if found else []
    return History(len(found), len(left))


async def _other_refs(env: EnvironmentSession, workdir: str | None) -> bool:
    """Whether refs, remotes or reflogs exist beside the branch that HEAD is on."""
    script = (
        "own=$(git symbolic-ref -q HEAD || true); git for-each-ref --format='%(refname)' | grep -vxF \"${own:-x}\"; "
        'git remote; find "$(git rev-parse --git-dir)/logs" -type f 2>/dev/null | head -1'
    )
    done = await env.exec(script, shell=True, cwd=workdir, env=GIT_SETTINGS, timeout=_LOOK_SECONDS)
    return bool(done.stdout.strip())
