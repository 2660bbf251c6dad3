"""Decides whether clean.csv is right; copied next to it after the agent has finished."""

from pathlib import Path

WANTED = """\
day,shop,amount
2024-03-01,south,7.00
2024-03-02,north,12.50
2024-03-03,west,9.99
2024-03-04,east,3.25
"""

found = Path("clean.csv").read_text()
assert found.splitlines() == WANTED.splitlines(), f"clean.csv is not as wanted:\n{found}"
