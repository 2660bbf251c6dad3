"""What the agent is told."""

from __future__ import annotations

import re

from .rows import Row

__all__ = ["DEFAULT_TEMPLATE", "render"]

DEFAULT_TEMPLATE = """\
The folder {workdir} holds a checkout of the repository {repo}. Somebody reported this problem with it:

<problem>
{problem_statement}
</problem>

Change the code in {workdir} so that the problem is solved. Hidden tests decide: they cover the problem and \
what works today. Leave your changes in the working tree, uncommitted or committed; you need not change or \
write tests.{hints}
"""
_FIELD = re.compile(r"\{(problem_statement|repo|base_commit|version|workdir|hints)\}")


def render(template: str | None, row: Row, workdir: str, *, hints: bool = False) -> str:
    """Return the prompt: known fields are filled in, any other brace stays as it is."""
    told = row.hints_text.strip() if hints else ""
    fields = {
        "problem_statement": row.problem_statement.strip(),
        "repo": row.repo,
        "base_commit": row.base_commit,
        "version": row.version,
        "workdir": workdir,
        "hints": f"\n\nFrom the discussion of the problem:\n\n{told}" if told and template is None else told,
    }
    return _FIELD.sub(lambda match: fields[match[1]], template or DEFAULT_TEMPLATE)
