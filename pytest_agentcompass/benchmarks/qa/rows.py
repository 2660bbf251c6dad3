"""Reading rows: JSON lines, JSON lists, CSV, TSV, Parquet, datasets of the hub."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...components.hub import cache_dir, cached_dataset, cached_parquet, is_hub_name
from ...errors import TaskLoadError, nearest
from .params import QaParams

__all__ = ["Row", "read_rows"]

#: where a row stands, its number from 1, and the row or why it is none
Row = tuple[str, int, dict[str, Any] | str]

_KINDS = (".csv", ".json", ".jsonl", ".ndjson", ".parquet", ".tsv")


def read_rows(params: QaParams) -> Iterator[Row]:
    """Yield the rows of the source, in order; TaskLoadError when there is none that can be read."""
    if params.path is None and params.dataset is not None:
        if not is_hub_name(params.dataset):
            raise TaskLoadError(
                f"benchmark.dataset: {params.dataset!r} is no dataset of the hub (owner/name); use path for a file"
            )
        yield from _lines(
            cached_dataset(params.dataset, params.split, params.revision, cache_dir("qa"), refresh=params.refresh),
            params.dataset,
        )
        return
    path = Path(os.path.expanduser(params.path or "")).absolute()
    if not path.is_file():
        near = [item.name for item in path.parent.iterdir()] if path.parent.is_dir() else []
        hint = nearest(path.name, near) if near else f"the folder {path.parent} does not exist"
        raise TaskLoadError(f"{path}: there is no such file; {hint}")
    yield from _file(path)


def _file(path: Path) -> Iterator[Row]:
    kind = path.suffix.lower()
    if kind in (".jsonl", ".ndjson"):
        yield from _lines(path, str(path))
    elif kind == ".parquet":
        yield from _lines(cached_parquet(path, cache_dir("qa")), str(path))
    elif kind == ".json":
        yield from _list(path)
    elif kind in (".csv", ".tsv"):
        yield from _table(path, "\t" if kind == ".tsv" else ",")
    else:
        raise TaskLoadError(f"{path}: a file of questions ends in one of {', '.join(_KINDS)}")


def _lines(path: Path, name: str) -> Iterator[Row]:
    for number, line in enumerate(path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            row = f"is no JSON: {error}"
        else:
            row = row if isinstance(row, dict) else "is no JSON object"
        yield f"{name}:{number}", number, row


def _list(path: Path) -> Iterator[Row]:
    try:
        rows = json.loads(path.read_bytes().decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise TaskLoadError(f"{path}: is no JSON: {error}") from error
    if not isinstance(rows, list):
        raise TaskLoadError(f"{path}: a .json file of questions holds one list of objects")
    for number, row in enumerate(rows, 1):
        yield f"{path} row {number}", number, row if isinstance(row, dict) else "is no JSON object"


def _table(path: Path, delimiter: str) -> Iterator[Row]:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TaskLoadError(f"{path}: is no UTF-8 text: {error}") from error
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    csv.field_size_limit(100_000_000)
    try:
        header = next(reader, [])
        if len(set(header)) != len(header) or not header:
            raise TaskLoadError(f"{path}:1: the first line must name each column once, not {header!r}")
        number = 0
        for cells in reader:
            if not cells:
                continue
            number += 1
            if len(cells) != len(header):
                yield f"{path}:{reader.line_num}", number, f"has {len(cells)} cells for {len(header)} columns"
            else:
                yield f"{path}:{reader.line_num}", number, dict(zip(header, cells, strict=True))
    except csv.Error as error:
        raise TaskLoadError(f"{path}:{reader.line_num}: {error}") from error
