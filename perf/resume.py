"""Resuming a finished run of many attempts against plain pytest running as many empty tests.

python perf/resume.py [ATTEMPTS] [REPEATS]     default 10000 3
"""

from __future__ import annotations

import json
import resource
import statistics
import sys
import tempfile
from pathlib import Path

from measure import pytest_cost, table

PLAIN = "import pytest\n\n@pytest.mark.parametrize('i', range({}))\ndef test_a(i):\n    pass\n"


def main() -> None:
    """Make the run once, then measure interleaved and print medians."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    repeats = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pytest.ini").write_text("[pytest]\n")
        (folder / "test_plain.py").write_text(PLAIN.format(count))
        rows = (json.dumps({"id": f"q{i:05}", "question": "x", "answer": "1"}) for i in range(count))
        (folder / "q.jsonl").write_text("\n".join(rows) + "\n")
        ours = ["--agentcompass", "benchmark=tasks", "benchmark.path=q.jsonl", "harness=oracle"]
        first = pytest_cost(folder, *ours, "--agentcompass-run-id=r")
        memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        run = folder / "agentcompass-results" / "run" / "r"
        size = sum(path.stat().st_size for path in run.rglob("*") if path.is_file())
        cases = {
            f"plain pytest, {count} empty tests": ["test_plain.py"],
            f"resume of a finished run of {count}": [*ours, "--agentcompass-resume=r"],
        }
        costs = {case: [] for case in cases}
        for _ in range(repeats):
            for case, words in cases.items():
                costs[case].append(pytest_cost(folder, *words))
    wall = {case: statistics.median(cost.wall for cost in found) for case, found in costs.items()}
    cpu = {case: statistics.median(cost.cpu for cost in found) for case, found in costs.items()}
    base = next(iter(cases))
    rows = [(case, wall[case], cpu[case], wall[case] / wall[base]) for case in cases]
    print(table(["case", "wall s", "CPU s", "wall ratio"], rows))
    print(
        f"\nthe run itself: {first.wall:.1f} s, peak {memory:.0f} MB, {size / count / 1000:.1f} kB written per attempt"
    )


if __name__ == "__main__":
    main()
