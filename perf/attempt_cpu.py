"""CPU of a trivial attempt on host_process, children included, with a full record on disk.

python perf/attempt_cpu.py [ATTEMPTS] [REPEATS]

The cost of the start (a run of one attempt) is taken off. Beside it: what plain pytest needs for an empty test,
and what the spawned shells cost without us.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

from measure import pytest_cost, run, table

SPAWN = (
    "import subprocess\nfor _ in range({n}):\n    subprocess.run(['/bin/sh', '-c', 'true'], start_new_session=True)\n"
)


def main() -> None:
    """Measure interleaved and print milliseconds per attempt."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    repeats = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pytest.ini").write_text("[pytest]\n")
        for number in (1, count):
            body = "import pytest\n\n@pytest.mark.parametrize('i', range({}))\ndef test_a(i):\n    pass\n"
            (folder / f"test_plain{number}.py").write_text(body.format(number))
            task = "  - {{id: t{:05}, instruction: x, verify: 'true', solution: 'true'}}"
            lines = ["tasks:", *(task.format(index) for index in range(number))]
            (folder / f"v{number}.yaml").write_text("\n".join(lines) + "\n")
        ours = ["--agentcompass", "benchmark=tasks"]
        cases = {
            "plain pytest, an empty test": lambda n: [f"test_plain{n}.py"],
            "attempt, one child (nop, verifier)": lambda n: [*ours, "harness=nop", f"benchmark.path=v{n}.yaml"],
            "attempt, two children (oracle, verifier)": lambda n: [
                *ours,
                "harness=oracle",
                f"benchmark.path=v{n}.yaml",
            ],
            "the same, concurrency=8": lambda n: [
                *ours,
                "harness=oracle",
                f"benchmark.path=v{n}.yaml",
                "concurrency=8",
            ],
        }
        found = {name: [] for name in cases}
        spawned = []
        for _ in range(repeats):
            for name, words in cases.items():
                one, many = pytest_cost(folder, *words(1)), pytest_cost(folder, *words(count))
                found[name].append((many.cpu - one.cpu) / (count - 1) * 1000)
            empty = run([sys.executable, "-c", SPAWN.format(n=0)], folder)
            full = run([sys.executable, "-c", SPAWN.format(n=count)], folder)
            spawned.append((full.cpu - empty.cpu) / count * 1000)
        size = sum(path.stat().st_size for path in (folder / "agentcompass-results").rglob("*") if path.is_file())
        attempts = sum(1 for _ in (folder / "agentcompass-results").rglob("record.json"))
    rows = [(name, statistics.median(values)) for name, values in found.items()]
    rows.append(("subprocess.run of one shell, for comparison", statistics.median(spawned)))
    print(table(["case", "CPU ms"], rows))
    print(f"\n{size / attempts / 1000:.1f} kB on disk per attempt, reports and events included")


if __name__ == "__main__":
    main()
