"""A synthetic SWE-bench instance of our own: a small repository with a bug, its fix, its tests, and the row.

The repository's history goes on after the base commit (a branch, a tag, notes, a stash hold the fix), as in
badly made images.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_agentcompass.contracts.record import AttemptRecord

__all__ = ["EXPECTED", "Instance", "build_instance", "check", "prediction", "rows_and_predictions", "write_jsonl"]

INSTANCE = "acme__shapes-1"
#: what each patch of `Instance.patches` ends in: outcome, failure mode, the command that applied it, flags
EXPECTED: dict[str, tuple[str, str, str, set[str]]] = {
    "gold": ("passed", "none", "git apply --verbose", set()),
    "no final newline": ("passed", "none", "git apply --verbose", set()),
    "older context": ("passed", "none", "git apply --verbose --3way", set()),
    "fuzzy context": ("passed", "none", "patch --batch --forward --fuzz=5 -p1 -i", set()),
    "binary": ("passed", "none", "git apply --verbose", set()),
    "binary without data": ("passed", "none", "patch --batch --forward --fuzz=5 -p1 -i", {"binary_left_out"}),
    "wrong": ("failed", "none", "git apply --verbose", set()),
    "empty": ("failed", "empty_patch", "", set()),
    "blanks": ("failed", "empty_patch", "", set()),
    "prose": ("failed", "patch_not_applied", "", set()),
    "elsewhere": ("failed", "patch_not_applied", "", set()),
    "forged": ("passed", "none", "git apply --verbose", {"forged_outcomes"}),
    "printed": ("error", "contradiction", "git apply --verbose", {"forged_outcomes"}),
    "silent": ("error", "no_tests", "git apply --verbose", {"forged_outcomes"}),
    "slow": ("failed", "test_timeout", "git apply --verbose", set()),
    "edits tests": ("passed", "none", "git apply --verbose", {"test_files_edited"}),
}

_STATS = '''"""Means of numbers."""


def total(numbers):
    """Return the sum."""
    result = 0
    for number in numbers:
        result += number
    return result


def mean(numbers):
    """Return the mean."""
    return total(numbers) / (len(numbers) - 1)


def spread(numbers):
    """Return how far the numbers lie apart."""
    return max(numbers) - min(numbers)
'''
_FIXED = _STATS.replace("(len(numbers) - 1)", "len(numbers)")
_OLD_STATS = _STATS.replace("def spread(numbers):", "def spread(numbers, key=None):")
_TESTS = """import pytest

from shapes.stats import mean, spread, total


def test_total():
    assert total([1, 2, 3]) == 6


def test_spread():
    assert spread([3, 9]) == 6


@pytest.mark.parametrize("numbers", [[1, 2]], ids=["one two"])
def test_total_again(numbers):
    assert total(numbers) == 3
"""
_NEW_TESTS = (
    _TESTS
    + """

def test_mean():
    assert mean([2, 4, 6]) == 4


@pytest.mark.parametrize("number", [5, 7])
def test_mean_of_one(number):
    assert mean([number]) == number
