"""A Docker limit over two runs, one of which is killed: `python perf/concurrency.py killed [ROUNDS] [IMAGE]`.

Two runs of `-n 4` each share a limit of three containers. While the first holds permits, its whole process group
gets SIGKILL, so that nothing of it can clean up. The engine's own events tell how many containers are open and when
those of the dead run are gone; the folder of the permits tells who holds them.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import docker
from measure import table

LIMIT = 3
WORKERS = 4
TASKS = 14
SECONDS = 1.0  # an attempt's own work
LABEL = "agentcompass.run"


class Containers:
    """Follows the engine's events: which containers of the measured runs are open, and when each was gone."""

    def __init__(self, client: docker.APIClient, runs: list[str]) -> None:
        self.open: dict[str, str] = {}
        self.most = 0
        self.gone: dict[str, float] = {}
        self._runs = runs
        self._stream: Any = client.events(filters={"type": "container"}, decode=True)
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        for event in self._stream:
            run = event["Actor"]["Attributes"].get(LABEL)
            if run not in self._runs:
                continue
            if event["Action"] == "start":
                self.open[event["Actor"]["ID"]] = run
                self.most = max(self.most, len(self.open))
            elif event["Action"] == "destroy":
                self.open.pop(event["Actor"]["ID"], None)
                self.gone[run] = event["timeNano"] / 1e9

    def close(self) -> None:
        """Stop following."""
        self._stream.close()


def permits(pool: Path, state: str) -> list[int]:
    """Return the process of each permit that is held (`h`) or waited for (`w`)."""
    return [int(name.split(".")[3]) for name in os.listdir(pool) if f".{state}." in name] if pool.is_dir() else []


def group_of(pid: int) -> int:
    """Return the process group of a process; 0 when there is none."""
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


def wait_until(what: Any, seconds: float = 60.0) -> float:
    """Return the time at which *what* holds; looks every few milliseconds."""
    end = time.time() + seconds
    while not what():
        if time.time() > end:
            raise SystemExit("it did not come to that")
        time.sleep(0.003)
    return time.time()


@contextmanager
def two_runs(folder: Path, image: str, names: list[str]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start the runs, each the leader of a process group, with permits of their own; end what is left of them."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    rows = [
        {"id": f"t{number}", "instruction": "x", "verify": "true", "environment": {"image": image}}
        for number in range(TASKS)
    ]
    (folder / "t.yaml").write_text(json.dumps({"tasks": rows}))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"-n{WORKERS}"]
    command += ["--agentcompass", "benchmark=tasks", "benchmark.path=t.yaml", "harness=scripted", "environment=docker"]
    command += [
        f"harness.steps={json.dumps([{'run': f'sleep {SECONDS}'}])}",
        f"runtime.provider_limits={{docker: {LIMIT}}}",
    ]
    runs = []
    try:
        for name in names:
            output = open(folder / f"{name}.txt", "wb")  # noqa: SIM115  # the run's own for as long as it lives
            runs.append(
                subprocess.Popen(
                    [*command, f"--agentcompass-run-id={name}"],
                    cwd=folder,
                    env={**os.environ, "XDG_RUNTIME_DIR": str(folder)},
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )
        yield runs
    finally:
        for process in runs:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
            process.wait()


def measure(client: docker.APIClient, image: str) -> list[float]:
    """Return for one kill: seconds to the last container's end, from there to all permits held, most open, left."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        names = [f"killed-{os.getpid()}-{time.time_ns()}", f"other-{os.getpid()}-{time.time_ns()}"]
        seen = Containers(client, names)
        with two_runs(folder, image, names) as (first, second):

            def count(process: subprocess.Popen[bytes], state: str) -> int:
                pools = folder.glob("agentcompass/permits/provider-docker-*")
                return sum(group_of(pid) == process.pid for pool in pools for pid in permits(pool, state))

            def worth_it() -> bool:
                mine = list(seen.open.values()).count(names[0])
                return 2 <= mine == count(first, "h") and count(second, "w") > 0

            killed = wait_until(worth_it)
            os.killpg(first.pid, signal.SIGKILL)
            full = wait_until(lambda: count(second, "h") == LIMIT)
            gone = wait_until(lambda: names[0] not in seen.open.values()) and seen.gone[names[0]]
            second.wait()
            if second.returncode:
                raise SystemExit((folder / f"{names[1]}.txt").read_text(errors="replace")[-3000:])
        seen.close()
        left = client.containers(all=True, filters={"label": f"{LABEL}={names[0]}"})
        return [gone - killed, full - gone, float(seen.most), float(len(left))]


def main(rounds: int = 3, image: str = "agentcompass-base:bookworm") -> None:
    """Kill a run several times and print the figures."""
    client = docker.APIClient(version="auto")
    rounds_of = [measure(client, image) for _ in range(rounds)]
    swept, free, most, left = zip(*rounds_of, strict=True)
    rows = [
        ["SIGKILL to the dead run's containers gone", f"{statistics.median(swept):.2f} s", f"{max(swept):.2f} s"],
        ["gone to all permits with the other run", f"{statistics.median(free):.2f} s", f"{max(free):.2f} s"],
        ["most containers open at once", f"{statistics.median(most):.0f}", f"{max(most):.0f}"],
        ["containers of the dead run left", f"{statistics.median(left):.0f}", f"{max(left):.0f}"],
    ]
    print(table([f"Docker limit {LIMIT}, two runs of -n {WORKERS}, one killed", "median", f"worst of {rounds}"], rows))
