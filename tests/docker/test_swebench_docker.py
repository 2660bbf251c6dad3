"""Rules of SWE-bench in containers: a synthetic instance with an image of its own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest
from swebench_synthetic import EXPECTED, Instance, build_instance, check, prediction, rows_and_predictions, write_jsonl

from pytest_agentcompass import build_run_request, run_evaluation
from pytest_agentcompass.contracts.record import AttemptRecord

pytestmark = pytest.mark.docker

REAL = Path(__file__).parents[2].parent / "shared" / "swebench" / "instances.jsonl"
# a name of its own in each process: whoever is done first removes its image
IMAGE = f"pytest-agentcompass-test-swebench:shapes-{os.getpid()}"
DOCKERFILE = """\
FROM {base}
COPY acme__shapes /testbed
RUN mkdir -p /opt/miniconda3/envs/testbed/bin && ln -s /bin/true /opt/miniconda3/envs/testbed/bin/only-in-testbed
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the repository."""
    return tmp_path_factory.mktemp("swebench")


@pytest.fixture(scope="module")
def instance(folder: Path, docker_client: docker.APIClient, base_image: str) -> Iterator[Instance]:
    """The instance with its image, which is removed afterwards."""
    made = build_instance(folder, image=IMAGE)
    (folder / "Dockerfile").write_text(DOCKERFILE.format(base=base_image))
    for line in docker_client.build(path=str(folder), tag=IMAGE, rm=True, forcerm=True, decode=True):
        assert "error" not in line, line
    yield made
    docker_client.remove_image(IMAGE, force=True)


def run(folder: Path, *words: str, **settings: Any) -> tuple[dict[str, AttemptRecord], Path]:
    """Run a request on the rows of *folder* and return its records by task, and the run directory."""
    request = build_run_request("benchmark=swebench", f"benchmark.dataset={folder / 'rows.jsonl'}", *words, **settings)
    outcome = asyncio.run(run_evaluation(request, results_dir=folder / "results"))
    return {record.task_id: record for record in outcome.requests[0].records}, Path(outcome.directory)


@pytest.fixture(scope="module")
def graded(folder: Path, instance: Instance) -> dict[str, AttemptRecord]:
    """All patches graded once, in one run."""
    names = rows_and_predictions(folder, instance)
    words = ["harness=predictions", f"harness.path={folder / 'preds.jsonl'}", "execution.evaluation_timeout_seconds=25"]
    records, _ = run(folder, *words, "concurrency=2")
    return {kind: records[name] for kind, name in names.items()}


@pytest.fixture
def one(folder: Path, instance: Instance) -> Path:
    """A dataset of the one instance."""
    write_jsonl(folder / "rows.jsonl", [instance.row])
    return folder


@pytest.mark.parametrize("kind", EXPECTED)
def test_every_patch_ends_in_its_own_way(graded: dict[str, AttemptRecord], kind: str) -> None:
    """Verdict, failure mode, the command that applied it and the flags are as they must be."""
    check(kind, graded[kind])


def test_no_container_for_an_empty_patch(graded: dict[str, AttemptRecord]) -> None:
    """A container is started for a patch, and none for an empty one."""
    assert "container" in graded["gold"].environment
    assert "container" not in graded["empty"].environment


def test_oracle_and_nop(one: Path, docker_client: docker.APIClient) -> None:
    """The reference solution resolves the instance, doing nothing does not, and no container stays."""
    records, directory = run(one, "harness=oracle")
    assert records["acme__shapes-1"].passed is True
    nop, second = run(one, "harness=nop")
    assert (nop["acme__shapes-1"].outcome, nop["acme__shapes-1"].failure_mode.value) == ("failed", "empty_patch")
    for run_id in (directory.name, second.name):
        assert docker_client.containers(all=True, filters={"label": f"agentcompass.run={run_id}"}) == []


def test_what_the_agent_meets(one: Path, instance: Instance) -> None:
    """It starts in /testbed at the base commit, with the tests' Python first on PATH and nothing of the future."""
    look = (
        "{ pwd; git rev-parse HEAD; command -v only-in-testbed; git log --all --oneline | wc -l; git tag; } > look.txt"
    )
    records, directory = run(one, harness={"id": "scripted", "params": {"steps": [{"run": look}]}})
    patch = next(directory.glob("attempts/*/*/1/artifacts/model.patch")).read_text()
    added = [line[1:] for line in patch.splitlines() if line.startswith("+") and not line.startswith("+++")]
    assert added == ["/testbed", instance.base, "/opt/miniconda3/envs/testbed/bin/only-in-testbed", "2"]
    assert "history_removed" in {issue["code"] for issue in records["acme__shapes-1"].issues}


