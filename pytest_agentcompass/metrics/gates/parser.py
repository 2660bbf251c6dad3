"""The gate language: `pass@1 >= 0.42`, `pass@1[swebench] >= baseline - 2%`, `no_regression(pass@1)`.

gate      = metric comparison value | "no_regression" "(" metric ")"
metric    = NAME [ "[" [REQUEST] [","] ["category" "=" CATEGORY] "]" ]
value     = NUMBER [unit] | "baseline" [("-" | "+") NUMBER ["%"] | "*" NUMBER]
unit      = "%" | "s" | "m" | "h"
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import NoReturn

from ...errors import ConfigError, nearest
from .names import COMMON_METRICS, MetricKind, MetricName, metric_name

__all__ = ["Metric", "NoRegression", "Rule", "Threshold", "Versus", "parse_rule"]

_TOKEN = re.compile(
    r"""\s*(?:
    (?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|\.\d+)(?P<unit>\s*%|[A-Za-z_]+)?
    |(?P<name>[A-Za-z_][\w.]*(?:\s*[@^]\s*\w*)?)
    |(?P<text>"[^"]*"|'[^']*')
    |(?P<compare>[<>=!]+)
    |(?P<sign>[-+*/()\[\],])
    )""",
    re.VERBOSE,
)
_INSIDE = re.compile(r"\s*(?P<key>category\s*[=:]\s*)?(?P<value>\"[^\"]*\"\s*|'[^']*'\s*|[^\],\"']*)")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_MIRROR = "use >=, >, <= or <"


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric over what it is taken: a request, a category, both, or everything."""

    name: MetricName
    request: str | None = None
    category: str | None = None

    def __str__(self) -> str:
        parts = [part for part in (self.request, f"category={self.category}" if self.category else "") if part]
        return f"{self.name.text}[{', '.join(parts)}]" if parts else self.name.text


@dataclass(frozen=True, slots=True)
class Threshold:
    """`METRIC >= NUMBER`: rates and shares between 0 and 1, money in US dollars, durations in seconds."""

    metric: Metric
    comparison: str
    value: float


@dataclass(frozen=True, slots=True)
class Versus:
    """`METRIC >= baseline + SHIFT` or `METRIC <= baseline * FACTOR`; *shift* is None where none is written."""

    metric: Metric
    comparison: str
    shift: float | None = None
    factor: float | None = None


@dataclass(frozen=True, slots=True)
class NoRegression:
    """`no_regression(METRIC)`: fails only when worse than the baseline is shown."""

    metric: Metric


Rule = Threshold | Versus | NoRegression


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    at: int
    unit: str = ""


