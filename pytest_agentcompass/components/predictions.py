"""Predictions files: patches by instance, in the official format of SWE-bench (JSON or JSON lines)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..errors import ConfigError

__all__ = ["Prediction", "prediction_line", "read_predictions"]


@dataclass(frozen=True, slots=True)
class Prediction:
    """One patch: its bytes (empty when there is none), the model that made it, and where it stands."""

    instance_id: str
    patch: bytes
    model: str = ""
    source: str = ""


def read_predictions(path: str | Path) -> dict[str, Prediction]:
    """Return the predictions of a `.jsonl` or `.json` file by instance id, in the order of the file.

    A `.json` file holds a list, or a mapping by instance id. Raises ConfigError naming file and place for
    broken JSON, a missing `instance_id`, a patch that is no text, and an instance that comes twice.
    """
    file = Path(path).expanduser().absolute()
    try:
        state = file.stat()
    except OSError as error:
        raise ConfigError(f"predictions file {file} cannot be read: {error.strerror or error}") from error
    return _read(file, state.st_mtime_ns, state.st_size)


def prediction_line(instance_id: str, model: str, patch: bytes) -> str:
    """Return a line of a predictions file; bytes that are no UTF-8 survive as surrogate escapes."""
    row = {
        "instance_id": instance_id,
        "model_name_or_path": model,
        "model_patch": patch.decode("utf-8", "surrogateescape"),
    }
    return json.dumps(row) + "\n"


@lru_cache(maxsize=4)
def _read(file: Path, mtime: int, size: int) -> dict[str, Prediction]:
    found: dict[str, Prediction] = {}
    for place, row in _rows(file):
        prediction = _prediction(row, place)
        first = found.setdefault(prediction.instance_id, prediction)
        if first is not prediction:
            raise ConfigError(
                f"{place}: instance {prediction.instance_id!r} has a prediction already, in {first.source}; keep one"
            )
    return found


def _rows(file: Path) -> Iterator[tuple[str, Any]]:
    content = file.read_bytes().removeprefix(b"\xef\xbb\xbf")
    if file.suffix == ".jsonl":
        for number, line in enumerate(content.split(b"\n"), 1):
            if line.strip():
                yield f"{file}:{number}", _parsed(line, f"{file}:{number}")
    elif file.suffix == ".json":
        for number, row in enumerate(_listed(_parsed(content, str(file)), file), 1):
            yield f"{file}, entry {number}", row
    else:
        raise ConfigError(f"predictions file {file} must be a .jsonl or a .json file")


def _parsed(content: bytes, place: str) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{place}: not JSON: {error}") from error


def _listed(data: Any, file: Path) -> Iterable[Any]:
    if isinstance(data, dict):
        return ({"instance_id": key, **row} if isinstance(row, dict) else row for key, row in data.items())
    if isinstance(data, list):
        return data
    raise ConfigError(f"{file}: must hold a list of predictions, or a mapping of them by instance id")


def _prediction(row: Any, place: str) -> Prediction:
    if not isinstance(row, dict):
        raise ConfigError(f"{place}: a prediction must be an object with instance_id and model_patch")
    name, patch, model = row.get("instance_id"), row.get("model_patch"), row.get("model_name_or_path")
    if not isinstance(name, str) or not name:
        raise ConfigError(f"{place}: instance_id is {name!r}; it must be the id of an instance")
    if "model_patch" not in row:
        keys = ", ".join(sorted(map(str, row)))
        raise ConfigError(f"{place}: instance {name!r} has no model_patch (its keys: {keys})")
    if patch is not None and not isinstance(patch, str):
        raise ConfigError(f"{place}: model_patch of {name!r} must be a text or null, not {type(patch).__name__}")
    return Prediction(name, _bytes(patch or ""), model if isinstance(model, str) else "", place)


def _bytes(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a surrogate that stands for no byte: keep it visible, the patch will not apply
        return text.encode("utf-8", "surrogatepass")
