"""Host variables in task files: `${VAR}` and `${VAR:-default}` of TB2, and compose's fuller forms."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ...errors import TaskLoadError

__all__ = ["expand", "expand_all", "interpolate", "names_in"]

_TEMPLATE = re.compile(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}")
_COMPOSE = re.compile(
    r"\$(?:(?P<escaped>\$)|(?P<plain>[A-Za-z_][A-Za-z0-9_]*)"
    r"|\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?:(?P<mode>:?[-?+])(?P<word>[^}]*))?\})"
)


def names_in(text: str) -> list[str]:
    """Return the names of the host variables that *text* asks for."""
    return [match["name"] for match in _TEMPLATE.finditer(text)]


def expand(text: str, environ: Mapping[str, str], key: str) -> str:
    """Return *text* with host variables put in.

    Raises TaskLoadError naming *key* and the variable for one that is unset and has no default.
    """

    def value(match: re.Match[str]) -> str:
        found = environ.get(match["name"])
        if match["default"] is not None:
            return found or match["default"]
        if found is None:
            raise TaskLoadError(
                f"{key}: the host variable {match['name']} is not set; set it, or write ${{{match['name']}:-default}}"
            )
        return found

    return _TEMPLATE.sub(value, text)


def expand_all(table: Mapping[str, str], environ: Mapping[str, str], key: str) -> dict[str, str]:
    """Expand every value of an environment table."""
    return {name: expand(text, environ, f"{key}.{name}") for name, text in table.items()}


def interpolate(text: str, variables: Mapping[str, str], missing: set[str]) -> str:
    """Return *text* by compose's rules; a variable without a value is empty and added to *missing*.

    Rules: https://docs.docker.com/reference/compose-file/interpolation/ (no nesting).
    """

    def value(match: re.Match[str]) -> str:
        if match["escaped"]:
            return "$"
        name, mode, word = match["name"] or match["plain"], match["mode"] or "", match["word"] or ""
        found = variables.get(name)
        present = bool(found) if mode.startswith(":") else found is not None
        if mode.endswith("+"):
            return word if present else ""
        if present:
            return found or ""
        if mode.endswith("-"):
            return word
        if mode.endswith("?"):
            raise TaskLoadError(f"the variable {name} is required: {word or 'not set'}")
        missing.add(name)
        return found or ""

    return _COMPOSE.sub(value, text)
