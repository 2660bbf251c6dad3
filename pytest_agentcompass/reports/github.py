"""GitHub Actions: annotations, and the run's Markdown in the step summary."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..contracts.record import AttemptRecord
from .attempt_text import cause, reason
from .escape import one_line

__all__ = ["workflow_commands", "write_step_summary"]

_LEVELS = {"FAIL": "error", "INVALID": "error", "INCONCLUSIVE": "error", "WARN": "warning"}
_MOST = 10  # annotations of one kind: GitHub shows no more per step
_SUMMARY_CAP = 900_000  # bytes; GitHub refuses a step summary of 1 MiB


def workflow_commands(gates: Sequence[Mapping[str, Any]], records: Iterable[AttemptRecord]) -> Iterator[str]:
    """Yield workflow commands: one per gate that does not hold, one per cause of infrastructure errors.

    Texts are escaped, so that nothing that an agent wrote can become a command of its own.
    """
    for gate in [gate for gate in gates if gate["verdict"] in _LEVELS][:_MOST]:
        text = "; ".join(part for part in (gate["figure"], *gate["why"]) if part)
        yield _command(_LEVELS[gate["verdict"]], f"gate {gate['verdict']}: {gate['gate']}", text)
    causes: dict[str, list[str]] = {}
    for record in records:
        if record.outcome == "error":
            text = f"{cause(record).value}: {reason(record, 200)}"
            causes.setdefault(text, []).append(f"{record.request}::{record.task_id}::attempt{record.attempt}")
    for text, places in sorted(causes.items(), key=lambda item: -len(item[1]))[:_MOST]:
        count = "1 infrastructure error" if len(places) == 1 else f"{len(places)} infrastructure errors"
        yield _command("warning", count, f"{text} ({', '.join(places[:3])}{', ...' if len(places) > 3 else ''})")


def _command(level: str, title: str, text: str) -> str:
    title = _escaped(one_line(title, 200)).replace(":", "%3A").replace(",", "%2C")
    return f"::{level} title={title}::{_escaped(one_line(text, 2000))}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def write_step_summary(target: Path, markdown: Path) -> str | None:
    """Append *markdown* to the step summary *target*; return what went wrong, if anything did."""
    try:
        content = markdown.read_bytes()
        if len(content) > _SUMMARY_CAP:
            content = (
                content[:_SUMMARY_CAP].decode("utf-8", "ignore").encode() + b"\n\n(cut; summary.md holds all of it)\n"
            )
        with target.open("ab") as file:
            file.write(content + b"\n")
    except OSError as error:
        return f"the step summary could not be written: {error}"
    return None
