"""Wall time of one Docker attempt against the engine calls in it, interleaved in one run.

    python perf/docker_attempt.py [--repeats 9] [--image NAME]

(a) a task of the benchmark `tasks`: one command by the agent, one by the verifier;
(b) a Terminal-Bench 2 task: the oracle's script, the verifier's script, its reward.

Two scripts with the bare docker SDK stand beside each: *same calls* makes the engine calls that our attempt makes
(looking for leftovers, fresh folders for the verifier, looking for links included), *bare* only those that the
work cannot do without. The aim is at most 1.15 times the same calls. What a process needs once (imports, the first
connection, the build) is not counted: ours is the time from the attempt's first phase to the end of the run.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

import docker

sys.path.insert(0, str(Path(__file__).parent / "peers"))
import workloads

from pytest_agentcompass.environments.docker.scripts import RESET, SNAPSHOT

REWARD_TEST = (
    "#!/bin/bash\ncd /app\nif grep -qx done /app/answer; then r=1; else r=0; fi\necho $r > /logs/verifier/reward.txt\n"
)


def archive(files: dict[str, str]) -> bytes:
    """Return a tar archive of text files."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(text.encode()), 0o755
            tar.addfile(info, io.BytesIO(text.encode()))
    return data.getvalue()


class Raw:
    """One container by bare SDK calls."""

    def __init__(self, client: docker.APIClient, image: str) -> None:
        self.client, self.image, self.container = client, image, ""

    def open(self) -> None:
        """Create and start it."""
        host = self.client.create_host_config(init=True)
        made = self.client.create_container(self.image, ["sh", "-c", "sleep infinity"], host_config=host)
        self.container = made["Id"]
        self.client.start(self.container)

    def exec(self, words: list[str]) -> int:
        """Run a command to its end and return its status."""
        made = self.client.exec_create(self.container, words)
        self.client.exec_start(made["Id"])
        return int(self.client.exec_inspect(made["Id"])["ExitCode"])

    def put(self, folder: str, files: dict[str, str]) -> None:
        """Put files in."""
        self.client.put_archive(self.container, folder, archive(files))

    def read(self, path: str) -> bytes:
        """Read a file."""
        chunks, _ = self.client.get_archive(self.container, path)
        with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as tar:
            member = tar.extractfile(tar.getmembers()[0])
            return member.read() if member else b""

    def look(self, *paths: str) -> None:
        """Ask what stands at some paths; for one that is missing, whether the container runs."""
        for path in paths:
            url = f"{self.client.base_url}/v{self.client._version}/containers/{self.container}/archive"
            if self.client.head(url, params={"path": path}).status_code == 404:
                self.client.inspect_container(self.container)

    def check(self, right: bool) -> None:
        """End everything when the work was not done."""
        if not right:
            self.close()
            raise SystemExit("the raw script did not solve the task")

    def close(self) -> None:
        """Remove it."""
        self.client.remove_container(self.container, force=True, v=True)


Work = Callable[[Raw], None]


def bare_task(raw: Raw) -> None:
    """Do what the attempt (a) cannot do without."""
    raw.open()
    raw.exec(["sh", "-c", "echo done > /tmp/answer"])
    raw.check(raw.exec(["sh", "-c", "test -f /tmp/answer"]) == 0)
    raw.close()


def same_task(raw: Raw) -> None:
    """Make the calls of the attempt (a)."""
    raw.open()
    raw.look("/tmp", "/tmp/none")
    raw.put("/tmp", {"instruction.md": "write"})
    raw.exec(["sh", "-c", "echo done > /tmp/answer"])
    raw.look("/tmp/none")
    raw.exec(["sh", "-c", SNAPSHOT])
    raw.check(raw.exec(["sh", "-c", "test -f /tmp/answer"]) == 0)
    raw.close()


def bare_tb2(raw: Raw) -> None:
    """Do what the attempt (b) cannot do without."""
    raw.open()
    raw.exec(["mkdir", "-p", "/solution", "/tests", "/logs/verifier", "/logs/agent", "/app"])
    raw.put("/solution", {"solve.sh": "echo done > /app/answer\n"})
    raw.exec(["bash", "/solution/solve.sh"])
    raw.put("/tests", {"test.sh": REWARD_TEST})
    raw.exec(["bash", "/tests/test.sh"])
    raw.check(raw.read("/logs/verifier/reward.txt").strip() == b"1")
    raw.close()


