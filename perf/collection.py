"""Collection of 10,000 attempts against plain pytest collecting 10,000 parametrized tests (CPU, whole process).

python perf/collection.py [REPEATS]
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path

from measure import pytest_cost, table

PLAIN = "import pytest\n\n@pytest.mark.parametrize('i', range(10_000))\ndef test_a(i):\n    pass\n"


def main() -> None:
    """Measure interleaved, print the medians and their ratios."""
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pytest.ini").write_text("[pytest]\n")
        (folder / "test_plain.py").write_text(PLAIN)
        for count in (1_000, 10_000):
            rows = (json.dumps({"id": f"q{i:05}", "question": "x", "answer": "1"}) for i in range(count))
            (folder / f"q{count}.jsonl").write_text("\n".join(rows) + "\n")
        ours = ["--co", "--agentcompass", "benchmark=tasks", "harness=nop"]
        cases = {
            "plain pytest, 10,000 parametrized tests": ["--co", "test_plain.py"],
            "10,000 tasks, k = 1": [*ours, "benchmark.path=q10000.jsonl"],
            "1,000 tasks, k = 10": [*ours, "benchmark.path=q1000.jsonl", "attempts=10"],
        }
        for words in cases.values():
            pytest_cost(folder, *words)  # byte code and file caches are warm for all
        costs = {name: [] for name in cases}
        for _ in range(repeats):
            for name, words in cases.items():
                costs[name].append(pytest_cost(folder, *words))
    cpu = {name: statistics.median(cost.cpu for cost in found) for name, found in costs.items()}
    wall = {name: statistics.median(cost.wall for cost in found) for name, found in costs.items()}
    base = next(iter(cpu))
    rows = [(name, cpu[name], wall[name], cpu[name] / cpu[base], wall[name] / wall[base]) for name in cases]
    print(table(["case", "CPU s", "wall s", "CPU ratio", "wall ratio"], rows))


if __name__ == "__main__":
    main()
