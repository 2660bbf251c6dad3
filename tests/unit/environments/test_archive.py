"""Archives: what is packed comes out again, and a stranger's archive can do no harm."""

from __future__ import annotations

import io
import os
import stat
import tarfile
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_agentcompass.environments.archive import (
    Limits,
    Ownership,
    extract_tar,
    pack_bytes,
    pack_file,
    pack_tree,
    safe_name,
)

_HOSTILE = Path(__file__).parents[3].parent / "shared" / "cases" / "72-hostile-archive" / "hostile.tar"


def _member(name: str, kind: bytes = tarfile.REGTYPE, *, link: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, link, mode
    return info


def _archive(*members: tarfile.TarInfo | tuple[tarfile.TarInfo, bytes]) -> io.BytesIO:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=tarfile.GNU_FORMAT, errors="surrogateescape") as tar:
        for item in members:
            info, content = item if isinstance(item, tuple) else (item, b"")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    target.seek(0)
    return target


def _tree(folder: Path) -> dict[str, str]:
    """Return every path below *folder* and what it is."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        found[name] = (
            f"-> {os.readlink(path)}" if path.is_symlink() else "folder" if path.is_dir() else path.read_text()
        )
    return found


def test_tree_round_trip(tmp_path: Path) -> None:
    """Names, modes, links and empty folders survive packing and extracting."""
    source = tmp_path / "in"
    (source / "sub" / "empty").mkdir(parents=True)
    (source / ".dot").write_text("d")
    (source / "sub" / "run.sh").write_bytes(b"x\r\n")
    (source / "sub" / "run.sh").chmod(0o751)
    (source / "sub" / "dangling").symlink_to("nowhere")
    notes = extract_tar(pack_tree(source, Ownership()), tmp_path / "out")
    assert notes == []
    assert (tmp_path / "out" / "sub" / "run.sh").read_bytes() == b"x\r\n"
    assert stat.S_IMODE((tmp_path / "out" / "sub" / "run.sh").stat().st_mode) == 0o751
    assert set(_tree(tmp_path / "out")) == {".dot", "sub", "sub/dangling", "sub/empty", "sub/run.sh"}


def test_packing_is_deterministic_and_owned(tmp_path: Path) -> None:
    """Members come in sorted order with the owner asked for; `readable` opens them for everybody."""
    for name in ("b", "a", "c"):
        (tmp_path / name).write_text(name)
        (tmp_path / name).chmod(0o600)
    (tmp_path / "d").mkdir(mode=0o700)
    packed = pack_tree(tmp_path, Ownership(12, 34, readable=True), prefix="p", parents=("q",), extra={"e": b"x"})
    with tarfile.open(fileobj=packed) as tar:
        members = tar.getmembers()
    assert [member.name for member in members] == ["q", "p/a", "p/b", "p/c", "p/d", "e"]
    assert {(member.uid, member.gid) for member in members} == {(12, 34)}
    assert [oct(member.mode) for member in members[1:5]] == ["0o644", "0o644", "0o644", "0o755"]


def test_what_cannot_be_packed(tmp_path: Path) -> None:
    """Pipes, folders in a file's place and missing files are errors that name them."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="pipe is a pipe"):
        pack_tree(tmp_path, Ownership())
    with pytest.raises(OSError, match=str(tmp_path)):
        pack_file(tmp_path, "x", Ownership())
    with pytest.raises(FileNotFoundError):
        pack_file(tmp_path / "nosuch", "x", Ownership())


def test_pack_bytes_and_file(tmp_path: Path) -> None:
    """A single file carries its mode, or the one asked for."""
    (tmp_path / "f").write_text("file")
    (tmp_path / "f").chmod(0o640)
    for packed, mode in (
        (pack_bytes("f", b"file", Ownership(), mode=0o600), 0o600),
        (pack_file(tmp_path / "f", "f", Ownership()), 0o640),
        (pack_file(tmp_path / "f", "f", Ownership(), mode=0o755), 0o755),
    ):
        with tarfile.open(fileobj=packed) as tar:
            member = tar.getmember("f")
            content = tar.extractfile(member)
            assert content is not None
            assert (member.mode, content.read()) == (mode, b"file")


