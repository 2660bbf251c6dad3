"""The content hash of a task folder: names, bytes and executable bits (not dates, owners or umask)."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

__all__ = ["content_hash"]


def content_hash(root: Path) -> str:
    """Return the SHA-256 of everything in the folder *root*, in a fixed order; links count by their target."""
    total = hashlib.sha256()
    for name, entry in sorted(_entries(root, ""), key=lambda pair: os.fsencode(pair[0])):
        total.update(os.fsencode(name) + b"\0" + _digest(entry) + b"\n")
    return total.hexdigest()


def _entries(folder: Path, prefix: str) -> list[tuple[str, os.DirEntry[str]]]:
    found: list[tuple[str, os.DirEntry[str]]] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            name = prefix + entry.name
            if entry.is_dir(follow_symlinks=False):
                if entry.name in ("__pycache__", ".git"):
                    continue
                found += _entries(Path(entry.path), name + "/")
            else:
                found.append((name, entry))
    return found


def _digest(entry: os.DirEntry[str]) -> bytes:
    if entry.is_symlink():
        return b"l" + os.fsencode(os.readlink(entry.path))
    if not entry.is_file(follow_symlinks=False):
        return b"?"
    with open(entry.path, "rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").digest()
    return (b"x" if entry.stat(follow_symlinks=False).st_mode & 0o111 else b"-") + digest
