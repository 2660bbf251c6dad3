"""The attempt that the current task or thread works for."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import AgentCompassError

if TYPE_CHECKING:
    from ..contracts.outcome import RunResult

__all__ = ["AttemptContext", "current_attempt", "keep_partial", "set_current_attempt"]


@dataclass(slots=True)
class AttemptContext:
    """Identity and private folder of an attempt.

    *directory* is the attempt's folder in the run directory: a component may write logs under
    `directory / "logs"` (through `write_log`) and panes or recordings beside it. *labels* mark
    whatever is opened for the attempt, so that it can be found when its owner is dead. *partial* tells
    what the agent that is at work has done and spent so far (see `keep_partial`).
    """

    run_id: str
    request: str
    task_id: str
    attempt: int
    directory: Path
    labels: dict[str, str] = field(default_factory=dict)
    output_limit_bytes: int = 1_000_000
    partial: Callable[[], RunResult] | None = None

    @property
    def slug(self) -> str:
        """A short name for containers and folders: safe characters, unique in the run and the machine."""
        import hashlib

        text = "\0".join((str(self.directory), self.run_id, self.request, self.task_id, str(self.attempt)))
        readable = "".join(c if c.isascii() and c.isalnum() else "-" for c in self.task_id).strip("-").lower()[:30]
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        return f"{readable or 'task'}-{self.attempt}-{digest[:10]}"

    def write_log(self, name: str, text: str) -> Path:
        """Write *text*, scrubbed, as `logs/<name>` and return its path; an empty text makes no file."""
        from ..redaction import clean_text

        path = self.directory / "logs" / name
        if not text:
            return path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(clean_text(text), encoding="utf-8", newline="")
        return path


_current: ContextVar[AttemptContext | None] = ContextVar("agentcompass_attempt", default=None)


def current_attempt() -> AttemptContext:
    """Return the attempt that is being made; raises AgentCompassError outside of one."""
    context = _current.get()
    if context is None:
        raise AgentCompassError("no attempt is running here")
    return context


def set_current_attempt(context: AttemptContext | None) -> None:
    """Make *context* the current attempt of this asyncio task or thread."""
    _current.set(context)


def keep_partial(result: Callable[[], RunResult]) -> None:
    """Let *result* tell what the agent has done and spent, should its run end without a result (Ctrl-C, say).

    A harness calls this when its agent begins; outside of an attempt it does nothing.
    """
    context = _current.get()
    if context is not None:
        context.partial = result
