"""Rules of reading rewards: strict numbers, and never 0 or a pass out of something odd."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_agentcompass.benchmarks.terminal_bench.rewards import decide, read_json_reward, read_text_reward
from pytest_agentcompass.errors import EvaluationError

CASES = Path(__file__).parents[3].parent / "shared" / "cases" / "60-reward-text"
needs_cases = pytest.mark.skipif(not CASES.is_dir(), reason="the folder ../shared/cases is not there")


def rows(name: str) -> list[dict[str, Any]]:
    """Return the rows of a case file."""
    path = CASES / name
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []


def check(json_file: bytes | None, text_file: bytes | None, want: Any) -> None:
    """Compare a decision with a case's wish."""
    if isinstance(want, float) or str(want)[0].isdigit():
        value = want if isinstance(want, float) else float(str(want).split(" ")[0])
        try:
            assert decide(json_file, text_file).reward == value
        except EvaluationError:
            assert "error" in str(want) or "refused" in str(want)
        return
    with pytest.raises(EvaluationError):
        decide(json_file, text_file)


@needs_cases
@pytest.mark.parametrize("row", rows("rewards.jsonl"), ids=lambda row: str(row["n"]))
def test_text_cases(row: dict[str, Any]) -> None:
    """reward.txt holds one finite ASCII number within range, or there is an error."""
    check(None, row["text"].encode(), row["want"])


@needs_cases
@pytest.mark.parametrize("row", rows("reward-json-variants.jsonl"), ids=lambda row: row["file"] or "empty")
def test_json_cases(row: dict[str, Any]) -> None:
    """reward.json holds an object of finite numbers with unique keys, or there is an error."""
    check(row["file"].encode(), None, row["want"])


@pytest.mark.parametrize(
    ("json_file", "text_file", "reward", "correct", "codes"),
    [
        (b'{"reward": 0.83, "success": 1}', b"1\n", 0.83, False, ["reward_files_differ"]),
        (b'{"reward": 1, "lines": 4}', b"0", 1.0, True, ["reward_files_differ"]),
        (b'{"reward": 1}', b"1", 1.0, True, []),
        (b'{"status": "ok", "failures": []}', b"1", 1.0, True, ["reward_json_ignored"]),
        (b'{"reward": "1"}', b"0.5", 0.5, False, ["reward_json_ignored"]),
        (b'{"reward": 1, "status": "ok"}', None, 1.0, True, ["reward_members_ignored"]),
        (b'{"a": 1, "b": 1}', None, 1.0, True, []),
        (b'{"a": 1, "b": 0}', None, 0.5, False, []),
        (b'{"reward": 1}', b"nan", 1.0, True, ["reward_txt_unusable"]),
    ],
)
def test_both_files(json_file: bytes, text_file: bytes | None, reward: float, correct: bool, codes: list[str]) -> None:
    """The JSON wins, a disagreement is noted, and only non-numbers let reward.txt stand in."""
    found = decide(json_file, text_file)
    assert (found.reward, found.correct) == (reward, correct)
    assert [note[0] for note in found.notes] == codes


@pytest.mark.parametrize(
    "content",
    [
        b'{"reward": NaN}',
        b'{"reward": 1e999}',
        b'{"reward": 1, "reward": 1}',
        b"{",
        b"{}",
        b"[1]",
        b"\xff",
        b'{"a": Infinity}',
    ],
)
def test_a_broken_json_is_not_replaced(content: bytes) -> None:
    """A reward.json that is broken or not finite is an error although reward.txt is fine."""
    with pytest.raises(EvaluationError):
        decide(content, b"1")


@pytest.mark.parametrize(("rule", "correct"), [("all", False), ("any", True), ("mean", False)])
def test_rules(rule: Any, correct: bool) -> None:
    """Without a key `reward` the request's rule decides."""
    assert decide(b'{"a": 1, "b": 0.5}', None, rule=rule).correct is correct


def test_range() -> None:
    """A declared range allows what is an error without it; extra figures have no range."""
    assert decide(None, b"-3", limits=(-5.0, 5.0)).reward == -3
    with pytest.raises(EvaluationError, match="outside of 0 to 1"):
        decide(b'{"a": 1, "b": 1.5}', None)
    assert decide(b'{"reward": 1, "seconds": 12.5}', None).values["seconds"] == 12.5


@pytest.mark.parametrize(
    ("files", "mode"), [((None, None), "no_reward"), ((None, b" \n"), "no_reward"), ((b"", None), "no_reward")]
)
def test_nothing_there(files: tuple[bytes | None, bytes | None], mode: str) -> None:
    """No file, or an empty one, is the mode no_reward."""
    with pytest.raises(EvaluationError) as caught:
        decide(*files)
    assert caught.value.failure_mode == mode


@given(st.binary(max_size=60))
def test_any_bytes(raw: bytes) -> None:
    """Any content is a finite number or an EvaluationError."""
    for read in (read_text_reward, read_json_reward):
        try:
            read(raw)
        except EvaluationError:
            pass


@given(st.floats(0, 1))
def test_numbers_come_back(value: float) -> None:
    """What Python writes as a number is read as that number."""
    assert read_text_reward(repr(value).encode()) == value
    assert read_json_reward(json.dumps({"reward": value}).encode())[0]["reward"] == value


def test_deep_json() -> None:
    """JSON that is nested beyond all measure is an error, not a crash."""
    with pytest.raises(EvaluationError):
        decide(b'{"a":' * 100_000, None)
