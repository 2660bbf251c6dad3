"""Release gates: expressions over a run's figures, and the verdict that decides the exit code."""

from .early import all_decided, decided
from .evaluate import PlannedRequest, RunState, check_gates, evaluate_gate, evaluate_gates
from .parser import parse_rule
from .settings import Gate, GateSettings, GateSuite, parse_gate, parse_gates
from .verdicts import EXIT_CODES, Comparison, GateResult, Verdict, exit_code, overall

__all__ = [
    "EXIT_CODES",
    "Comparison",
    "Gate",
    "GateResult",
    "GateSettings",
    "GateSuite",
    "PlannedRequest",
    "RunState",
    "Verdict",
    "all_decided",
    "check_gates",
    "decided",
    "evaluate_gate",
    "evaluate_gates",
    "exit_code",
    "overall",
    "parse_gate",
    "parse_gates",
    "parse_rule",
]
