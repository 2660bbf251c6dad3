"""Concurrency measured: many waiting attempts in one process, makespans against ideal, a limit over two runs.

python perf/concurrency.py wide [ATTEMPTS] [SLOTS] [SECONDS]     default 500 250 10
python perf/concurrency.py makespan [SCALE]                     60 attempts of log-normal length, 8 at once
python perf/concurrency.py limit                                two runs of -n 4 under a provider limit of 3
python perf/concurrency.py killed [ROUNDS] [IMAGE]              the same on Docker, and one of them is killed
python perf/concurrency.py chunks                               40 attempts, the first five slow, -n 2

A figure stands beside what it is compared with from the same run of this script: a run of one empty attempt
(start-up), ideal greedy list scheduling of the lengths as measured, plain xdist with tests that sleep as long.
"""

from __future__ import annotations

import heapq
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from measure import table

OURS = ["--agentcompass", "benchmark=tasks", "benchmark.path=t.yaml", "harness=scripted"]
SLOTS = 8


@dataclass(frozen=True, slots=True)
class Cost:
    """Wall and CPU seconds and peak memory (MB of the largest process) of one command."""

    wall: float
    cpu: float
    memory_mb: float


def ideal(lengths: Sequence[float], slots: int) -> float:
    """Return the makespan of greedy list scheduling: each length, in order, goes to who is free first."""
    free = [0.0] * slots
    for length in lengths:
        heapq.heapreplace(free, free[0] + length)
    return max(free)


