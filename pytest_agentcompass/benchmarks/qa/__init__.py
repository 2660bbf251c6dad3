"""Benchmark `qa`: questions of any dataset, by a mapping of its columns and a grader."""

from .benchmark import QaBenchmark
from .params import QaParams

__all__ = ["QaBenchmark", "QaParams"]
