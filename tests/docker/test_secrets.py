"""A key that an agent in a container prints in every form is nowhere where somebody may read it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from leaking import LEAK, command_lines, holds, random_key, watched
from plugin.helpers import TASKS, Suite, task

pytestmark = pytest.mark.docker


@pytest.mark.parametrize("words", [["-n0"], ["-n2"], ["concurrency=2"]], ids=["serial", "n2", "engine"])
def test_a_key_is_nowhere(tmp_path: Path, base_image: str, docker_client: docker.APIClient, words: list[str]) -> None:
    """Not in a file of the run, in what is printed, in a command line, nor in the configuration of a container."""
    (tmp_path / "suite").mkdir()
    suite, key = Suite(tmp_path / "suite"), random_key()
    inside = {"image": base_image, "artifacts": ["kept.txt"], "workdir": "/work", "files": {"/leak.py": LEAK}}
    name = f"leak{uuid.uuid4().hex[:8]}"
    suite.tasks(task(name, verify="cat kept.txt; false", **inside), task("b", **inside))
    configured: set[str] = set()

    def look() -> Iterator[tuple[str, bytes]]:
        yield from command_lines()
        for row in docker_client.containers(all=True, filters={"label": "agentcompass.request"}):
            try:
                found = docker_client.inspect_container(row["Id"])
            except docker.errors.NotFound:
                continue
            if name in found["Name"]:
                configured.add(row["Id"])
            yield row["Id"], json.dumps(found).encode() + str(found).encode()

    with watched(look, key) as seen:
        result = suite.run(
            *TASKS, "harness=command", "harness.command=python3 /leak.py", "harness.pass_env=[MY_KEY]",
            "environment=docker", *words, "-rA", "-v", "--junitxml=own.xml", MY_KEY=key,
        )  # fmt: skip
    assert result.counts == {"passed": 1, "failed": 1}, result.out
    assert configured  # somebody looked
    assert seen == []
    log = (result.run_dir / f"attempts/tasks/{name}/1/logs/agent.txt").read_text()
    assert log.count("[redacted]") == 6, log
    assert not holds((result.out + result.err).encode(), key)
    places = [suite.path / "own.xml", *(path for path in result.run_dir.rglob("*") if path.is_file())]
    assert [path for path in places if holds(path.read_bytes(), key)] == []
