"""Rules of whole attempts at SWE-bench, on a synthetic repository and this machine's processes."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from swebench_synthetic import EXPECTED, Instance, build_instance, check, prediction, rows_and_predictions, write_jsonl

from pytest_agentcompass import build_run_request, run_evaluation
from pytest_agentcompass.contracts.record import AttemptRecord

NEEDS_PATCH = {kind for kind, expected in EXPECTED.items() if expected[2].startswith("patch")}


def run(folder: Path, *words: str, **settings: Any) -> tuple[dict[str, AttemptRecord], Path]:
    """Run a request on the rows of *folder* and return its records by task, and the run directory."""
    base = ["benchmark=swebench", f"benchmark.dataset={folder / 'rows.jsonl'}", f"benchmark.repositories_dir={folder}"]
    request = build_run_request(*base, "environment=host_process", *words, **settings)
    outcome = asyncio.run(run_evaluation(request, results_dir=folder / "results"))
    return {record.task_id: record for record in outcome.requests[0].records}, Path(outcome.directory)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the repository."""
    return tmp_path_factory.mktemp("swebench")


@pytest.fixture(scope="module")
def instance(folder: Path) -> Instance:
    """The instance."""
    return build_instance(folder, python=sys.executable)


@pytest.fixture(scope="module")
def graded(folder: Path, instance: Instance) -> tuple[dict[str, AttemptRecord], Path]:
    """All patches graded once, in one run."""
    names = rows_and_predictions(folder, instance)
    words = ["harness=predictions", f"harness.path={folder / 'preds.jsonl'}", "execution.evaluation_timeout_seconds=20"]
    records, directory = run(folder, *words, "concurrency=4")
    return {kind: records[name] for kind, name in names.items()}, directory


@pytest.fixture
def one(folder: Path, instance: Instance) -> Path:
    """A dataset of the one instance."""
    write_jsonl(folder / "rows.jsonl", [instance.row])
    return folder


@pytest.mark.parametrize("kind", EXPECTED)
def test_every_patch_ends_in_its_own_way(graded: tuple[dict[str, AttemptRecord], Path], kind: str) -> None:
    """Verdict, failure mode, the command that applied it and the flags are as they must be."""
    if kind in NEEDS_PATCH and shutil.which("patch") is None:
        pytest.skip("the program patch is not installed")
    check(kind, graded[0][kind])


def test_nothing_is_opened_for_an_empty_patch(graded: tuple[dict[str, AttemptRecord], Path]) -> None:
    """Neither agent nor evaluation gets a sandbox when there is nothing to grade."""
    assert "workdir" not in graded[0]["empty"].environment
    assert "workdir" in graded[0]["gold"].environment


def test_the_official_files_of_a_run(graded: tuple[dict[str, AttemptRecord], Path], instance: Instance) -> None:
    """The official report stands beside our summary, and each graded attempt has its official report.json."""
    records, directory = graded
    report = json.loads(next(directory.glob("acme__model.*.json")).read_text())
    assert report["schema_version"] == 2
    assert report["total_instances"] == len(instance.patches)
    assert records["gold"].task_id in report["resolved_ids"]
    assert sorted(report["empty_patch_ids"]) == sorted(records[kind].task_id for kind in ("empty", "blanks"))
    path = next(directory.glob(f"attempts/*/*{records['wrong'].task_id.rpartition('-')[2]}/1/artifacts/report.json"))
    own = json.loads(path.read_text())[records["wrong"].task_id]
    assert own["patch_successfully_applied"]
    assert own["tests_status"]["FAIL_TO_PASS"]["failure"] == json.loads(instance.row["FAIL_TO_PASS"])


def test_the_logs_are_kept(graded: tuple[dict[str, AttemptRecord], Path]) -> None:
    """Test output, eval script and the tries of applying are in the attempt's folder."""
    name = graded[0]["fuzzy context"].task_id
    logs = next(graded[1].glob(f"attempts/*/{name}*/1/logs"))
    assert {"test_output.txt", "eval.sh", "apply_patch.txt"} <= {path.name for path in logs.iterdir()}
    assert "$ git apply --verbose --3way" in (logs / "apply_patch.txt").read_text()


def test_oracle_and_nop(one: Path) -> None:
    """The reference solution resolves the instance; doing nothing is an empty patch."""
    records, directory = run(one, "harness=oracle")
    assert records["acme__shapes-1"].passed is True
    assert (directory / "predictions.jsonl").is_file()
    records, _ = run(one, "harness=nop")
    record = records["acme__shapes-1"]
    assert (record.outcome, record.failure_mode.value) == ("failed", "empty_patch")


def test_a_run_gives_predictions_that_grade_the_same(one: Path) -> None:
    """What a run writes as predictions can be graded again without the agent."""
    _, directory = run(one, "harness=oracle")
    records, _ = run(one, "harness=predictions", f"harness.path={directory / 'predictions.jsonl'}")
    assert records["acme__shapes-1"].passed is True


def test_an_instance_without_prediction_is_skipped(one: Path) -> None:
    """An id that the file does not name is skipped with the reason; one that the dataset lacks is only a note."""
    write_jsonl(one / "other.jsonl", [prediction("acme__other-9", b"x")])
    records, _ = run(one, "harness=predictions", f"harness.path={one / 'other.jsonl'}")
    record = records["acme__shapes-1"]
    assert record.outcome == "skipped"
    assert "no prediction for 'acme__shapes-1'" in record.issues[0]["message"]


