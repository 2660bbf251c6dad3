"""The image that a build starts from: an image built on an older one of that name is out of date."""

from __future__ import annotations

import re

from .engine import Engine
from .images import image_layers

__all__ = ["final_base", "is_built_on"]

_FROM = re.compile(r"^\s*FROM\s+(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?\s*$", re.IGNORECASE | re.MULTILINE)


def final_base(dockerfile: str, target: str | None) -> str | None:
    """Return the image that the last stage (or *target*) starts from; None for `scratch` and for variables."""
    stages = _FROM.findall(dockerfile)
    bases = {name.lower(): base for base, name in stages if name}
    if not stages:
        return None
    base: str = bases.get(target.lower(), "") if target else stages[-1][0]
    for _ in stages:
        base = bases.get(base.lower(), base)
    return None if not base or "$" in base or base.lower() in ("scratch", *bases) else base


def is_built_on(engine: Engine, image: str, base: str) -> bool:
    """Tell whether *image* starts with the layers of *base*; also where this engine has no such base."""
    below, layers = image_layers(engine, base), image_layers(engine, image)
    return below is None or layers is None or layers[: len(below)] == below
