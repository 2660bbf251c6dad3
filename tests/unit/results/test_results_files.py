"""Atomic files, strict JSON, guarded reads."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_agentcompass.errors import ResultsError
from pytest_agentcompass.results.files import (
    json_bytes,
    json_row,
    keep_copy,
    parse_json,
    read_bytes,
    remove_temporary,
    write_atomic,
)


@pytest.mark.parametrize(
    "text", ["NaN", "[Infinity]", '{"a": -Infinity}', "1e999", "[" * 100_000, "", "{", "\0\0", '{"a": }']
)
def test_only_strict_json_is_read(text: str) -> None:
    """Whatever is not JSON by the standard is a ValueError, also hostile nesting."""
    with pytest.raises(ValueError, match=r"."):
        parse_json(text)


def test_bytes_that_are_no_utf8_are_refused() -> None:
    """A bad byte is not replaced by something that looks like an answer."""
    with pytest.raises(ValueError, match="utf-8"):
        parse_json(b'{"a": "\xff"}')


@pytest.mark.parametrize("write", [json_row, json_bytes])
def test_nan_is_never_written(write: object) -> None:
    """Strict JSON out."""
    with pytest.raises(ValueError, match="not JSON compliant"):
        write({"a": float("nan")})  # type: ignore[operator]


def test_rows_keep_lone_surrogates() -> None:
    """A row comes back exactly, also where its text is no valid Unicode."""
    assert parse_json(json_row({"id": "a\udcff"})) == {"id": "a\udcff"}


def test_write_makes_parents_and_leaves_nothing_else(tmp_path: Path) -> None:
    """The file holds its content; no temporary file stays."""
    path = tmp_path / "a" / "b" / "x.json"
    write_atomic(path, b"one")
    write_atomic(path, b"two")
    assert path.read_bytes() == b"two"
    assert [entry.name for entry in path.parent.iterdir()] == ["x.json"]


def test_write_replaces_a_planted_link(tmp_path: Path) -> None:
    """A link in the place of the file is replaced, never followed."""
    outside = tmp_path / "outside"
    outside.write_text("safe")
    path = tmp_path / "x.json"
    path.symlink_to(outside)
    write_atomic(path, b"new")
    assert outside.read_text() == "safe"
    assert not path.is_symlink()


def test_a_failed_write_names_the_path(tmp_path: Path) -> None:
    """Path and cause stand in the message, and the old content stays."""
    path = tmp_path / "x.json"
    path.mkdir()
    with pytest.raises(ResultsError, match=r"x\.json: cannot be written: Is a directory"):
        write_atomic(path, b"new")
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.json"]


def test_a_file_in_place_of_a_folder_names_the_path(tmp_path: Path) -> None:
    """A parent that is a file is an error of ours."""
    (tmp_path / "a").write_text("")
    with pytest.raises(ResultsError, match="cannot be written"):
        write_atomic(tmp_path / "a" / "x.json", b"new")


def test_only_plain_files_are_read(tmp_path: Path) -> None:
    """A pipe would block the reader and a link may lead anywhere: both are refused at once."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/etc/passwd")
    with pytest.raises(ValueError, match="plain file"):
        read_bytes(tmp_path / "pipe")
    with pytest.raises(ValueError, match="link"):
        read_bytes(tmp_path / "link")
    with pytest.raises(FileNotFoundError):
        read_bytes(tmp_path / "none")


def test_copies_are_numbered(tmp_path: Path) -> None:
    """Each kept copy has a number of its own and survives what happens to the original."""
    path = tmp_path / "x.json"
    for text in ("one", "two"):
        path.unlink(missing_ok=True)
        path.write_text(text)
        keep_copy(path, tmp_path / "kept")
    path.unlink()
    assert keep_copy(path, tmp_path / "kept") is None
    assert [(tmp_path / "kept" / f"{n}.json").read_text() for n in (1, 2)] == ["one", "two"]


def test_only_temporary_files_of_ours_are_removed(tmp_path: Path) -> None:
    """What a killed writer left goes, everything else stays."""
    for name in (".record.json.0123456789ab.tmp", "record.json", ".hidden.tmp", "x.tmp"):
        (tmp_path / name).write_text("")
    remove_temporary(tmp_path)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [".hidden.tmp", "record.json", "x.tmp"]


def test_a_folder_that_vanishes_during_the_write_is_named(tmp_path: Path) -> None:
    """What was written in parts cannot be written again: that is said, and no half file appears."""
    path = tmp_path / "a/b/file"

    def parts() -> Iterator[bytes]:
        yield b"one"
        shutil.rmtree(tmp_path / "a")
        yield b"two"

    with pytest.raises(ResultsError, match="file: cannot be written: No such file"):
        write_atomic(path, parts())
    assert not path.exists()
    write_atomic(path, b"whole")
    assert path.read_bytes() == b"whole"
    assert [item.name for item in path.parent.iterdir()] == ["file"]
