"""Recipes of one's own: modules in trusted folders."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from ..components.recipe import BaseRecipe
from ..components.registry import Registry
from ..errors import ConfigError

__all__ = ["load_recipes"]


def load_recipes(folders: Iterable[Path], registry: Registry) -> list[str]:
    """Register the `BaseRecipe` classes of the `*.py` modules in *folders*; return their ids in order.

    Modules are taken in the order of their names; those that begin with `_` are left out. Raises ConfigError
    for a folder that is missing, a module that cannot be imported, and an id that is taken.
    """
    ids = []
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError(f"recipe_dirs: {str(folder)!r} is no folder")
        for path in sorted(folder.glob("*.py")):
            if not path.name.startswith("_"):
                ids.extend(_register(path, registry))
    return ids


def _register(path: Path, registry: Registry) -> list[str]:
    module = _load(path)
    classes = [item for item in vars(module).values() if _is_recipe(item, module)]
    for item in classes:
        registry.add("recipe", item, origin=str(path))
    return [item.id for item in classes]


def _is_recipe(item: object, module: ModuleType) -> bool:
    if not inspect.isclass(item) or not issubclass(item, BaseRecipe) or inspect.isabstract(item):
        return False
    return item.__module__ == module.__name__


def _load(path: Path) -> ModuleType:
    """Import the module in *path* once per process, under a name that no other module can have."""
    digest = hashlib.sha256(str(path.resolve()).encode("utf-8", "surrogateescape")).hexdigest()[:12]
    name = f"_agentcompass_recipe_{digest}_{path.stem}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"recipe_dirs: {path} cannot be imported as a module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise ConfigError(f"recipe {path}{_line(error, path)}: {type(error).__name__}: {error}") from error
    return module


def _line(error: Exception, path: Path) -> str:
    if isinstance(error, SyntaxError) and error.lineno:
        return f":{error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f":{lines[-1]}" if lines else ""