def parse_rule(text: str) -> Rule:
    """Return the rule that *text* writes.

    Raises ConfigError that shows the place of the fault and what may stand there.
    """
    return _Parser(text).rule()


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.place = 0
        self.token = self._read()

    # -- tokens -------------------------------------------------------------------------------

    def _read(self) -> _Token:
        start = self.place + len(self.text[self.place :]) - len(self.text[self.place :].lstrip())
        if start >= len(self.text):
            return _Token("end", "", len(self.text))
        hit = _TOKEN.match(self.text, self.place)
        if hit is None:
            self._fail(start, f"{self.text[start]!r} means nothing in a gate")
        self.place = hit.end()
        kind = next(name for name in ("number", "name", "text", "compare", "sign") if hit[name] is not None)
        return _Token(kind, hit[kind], hit.start(kind), (hit["unit"] or "").strip())

    def _next(self) -> _Token:
        token, self.token = self.token, self._read()
        return token

    def _fail(self, at: int, message: str) -> NoReturn:
        shown = " ".join(self.text.splitlines())
        raise ConfigError(f"gate {shown!r}: column {at + 1}: {message}\n  {shown}\n  {' ' * at}^", column=at + 1)

    def _expect(self, sign: str, why: str) -> None:
        if self.token.text != sign:
            found = repr(self.token.text) if self.token.kind != "end" else "the end"
            self._fail(self.token.at, f"{sign!r} is needed {why}, not {found}")
        self._next()

    # -- grammar ------------------------------------------------------------------------------

    def rule(self) -> Rule:
        if self.token.kind == "end":
            self._fail(0, "it is empty; write METRIC >= NUMBER, say pass@1 >= 0.4")
        found = self._no_regression() if self.token.text == "no_regression" else self._comparison()
        if self.token.kind != "end":
            hint = "; give one gate per option or list entry" if self.token.text in ("and", "or") else ""
            self._fail(self.token.at, f"nothing may follow here, found {self.token.text!r}{hint}")
        return found

    def _no_regression(self) -> NoRegression:
        self._next()
        self._expect("(", "before the metric of no_regression")
        at = self.token.at
        metric = self._metric()
        if metric.name.kind is not MetricKind.RATE:
            self._fail(at, f"no_regression takes a rate of solved tasks (pass@1, pass^2, mean), not {metric.name.text}")
        self._expect(")", "after the metric of no_regression")
        return NoRegression(metric)

    def _comparison(self) -> Threshold | Versus:
        start = self.token.at
        metric = self._metric()
        token = self.token
        if token.kind != "compare":
            found = repr(token.text) if token.kind != "end" else "the end"
            self._fail(token.at, f"a comparison is needed after {metric}, not {found}; {_MIRROR}")
        if token.text not in (">=", ">", "<=", "<"):
            self._fail(token.at, f"{token.text!r} is no comparison; {_MIRROR}")
        self._next()
        if self.token.text == "baseline":
            return self._versus(metric, token.text, start)
        return Threshold(metric, token.text, self._threshold(metric))

    def _metric(self) -> Metric:
        token = self.token
        if token.kind != "name":
            found = repr(token.text) if token.kind != "end" else "the end"
            self._fail(token.at, f"a metric is needed, not {found}; known: {', '.join(COMMON_METRICS)}")
        text = re.sub(r"\s", "", token.text)
        name = metric_name(text)
        if name is None:
            few = "; attempts count from 1" if text.endswith(("@0", "^0")) else ""
            self._fail(token.at, f"there is no metric {text!r}{few}; {nearest(text, COMMON_METRICS)}")
        if self.text[self.place : self.place + 1] == "(":
            self._fail(token.at, f"{text!r} is no function; {nearest(text, ('no_regression',))}")
        self._next()
        return self._selected(name) if self.token.text == "[" else Metric(name)

    def _selected(self, name: MetricName) -> Metric:
        """Read what stands in brackets: any text, so that request names need no quotes."""
        request = category = None
        opened = self.token.at
        while True:
            hit = _INSIDE.match(self.text, self.place)
            assert hit is not None
            is_category, value = hit["key"] is not None, hit["value"].strip()
            value = value[1:-1] if value[:1] in ('"', "'") else value
            if not value:
                self._fail(hit.start("value"), "a request name or category=NAME is needed in the brackets")
            if (category if is_category else request) is not None:
                self._fail(hit.start("value"), f"one {'category' if is_category else 'request'} is enough: {value!r}")
            category, request = (value, request) if is_category else (category, value)
            self.place = hit.end()
            sign = self.text[self.place : self.place + 1]
            self.place += 1
            if sign == "]":
                self.token = self._read()
                return Metric(name, request, category)
            if sign != ",":
                self._fail(opened, "this bracket is not closed")

    def _number(self, why: str) -> tuple[_Token, float]:
        token = self.token
        if token.kind != "number":
            found = repr(token.text) if token.kind != "end" else "the end"
            self._fail(token.at, f"a number is needed {why}, not {found}")
        value = float(token.text)
        if not math.isfinite(value):
            self._fail(token.at, f"{token.text} is too large")
        self._next()
        return token, value

    def _threshold(self, metric: Metric) -> float:
        negative = self.token.text == "-"
        if negative:
            self._next()
        token, value = self._number(f"or `baseline`, to compare {metric} with")
        value = -value if negative else value
        kind = metric.name.kind
        if token.unit in _SECONDS and kind is MetricKind.SECONDS:
            return value * _SECONDS[token.unit]
        if token.unit == "%" and kind in (MetricKind.MONEY, MetricKind.COUNT, MetricKind.SECONDS):
            self._fail(token.at, f"{metric} is no share, so it cannot be compared with a percentage")
        if token.unit not in ("", "%"):
            allowed = "s, m or h" if kind is MetricKind.SECONDS else "no unit or %"
            self._fail(token.at, f"{token.unit!r} is no unit of {metric}; it takes {allowed}")
        value = value / 100 if token.unit == "%" else value
        if kind in (MetricKind.RATE, MetricKind.SHARE) and not 0 <= value <= 1:
            self._fail(token.at, f"{metric} lies between 0 and 1; write 42% or 0.42, not {token.text}{token.unit}")
        return value

    def _versus(self, metric: Metric, comparison: str, start: int) -> Versus:
        if not metric.name.pairs:
            self._fail(start, f"{metric} takes a number; with a baseline compare rates (pass@1), cost_usd or tokens")
        at = self._next().at
        if metric.name.kind is not MetricKind.RATE:
            return self._factor(metric, comparison, at)
        if comparison.startswith("<"):
            self._fail(at, f"{metric} is better when it is higher: write {metric} >= baseline - MARGIN")
        if self.token.text not in ("-", "+"):
            if self.token.text == "*":
                self._fail(self.token.at, "a rate takes a margin in points: baseline - 0.02")
            return Versus(metric, comparison)
        sign = -1 if self._next().text == "-" else 1
        token, value = self._number("as the margin")
        value = value / 100 if token.unit == "%" else value
        if token.unit not in ("", "%") or not 0 <= value < 1:
            self._fail(token.at, f"a margin is a share of tasks: write 0.02 or 2%, not {token.text}{token.unit}")
        return Versus(metric, comparison, sign * value)

    def _factor(self, metric: Metric, comparison: str, at: int) -> Versus:
        if comparison.startswith(">"):
            self._fail(at, f"{metric} is better when it is lower: write {metric} <= baseline * 1.1")
        if self.token.text != "*":
            self._fail(self.token.at, f"{metric} is compared by its ratio: write {metric} <= baseline * 1.1")
        self._next()
        token, value = self._number("as the factor")
        value = value / 100 if token.unit == "%" else value
        if token.unit not in ("", "%") or value <= 0:
            self._fail(token.at, f"a factor is a number such as 1.1 or 110%, not {token.text}{token.unit}")
        return Versus(metric, comparison, factor=value)
