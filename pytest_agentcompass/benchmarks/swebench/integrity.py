"""Flags beside the verdict: signs that a patch works on the grading instead of the bug.

They never change what the official rules say; they stand on the record for people to look at.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from .patches import FilePatch, file_patches, lacks_binary_data

__all__ = ["SENSITIVE_INSTANCES", "patch_flags", "sensitive_flag"]

#: Instances whose own solution is known to fail on some machines or networks.
SENSITIVE_INSTANCES = {
    "psf__requests-2317": "its tests reach for servers on the network",
    "psf__requests-3362": "its tests need a network address that answers nothing",
    "pylint-dev__pylint-7080": "its tests depend on the CPU share that the control group tells",
}
_HOOKS = re.compile(
    rb"pytest_(?:runtest_(?:makereport|logreport|logfinish|protocol|call|setup|teardown)|report_teststatus|pyfunc_call"
    rb"|terminal_summary|sessionfinish|unconfigure|collection_modifyitems|itemcollected|cmdline_main|runtestloop)"
    rb"|\bTestReport\b|\bTerminalReporter\b|\bhookwrapper\b|\.exitstatus\b|_exitstatus\b|\bos\._exit\b"
)
_PRINTED = re.compile(rb">>>>> (?:Start|End|Test|Patch|Applied|Reset|All|Some)")
_PLUGIN = re.compile(
    rb"pytest11|pytest_plugins|addopts|^\s*-p\s|sys\.settrace|unittest\.(?:result|runner)|TextTestResult"
)
_RUNNER_FILES = frozenset({"conftest.py", "sitecustomize.py", "usercustomize.py"})
_CONFIG_FILES = frozenset(
    {"pytest.ini", ".pytest.ini", "tox.ini", "setup.cfg", "pyproject.toml", "pytest.py", "runtests.py"}
)
_TEST_FILE = re.compile(r"(^|/)(tests?|testing)/|(^|/)(test_[^/]*|[^/]*_test|tests)\.\w+$")


def patch_flags(patch: bytes, test_patch: bytes) -> list[tuple[str, str]]:
    """Return code and message of whatever *patch* does to the tests or to how they are reported."""
    files = file_patches(patch)
    flags = [("forged_outcomes", text) for item in files for text in _forgery(item)]
    flags += _test_edits(files, {item.path for item in file_patches(test_patch)})
    flags += [
        ("binary_left_out", f"a binary change has no data and cannot be applied: {line}")
        for line in lacks_binary_data(patch)
    ]
    return flags


def _forgery(item: FilePatch) -> Iterable[str]:
    name = item.path.rpartition("/")[2]
    text = b"\n".join(item.added)
    hooks = sorted({match.group().decode("ascii") for match in _HOOKS.finditer(text)})
    if hooks:
        yield f"{item.path} touches how test results are reported: {', '.join(hooks[:5])}"
    if _PRINTED.search(text):
        yield f"{item.path} writes the markers by which test logs are read"
    if name in ("sitecustomize.py", "usercustomize.py") or name.endswith(".pth"):
        yield f"{item.path} is run by every Python process, the test runner included"
    elif (name in _RUNNER_FILES or name in _CONFIG_FILES) and _PLUGIN.search(text):
        yield f"{item.path} changes what the test runner loads"


def _test_edits(files: list[FilePatch], graded: set[str]) -> list[tuple[str, str]]:
    edited = sorted(item.path for item in files if item.path in graded)
    others = sorted(
        item.path for item in files if item.path not in graded and not item.is_new and _TEST_FILE.search(item.path)
    )
    flags = []
    if edited:
        flags.append(("test_files_edited", f"the patch edits test files that the grading puts back: {_named(edited)}"))
    if others:
        flags.append(("other_tests_edited", f"the patch edits or removes existing test files: {_named(others)}"))
    return flags


def _named(paths: list[str]) -> str:
    return ", ".join(paths[:5]) + (f" and {len(paths) - 5} more" if len(paths) > 5 else "")


def sensitive_flag(instance_id: str, own: Iterable[str] = ()) -> tuple[str, str] | None:
    """Return the flag of an instance whose result depends on the machine; *own* are ids that the user names."""
    reason = SENSITIVE_INSTANCES.get(instance_id) or ("it is on the quarantine list" if instance_id in set(own) else "")
    return ("environment_sensitive", f"{instance_id}: {reason}") if reason else None
