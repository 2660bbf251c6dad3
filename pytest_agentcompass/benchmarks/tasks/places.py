"""Whether the files of a task can all stand in one sandbox."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Mapping
from typing import Any

__all__ = ["clash"]


def clash(files: Mapping[str, Mapping[str, Any]], name: str) -> tuple[str, str] | None:
    """Return the path that cannot be and why, or None: one given twice, or one that needs a file as its folder.

    *files* maps paths in the sandbox to their content (a `source` may be a local folder); *name* is their field.
    """
    places: dict[str, str] = {}
    for path in files:
        first = places.setdefault(posixpath.normpath(path), path)
        if first is not path:
            return path, f"is the same path of {name} as {first!r}"
    single = {place for place, path in places.items() if not os.path.isdir(files[path].get("source", ""))}
    for place, path in places.items():
        above = next((parent for parent in _parents(place) if parent in single), None)
        if above is not None:
            return path, f"of {name} lies below {places[above]!r}, which is a file there, not a folder"
    return None


def _parents(place: str) -> list[str]:
    parts = place.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]
