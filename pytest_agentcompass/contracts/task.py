"""Tasks: what a benchmark loads, what it prepares, what an agent is given."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

__all__ = [
    "Artifact",
    "FileRef",
    "Keystroke",
    "MediaItem",
    "Message",
    "OutputFileSpec",
    "PreparedTask",
    "ReferenceSolution",
    "TaskInput",
    "TaskOutput",
    "TaskProblem",
    "TaskSpec",
    "ToolDef",
]


@dataclass(slots=True)
class Artifact:
    """A file or folder of the sandbox to keep.

    *destination* is relative to the attempt's `artifacts/` (default: the source path without
    its leading slash); *exclude* holds glob patterns of names inside a folder.
    """

    source: str
    destination: str | None = None
    exclude: tuple[str, ...] = ()
    service: str | None = None


@dataclass(slots=True)
class TaskSpec:
    """One task as loaded: plain JSON data only, since xdist workers read it from a file.

    *environment* holds hints in the form of `EnvironmentSpec` (any subset of its fields); what
    the request sets wins over them. *source* says where the task was defined (file, line).
    *warnings* are notes to the user, shown once at collection. *fingerprint* is a hash of the
    content that *metadata* does not hold (files of a task directory).
    """

    task_id: str
    question: str = ""
    category: str = ""
    ground_truth: Any = None
    metadata: dict[str, Any] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    difficulty: str = ""
    environment: dict[str, Any] = field(default_factory=dict)
    run_timeout_seconds: float | None = None
    evaluation_timeout_seconds: float | None = None
    artifacts: tuple[Artifact, ...] = ()
    has_solution: bool = False
    estimated_seconds: float | None = None
    source: str = ""
    warnings: tuple[str, ...] = ()
    fingerprint: str = ""

    def __hash__(self) -> int:
        return hash(self.task_id)

    def to_row(self) -> dict[str, Any]:
        """Return the task as one JSON object; fields that hold their default are left out."""
        row: dict[str, Any] = {}
        for name, default in _TASK_DEFAULTS:
            value = getattr(self, name)
            if value != default:
                row[name] = [asdict(item) for item in value] if name == "artifacts" else value
        return row

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> TaskSpec:
        """Make the task of a row that `to_row` wrote."""
        data = dict(row)
        for name in ("tags", "warnings"):
            if name in data:
                data[name] = tuple(data[name])
        if "artifacts" in data:
            data["artifacts"] = tuple(
                Artifact(**{**item, "exclude": tuple(item["exclude"])}) for item in data["artifacts"]
            )
        return cls(**data)


_TASK_DEFAULTS = tuple(
    (item.name, item.default_factory() if callable(item.default_factory) else item.default) for item in fields(TaskSpec)
)


@dataclass(frozen=True, slots=True)
class TaskProblem:
    """A task that cannot be used: a collection error of its own, the others still run."""

    task_id: str
    message: str
    source: str = ""


@dataclass(slots=True)
class MediaItem:
    """An image, a sound or a video beside the prompt (one of path, url, data)."""

    type: Literal["image", "audio", "video"]
    path: str | None = None
    url: str | None = None
    data: str | None = None
    mime_type: str | None = None
    label: str | None = None


@dataclass(slots=True)
class FileRef:
    """A file that the agent may read; *path* is in the sandbox."""

    path: str
    label: str | None = None


@dataclass(slots=True)
class ToolDef:
    """A tool the model may call: JSON-schema *parameters*."""

    name: str
    description: str
    parameters: dict[str, Any]


@dataclass(slots=True)
class Message:
    """One message of a conversation that a task starts with."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str | list[dict[str, Any]]
    name: str | None = None
    tool_calls: list[dict[str, Any]] | None = None


@dataclass(slots=True)
class OutputFileSpec:
    """A file that the agent is asked to leave."""

    path: str
    description: str = ""


@dataclass(slots=True)
class TaskInput:
    """What the agent is given."""

    prompt: str
    system_prompt: str | None = None
    media: list[MediaItem] = field(default_factory=list)
    files: list[FileRef] = field(default_factory=list)
    workspace: str | None = None
    tools: list[ToolDef] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)


@dataclass(slots=True)
class TaskOutput:
    """What the agent is expected to leave: an answer, files, or a changed sandbox."""

    answer: str | None = None
    files: list[OutputFileSpec] = field(default_factory=list)


@dataclass(slots=True)
class Keystroke:
    """One entry of a solution that is typed into a terminal (Terminal-Bench `solution.yaml`)."""

    command: str
    min_timeout_sec: float = 0.0
    max_timeout_sec: float = 180.0
    block: bool = False
    append_enter: bool = True


@dataclass(slots=True)
class ReferenceSolution:
    """How the oracle solves a task; exactly one of answer, command, keystrokes or patch is set.

    *directory* is a local folder (or one file) that is uploaded to *target* in the sandbox before *command*
    runs there (a list is an argument vector, a text runs in a shell). *patch* is a unified diff.
    """

    answer: Any = None
    command: list[str] | str | None = None
    directory: str | None = None
    target: str = "/solution"
    env: dict[str, str] = field(default_factory=dict)
    keystrokes: list[Keystroke] | None = None
    patch: bytes | None = None


@dataclass(slots=True)
class PreparedTask:
    """A task made ready in its sandbox.

    *solution* is for the oracle alone; no other harness may read it. A benchmark with several
    steps returns one prepared task per step; *step* is its name, *run_timeout_seconds* its limit.
    """

    task_id: str
    category: str
    ground_truth: Any
    input: TaskInput
    output: TaskOutput = field(default_factory=TaskOutput)
    metadata: dict[str, Any] = field(default_factory=dict)
    solution: ReferenceSolution | None = None
    step: str | None = None
    run_timeout_seconds: float | None = None
