"""Benchmark `tasks`: a small declarative format for tasks of one's own (YAML) and questions (JSONL)."""

from __future__ import annotations

from .benchmark import TasksBenchmark, TasksParams

__all__ = ["TasksBenchmark", "TasksParams"]
