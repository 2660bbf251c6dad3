"""Rules of patches as data: what they touch, what is empty, and which of them work on the grading."""

from __future__ import annotations

import pytest

from pytest_agentcompass.benchmarks.swebench.integrity import patch_flags, sensitive_flag
from pytest_agentcompass.benchmarks.swebench.patches import (
    file_patches,
    is_empty,
    lacks_binary_data,
    with_final_newline,
)
from pytest_agentcompass.benchmarks.swebench.prompt import render
from pytest_agentcompass.benchmarks.swebench.rows import parse_row

MODIFIED = b"""diff --git a/app/x.py b/app/x.py
index b859599..ea74361 100644
--- a/app/x.py
+++ b/app/x.py
@@ -1,3 +1,3 @@
 def f():
--- a/not/a/header.py
+++ b/not/a/header.py
     pass
"""
NEW = b"""diff --git a/new file.py b/new file.py
new file mode 100644
--- /dev/null
+++ b/new file.py
@@ -0,0 +1 @@
+x = 1
\\ No newline at end of file
"""
DELETED = b"""diff --git a/tests/test_a.py b/tests/test_a.py
deleted file mode 100644
--- a/tests/test_a.py
+++ /dev/null
@@ -1 +0,0 @@
-x = 1
"""
RENAMED = b"""diff --git a/old.py b/renamed.py
similarity index 100%
rename from old.py
rename to renamed.py
"""
BARE = b"""--- a/one.py\t2024-01-01
+++ b/one.py\t2024-01-01
@@ -1 +1 @@
-a
+b
--- a/two.py
+++ b/two.py
@@ -1 +1,2 @@
-a
+b
+c
"""
BINARY = b"""diff --git a/blob.bin b/blob.bin
index f971a5e..b842013 100644
Binary files a/blob.bin and b/blob.bin differ
"""


def added(path: str, text: bytes) -> bytes:
    """Return a patch that adds a file."""
    name = path.encode()
    body = b"".join(b"+" + line + b"\n" for line in text.split(b"\n"))
    count = str(text.count(b"\n") + 1).encode()
    head = b"diff --git a/" + name + b" b/" + name + b"\nnew file mode 100644\n--- /dev/null\n+++ b/" + name
    return head + b"\n@@ -0,0 +1," + count + b" @@\n" + body


def codes(patch: bytes, test_patch: bytes = b"") -> list[str]:
    """Return the codes of a patch's flags."""
    return [code for code, _ in patch_flags(patch, test_patch)]


def test_files_of_a_patch() -> None:
    """Paths come from headers alone: what a hunk holds is never taken for one."""
    found = file_patches(MODIFIED + NEW + DELETED + RENAMED + BINARY)
    assert [item.path for item in found] == ["app/x.py", "new file.py", "tests/test_a.py", "renamed.py", "blob.bin"]
    assert [item.is_new for item in found] == [False, True, False, False, False]
    assert [item.is_deleted for item in found] == [False, False, True, False, False]
    assert found[0].added == (b"++ b/not/a/header.py",)
    assert found[1].added == (b"x = 1",)


def test_files_without_git_headers() -> None:
    """A plain unified diff of several files is read too."""
    assert [(item.path, item.added) for item in file_patches(BARE)] == [("one.py", (b"b",)), ("two.py", (b"b", b"c"))]
    assert [item.path for item in file_patches(BARE.replace(b"\n", b"\r\n"))] == ["one.py", "two.py"]


@pytest.mark.parametrize("text", [b"", b"I fixed it.", b"\xff\xfe\x00", b"@@ -1 +1 @@\n+x"])
def test_what_is_no_patch_touches_nothing(text: bytes) -> None:
    """Prose and bytes of any kind name no file."""
    assert file_patches(text) == []


@pytest.mark.parametrize(("patch", "empty"), [(b"", True), (b"\n \n\t", True), (b"x", False)])
def test_empty(patch: bytes, empty: bool) -> None:
    """Nothing but blanks is an empty patch."""
    assert is_empty(patch) is empty


def test_the_final_newline_is_restored() -> None:
    """A trimmed patch gets its newline back; a whole one and an empty one stay as they are, byte by byte."""
    assert with_final_newline(b"a\r\nb") == b"a\r\nb\n"
    assert with_final_newline(b"a\n") == b"a\n"
    assert with_final_newline(b"") == b""


def test_binary_changes_without_data() -> None:
    """A binary change without data is named: nobody can apply it."""
    assert lacks_binary_data(MODIFIED + BINARY) == ["Binary files a/blob.bin and b/blob.bin differ"]
    assert codes(BINARY) == ["binary_left_out"]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("conftest.py", b"def pytest_runtest_makereport(item, call):\n    pass"),
        ("app/plugin.py", b"@pytest.hookimpl(hookwrapper=True)\ndef pytest_pyfunc_call(pyfuncitem):"),
        ("conftest.py", b"def pytest_sessionfinish(session):\n    session.exitstatus = 0"),
        ("app/x.py", b"print('>>>>> End Test Output')"),
        ("sitecustomize.py", b"x = 1"),
        ("a.pth", b"import x"),
        ("setup.cfg", b"[options.entry_points]\npytest11 =\n  x = x"),
        ("pytest.ini", b"[pytest]\naddopts = -p forge"),
        ("tests/conftest.py", b"pytest_plugins = ['forge']"),
    ],
)
def test_forged_outcomes(path: str, text: bytes) -> None:
    """What touches the reporting of tests, the markers, or what every runner loads is flagged."""
    assert codes(added(path, text)) == ["forged_outcomes"]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("conftest.py", b"import sys"),
        ("app/x.py", b"def report(outcome):\n    return outcome"),
        ("setup.cfg", b"[metadata]\nname = x"),
        ("tests/test_new.py", b"def test_new():\n    assert True"),
    ],
)
def test_honest_patches(path: str, text: bytes) -> None:
    """Ordinary changes and new tests are no sign of anything."""
    assert codes(added(path, text)) == []


def test_edited_tests() -> None:
    """Edits of the graded test files and of other existing tests are told apart."""
    assert codes(DELETED, test_patch=DELETED) == ["test_files_edited"]
    assert codes(DELETED) == ["other_tests_edited"]
    assert codes(added("tests/test_a.py", b"x"), test_patch=added("tests/test_a.py", b"y")) == ["test_files_edited"]


def test_instances_that_depend_on_the_machine() -> None:
    """Known instances, and those that the user names, are marked."""
    assert sensitive_flag("psf__requests-3362") is not None
    assert sensitive_flag("a__b-1") is None
    flag = sensitive_flag("a__b-1", ["a__b-1"])
    assert flag is not None
    assert flag[0] == "environment_sensitive"


def test_prompts() -> None:
    """Known fields are filled in once; braces of the problem and of the template stay; hints only on demand."""
    raw = {"instance_id": "a__b-1", "repo": "a/b", "base_commit": "abcdef", "FAIL_TO_PASS": ["x"]}
    row = parse_row({**raw, "problem_statement": "use {repo} and {x}", "hints_text": "look here"})
    assert "use {repo} and {x}" in render(None, row, "/testbed")
    assert "look here" not in render(None, row, "/testbed")
    assert "look here" in render(None, row, "/testbed", hints=True)
    text = render("{json: 1} {repo}@{base_commit} {workdir} {problem_statement}", row, "/w")
    assert text == "{json: 1} a/b@abcdef /w use {repo} and {x}"