def test_a_missing_image_is_named(one: Path, instance: Instance) -> None:
    """An image that does not exist is an error of the environment that names it, not a verdict."""
    write_jsonl(one / "rows.jsonl", [{**instance.row, "image": "localhost:9/no/such-image:x"}])
    record = run(one, "harness=oracle")[0]["acme__shapes-1"]
    assert (record.outcome, record.failure_mode.value) == ("error", "environment_error")
    assert "localhost:9/no/such-image:x" in record.issues[-1]["message"]


def test_killed_and_resumed(folder: Path, instance: Instance) -> None:
    """Six instances with two workers, killed in the middle and resumed, give the report of an undisturbed run."""
    kinds = ("gold", "wrong", "binary", "forged", "empty", "prose")
    names = {kind: f"acme__shapes-{number}" for number, kind in enumerate(kinds, 1)}
    write_jsonl(folder / "rows.jsonl", [{**instance.row, "instance_id": name} for name in names.values()])
    write_jsonl(folder / "preds.jsonl", [prediction(name, instance.patches[kind]) for kind, name in names.items()])
    undisturbed, _ = _pytest(folder, "whole")
    killed = _start(folder, "killed")
    deadline = time.monotonic() + 120
    while len(list(folder.glob("killed/*/*/attempts/*/*/*/record.json"))) < 2:
        assert killed.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate(timeout=60)
    resumed, output = _pytest(folder, "killed", "--agentcompass-resume=last")
    assert resumed == undisturbed, output
    assert set(resumed["resolved_ids"]) == {names[kind] for kind in ("gold", "binary", "forged")}


@pytest.mark.skipif(not REAL.is_file(), reason="the file ../shared/swebench/instances.jsonl is not there")
def test_real_instances(tmp_path: Path, docker_client: docker.APIClient) -> None:
    """Real instances, where their images were made on this engine: the solution resolves them, nothing else does."""
    rows = [json.loads(line) for line in REAL.read_text().splitlines()]
    rows = [row for row in rows if docker_client.images(name=row["image"])]
    if not rows:
        pytest.skip("the images of the real instances are not on this engine")
    write_jsonl(tmp_path / "rows.jsonl", rows)
    records, _ = run(tmp_path, "harness=oracle", "concurrency=2")
    assert {name: record.outcome for name, record in records.items()} == dict.fromkeys(records, "passed")
    idle = {"id": "scripted", "params": {"steps": [{"write": {"notes.txt": "nothing"}}]}}
    for harness in ("nop", idle):
        records, _ = run(tmp_path, "concurrency=2", "benchmark.history=keep", harness=harness)
        assert {name: record.outcome for name, record in records.items()} == dict.fromkeys(records, "failed")


def _command(folder: Path, results: str, *options: str) -> list[str]:
    words = ["benchmark=swebench", "benchmark.dataset=rows.jsonl", "harness=predictions", "harness.path=preds.jsonl"]
    own = ["-p", "no:cacheprovider", "-n", "2", f"--agentcompass-results={folder / results}", *options]
    return [sys.executable, "-m", "pytest", "-q", *own, "--agentcompass", *words]


def _start(folder: Path, results: str, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        _command(folder, results, *options),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def _pytest(folder: Path, results: str, *options: str) -> tuple[dict[str, Any], str]:
    """Run the six instances to the end and return the official report, and what was printed."""
    output, _ = _start(folder, results, *options).communicate(timeout=300)
    reports = list((folder / results).glob("*/*/acme__model.*.json"))
    assert len(reports) == 1, output
    return json.loads(reports[0].read_text()), output
