"""A limit of containers over two runs, one of which is killed while it holds all permits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import docker
import pytest

pytestmark = pytest.mark.docker

IMAGE = "pytest-agentcompass-test:bookworm"
LABEL = "agentcompass.run"
LIMIT = 2


@contextmanager
def started(folder: Path, name: str, seconds: int, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run attempts that work for *seconds* with workers under the limit; the run leads a process group of its own."""
    steps = json.dumps([{"run": f"sleep {seconds}"}])
    with open(folder / f"{name}.txt", "wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"-n{LIMIT}", "--agentcompass",
             "benchmark=tasks", "benchmark.path=t.yaml", "harness=scripted", "environment=docker",
             f"harness.steps={steps}", f"runtime.provider_limits={{docker: {LIMIT}}}",
             f"--agentcompass-run-id={name}", *words],
            cwd=folder, env={**os.environ, "XDG_RUNTIME_DIR": str(folder)}, stdin=subprocess.DEVNULL,
            stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_for(what: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    """Wait until *what* holds, while *process* lives."""
    end = time.monotonic() + 60
    while not what():
        assert process.poll() is None, "the run ended before it came to that"
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.05)


def most_open(client: docker.APIClient, names: list[str], since: int) -> int:
    """Return how many containers of the named runs were open at once, by the engine's own events."""
    opened: set[str] = set()
    most = 0
    for event in client.events(since=since, until=int(time.time()) + 1, filters={"type": "container"}, decode=True):
        if event["Actor"]["Attributes"].get(LABEL) in names:
            if event["Action"] == "start":
                opened.add(event["Actor"]["ID"])
            elif event["Action"] == "destroy":
                opened.discard(event["Actor"]["ID"])
        most = max(most, len(opened))
    return most


def test_permits_of_a_killed_run_come_free_when_its_containers_are_gone(
    tmp_path: Path, docker_client: docker.APIClient, base_image: str
) -> None:
    """Who waits for a permit of a killed run removes its containers, then goes on; the limit holds throughout."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    rows = [{"id": f"t{n}", "instruction": "x", "verify": "true", "environment": {"image": IMAGE}} for n in range(3)]
    (tmp_path / "t.yaml").write_text(json.dumps({"tasks": rows}))
    since = int(time.time())
    names = [f"{word}-{uuid.uuid4().hex[:12]}" for word in ("killed", "other")]

    def running(name: str) -> int:
        return len(docker_client.containers(filters={"label": f"{LABEL}={name}"}))

    def waits() -> bool:
        events = list(tmp_path.glob(f"agentcompass-results/*/{names[1]}/events.jsonl"))
        return bool(events) and b'"limit_wait"' in events[0].read_bytes()

    with started(tmp_path, names[0], 300) as first:
        wait_for(lambda: running(names[0]) == LIMIT, first)
        with started(tmp_path, names[1], 0) as second:
            wait_for(waits, second)
            os.killpg(first.pid, signal.SIGKILL)  # nobody waits for it yet: a zombie holds nothing either
            assert second.wait(120) == 0, (tmp_path / f"{names[1]}.txt").read_text()
    assert "3 passed" in (tmp_path / f"{names[1]}.txt").read_text()
    for name in names:
        assert docker_client.containers(all=True, filters={"label": f"{LABEL}={name}"}) == []
    assert most_open(docker_client, names, since) == LIMIT
