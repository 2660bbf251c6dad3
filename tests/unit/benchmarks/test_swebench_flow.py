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
from pytest_agentcompass.benchmarks.swebench.history import History, scrub_history
from pytest_agentcompass.components.context import AttemptContext, set_current_attempt
from pytest_agentcompass.components.predictions import read_predictions
from pytest_agentcompass.contracts.plan import ExecutionPlan
from pytest_agentcompass.contracts.record import AttemptRecord
from pytest_agentcompass.environments.host_process import HostProcessEnvironment

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

    def logs(kind: str) -> Path:
        return next(graded[1].glob(f"attempts/*/{graded[0][kind].task_id}/1/logs"))

    assert {"test_output.txt", "eval.sh", "apply_patch.txt"} <= {path.name for path in logs("gold").iterdir()}
    assert "$ git apply --verbose --3way" in (logs("fuzzy context") / "apply_patch.txt").read_text()


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
mkdir -p pkg/build && echo kept > pkg/build/code.py
printf 'caf\\351\\r\\nno end' > latin.txt
printf '\\000\\001' > shapes/table.bin
sed -i 's/(len(numbers) - 1)/len(numbers)/' shapes/stats.py
git add -A && git commit -qm 'my fix'
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
    assert b"pkg/build/code.py" in patch
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


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("rm -rf .git", "no patch could be taken"),
        ("git checkout -q --orphan none && rm -rf .git/refs", "no patch could be taken"),
    ],
)
def test_a_destroyed_repository(one: Path, command: str, words: str) -> None:
    """An agent that destroys the repository has left no patch; that is its own failure, with the reason."""
    record = run(one, harness={"id": "scripted", "params": {"steps": [{"run": command}]}})[0]["acme__shapes-1"]
    assert (record.outcome, record.failure_mode.value) == ("failed", "empty_patch")
    assert words in record.issues[-1]["message"]


@pytest.mark.parametrize(
    "command", ["git checkout -q --orphan other", "git checkout -q HEAD~1", "git reset -q --soft HEAD~1"]
)
def test_moving_head_does_not_matter(one: Path, instance: Instance, command: str) -> None:
    """The patch is taken against what the agent was given, wherever HEAD is."""
    fix = (
        f"{command}; git checkout -q {instance.base} -- . ; sed -i 's/(len(numbers) - 1)/len(numbers)/' shapes/stats.py"
    )
    record = run(one, harness={"id": "scripted", "params": {"steps": [{"run": fix}]}})[0]["acme__shapes-1"]
    assert record.passed is True, record.issues


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


CASES = Path(__file__).parents[3].parent / "shared" / "cases"
needs_cases = pytest.mark.skipif(not CASES.is_dir(), reason="the folder ../shared/cases is not there")
SCRIPT = """\
cd /testbed
: '>>>>> Start Test Output'
python3 -c "import app; assert app.f() == 2" && echo "PASSED t::fixed" || echo "FAILED t::fixed"
[ "$(tail -c1 nonl.txt)" = C ] && echo "PASSED t::nonl" || echo "FAILED t::nonl"
[ "$(wc -c <blob.bin)" = 5 ] && echo "PASSED t::blob" || echo "FAILED t::blob"
: '>>>>> End Test Output'
"""


def grade_case(folder: Path, case: str, required: dict[str, list[str]]) -> dict[str, AttemptRecord]:
    """Grade the predictions of a shared case on its own tree; *required* are the tests that each must pass."""
    repository = folder / "case__repo"
    shutil.copytree(CASES / case / "base", repository)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.invalid"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "base"]):
        subprocess.run([*git, *command], cwd=repository, check=True)
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=repository, check=True, capture_output=True, text=True)
    names = list(read_predictions(CASES / case / "predictions.jsonl"))
    rows = [
        {
            "instance_id": name,
            "repo": "case/repo",
            "base_commit": head.stdout.strip(),
            "FAIL_TO_PASS": required.get(name, ["t::fixed"]),
            "PASS_TO_PASS": [],
            "eval_script": SCRIPT,
            "log_parser": "parse_log_pytest",
            "eval_type": "pass_and_fail",
        }
        for name in names
    ]
    write_jsonl(folder / "rows.jsonl", rows)
    path = CASES / case / "predictions.jsonl"
    return run(folder, "harness=predictions", f"harness.path={path}", "concurrency=4")[0]