AGENT = """
git config core.fsmonitor true; git config diff.noprefix true; git config color.ui always
git config core.excludesFile /dev/null; git config core.hooksPath hooks
mkdir -p build pkg/__pycache__ && echo x > build/out && echo x > pkg/__pycache__/a.pyc && echo x > debug.log
printf 'caf\\351\\r\\nno end' > latin.txt
printf '\\000\\001' > shapes/table.bin
sed -i 's/(len(numbers) - 1)/len(numbers)/' shapes/stats.py
git add shapes && git commit -qm 'my fix'
git update-index --assume-unchanged tests/test_stats.py
"""


def test_the_patch_is_taken_whole(one: Path) -> None:
    """Committed, uncommitted and binary changes are in the patch as bytes; build products and ignored files are not."""
    step = json.dumps({"steps": [{"run": AGENT}]})
    records, directory = run(one, harness={"id": "scripted", "params": json.loads(step)})
    record = records["acme__shapes-1"]
    assert record.passed is True, record.issues
    patch = next(directory.glob("attempts/*/*/1/artifacts/model.patch")).read_bytes()
    assert b"+caf\xe9\r\n+no end\n\\ No newline at end of file\n" in patch
    assert b"GIT binary patch" in patch
    assert b"diff --git a/shapes/stats.py b/shapes/stats.py" in patch
    for name in (b"build/out", b"a.pyc", b"debug.log", b"\x1b["):
        assert name not in patch


LOOK = """
state="head $(git rev-parse HEAD) log $(git log --oneline | wc -l) status [$(git status --porcelain)]"
{ git log --all --oneline; git tag; git branch -a; git stash list; git reflog --all; git for-each-ref; git remote
  git fsck --lost-found --no-reflogs; git show v2:shapes/stats.py
  git cat-file --batch-all-objects --batch-check; } >look.txt 2>&1
echo "$state" >>look.txt
"""


@pytest.mark.parametrize("history", ["remove", "keep"])
def test_the_future_is_removed(one: Path, instance: Instance, history: str) -> None:
    """Nothing after the base commit can be found in the sandbox, or the record warns of it."""
    known = subprocess.run(
        ["git", "rev-list", "--all", "--not", instance.base],
        cwd=instance.repository,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    harness = {"id": "scripted", "params": {"steps": [{"run": LOOK}]}}
    records, directory = run(one, f"benchmark.history={history}", harness=harness)
    record = records["acme__shapes-1"]
    text = next(directory.glob("attempts/*/*/1/artifacts/model.patch")).read_text()
    assert f"head {instance.base} log 2 status []" in text
    codes = {issue["code"] for issue in record.issues}
    if history == "remove":
        assert known
        assert not [commit for commit in known if commit[:7] in text]
        for word in ("future", "v2^", "with the fix", "origin", "stash@", "refs/notes", "refs/pull", "dangling"):
            assert word not in text
        assert "history_removed" in codes
        assert "later_history" not in codes
    else:
        assert "future" in text
        assert {item["code"] for item in record.details["integrity"]} == {"later_history"}


def test_a_repository_at_another_commit(one: Path, instance: Instance) -> None:
    """A sandbox that does not hold the base commit is a setup error, never a verdict."""
    write_jsonl(one / "rows.jsonl", [{**instance.row, "base_commit": "0123456789abcdef"}])
    record = run(one, "harness=nop")[0]["acme__shapes-1"]
    assert (record.outcome, record.failure_mode.value) == ("error", "setup_error")
    assert "0123456789abcdef" in record.issues[-1]["message"]


def test_a_broken_script_is_no_verdict(one: Path, instance: Instance) -> None:
    """An eval script that runs no tests is an error of the infrastructure, never unresolved."""
    script = instance.row["eval_script"].replace("-m pytest", "-m no_such_module")
    write_jsonl(one / "rows.jsonl", [{**instance.row, "eval_script": script}])
    record = run(one, "harness=oracle")[0]["acme__shapes-1"]
    assert (record.outcome, record.failure_mode.value) == ("error", "no_tests")
    assert "no_such_module" in record.verifier_output


def test_a_solution_that_fails_marks_the_instance(one: Path, instance: Instance) -> None:
    """When the oracle does not resolve an instance, the instance is marked."""
    write_jsonl(one / "rows.jsonl", [{**instance.row, "PASS_TO_PASS": ["tests/test_stats.py::test_gone"]}])
    record = run(one, "harness=oracle")[0]["acme__shapes-1"]
    assert record.outcome == "failed"
    assert [item["code"] for item in record.details["integrity"]] == ["environment_sensitive"]
    assert "test_gone (absent)" in record.issues[0]["message"]


def test_a_secret_in_a_patch_is_masked_in_the_file(one: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stored patch holds no secret, and what is graded is the patch as it was."""
    monkeypatch.setenv("ACME_API_KEY", "sk-very-secret-value")
    fix = "sed -i 's/(len(numbers) - 1)/len(numbers)/' shapes/stats.py; "
    fix += "echo 'KEY = \"sk-very-secret-value\"' >> shapes/stats.py"
    records, directory = run(one, harness={"id": "scripted", "params": {"steps": [{"run": fix}]}})
    patch = next(directory.glob("attempts/*/*/1/artifacts/model.patch")).read_bytes()
    assert records["acme__shapes-1"].passed is True
    assert b"sk-very-secret-value" not in patch
    assert records["acme__shapes-1"].artifacts["model.patch"]["scrubbed"] is True
