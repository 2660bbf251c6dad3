"""Terminal-Bench tasks of both formats."""

from .benchmark import TerminalBench
from .params import TerminalBenchParams

__all__ = ["TerminalBench", "TerminalBenchParams"]
