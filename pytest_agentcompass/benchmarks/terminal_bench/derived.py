"""Derived compose files: what several services need, written so that attempts share nothing but images."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .compose import ComposeFile

__all__ = ["derived_hints"]

_FLAGS = frozenset(
    [
        "attachable",
        "disable",
        "enable_ipv6",
        "external",
        "init",
        "internal",
        "no_cache",
        "privileged",
        "pull",
        "read_only",
        "required",
        "stdin_open",
        "tty",
    ]
)


def derived_hints(compose: ComposeFile, main: str, timeout: float, content: str) -> dict[str, Any]:
    """Return the hints of a derived compose file, which is kept in the user's cache folder.

    *main* is the agent's service; *content* (the task's hash) names the images that compose builds.
    """
    for name, service in compose.services.items():
        _derive(compose, name, service, content, main=name == main)
    text = json.dumps(_escaped(compose.data, ""), indent=1, sort_keys=True)
    path = _store(text, str(compose.path.parent.resolve()))
    return {"compose": {"file": str(path), "service": main, "build_timeout_seconds": timeout}}


def _derive(compose: ComposeFile, name: str, service: dict[str, Any], content: str, *, main: bool) -> None:
    service.pop("container_name", None)
    if service.get("build") is not None:
        build = dict(service["build"]) if isinstance(service["build"], dict) else {"context": service["build"]}
        if "://" not in str(build.get("context", "")):
            build["context"] = str(
                Path(os.path.normpath(compose.path.parent.resolve() / str(build.get("context") or ".")))
            )
        service["build"] = build
        service["image"] = f"agentcompass/compose-{content[:20]}-{_safe(name)}"
    binds = [item for item in service["volumes"] if item["type"] == "bind"]
    if main:
        compose.uploads += [[item["source"], item["target"]] for item in binds]
        service["volumes"] = [item for item in service["volumes"] if item["type"] != "bind"]
        service.setdefault("command", ["sh", "-c", "sleep infinity"])
    for item in [] if main else binds:
        if not item["read_only"]:
            item["read_only"] = True
            compose.notes.append(f"{compose.path}: services.{name}: {item['target']} is mounted read-only")
    if not service["volumes"]:
        service.pop("volumes")
    files = service.get("env_file")
    if files:
        listed = files if isinstance(files, list) else [files]
        service["env_file"] = [os.path.normpath(compose.path.parent.resolve() / str(item)) for item in listed]


def _safe(name: str) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c == "-") else "-" for c in name.lower())


def _escaped(node: Any, key: str) -> Any:
    """Return the data as compose reads it: dollar signs doubled, flags and counts with their types again."""
    if isinstance(node, str):
        if key in _FLAGS and node.lower() in ("true", "false"):
            return node.lower() == "true"
        return int(node) if key == "retries" and node.isdecimal() else node.replace("\0", "").replace("$", "$$")
    if isinstance(node, dict):
        return {name: _escaped(value, name) for name, value in node.items()}
    return [_escaped(item, "") for item in node] if isinstance(node, list) else node


def _store(text: str, root: str) -> Path:
    """Keep a derived file in the user's cache folder, and return its path.

    Its name does not depend on where the task lies (*root*), its folder does.
    """
    import platformdirs

    folder = Path(platformdirs.user_cache_dir("pytest-agentcompass", appauthor=False)) / "compose" / _hash(root)
    path = folder / f"{_hash(text.replace(json.dumps(root)[1:-1], ''))}.yaml"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    return path


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
