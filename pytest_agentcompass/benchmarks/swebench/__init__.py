"""SWE-bench: instances, model patches, the official verdicts."""

from __future__ import annotations

from .benchmark import SwebenchBenchmark

__all__ = ["SwebenchBenchmark"]