def prepare(folder: Path, lengths: Sequence[float]) -> list[str]:
    """Write tasks, and tests of plain pytest, that wait for *lengths*; return the words of ours."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    lines = [f"  - {{id: t{number:04}, question: x, answer: '42'}}" for number in range(len(lengths))]
    (folder / "t.yaml").write_text("\n".join(["tasks:", *lines]) + "\n")
    steps = {f"t{number:04}": [{"sleep": length, "answer": "42"}] for number, length in enumerate(lengths)}
    # what is equal is said once: the harness's params are part of each attempt's plan and fingerprint
    same = len(set(lengths)) == 1
    params = {"steps": steps["t0000"]} if same else {"tasks": steps}
    (folder / "s.agentcompass.yaml").write_text(
        json.dumps(
            {
                "version": 1,
                "name": "s",
                "requests": [
                    {
                        "name": "r",
                        "benchmark": {"id": "tasks", "params": {"path": "t.yaml"}},
                        "harness": {"id": "scripted", "params": params},
                    }
                ],
            }
        )
    )
    body = (
        "import time, pytest\n@pytest.mark.parametrize('seconds', {!r})\ndef test_wait(seconds):\n"
        "    begin = time.time()\n    time.sleep(seconds)\n"
        "    with open('spans', 'a') as file:\n        file.write(f'{{begin}} {{time.time()}}\\n')\n"
    )
    (folder / "test_plain.py").write_text(body.format(list(lengths)))
    return ["--agentcompass", "s.agentcompass.yaml"]


def pytest(folder: Path, *words: str) -> Cost:
    """Run pytest in *folder*; a run that fails ends the measurement."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words]
    start = time.perf_counter()
    with open(folder / "output", "wb") as output:
        process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=subprocess.STDOUT)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    if status:
        raise SystemExit((folder / "output").read_text(errors="replace")[-3000:])
    return Cost(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def wide(count: int = 500, slots: int = 250, seconds: float = 10.0) -> None:
    """Measure many attempts that wait, in one process."""
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as many:
        start = pytest(Path(one), *prepare(Path(one), [0.0]), "concurrency=2")
        cost = pytest(Path(many), *prepare(Path(many), [seconds] * count), f"concurrency={slots}")
    best = ideal([seconds] * count, slots)
    rows = [
        [
            "wall, start-up taken off",
            f"{cost.wall - start.wall:.2f} s",
            f"{(cost.wall - start.wall) / best:.3f} x ideal {best:g} s",
        ],
        ["start-up", f"{start.wall:.2f} s", ""],
        ["CPU per attempt", f"{1000 * (cost.cpu - start.cpu) / count:.2f} ms", ""],
        ["peak memory", f"{cost.memory_mb:.0f} MB", f"start-up {start.memory_mb:.0f} MB"],
    ]
    print(table([f"{count} attempts of {seconds:g} s at {slots}", "figure", "beside it"], rows))


def spans(folder: Path) -> list[tuple[float, float]]:
    """Return begin and end of each attempt (from the run's events) or plain test (from its own note)."""
    if (folder / "spans").exists():
        return [tuple(map(float, line.split())) for line in (folder / "spans").read_text().splitlines()]  # type: ignore[misc]
    begun: dict[str, float] = {}
    found = []
    for line in next(folder.glob("agentcompass-results/*/*/events.jsonl")).read_bytes().splitlines():
        event = json.loads(line)
        when = datetime.fromisoformat(event["time"]).timestamp()
        if event["kind"] == "phase_changed":
            begun.setdefault(event["task"], when)
        elif event["kind"] == "attempt_finished":
            found.append((begun[event["task"]], when))
    return found


def makespan(scale: float = 1.0) -> None:
    """Measure 60 log-normal attempts at 8 slots, in process and with workers, beside plain xdist."""
    draw = random.Random(7)
    lengths = [round(scale * min(15.0, draw.lognormvariate(0.0, 1.4)), 3) for _ in range(60)]
    best = ideal(lengths, SLOTS)
    cases = {
        "ours, one process": ["s.agentcompass.yaml", "--agentcompass", f"concurrency={SLOTS}"],
        "ours, -n 8": ["s.agentcompass.yaml", f"-n{SLOTS}", "--agentcompass"],
        "plain xdist load": ["test_plain.py", f"-n{SLOTS}"],
        "plain xdist load, --maxschedchunk=1": ["test_plain.py", f"-n{SLOTS}", "--maxschedchunk=1"],
        "plain xdist worksteal": ["test_plain.py", f"-n{SLOTS}", "--dist", "worksteal"],
    }
    rows = []
    for title, words in cases.items():
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            prepare(folder, lengths)
            pytest(folder, *words)
            found = spans(folder)
            took = max(end for _, end in found) - min(begin for begin, _ in found)
            greedy = ideal([end - begin for begin, end in sorted(found)], SLOTS)
            rows.append([title, f"{took:.2f} s", f"{took / best:.3f}", f"{took / greedy:.3f}"])
    head = ["60 log-normal attempts, 8 at once", "makespan", f"x ideal {best:.2f} s", "x ideal of lengths as they were"]
    print(table(head, rows))


def limit() -> None:
    """Count how many sandboxes two runs of four workers have open at once under a limit of three."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder, [0.0] * 12)
        steps = json.dumps([{"run": f"echo + >> {folder}/log; sleep 0.3; echo - >> {folder}/log"}])
        words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *OURS, f"harness.steps={steps}"]
        command = [*words, "runtime.provider_limits={host_process: 3}", "-n4"]
        runs = [subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL) for _ in range(2)]
        for process in runs:
            process.wait()
        level = most = 0
        signs = (folder / "log").read_text().split()
        for sign in signs:
            level += 1 if sign == "+" else -1
            most = max(most, level)
    print(
        table(
            ["provider limit 3, two runs of -n 4", "figure"],
            [["attempts", str(signs.count("+"))], ["most open at once", str(most)]],
        )
    )


def chunks() -> None:
    """Measure 40 attempts of which the first five take 3 s, two workers; beside it plain xdist."""
    lengths = [3.0] * 5 + [0.05] * 35
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        words = prepare(folder, lengths)
        cases = {
            "ours, -n 2": [*words, "-n2"],
            "plain load": ["test_plain.py", "-n2"],
            "plain load, --maxschedchunk=1": ["test_plain.py", "-n2", "--maxschedchunk=1"],
            "plain worksteal": ["test_plain.py", "-n2", "--dist", "worksteal"],
        }
        for title, given in cases.items():
            rows.append([title, f"{pytest(folder, *given).wall:.1f} s"])
    print(table([f"40 items, 5 slow first (ideal {ideal(lengths, 2):.1f} s)", "wall with start-up"], rows))


def killed(rounds: int = 3, image: str = "agentcompass-base:bookworm") -> None:
    """Kill one of two runs that share a limit of containers, and measure when the other has all permits."""
    import killed_run  # needs the Docker SDK, which the other modes do not

    killed_run.main(rounds, image)


def number(word: str) -> float | str:
    """Return a word of the command line as a number where it is one."""
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word


if __name__ == "__main__":
    modes = {"wide": wide, "makespan": makespan, "limit": limit, "killed": killed, "chunks": chunks}
    modes[sys.argv[1]](*map(number, sys.argv[2:]))  # type: ignore[operator]