"""
)
_SCRIPT = """\
#!/bin/bash
set -uxo pipefail
cd /testbed
git config --global --add safe.directory /testbed
git status
git show
git -c core.fileMode=false diff {base}
git checkout {base} tests/test_stats.py
git apply -v - <<'EOF_114329324912'
{test_patch}
EOF_114329324912
: '>>>>> Start Test Output'
{python} -m pytest -rA -p no:cacheprovider tests/test_stats.py
: '>>>>> End Test Output'
git checkout {base} tests/test_stats.py
"""
_WHO = {
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.invalid",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.invalid",
    "GIT_AUTHOR_DATE": "2024-01-02T03:04:05Z",
    "GIT_COMMITTER_DATE": "2024-01-02T03:04:05Z",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null",
}


@dataclass(frozen=True)
class Instance:
    """The row, the repository (a working copy at the base commit), and patches that try the grading."""

    row: dict[str, Any]
    repository: Path
    base: str
    patches: dict[str, bytes]


def build_instance(folder: Path, *, name: str = INSTANCE, image: str = "", python: str = "python3") -> Instance:
    """Make the repository in `folder/OWNER__REPO` and return the instance."""
    repository = folder / name.rpartition("-")[0]
    repository.mkdir(parents=True)
    _git(repository, "init", "-q", "-b", "main")
    _write(repository, _OLD_STATS, _TESTS)
    _commit(repository, "the first version")
    _write(repository, _STATS, _TESTS)
    base = _commit(repository, "spread takes no key")
    gold = _diff_of(repository, {"shapes/stats.py": _FIXED.encode()})
    tests = _diff_of(repository, {"tests/test_stats.py": _NEW_TESTS.encode()})
    patches = _patches(repository, gold)
    _add_future(repository, base)
    row = {
        "instance_id": name,
        "repo": name.rpartition("-")[0].replace("__", "/"),
        "base_commit": base,
        "version": "1.0",
        "patch": _without_index(gold).decode(),
        "test_patch": _without_index(tests).decode(),
        "problem_statement": "mean([2, 4, 6]) is 6.0.\r\nIt should be 4: 平均 {braces} stay.",
        "hints_text": "look at len()",
        "created_at": "2024-01-02T03:04:05Z",
        "FAIL_TO_PASS": json.dumps(["tests/test_stats.py::test_mean", "tests/test_stats.py::test_mean_of_one[5]"]),
        "PASS_TO_PASS": ["tests/test_stats.py::test_total", "tests/test_stats.py::test_total_again[one"],
        "environment_setup_commit": None,
        "image": image,
        "eval_script": _SCRIPT.format(base=base, test_patch=_without_index(tests).decode(), python=python),
        "log_parser": "parse_log_pytest",
        "eval_type": "pass_and_fail",
        "difficulty": "<15 min fix",
    }
    return Instance(row, repository, base, patches)


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Write rows or predictions, one a line."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="ascii")
    return path


def prediction(instance: str, patch: bytes | None, model: str = "acme/model") -> dict[str, Any]:
    """Return one line of a predictions file."""
    text = None if patch is None else patch.decode("utf-8", "surrogateescape")
    return {"instance_id": instance, "model_name_or_path": model, "model_patch": text}


def rows_and_predictions(folder: Path, instance: Instance) -> dict[str, str]:
    """Write `rows.jsonl` and `preds.jsonl` with one instance per patch; return instance ids by patch."""
    names = {kind: f"acme__shapes-{number}" for number, kind in enumerate(instance.patches, 1)}
    write_jsonl(folder / "rows.jsonl", [{**instance.row, "instance_id": name} for name in names.values()])
    predictions = [prediction(name, instance.patches[kind]) for kind, name in names.items()]
    write_jsonl(folder / "preds.jsonl", predictions)
    return names


def check(kind: str, record: AttemptRecord) -> None:
    """Assert that the record of a patch is what `EXPECTED` says."""
    outcome, mode, command, flags = EXPECTED[kind]
    assert (record.outcome, record.failure_mode.value) == (outcome, mode), record.issues
    assert record.details.get("swebench", {}).get("applied_with", "") == command
    assert {item["code"] for item in record.details.get("integrity", [])} == flags
    assert record.metrics.get("resolved", False) is (outcome == "passed")


def _patches(repository: Path, gold: bytes) -> dict[str, bytes]:
    """Return the patches by what they try."""
    wrong = _diff_of(repository, {"shapes/stats.py": _STATS.replace("- 1", "+ 1").encode()})
    binary = _diff_of(repository, {"shapes/stats.py": _FIXED.encode(), "shapes/table.bin": bytes(range(256)) * 3})
    hook = b"""import pytest


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    outcome.get_result().outcome = "passed"
"""
    forged = _diff_of(repository, {"conftest.py": hook})
    printing = b"""import os


def pytest_configure(config):
    config.pluginmanager.getplugin("capturemanager").suspend_global_capture()
    print("PASSED tests/test_stats.py::test_mean", flush=True)
    os._exit(3)
