"""TB2 rewards: strict reading of `reward.json` and `reward.txt`, and what they mean."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from typing import Any, Literal

from ...errors import EvaluationError

__all__ = ["MAX_REWARD_BYTES", "Reward", "decide", "read_json_reward", "read_text_reward"]

MAX_REWARD_BYTES = 1_000_000
_MAX_KEYS = 200
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_BLANK = " \t\r\n"


@dataclass(slots=True)
class Reward:
    """The reward of an attempt or a step; *values* holds all named figures, *notes* (code, severity, message)."""

    reward: float
    correct: bool
    values: dict[str, float]
    source: str
    notes: list[tuple[str, str, str]] = field(default_factory=list)


class _NotNumbers(EvaluationError):
    """The JSON holds values that are no numbers: `reward.txt` may stand in."""


def _error(message: str) -> EvaluationError:
    return EvaluationError(message, "evaluation_error")


def read_text_reward(raw: bytes) -> float:
    """Return the one finite ASCII number of a `reward.txt` (a byte order mark is dropped).

    Raises EvaluationError (mode `no_reward` for an empty file).
    """
    text = raw.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "backslashreplace").strip(_BLANK)
    if not text:
        raise EvaluationError("reward.txt is empty", "no_reward")
    value = float(text) if len(text) <= 400 and _NUMBER.fullmatch(text) else math.nan
    if not math.isfinite(value):
        raise _error(f"reward.txt must hold one finite number, not {text[:100]!r}")
    return value


def read_json_reward(raw: bytes) -> tuple[dict[str, float], list[str]]:
    """Return the numbers of a `reward.json` and the names of members that were ignored.

    The file is one object. With a numeric `reward`, members that are no numbers are ignored; without it all
    must be numbers. Booleans are no numbers. Raises EvaluationError.
    """
    text = raw.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "backslashreplace")
    if not text.strip():
        raise EvaluationError("reward.json is empty", "no_reward")
    try:
        data = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except EvaluationError:
        raise
    except (ValueError, RecursionError) as error:
        raise _error(f"reward.json is not valid JSON: {error}") from error
    if not isinstance(data, dict) or not data:
        raise _error(f"reward.json must hold an object of numbers, not {data!r:.100}")
    if len(data) > _MAX_KEYS:
        raise _error(f"reward.json holds {len(data)} keys, more than {_MAX_KEYS}")
    return _numbers(data)


def _numbers(data: dict[str, Any]) -> tuple[dict[str, float], list[str]]:
    numbers = {key: _finite(key, value) for key, value in data.items() if type(value) in (int, float)}
    others = [key for key in data if key not in numbers]
    if "reward" in others or (others and "reward" not in numbers):
        key = "reward" if "reward" in others else others[0]
        raise _NotNumbers(f"reward.json: {key!r} must be a number, not {data[key]!r:.100}", "evaluation_error")
    return numbers, others


def _finite(key: str, value: float) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise _error(f"reward.json: {key!r} must be a finite number")
    return number


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise _error(f"reward.json holds the key {key!r} twice")
        result[key] = value
    return result


def _no_constant(name: str) -> float:
    raise _error(f"reward.json must hold finite numbers, not {name}")


def decide(
    json_file: bytes | None,
    text_file: bytes | None,
    *,
    limits: tuple[float, float] = (0.0, 1.0),
    rule: Literal["all", "any", "mean"] = "all",
) -> Reward:
    """Return the reward that the two files state; `reward.json` wins.

    Raises EvaluationError: `no_reward` when neither file is there or it is empty.
    """
    if json_file is None and text_file is None:
        raise EvaluationError("the verifier wrote neither reward.json nor reward.txt", "no_reward")
    if json_file is None:
        return _from_text(text_file or b"", limits)
    try:
        numbers, ignored = read_json_reward(json_file)
    except _NotNumbers as error:
        if text_file is None:
            raise
        reward = _from_text(text_file, limits)
        reward.notes.append(("reward_json_ignored", "warning", f"{error.message}; reward.txt is used"))
        return reward
    reward = _from_numbers(numbers, limits, rule)
    if ignored:
        names = ", ".join(repr(name) for name in ignored[:10])
        reward.notes.append(("reward_members_ignored", "info", f"reward.json: members that are no numbers: {names}"))
    _compare(reward, text_file)
    return reward


def _from_text(raw: bytes, limits: tuple[float, float]) -> Reward:
    value = _in_range("reward.txt", read_text_reward(raw), limits)
    return Reward(value, value >= 1, {"reward": value}, "reward.txt")


def _from_numbers(numbers: dict[str, float], limits: tuple[float, float], rule: str) -> Reward:
    if "reward" in numbers:
        value = _in_range("reward.json: 'reward'", numbers["reward"], limits)
        return Reward(value, value >= 1, numbers, "reward.json")
    values = [_in_range(f"reward.json: {key!r}", value, limits) for key, value in numbers.items()]
    mean = math.fsum(values) / len(values)
    correct = {"all": min(values) >= 1, "any": max(values) >= 1, "mean": mean >= 1}[rule]
    return Reward(mean, correct, numbers, "reward.json")


def _in_range(name: str, value: float, limits: tuple[float, float]) -> float:
    if not limits[0] <= value <= limits[1]:
        raise _error(
            f"{name}: {value:g} is outside of {limits[0]:g} to {limits[1]:g}; a task may declare another "
            "reward_range = [least, greatest] in task.toml"
        )
    return value


def _compare(reward: Reward, text_file: bytes | None) -> None:
    if text_file is None:
        return
    try:
        other = read_text_reward(text_file)
    except EvaluationError as error:
        reward.notes.append(("reward_txt_unusable", "info", f"{error.message}; reward.json is used"))
        return
    if other != reward.reward:
        message = f"reward.json says {reward.reward:g}, reward.txt says {other:g}; reward.json is used"
        reward.notes.append(("reward_files_differ", "info", message))