def same_tb2(raw: Raw) -> None:
    """Make the calls of the attempt (b)."""
    raw.open()
    raw.exec(["sh", "-c", "mkdir -p /logs/agent /logs/verifier /logs/artifacts /app; [ -e /app/pytest.py ]"])
    raw.look("/solution")
    raw.exec(["sh", "-c", RESET, "sh", "/solution", "0:0"])
    raw.look("/solution")
    raw.put("/solution", {"solve.sh": "echo done > /app/answer\n"})
    raw.exec(["bash", "/solution/solve.sh"])
    raw.exec(["sh", "-c", SNAPSHOT])
    raw.look("/tests", "/logs", "/logs/verifier", "/private")
    raw.exec(["sh", "-c", RESET, "sh", "/tests", "0:0", "/logs/verifier", "0:0", "/private", "0:0"])
    raw.look("/tests")
    raw.put("/tests", {"test.sh": REWARD_TEST, "test_outputs.py": "\n"})
    raw.exec(["sh", "-c", "[ -e /pytest.ini ]; chmod -R a+rX /tests"])
    raw.exec(["bash", "-c", "exec bash /tests/test.sh 2>&1"])
    raw.exec(["sh", "-c", "cd /logs/verifier; [ -f reward.txt ]"])
    raw.check(raw.read("/logs/verifier/reward.txt").strip() == b"1")
    raw.close()


def ours(folder: Path, *settings: str) -> float:
    """Run one attempt of ours and return its seconds, the removal of the container included."""
    words = [sys.executable, "-m", "pytest", "-q", "--agentcompass", *settings, "--rootdir", str(folder)]
    words += [f"--agentcompass-results={folder / 'results'}", "environment=docker"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"our run failed:\n{done.stdout[-3000:]}")
    run = max((folder / "results").glob("*/*/events.jsonl"), key=lambda path: path.stat().st_mtime)
    return attempt_seconds(run)


def attempt_seconds(events: Path) -> float:
    """Return the seconds from the first phase of the attempt to the end of the run (its container is gone then)."""
    found = [json.loads(line) for line in events.read_text().splitlines()]
    first = next(event for event in found if event["kind"] == "phase_changed")
    last = next(event for event in found if event["kind"] == "run_finished")
    return (datetime.fromisoformat(last["time"]) - datetime.fromisoformat(first["time"])).total_seconds()


def many(work: Work, raw: Raw, count: int, at_once: int) -> None:
    """Do *work* *count* times in containers of their own, *at_once* by threads."""
    with ThreadPoolExecutor(at_once) as pool:
        for done in [pool.submit(work, Raw(raw.client, raw.image)) for _ in range(count)]:
            done.result()


def compare(
    title: str, raw: Raw, bare: Work, same: Work, own: Callable[[], float], repeats: int, count: int, at_once: int
) -> str:
    """Return a line of the table: medians over interleaved repeats."""
    times: dict[str, list[float]] = {"bare": [], "same": [], "own": []}
    own()  # the image is built and everything is in the file cache
    for _ in range(repeats):
        times["bare"].append(seconds(lambda: many(bare, raw, count, at_once)))
        times["same"].append(seconds(lambda: many(same, raw, count, at_once)))
        times["own"].append(own())
    medians = [statistics.median(times[name]) for name in ("bare", "same", "own")]
    ratios = (medians[2] / medians[1], medians[2] / medians[0])
    return "| " + " | ".join([title, *(f"{value:.3f}" for value in medians), *(f"{r:.2f}" for r in ratios)]) + " |"


def seconds(work: Callable[[], None]) -> float:
    """Return how long *work* takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--image", default=os.environ.get("AGENTCOMPASS_PERF_IMAGE", "agentcompass-base:bookworm"))
    parser.add_argument("--attempts", type=int, default=1, help="attempts in each repeat")
    parser.add_argument("--concurrency", type=int, default=1)
    given = parser.parse_args()
    raw = Raw(docker.APIClient(version="auto"), given.image)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        row = {"id": "t", "question": "write", "image": given.image, "verify": "test -f answer"}
        (folder / "task.jsonl").write_text(json.dumps(row) + "\n")
        workloads.write_tb2(folder / "tb2/trivial", given.image)
        (folder / "tb2/trivial/tests/test.sh").write_text(REWARD_TEST)
        task = (
            "benchmark=tasks",
            f"benchmark.path={folder / 'task.jsonl'}",
            "harness=command",
            "harness.command=echo done > answer",
        )
        tb2 = ("benchmark=terminal_bench", f"benchmark.path={folder / 'tb2'}", "harness=oracle")
        print(
            "| attempt | bare s | same calls s | ours s | ours / same calls | ours / bare |\n|---|---|---|---|---|---|"
        )
        for title, bare, same, settings in (
            ("task", bare_task, same_task, task),
            ("Terminal-Bench 2", bare_tb2, same_tb2, tb2),
        ):
            words = (*settings, f"attempts={given.attempts}", f"concurrency={given.concurrency}")
            many_times = (given.repeats, given.attempts, given.concurrency)
            print(compare(title, raw, bare, same, lambda: ours(folder, *words), *many_times), flush=True)  # noqa: B023


if __name__ == "__main__":
    main()
