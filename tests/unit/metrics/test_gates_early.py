"""When a gate is decided before the run is over."""

from __future__ import annotations

import itertools

import gates_fakes as fake
import pytest

from pytest_agentcompass.metrics.gates import RunState, all_decided, decided, evaluate_gate, parse_gate


@pytest.mark.parametrize(
    ("text", "outcomes", "expected"),
    [
        ("pass@1 >= 0.5", "PPMM", True),
        ("pass@1 >= 0.5", "PFMM", False),
        ("pass@1 >= 0.5", "FFFM", True),
        ("pass@1 <= 0.5", "PPPM", True),
        ("pass@1 >= 0.5; confidence: 0.95", "P" * 90 + "M" * 10, True),
        ("pass@1 >= 0.5; confidence: 0.95", "PPMM", False),
        ("errors <= 2%", "PPMM", True),
        ("errors <= 2%", "EPMM", True),
        ("agent_timeout <= 25%", "TTMM", True),
        ("agent_timeout <= 25%", "TPMM", False),
        ("duration_max <= 0.5s", "PMMM", True),
        ("duration_max <= 5s", "PMMM", False),
        ("duration_mean <= 0.5s", "PMMM", False),
        ("pass@1 >= 0.5", "EEMM", True),
        ("pass@1[nobody] >= 0.5", "PPMM", False),
        ("cost_usd <= 4", "PPMM", False),
    ],
)
def test_thresholds(text: str, outcomes: str, expected: bool) -> None:
    """Decided in both directions where outcomes can only move it so far; too many errors are final."""
    assert decided(parse_gate(text), fake.one(outcomes), None) is expected


@pytest.mark.parametrize(
    ("text", "before", "after", "expected"),
    [
        ("no_regression(pass@1)", "P" * 20, "F" * 6 + "M" * 14, True),
        ("no_regression(pass@1)", "P" * 20, "F" * 4 + "M" * 16, False),
        ("no_regression(pass@1)", "P" * 20, "P" * 16 + "M" * 4, True),
        ("no_regression(pass@1)", "P" * 6 + "F" * 14, "F" * 6 + "M" * 14, False),
        ("pass@1 >= baseline - 10%", "P" * 20, "M" * 20, False),
    ],
)
def test_comparisons(text: str, before: str, after: str, expected: bool) -> None:
    """A red comparison is final when no remaining task can be fixed enough, a green one when none can break enough."""
    assert decided(parse_gate(text), fake.one(after), fake.one(before)) is expected


def test_several_attempts_are_not_decided_against_a_baseline() -> None:
    """Sign-flip and bootstrap are not known to move one way, so nothing is claimed."""
    run = fake.one(["FFF"] * 20 + ["MMM"])
    assert not decided(parse_gate("no_regression(pass@1)"), run, fake.one(["PPP"] * 21))


@pytest.mark.parametrize(
    "text", ["pass@1 >= 0.5", "no_regression(pass@1)", "pass@1 >= baseline - 30%", "pass@1 > baseline"]
)
def test_decided_means_that_every_ending_agrees(text: str) -> None:
    """Exhaustively over small runs: wherever it says decided, all ways to end give one verdict."""
    gate, base = parse_gate(text), fake.one("PPPPPPFF")
    claimed = 0
    for done in itertools.product("PF", repeat=5):
        start = "".join(done)
        if not decided(gate, fake.one(start + "MMM"), base):
            continue
        claimed += 1
        ends = {
            evaluate_gate(gate, fake.one(start + "".join(rest)), base, RunState()).verdict
            for rest in itertools.product("PF", repeat=3)
        }
        assert len(ends) == 1, start
    assert claimed or "baseline" in text


def test_a_run_stops_only_when_all_gates_are_decided_and_one_asks() -> None:
    """Nobody asked: no stop. One open gate: no stop."""
    run = fake.one("PPMM")
    asking, silent, open_gate = map(
        parse_gate, ("pass@1 >= 0.5; stop_when_decided: true", "pass@1 >= 0.4", "pass@1 >= 0.9")
    )
    assert all_decided([((asking, silent), None, None)], run)
    assert not all_decided([((silent,), None, None)], run)
    assert not all_decided([((asking,), None, None), ((open_gate,), None, None)], run)
