"""What is known of a run in progress, from its events: who is active in which phase, how far it is, what it cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from unicodedata import combining, east_asian_width

from ..results.files import parse_json

__all__ = ["EventTail", "Progress", "duration_text", "finished_line", "status_line"]

_WAITING = ("limit_wait", "retry_wait", "claim_wait")
_OVER = ("attempt_finished", "reuse_loaded")
_SHOWN = 3
_NAME = 24  # columns that a task's id takes at most
_NAME_LEAST = 6
_PREFIX = "agentcompass: "
_COSTS = ("cost_usd", "judge_cost_usd")
Key = tuple[str, str, int]


@dataclass(slots=True)
class Progress:
    """The state of a run, fed with events; times are seconds since the epoch.

    *done* counts finished attempts by outcome, *active* holds phase, beginning of the attempt and of the phase of
    each attempt under way, *limits* what those wait for that wait for a limit.
    """

    total: int = 0
    done: Counter[str] = field(default_factory=Counter)
    active: dict[Key, tuple[str, float, float]] = field(default_factory=dict)
    limits: dict[Key, str] = field(default_factory=dict)
    cost_usd: float = 0.0
    first: float | None = None

    def feed(self, event: Mapping[str, Any]) -> None:
        """Take in one event; what is no attempt's is passed over."""
        if not isinstance(event.get("attempt"), int) or "task" not in event:
            return
        key = (str(event.get("request")), str(event["task"]), int(event["attempt"]))
        when = _seconds(event.get("time"))
        kind = event.get("kind")
        if kind in _OVER:
            self._finish(key, event)
        elif kind == "phase_changed" and (key in self.active or event.get("phase") != "close"):
            begun = self.active[key][1] if key in self.active else when
            self.active[key] = (str(event.get("phase")), begun, when)
            self.limits[key] = str(_payload(event).get("limit") or "")
            self.first = when if self.first is None else self.first

    def _finish(self, key: Key, event: Mapping[str, Any]) -> None:
        self.active.pop(key, None)
        self.limits.pop(key, None)
        self.done[str(event.get("status") or "kept")] += 1
        costs = [_payload(event).get(name) for name in _COSTS]
        self.cost_usd += sum(cost for cost in costs if isinstance(cost, int | float))

    @property
    def finished(self) -> int:
        """How many attempts have ended."""
        return sum(self.done.values())

    def waiting(self) -> int:
        """How many attempts wait: for a limit, for a retry, for another process."""
        return sum(phase in _WAITING for phase, _, _ in self.active.values())

    def eta_seconds(self, now: float) -> float | None:
        """Return the seconds that the rest will take at the pace so far; None while nothing has ended."""
        made = self.finished - self.done["kept"] - self.done["skipped"]
        if made <= 0 or self.first is None or self.finished >= self.total:
            return None
        return (now - self.first) / made * (self.total - self.finished)


def _payload(event: Mapping[str, Any]) -> Mapping[str, Any]:
    payload = event.get("payload")
    return payload if isinstance(payload, Mapping) else {}


def _seconds(time: object) -> float:
    try:
        return datetime.fromisoformat(str(time)).timestamp()
    except ValueError:
        return 0.0


class EventTail:
    """Reads what is added to `events.jsonl`, from whichever process."""

    def __init__(self, path: Path, place: int = 0) -> None:
        self._path = path
        self._place = place

    def fresh(self) -> list[dict[str, Any]]:
        """Return the events that were added since the last call; torn lines are left out."""
        try:
            with open(self._path, "rb") as file:
                file.seek(self._place)
                raw = file.read()
        except OSError:
            return []
        whole = raw[: raw.rfind(b"\n") + 1]
        self._place += len(whole)
        return [event for line in whole.splitlines() if (event := _event(line))]


def _event(line: bytes) -> dict[str, Any]:
    try:
        event = parse_json(line)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}


def status_line(progress: Progress, now: float, width: int) -> str:
    """Return the live line: done and total, outcomes, score, cost, time to go, and the oldest active attempts.

    It takes *width* columns at most; where that is little, names are cut first, then what else does not fit.
    """
    head = " ".join(_figures(progress, now))
    active = [_active(progress, key, now) for key in _oldest(progress)]
    text = _with_names(_PREFIX + head, active, width)
    if _columns(text) > width or (active and text == _PREFIX + head):
        text = _with_names(head, active, width)
    return _cut(text, width)


def _figures(progress: Progress, now: float) -> list[str]:
    done, scored = progress.done, progress.done["passed"] + progress.done["failed"]
    parts = [f"[{progress.finished}/{progress.total}]"]
    parts += [f"{done[name]} {name}" for name in ("passed", "failed", "error", "skipped") if done[name]]
    if scored:
        parts.append(f"score {100 * done['passed'] / scored:.0f}%")
    if progress.cost_usd:
        parts.append(f"${progress.cost_usd:.2f}")
    eta = progress.eta_seconds(now)
    if eta is not None:
        parts.append(f"ETA {duration_text(eta)}")
    waiting = progress.waiting()
    parts.append(f"{len(progress.active) - waiting} active" + (f", {waiting} waiting" if waiting else ""))
    return parts


def _oldest(progress: Progress) -> list[Key]:
    return sorted(progress.active, key=lambda key: progress.active[key][1])[:_SHOWN]


def _active(progress: Progress, key: Key, now: float) -> tuple[str, str]:
    """Return an attempt's task id, and what is said behind it."""
    phase, _, since = progress.active[key]
    limit = progress.limits.get(key)
    name = "".join(c if c.isprintable() else "?" for c in key[1])
    said = f"waits for {limit}" if phase == "limit_wait" and limit else phase
    return name, f"#{key[2]} {said} {duration_text(max(0.0, now - since))}"


def _with_names(text: str, active: Sequence[tuple[str, str]], width: int) -> str:
    for name, said in active:
        room = width - _columns(text) - 2 - _columns(said)
        if room < min(_NAME_LEAST, _columns(name)):
            break
        text += f"  {_cut_middle(name, min(_NAME, room))}{said}"
    return text


def _columns(text: str) -> int:
    """Return how many columns of a terminal *text* takes."""
    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def _cut(text: str, width: int) -> str:
    """Return *text* in at most *width* columns, `~` standing for what was cut."""
    if _columns(text) <= width:
        return text
    while text and _columns(text) > width - 1:
        text = text[:-1]
    return text + "~"


def _cut_middle(text: str, width: int) -> str:
    """Return *text* in at most *width* columns with its end kept, by which ids differ most."""
    if _columns(text) <= width:
        return text
    end = text
    while end and _columns(end) > (width - 1) // 2:
        end = end[1:]
    return _cut(text, width - _columns(end)) + end


def duration_text(seconds: float) -> str:
    """Return a time as people read it: `31 s`, `4 min 5 s`, `2 h 10 min`."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def finished_line(number: int, total: int, case: str, outcome: str, failure_mode: str, seconds: float | None) -> str:
    """Return the line about one finished attempt, as logs of continuous integration show it."""
    mode = f" ({failure_mode})" if failure_mode not in ("", "none") else ""
    took = f" in {duration_text(seconds)}" if seconds is not None else ""
    return f"agentcompass: [{number}/{total}] {case}: {outcome}{mode}{took}"
