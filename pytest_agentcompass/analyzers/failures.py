"""Analyzer `failure_fingerprint`: one short name for failures that are alike, so that they can be counted."""

from __future__ import annotations

import hashlib
import re
from typing import Any, ClassVar

from ..components.recipe import BaseAnalyzer
from ..contracts.outcome import RunResult
from ..contracts.request import RunRequest
from ..contracts.task import TaskSpec

__all__ = ["FailureFingerprintAnalyzer", "normalized_failure"]

_READ = 2_000
_VARYING = (
    (re.compile(r"https?://\S+"), "URL"),
    (re.compile(r"(?<!\w)/[\w./+-]+"), "PATH"),
    (re.compile(r"\b[0-9a-f]{8,}\b", re.IGNORECASE), "HEX"),
    (re.compile(r"\d+(?:\.\d+)?"), "N"),
    (re.compile(r"'[^'\n]{0,200}'|\"[^\"\n]{0,200}\""), "TEXT"),
    (re.compile(r"\s+"), " "),
)


def normalized_failure(text: str) -> str:
    """Return *text* without what differs from case to case: numbers, paths, addresses, quoted texts."""
    text = text[:_READ]
    for pattern, name in _VARYING:
        text = pattern.sub(name, text)
    return text.strip()


class FailureFingerprintAnalyzer(BaseAnalyzer):
    """Names the first failure of an attempt."""

    id: ClassVar[str] = "failure_fingerprint"

    def applies(self, task: TaskSpec, result: RunResult, req: RunRequest) -> bool:
        """Whether something went wrong."""
        return any(issue.severity == "error" for issue in result.issues)

    def analyze(self, task: TaskSpec, result: RunResult, req: RunRequest) -> dict[str, Any]:
        """Return code, phase, the text without what varies, and a short hash of these."""
        issue = next(issue for issue in result.issues if issue.severity == "error")
        text = normalized_failure(issue.message)
        digest = hashlib.sha256(f"{issue.code}\0{issue.phase}\0{text}".encode("utf-8", "replace")).hexdigest()
        return {"fingerprint": digest[:12], "code": issue.code, "phase": issue.phase, "text": text}
