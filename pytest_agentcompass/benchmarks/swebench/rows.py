"""Rows of SWE-bench: one instance each, checked column by column.

A row is data from outside: every column is validated here, and a row that cannot be used is told apart
from one that only lacks the columns of SWE-bench 5.0 (it can be solved, but not graded).
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...errors import TaskLoadError

__all__ = ["EVAL_TYPES", "Row", "missing_columns_message", "parse_row", "row_digest", "test_ids"]

EVAL_TYPES = ("pass_and_fail", "fail_only")
_NEW_COLUMNS = ("eval_script", "log_parser", "eval_type")
_COMMIT = re.compile(r"[0-9a-fA-F]{4,64}")
#: What grading and prompts depend on: a change in any other column leaves the digest as it is.
_DIGEST_COLUMNS = (
    "instance_id",
    "repo",
    "base_commit",
    "patch",
    "test_patch",
    "problem_statement",
    "hints_text",
    "FAIL_TO_PASS",
    "PASS_TO_PASS",
    "image",
    "eval_script",
    "log_parser",
    "eval_type",
    "image_assets",
)


@dataclass(frozen=True, slots=True)
class Row:
    """One instance. *missing* names the columns of SWE-bench 5.0 that the row does not have."""

    instance_id: str
    repo: str
    base_commit: str
    version: str = ""
    patch: str = ""
    test_patch: str = ""
    problem_statement: str = ""
    hints_text: str = ""
    fail_to_pass: tuple[str, ...] = ()
    pass_to_pass: tuple[str, ...] = ()
    image: str = ""
    eval_script: str = ""
    log_parser: str = ""
    eval_type: str = "pass_and_fail"
    difficulty: str = ""
    image_assets: dict[str, Any] = field(default_factory=dict)
    missing: tuple[str, ...] = ()


def parse_row(raw: Mapping[str, Any]) -> Row:
    """Return the checked row; TaskLoadError says which column is wrong and what came."""
    if not isinstance(raw, Mapping):
        raise TaskLoadError(f"a row must be an object with columns, not {_kind(raw)}")
    fail, keep = (test_ids(raw.get(name), name) for name in ("FAIL_TO_PASS", "PASS_TO_PASS"))
    if not fail and not keep:
        raise TaskLoadError(
            "no required tests: FAIL_TO_PASS and PASS_TO_PASS are both empty, so nothing could be graded"
        )
    eval_type = _text(raw, "eval_type") or "pass_and_fail"
    if eval_type not in EVAL_TYPES:
        raise TaskLoadError(f"eval_type is {eval_type!r}; it must be one of {', '.join(EVAL_TYPES)}")
    return Row(
        instance_id=_required(raw, "instance_id"),
        repo=_required(raw, "repo"),
        base_commit=_commit(raw),
        version=_text(raw, "version"),
        patch=_text(raw, "patch"),
        test_patch=_text(raw, "test_patch"),
        problem_statement=_text(raw, "problem_statement"),
        hints_text=_text(raw, "hints_text"),
        fail_to_pass=fail,
        pass_to_pass=keep,
        image=_text(raw, "image"),
        eval_script=_text(raw, "eval_script"),
        log_parser=_text(raw, "log_parser"),
        eval_type=eval_type,
        difficulty=_text(raw, "difficulty"),
        image_assets=_assets(raw.get("image_assets")),
        missing=tuple(name for name in _NEW_COLUMNS if not _text(raw, name)),
    )


def row_digest(raw: Mapping[str, Any]) -> str:
    """Return SHA-256 over the columns that count, whichever file format they came from."""
    content = [raw.get(name) for name in _DIGEST_COLUMNS]
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode("ascii")).hexdigest()


def missing_columns_message(missing: tuple[str, ...]) -> str:
    """Say what a row from before SWE-bench 5.0 lacks, and how to get it."""
    return (
        f"the row has the columns of SWE-bench before 5.0: it lacks {', '.join(missing)}, without which nothing can be "
        "graded. Load a current copy of the dataset (benchmark.dataset=verified, refresh=true), a task "
        "repository of SWE-bench 5, or derive the columns with swebench 4.1.0 (make_test_spec)"
    )


def test_ids(value: Any, column: str) -> tuple[str, ...]:
    """Return a list of test ids: a list, or a text that holds one as JSON or as Python writes it.

    Null and empty text are an empty list. TaskLoadError for anything else, never a text split into letters.
    """
    found = _listed(value, column) if isinstance(value, str) else value
    if found is None:
        return ()
    if not isinstance(found, list | tuple):
        raise TaskLoadError(f"{column} must be a list of test ids (or a text holding one), not {_kind(found)}")
    for item in found:
        if not isinstance(item, str) or not item:
            raise TaskLoadError(f"{column} holds {item!r}; every test id must be a text that is not empty")
    return tuple(found)


def _listed(text: str, column: str) -> Any:
    """Return what a text holds; the bare text when it is neither JSON nor a Python literal."""
    if not text.strip():
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        raise TaskLoadError(
            f'{column} is the text {text[:80]!r}, which holds no list; write it as JSON: ["path::test", ...]'
        ) from None


def _text(raw: Mapping[str, Any], name: str) -> str:
    value = raw.get(name)
    if value is None or value != value:  # NaN stands for "no value" in files that went through a data frame
        return ""
    if not isinstance(value, str):
        raise TaskLoadError(f"{name} must be a text, not {_kind(value)} ({str(value)[:60]})")
    return value


def _required(raw: Mapping[str, Any], name: str) -> str:
    value = _text(raw, name)
    if not value.strip():
        raise TaskLoadError(f"{name} is missing")
    return value


def _commit(raw: Mapping[str, Any]) -> str:
    value = _required(raw, "base_commit")
    if not _COMMIT.fullmatch(value):
        raise TaskLoadError(f"base_commit is {value[:60]!r}; it must be a commit hash")
    return value


def _assets(value: Any) -> dict[str, Any]:
    """Return the binary files that a patch cannot carry (Multimodal): a mapping, or a text holding one."""
    if isinstance(value, str) and value.strip():
        try:
            value = json.loads(value)
        except ValueError as error:
            raise TaskLoadError(f"image_assets is no JSON: {error}") from None
    if not value:
        return {}
    if not isinstance(value, dict):
        raise TaskLoadError(f"image_assets must be a mapping, not {_kind(value)}")
    return {key: entries for key, entries in value.items() if entries}


def _kind(value: Any) -> str:
    names = {dict: "a mapping", list: "a list", str: "a text", bool: "a boolean", int: "a number", float: "a number"}
    return "null" if value is None else names.get(type(value), type(value).__name__)