@pytest.mark.parametrize(
    "bad",
    [
        _member("../escape"),
        _member("/absolute"),
        _member("a/../../escape"),
        _member("link", tarfile.SYMTYPE, link="/etc/passwd"),
        _member("link", tarfile.SYMTYPE, link="../outside"),
        _member("link", tarfile.SYMTYPE, link="a/../../outside"),
        _member("link", tarfile.SYMTYPE, link=""),
        _member("link", tarfile.LNKTYPE, link="../sentinel"),
        _member("link", tarfile.LNKTYPE, link="/etc/passwd"),
        _member("link", tarfile.LNKTYPE, link="nosuch"),
        _member("pipe", tarfile.FIFOTYPE),
        _member("device", tarfile.CHRTYPE),
        _member("block", tarfile.BLKTYPE),
        _member("n" * 256),
        _member("good"),
        _member("good/below"),
    ],
    ids=lambda info: f"{info.name[:20]} {info.linkname}",
)
def test_bad_members_are_noted(tmp_path: Path, bad: tarfile.TarInfo) -> None:
    """A bad member is left out with a note; the good ones before and after it are kept; nothing lands outside."""
    (tmp_path / "sentinel").write_text("s")
    dest = tmp_path / "dest"
    first = (_member("good/f"), b"1")
    notes = extract_tar(_archive(_member("good", tarfile.DIRTYPE), first, bad, (_member("last"), b"2")), dest)
    if bad.name == "good/below":
        assert notes == []
    else:
        assert len(notes) == 1
        assert notes[0].startswith(safe_name(bad.name)[:200])
    kept = _tree(dest)
    assert {name: kept[name] for name in ("good", "good/f", "last")} == {"good": "folder", "good/f": "1", "last": "2"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dest", "sentinel"]


def test_nothing_goes_through_links(tmp_path: Path) -> None:
    """No member is written through a link, and links cannot be combined into a way out."""
    dest = tmp_path / "dest"
    notes = extract_tar(
        _archive(
            _member("sub", tarfile.DIRTYPE),
            _member("here", tarfile.SYMTYPE, link="."),
            (_member("here/through"), b"x"),
            _member("up", tarfile.SYMTYPE, link="here/.."),
            _member("sub/inside", tarfile.SYMTYPE, link="../sub"),
        ),
        dest,
    )
    assert _tree(dest) == {"here": "-> .", "sub": "folder", "sub/inside": "-> ../sub"}
    assert [note.split(":")[0] for note in notes] == ["here/through", "up"]


def test_modes(tmp_path: Path) -> None:
    """Set-uid bits go; the owner can read and write whatever the archive says."""
    members = [(_member("suid", mode=0o6777), b"x"), (_member("locked", mode=0), b"y")]
    extract_tar(_archive(*members, _member("dir", tarfile.DIRTYPE, mode=0)), tmp_path)
    modes = {path.name: oct(stat.S_IMODE(path.stat().st_mode)) for path in tmp_path.iterdir()}
    assert modes == {"suid": "0o777", "locked": "0o600", "dir": "0o700"}


def test_repeated_and_hard_linked_members(tmp_path: Path) -> None:
    """The last of two files wins, a hard link becomes a copy, a folder is never replaced by a file."""
    notes = extract_tar(
        _archive(
            (_member("a"), b"old"),
            (_member("a"), b"new"),
            _member("b", tarfile.LNKTYPE, link="a"),
            _member("d", tarfile.DIRTYPE),
            (_member("d"), b"x"),
        ),
        tmp_path,
    )
    assert _tree(tmp_path) == {"a": "new", "b": "new", "d": "folder"}
    assert len(notes) == 1
    assert (tmp_path / "a").stat().st_ino != (tmp_path / "b").stat().st_ino


def test_odd_names_are_kept_escaped(tmp_path: Path) -> None:
    """Names with control characters or bytes that are no text are kept under a printable name, with a note."""
    notes = extract_tar(
        _archive((_member("new\nline"), b"1"), (_member("bad\udcff"), b"2"), (_member("50%"), b"3")), tmp_path
    )
    assert _tree(tmp_path) == {"new%0Aline": "1", "bad%FF": "2", "50%": "3"}
    assert len(notes) == 2


def test_limits(tmp_path: Path) -> None:
    """Too large members are left out while small ones are kept; too many end the extraction."""
    big, small = (_member("big"), b"x" * 150), (_member("small"), b"y")
    notes = extract_tar(_archive(big, small), tmp_path / "a", Limits(max_bytes=200))
    assert notes == []
    notes = extract_tar(_archive(big, small), tmp_path / "b", Limits(max_bytes=100))
    assert "rest was left out" in notes[-1]
    notes = extract_tar(
        _archive((_member("one"), b"x" * 60), (_member("two"), b"y" * 60), small), tmp_path / "c", Limits(100)
    )
    assert _tree(tmp_path / "c") == {"one": "x" * 60, "small": "y"}
    assert len(notes) == 1
    many = [(_member(f"f{index}"), b"") for index in range(50)]
    notes = extract_tar(_archive(*many), tmp_path / "d", Limits(max_files=10))
    assert len(list((tmp_path / "d").iterdir())) == 10
    assert notes == ["the rest was left out: more than 10 files"]


def test_broken_archives(tmp_path: Path) -> None:
    """What came before the damage is kept, and the damage is noted."""
    whole = _archive((_member("a"), b"1" * 600), (_member("b"), b"2" * 600)).getvalue()
    assert "ends early" in extract_tar(io.BytesIO(whole[:2300]), tmp_path / "cut")[-1]
    assert (tmp_path / "cut" / "a").read_text() == "1" * 600
    assert "ends early" in extract_tar(io.BytesIO(b"no archive" * 200), tmp_path / "none")[-1]


def test_strip_drops_leading_parts(tmp_path: Path) -> None:
    """With strip, the folder that the engine puts around everything goes, for links too."""
    hard = _member("top/b", tarfile.LNKTYPE, link="top/a")
    packed = _archive(_member("top", tarfile.DIRTYPE), (_member("top/a"), b"1"), hard)
    assert extract_tar(packed, tmp_path, strip=1) == []
    assert _tree(tmp_path) == {"a": "1", "b": "1"}


def test_hostile_archive(tmp_path: Path) -> None:
    """The handed collection of tricks: good members kept, the rest noted, nothing outside."""
    if not _HOSTILE.exists():
        pytest.skip("the handed cases are not here (../shared/cases)")
    (tmp_path / "sentinel.txt").write_text("s")
    with open(_HOSTILE, "rb") as source:
        notes = extract_tar(source, tmp_path / "dest")
    art = tmp_path / "dest" / "art"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dest", "sentinel.txt"]
    assert {"good.txt", "last_good.txt", "setuid", "unreadable.txt"} <= {path.name for path in art.iterdir()}
    assert not (art / "setuid").stat().st_mode & stat.S_ISUID
    assert (art / "unreadable.txt").read_text()
    assert any(len(path.name) == 255 for path in art.iterdir())
    assert len(notes) == 10
    assert (tmp_path / "sentinel.txt").read_text() == "s"


@given(st.text())
def test_safe_name_is_printable_and_reversible(name: str) -> None:
    """Any name becomes printable text from which it can be told again."""
    from urllib.parse import unquote_to_bytes

    try:
        raw = os.fsencode(name)
    except UnicodeEncodeError:
        return
    escaped = safe_name(name)
    assert escaped.isprintable()
    assert unquote_to_bytes(escaped) == raw


_names = st.lists(st.sampled_from(["a", "b", "..", ".", ""]), min_size=1, max_size=4).map("/".join)


@settings(deadline=None)
@given(st.lists(st.tuples(_names, st.sampled_from([b"0", b"1", b"2", b"5"]), _names), max_size=8))
def test_no_combination_escapes(members: list[tuple[str, bytes, str]]) -> None:
    """No combination of files, folders and links writes or leads outside of the folder."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name).resolve()
        for outside in ("a", "b", "x/a", "x/b"):
            (root / outside).mkdir(parents=True)
        extract_tar(_archive(*(_member(path, kind, link=link) for path, kind, link in members)), root / "x" / "dest")
        outsiders = sorted(str(path.relative_to(root)) for folder in (root, root / "x") for path in folder.iterdir())
        assert outsiders == ["a", "b", "x", "x/a", "x/b", "x/dest"]
        assert not any(any((root / outside).iterdir()) for outside in ("a", "b", "x/a", "x/b"))
        for path in (root / "x" / "dest").rglob("*"):
            try:
                real = Path(os.path.realpath(path, strict=True))
            except OSError:  # it leads nowhere, or round in a loop
                continue
            assert real.is_relative_to(root / "x" / "dest")
