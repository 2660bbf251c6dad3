"""Gates as people write them: in a suite's `gates:`, or as `EXPRESSION; key: value` on the command line."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from ...errors import ConfigError, nearest
from .parser import Metric, Rule, Versus, parse_rule

__all__ = ["Gate", "GateSettings", "GateSuite", "Unresolved", "parse_gate", "parse_gates"]

#: how attempts that did not pass appear in JUnit when gates decide
Unresolved = Literal["failure", "skipped", "passed"]
_UNRESOLVED: tuple[Unresolved, ...] = ("failure", "skipped", "passed")
_POLICIES = ("fail", "warn")


@dataclass(frozen=True, slots=True)
class GateSettings:
    """What may be set per gate.

    *confidence*: None compares the point with a threshold; comparisons with a baseline then use 0.95.
    *margin*: how many points worse than the baseline is still good enough. *policy*: `fail` or `warn` for
    an inconclusive verdict. *max_infra_errors*: the share of attempts without a verdict beyond which
    nothing can be said. *min_pairs*: the share of tasks that a baseline must have too.
    """

    confidence: float | None = None
    margin: float | None = None
    policy: str = "fail"
    max_infra_errors: float = 0.02
    min_pairs: float = 0.9
    allow_partial: bool = False
    stop_when_decided: bool = False

    @property
    def comparison_confidence(self) -> float:
        """The one-sided confidence of a comparison with a baseline."""
        return 0.95 if self.confidence is None else self.confidence


@dataclass(frozen=True, slots=True)
class Gate:
    """A gate: its text, its rule, its settings, and where it was written."""

    text: str
    rule: Rule
    settings: GateSettings = field(default_factory=GateSettings)
    source: str = "command line"

    @property
    def metric(self) -> Metric:
        """The metric that the gate is about."""
        return self.rule.metric

    def to_entry(self) -> dict[str, Any]:
        """Return the gate as an entry of `gates:`, with every setting, so that another process can evaluate it."""
        return {"gate": self.text, **asdict(self.settings)}


@dataclass(frozen=True, slots=True)
class GateSuite:
    """The gates of one suite or of the command line, with what they share."""

    gates: tuple[Gate, ...] = ()
    baseline: str | None = None
    unresolved: Unresolved | None = None


_KEYS = tuple(GateSettings.__dataclass_fields__)
_SHARED = ("require", "baseline", "unresolved", *_KEYS)


def parse_gate(text: str, source: str = "command line", defaults: GateSettings | None = None) -> Gate:
    """Return the gate that *text* writes: an expression, and settings behind semicolons.

    `pass@1 >= 0.5; max_infra_errors: 10%; policy: warn`. Raises ConfigError.
    """
    expression, *rest = text.split(";")
    written = {}
    for part in rest:
        if not part.strip():
            continue
        key, sign, value = part.partition(":") if ":" in part else part.partition("=")
        if not sign:
            raise ConfigError(f"gate {text!r}: {part.strip()!r} is no setting; write key: value behind the semicolon")
        written[key.strip()] = value.strip()
    return _gate(expression, written, source, defaults or GateSettings())


def parse_gates(entries: Sequence[Any], source: str) -> GateSuite:
    """Return what the `gates:` of the suite *source* say.

    *entries* are its list: expressions, and mappings with `gate:` and settings. One mapping with `require:`
    (the list) gives settings to all, and `baseline:` and `unresolved:`. Raises ConfigError.
    """
    if len(entries) == 1 and isinstance(entries[0], Mapping) and "gate" not in entries[0]:
        return _shared(entries[0], source)
    return GateSuite(tuple(_entry(entry, source, GateSettings(), n) for n, entry in enumerate(entries, 1)))


def _shared(data: Mapping[str, Any], source: str) -> GateSuite:
    for key in data:
        if key not in _SHARED:
            raise ConfigError(f"{source}: gates: key {key!r} is not known; {nearest(str(key), _SHARED)}")
    required = data.get("require")
    required = [required] if isinstance(required, (str, Mapping)) else required
    if not isinstance(required, list) or not required:
        raise ConfigError(f"{source}: gates: `require` must list the gates, say [pass@1 >= 0.4]; got {required!r}")
    settings = {key: value for key, value in data.items() if key in _KEYS}
    defaults = _settings(settings, f"{source}: gates", GateSettings())
    unresolved = data.get("unresolved")
    if unresolved is not None and unresolved not in _UNRESOLVED:
        raise ConfigError(
            f"{source}: gates.unresolved: {unresolved!r} is not known; {nearest(str(unresolved), _UNRESOLVED)}"
        )
    baseline = data.get("baseline")
    if baseline is not None and (not isinstance(baseline, str) or not baseline.strip()):
        raise ConfigError(
            f"{source}: gates.baseline must be the path of a run directory or a summary.json, not {baseline!r}"
        )
    return GateSuite(
        tuple(_entry(entry, source, defaults, n) for n, entry in enumerate(required, 1)), baseline, unresolved
    )


def _entry(entry: Any, source: str, defaults: GateSettings, number: int) -> Gate:
    where = f"{source}: gate {number}"
    if isinstance(entry, str):
        return parse_gate(entry, source, defaults)
    if not isinstance(entry, Mapping) or not isinstance(entry.get("gate"), str):
        raise ConfigError(f"{where}: an expression, or a mapping with `gate: EXPRESSION`, is needed, not {entry!r}")
    return _gate(entry["gate"], {key: value for key, value in entry.items() if key != "gate"}, source, defaults)


def _gate(expression: str, written: Mapping[str, Any], source: str, defaults: GateSettings) -> Gate:
    text = " ".join(expression.split())
    try:
        rule = parse_rule(text)
    except ConfigError as error:
        raise ConfigError(error.message if source == "command line" else f"{source}: {error.message}") from None
    settings = _settings(written, f"{source}: gate {text!r}", defaults)
    return Gate(text, _with_margin(rule, settings, f"{source}: gate {text!r}"), settings, source)


def _with_margin(rule: Rule, settings: GateSettings, where: str) -> Rule:
    if not isinstance(rule, Versus) or rule.factor is not None:
        return rule
    if rule.shift is None and settings.margin is None and rule.comparison == ">=":
        raise ConfigError(
            f"{where}: it needs a margin, since two runs of one agent never agree in every task: write "
            f"`{rule.metric} >= baseline - 0.02`, or set margin: 0.02, or use no_regression({rule.metric})"
        )
    if rule.shift is None:
        return replace(rule, shift=-settings.margin if settings.margin is not None and rule.comparison == ">=" else 0.0)
    return rule


def _settings(written: Mapping[str, Any], where: str, defaults: GateSettings) -> GateSettings:
    found: dict[str, Any] = {}
    for key, value in written.items():
        if key not in _KEYS:
            raise ConfigError(f"{where}: setting {key!r} is not known; {nearest(str(key), _KEYS)}")
        found[key] = _setting(key, value, where)
    return replace(defaults, **found)


def _setting(key: str, value: Any, where: str) -> Any:
    if key == "policy":
        if value not in _POLICIES:
            raise ConfigError(f"{where}: policy: {value!r} is not known; {nearest(str(value), _POLICIES)}")
        return value
    if key in ("allow_partial", "stop_when_decided"):
        return _flag(key, value, where)
    if value is None and key in ("confidence", "margin"):
        return None
    number = _share(value)
    if number is None:
        raise ConfigError(f"{where}: {key}: a number or a percentage is needed, not {value!r}")
    if key == "confidence" and not 0.5 < number < 1:
        raise ConfigError(f"{where}: confidence must lie between 0.5 and 1 (0.95 is usual), not {value!r}")
    if not 0 <= number <= 1 or (key == "margin" and number == 1):
        raise ConfigError(f"{where}: {key} must lie between 0 and 1 (or 0% and 100%), not {value!r}")
    return number


def _flag(key: str, value: Any, where: str) -> bool:
    words = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
    found = value if isinstance(value, bool) else words.get(str(value).lower())
    if found is None:
        raise ConfigError(f"{where}: {key}: true or false is needed, not {value!r}")
    return found


def _share(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    text = str(value).strip()
    try:
        number = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