@needs_cases
def test_shared_trimmed_patches(tmp_path: Path) -> None:
    """Trimmed, fenced, marked and CRLF patches apply, and the tool is told; empty ones and prose fail by name."""
    records = grade_case(tmp_path, "13-patch-trim", {"nonl-marker": ["t::nonl"]})
    for name in ("as-is", "trimmed", "fenced", "nonl-marker"):
        assert records[name].passed is True, name
        assert records[name].details["swebench"]["applied_with"].startswith("git apply")
    for name in ("empty", "none", "spaces"):
        assert (records[name].outcome, records[name].failure_mode.value) == ("failed", "empty_patch")
        assert "workdir" not in records[name].environment
    assert (records["prose"].outcome, records["prose"].failure_mode.value) == ("failed", "patch_not_applied")
    crlf = records["crlf-throughout"]
    if shutil.which("patch"):
        assert crlf.passed is True
        assert crlf.details["swebench"]["applied_with"].startswith("patch")


@needs_cases
def test_shared_binary_patches(tmp_path: Path) -> None:
    """A binary diff applies whole; one without data is never graded as if it had."""
    records = grade_case(tmp_path, "15-patch-binary", {"git-diff-binary": ["t::fixed", "t::blob"]})
    assert records["git-diff-binary"].passed is True
    stub = records["git-diff"]
    assert [item["code"] for item in stub.details["integrity"]] == ["binary_left_out"]
    assert (
        stub.details["swebench"]["applied_with"].startswith("patch") or stub.failure_mode.value == "patch_not_applied"
    )


async def scrubbed(repository: Path, folder: Path, *commands: str) -> tuple[History, list[str]]:
    """Scrub a copy of *repository* in a sandbox and return what the commands print there afterwards."""
    set_current_attempt(AttemptContext("test", "main", "t", 1, folder))
    request = build_run_request("benchmark=swebench", "harness=nop")
    session = await HostProcessEnvironment().open(
        request, ExecutionPlan(request.environment.model_copy(update={"id": "host_process"}))
    )
    try:
        await session.upload_dir(repository, ".")
        history = await scrub_history(session, None)
        return history, [(await session.exec(command, shell=True, timeout=60)).stdout for command in commands]
    finally:
        await session.close()
        set_current_attempt(None)


def test_every_place_of_the_future_is_cleaned(tmp_path: Path) -> None:
    """Branches, tags, remotes, pull refs, notes, stash, reflogs, loose objects: nothing is left, and git works."""
    instance = build_instance(tmp_path)
    commands = [
        "git for-each-ref --format='%(refname)'",
        "git reflog --all; git stash list; git remote; git tag; git notes list 2>/dev/null; ls .git/logs 2>/dev/null",
        "git fsck --lost-found --no-reflogs 2>/dev/null",
        "git cat-file --batch-all-objects --batch-check='%(objecttype)' | grep -c 'commit\\|tag'",
        "git rev-parse HEAD; git status --porcelain; git log --oneline | wc -l",
    ]
    history, found = asyncio.run(scrubbed(instance.repository, tmp_path, *commands))
    assert history.found >= 4
    assert history.left == 0
    assert found[:3] == ["refs/heads/main\n", "", ""]
    assert found[3:] == ["2\n", f"{instance.base}\n2\n"]
    again, _ = asyncio.run(scrubbed(instance.repository, tmp_path))
    assert again == history


@needs_cases
def test_shared_git_history(tmp_path: Path) -> None:
    """The handed repository: everything that must be empty is, and what must work works."""
    script = CASES / "44-git-history" / "make_repo.sh"
    subprocess.run(["sh", str(script)], cwd=tmp_path, check=True, capture_output=True)
    empty = json.loads((CASES / "44-git-history" / "expected.json").read_text())[
        "inside_the_sandbox_after_setup_all_empty"
    ]
    works = ["git status --porcelain", "git log --oneline", "echo x >> app.py; git diff --stat"]
    _, found = asyncio.run(scrubbed(tmp_path / "repo", tmp_path, *empty, *works))
    assert found[: len(empty)] == [""] * len(empty)
    assert found[-3] == ""
    assert found[-2].endswith(" base\n")
    assert "app.py" in found[-1]


def test_no_images_need_clones(one: Path) -> None:
    """Without images and without clones the attempt is refused in the plan, with both ways out."""
    words = ["benchmark=swebench", f"benchmark.dataset={one / 'rows.jsonl'}", "harness=nop", "environment=host_process"]
    outcome = asyncio.run(run_evaluation(build_run_request(*words), results_dir=one / "results"))
    (record,) = outcome.requests[0].records
    assert (record.outcome, record.failure_mode.value) == ("error", "setup_error")
    assert "repositories_dir=DIR" in record.issues[-1]["message"]
    assert "environment=docker" in record.issues[-1]["message"]


def test_the_host_is_named_on_the_record(one: Path) -> None:
    """Verdicts made without the official image say so."""
    record = run(one, "harness=oracle")[0]["acme__shapes-1"]
    assert record.plan["applied_recipes"] == ["swebench_host_process"]
    assert any("not in the official image" in note for note in record.plan["notes"])