"""
    printed = _diff_of(repository, {"conftest.py": printing})
    silent = _diff_of(repository, {"conftest.py": b"import os\n\nos._exit(3)\n"})
    slow = _diff_of(repository, {"conftest.py": b"import time\ntime.sleep(120)\n"})
    tests = _diff_of(
        repository, {"tests/test_stats.py": b"def test_mean():\n    pass\n", "shapes/stats.py": _FIXED.encode()}
    )
    return {
        "gold": gold,
        "no final newline": gold.rstrip(b"\n"),
        "older context": _older_context(repository),
        "fuzzy context": _without_index(gold).replace(b" def mean(numbers):", b" def mean(values):"),
        "binary": binary,
        "binary without data": _text_diff(
            repository, {"shapes/stats.py": _FIXED.encode(), "shapes/table.bin": b"\0\1"}
        ),
        "wrong": wrong,
        "empty": b"",
        "blanks": b"\n  \n",
        "prose": b"I fixed it.",
        "elsewhere": gold.replace(b"shapes/stats.py", b"shapes/missing.py"),
        "forged": forged,
        "printed": printed,
        "silent": silent,
        "slow": slow,
        "edits tests": tests,
    }


def _older_context(repository: Path) -> bytes:
    """Return the fix as made on the first version: only a three-way merge takes it."""
    _git(repository, "checkout", "-q", "HEAD~1")
    patch = _diff_of(repository, {"shapes/stats.py": _OLD_STATS.replace("(len(numbers) - 1)", "len(numbers)").encode()})
    _git(repository, "checkout", "-q", "main")
    return patch


def _write(repository: Path, stats: str, tests: str) -> None:
    files = {
        "shapes/__init__.py": b"",
        "shapes/stats.py": stats.encode(),
        "shapes/table.bin": bytes(range(256)),
        "tests/test_stats.py": tests.encode(),
        ".gitignore": b"*.log\n",
        "pytest.ini": b"[pytest]\npythonpath = .\n",
    }
    _put(repository, files)


def _put(repository: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        path = repository / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _diff_of(repository: Path, files: dict[str, bytes]) -> bytes:
    return _text_diff(repository, files, "--binary", "--full-index")


def _text_diff(repository: Path, files: dict[str, bytes], *options: str) -> bytes:
    """Return the diff that these files make, and put the tree back."""
    _put(repository, files)
    _git(repository, "add", "-A")
    patch = _git(repository, "diff", "--cached", *options, "HEAD")
    _git(repository, "reset", "-q", "--hard")
    _git(repository, "clean", "-qfd")
    return patch


def _without_index(patch: bytes) -> bytes:
    """Return a diff without its `index` lines, as in the datasets."""
    return b"".join(line for line in patch.splitlines(keepends=True) if not line.startswith(b"index "))


def _add_future(repository: Path, base: str) -> None:
    """Let the history go on: the fix on a branch, under a tag, in refs of a remote, in notes, stash and reflog."""
    _put(repository, {"shapes/stats.py": _FIXED.encode()})
    fix = _commit(repository, "fix: the mean of numbers")
    _git(repository, "branch", "future")
    _git(repository, "tag", "-a", "v2", "-m", "with the fix")
    _git(repository, "update-ref", "refs/remotes/origin/main", fix)
    _git(repository, "update-ref", "refs/pull/1/head", fix)
    _git(repository, "notes", "add", "-m", "see the fix", base)
    _git(repository, "reset", "-q", "--hard", base)
    _put(repository, {"shapes/stats.py": _FIXED.encode()})
    _git(repository, "stash", "-q")
    _git(repository, "remote", "add", "origin", "file:///nonexistent")


def _commit(repository: Path, message: str) -> str:
    _git(repository, "add", "-A")
    _git(repository, "commit", "-q", "-m", message)
    return _git(repository, "rev-parse", "HEAD").decode().strip()


def _git(repository: Path, *arguments: str) -> bytes:
    command = ["git", "-c", "gc.auto=0", *arguments]
    return subprocess.run(command, cwd=repository, env={**os.environ, **_WHO}, check=True, capture_output=True).stdout
