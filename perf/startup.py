"""What the installed but unused plugin adds to a pytest run: CPU against the same run with the plugin blocked.

python perf/startup.py [REPEATS]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

from measure import pytest_cost, table


def main() -> None:
    """Measure interleaved and print medians."""
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 21
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pytest.ini").write_text("[pytest]\n")
        (folder / "test_one.py").write_text("def test_one():\n    pass\n")
        cases = {"plugin blocked": ["-p", "no:agentcompass"], "plugin installed, unused": []}
        found = {name: [] for name in cases}
        for _ in range(repeats):
            for name, words in cases.items():
                found[name].append(pytest_cost(folder, *words, "test_one.py").cpu * 1000)
    medians = {name: statistics.median(values) for name, values in found.items()}
    print(table(["case", "CPU ms"], list(medians.items())))
    print(f"\nadded: {medians['plugin installed, unused'] - medians['plugin blocked']:.1f} ms CPU")


if __name__ == "__main__":
    main()
