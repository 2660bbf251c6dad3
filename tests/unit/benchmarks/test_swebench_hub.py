"""Rules of datasets of the hub: resolved once, kept by commit, and read without any library afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_agentcompass.benchmarks.swebench.hub import cached_dataset, cached_parquet, is_hub_name
from pytest_agentcompass.errors import TaskLoadError

NAME = "SWE-bench/SWE-bench_Verified"


class FakeHub:
    """A hub of one dataset in a local folder; it counts what it is asked."""

    def __init__(self, folder: Path, commit: str = "c1") -> None:
        self.folder = folder
        self.now = commit
        self.asked: list[str] = []

    def commit(self, dataset: str, revision: str) -> str:
        """Return the newest commit."""
        self.asked.append(f"commit {dataset} {revision}")
        return self.now

    def files(self, dataset: str, commit: str) -> list[str]:
        """Return the files of the dataset."""
        return [".gitattributes", "data/test-00000-of-00001.parquet", "data/dev-00000-of-00001.parquet"]

    def download(self, dataset: str, commit: str, path: str) -> Path:
        """Return a file."""
        self.asked.append(f"download {commit} {path}")
        return self.folder / "rows.parquet"


@pytest.fixture
def parquet(tmp_path: Path) -> Path:
    """A Parquet file of two rows, one with a list column."""
    library = pytest.importorskip("pyarrow.parquet", reason="needs the extra swebench")
    arrow: Any = pytest.importorskip("pyarrow")
    path = tmp_path / "rows.parquet"
    library.write_table(arrow.table({"instance_id": ["a-1", "b-2"], "FAIL_TO_PASS": [["x"], None]}), path)
    return path


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("verified", True),
        ("Lite", True),
        (NAME, True),
        ("./verified", False),
        ("/a/b", False),
        ("a/b.jsonl", False),
        ("rows", False),
    ],
)
def test_what_names_the_hub(name: str, expected: bool) -> None:
    """Aliases and owner/name are datasets of the hub; paths and files are not."""
    assert is_hub_name(name) is expected


def test_a_revision_is_resolved_once(tmp_path: Path, parquet: Path) -> None:
    """The first load pins the commit; later ones ask nothing, until they are told to refresh."""
    hub = FakeHub(tmp_path)
    first = cached_dataset("verified", "test", "main", tmp_path / "cache", hub=hub)
    assert first.read_bytes().count(b"\n") == 2
    hub.now = "c2"
    asked = list(hub.asked)
    assert cached_dataset(NAME, "test", "main", tmp_path / "cache", hub=hub) == first
    assert hub.asked == asked
    newest = cached_dataset("verified", "test", "main", tmp_path / "cache", refresh=True, hub=hub)
    assert newest != first
    assert cached_dataset("verified", "test", "main", tmp_path / "cache", hub=hub) == newest


def test_an_unknown_split(tmp_path: Path) -> None:
    """A split that the dataset does not have is told with those that it has."""
    with pytest.raises(TaskLoadError, match=r"no split 'tset'; did you mean 'test'"):
        cached_dataset("lite", "tset", "main", tmp_path, hub=FakeHub(tmp_path))


def test_an_unreachable_hub(tmp_path: Path) -> None:
    """Whatever the hub raises becomes one sentence that names dataset, revision and the way out."""

    class Unreachable(FakeHub):
        def commit(self, dataset: str, revision: str) -> str:
            raise ConnectionError("no route")

    with pytest.raises(TaskLoadError, match=r"SWE-bench_Verified \(revision main\).*no route.*dataset=FILE"):
        cached_dataset("verified", "test", "main", tmp_path, hub=Unreachable(tmp_path))


def test_parquet_files_are_converted_once(tmp_path: Path, parquet: Path) -> None:
    """A Parquet file becomes JSON lines by its content."""
    target = cached_parquet(parquet, tmp_path / "cache")
    assert (
        target.read_text()
        == '{"instance_id": "a-1", "FAIL_TO_PASS": ["x"]}\n{"instance_id": "b-2", "FAIL_TO_PASS": null}\n'
    )
    target.write_text("kept")
    assert cached_parquet(parquet, tmp_path / "cache").read_text() == "kept"


def test_a_missing_library_names_the_extra(tmp_path: Path) -> None:
    """Without the libraries the message says what to install."""
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        (tmp_path / "rows.parquet").write_bytes(b"PAR1")
        with pytest.raises(TaskLoadError, match=r"pip install 'pytest-agentcompass\[data\]'"):
            cached_parquet(tmp_path / "rows.parquet", tmp_path / "cache")
    else:
        pytest.skip("the library is installed")


def test_a_broken_parquet_file(tmp_path: Path) -> None:
    """A file that is no Parquet is named."""
    pytest.importorskip("pyarrow", reason="needs the extra swebench")
    (tmp_path / "rows.parquet").write_bytes(b"not at all")
    with pytest.raises(TaskLoadError, match=r"rows\.parquet: is no Parquet file"):
        cached_parquet(tmp_path / "rows.parquet", tmp_path / "cache")
