"""Datasets of the hub and Parquet files: turned into JSON lines in a local cache, once.

The first load of a dataset resolves its revision to a commit and keeps it: later runs read the same rows,
without the network, until `refresh` asks for the newest. Rows are then read like any other file, so no
other process needs the libraries of the extra.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import platformdirs

from ..errors import TaskLoadError, nearest

__all__ = ["Hub", "HuggingFaceHub", "cache_dir", "cached_dataset", "cached_parquet", "is_hub_name"]

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_SUFFIXES = (".csv", ".json", ".jsonl", ".parquet", ".tsv")
_EXTRA = "install it with: pip install 'pytest-agentcompass[data]'"


class Hub(Protocol):
    """What is needed of a dataset hub."""

    def commit(self, dataset: str, revision: str) -> str:
        """Return the commit that *revision* names now."""

    def files(self, dataset: str, commit: str) -> list[str]:
        """Return the paths of the dataset's files."""

    def download(self, dataset: str, commit: str, path: str) -> Path:
        """Return a local copy of a file."""


class HuggingFaceHub:
    """The hub of `huggingface_hub`, with its own cache, token and offline settings."""

    def __init__(self) -> None:
        self._api = _library("huggingface_hub").HfApi()

    def commit(self, dataset: str, revision: str) -> str:
        """Return the commit that *revision* names now."""
        return str(self._api.dataset_info(dataset, revision=revision).sha)

    def files(self, dataset: str, commit: str) -> list[str]:
        """Return the paths of the dataset's files."""
        return list(self._api.list_repo_files(dataset, repo_type="dataset", revision=commit))

    def download(self, dataset: str, commit: str, path: str) -> Path:
        """Return a local copy of a file."""
        return Path(self._api.hf_hub_download(dataset, path, repo_type="dataset", revision=commit))


def is_hub_name(dataset: str) -> bool:
    """Whether *dataset* names a dataset of the hub (`owner/name`), not a local path."""
    if dataset.startswith((".", "/", "~")) or Path(dataset).exists() or Path(dataset).suffix in _SUFFIXES:
        return False
    return bool(_HUB_NAME.fullmatch(dataset))


def cache_dir(benchmark: str) -> Path:
    """Return the folder of a benchmark's converted datasets, below the user's cache folder."""
    return Path(platformdirs.user_cache_dir("agentcompass", appauthor=False)) / benchmark


def cached_dataset(
    dataset: str, split: str, revision: str, cache: Path, *, refresh: bool = False, hub: Hub | None = None
) -> Path:
    """Return the JSON lines of a hub dataset's *split*, downloaded and converted when they are not there.

    Raises TaskLoadError naming the extra when a library is missing, and dataset, revision or split when
    the hub does not have them or cannot be reached.
    """
    name = dataset
    folder = cache / name.replace("/", "__")
    pin = folder / (re.sub(r"[^\w.-]", "_", revision) + ".pin")
    commit = _pinned(pin) if not refresh else None
    if commit is not None and (target := folder / commit / f"{split}.jsonl").is_file():
        return target
    hub = hub or HuggingFaceHub()
    try:
        commit = commit or hub.commit(name, revision)
        target = folder / commit / f"{split}.jsonl"
        if not target.is_file():
            files = [hub.download(name, commit, path) for path in _split_files(hub.files(name, commit), split, name)]
            _write(target, (row for file in files for row in _parquet_rows(file)))
    except TaskLoadError:
        raise
    except Exception as error:  # the hub's own errors have no common base, and all mean: no rows
        raise TaskLoadError(
            f"dataset {name} (revision {revision}) cannot be loaded from the hub: {type(error).__name__}: "
            f"{str(error).strip()[:500]}; a local copy can be given as benchmark.dataset=FILE"
        ) from error
    _write_text(pin, commit)
    return target


def cached_parquet(path: Path, cache: Path) -> Path:
    """Return a Parquet file's rows as JSON lines, converted once per content."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    target = cache / "files" / f"{digest.hexdigest()[:32]}.jsonl"
    if not target.is_file():
        _write(target, _parquet_rows(path))
    return target


def _split_files(files: Iterable[str], split: str, dataset: str) -> list[str]:
    pattern = re.compile(rf"(?:^|/){re.escape(split)}(?:-\d+-of-\d+)?\.parquet$")
    files = sorted(files)
    found = [path for path in files if pattern.search(path)]
    if not found:
        parquet = (
            re.sub(r"(-\d+-of-\d+)?\.parquet$", "", path).rpartition("/")[2] for path in files if ".parquet" in path
        )
        raise TaskLoadError(f"dataset {dataset} has no split {split!r}; {nearest(split, set(parquet))}")
    return found


def _parquet_rows(path: Path) -> Iterable[dict[str, Any]]:
    parquet = _library("pyarrow.parquet")
    try:
        file = parquet.ParquetFile(str(path))
        for batch in file.iter_batches(batch_size=100):
            yield from batch.to_pylist()
    except (OSError, ValueError) as error:
        raise TaskLoadError(f"{path}: is no Parquet file that can be read: {error}") from error


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise TaskLoadError(
            f"the library {name.partition('.')[0]} is needed for this dataset: {error}; {_EXTRA}"
        ) from error


def _pinned(pin: Path) -> str | None:
    try:
        return pin.read_text("ascii").strip() or None
    except OSError:
        return None


def _write(target: Path, rows: Iterable[dict[str, Any]]) -> None:
    _write_lines(target, (json.dumps(row, default=str) + "\n" for row in rows))


def _write_text(target: Path, text: str) -> None:
    _write_lines(target, (text + "\n",))


def _write_lines(target: Path, lines: Iterable[str]) -> None:
    """Write a file whole or not at all; several processes may do it at a time."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=".new-")
    try:
        with os.fdopen(handle, "w", encoding="ascii", newline="") as file:
            file.writelines(lines)
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
