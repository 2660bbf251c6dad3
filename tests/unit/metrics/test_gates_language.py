"""The gate language: what it reads, and what it says about what it cannot read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_agentcompass.errors import ConfigError
from pytest_agentcompass.metrics.gates import GateSettings, parse_gate, parse_gates, parse_rule
from pytest_agentcompass.metrics.gates.parser import NoRegression, Threshold, Versus


@pytest.mark.parametrize(
    ("text", "metric", "comparison", "value"),
    [
        ("pass@1 >= 0.42", "pass@1", ">=", 0.42),
        ("pass@1>=42%", "pass@1", ">=", 0.42),
        ("  pass @ 1   >= 42 %", "pass@1", ">=", 0.42),
        ("pass^3 >= 0.2", "pass^3", ">=", 0.2),
        ("avg@4 > .5", "avg@4", ">", 0.5),
        ("errors <= 2%", "errors", "<=", 0.02),
        ("agent_timeout < 5%", "agent_timeout", "<", 0.05),
        ("cost_usd <= 40", "cost_usd", "<=", 40),
        ("duration_p95 <= 1800", "duration_p95", "<=", 1800),
        ("duration_p95 <= 30m", "duration_p95", "<=", 1800),
        ("duration_total <= 1.5h", "duration_total", "<=", 5400),
        ("score >= -3", "score", ">=", -3),
        ("my.metric >= 1e3", "my.metric", ">=", 1000),
    ],
)
def test_thresholds(text: str, metric: str, comparison: str, value: float) -> None:
    """A metric, a comparison and a number with its unit."""
    rule = parse_rule(text)
    assert isinstance(rule, Threshold)
    assert (str(rule.metric), rule.comparison) == (metric, comparison)
    assert rule.value == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "request_name", "category"),
    [
        ("pass@1[swebench] >= 0.4", "swebench", None),
        ("pass@1[my request] >= 0.4", "my request", None),
        ("pass@1[category=web dev] >= 0.4", None, "web dev"),
        ("pass@1[a-b, category='x]y, z'] >= 0.4", "a-b", "x]y, z"),
        ('pass@1["category=odd"] >= 0.4', "category=odd", None),
        ("pass@1[category] >= 0.4", "category", None),
    ],
)
def test_selectors(text: str, request_name: str | None, category: str | None) -> None:
    """Brackets take a request, a category or both; quotes carry any character."""
    metric = parse_rule(text).metric
    assert (metric.request, metric.category) == (request_name, category)


@pytest.mark.parametrize(
    ("text", "comparison", "shift", "factor"),
    [
        ("pass@1 >= baseline - 0.02", ">=", -0.02, None),
        ("pass@1 >= baseline - 2%", ">=", -0.02, None),
        ("pass@1 > baseline", ">", 0.0, None),
        ("pass@1 > baseline + 1%", ">", 0.01, None),
        ("cost_usd <= baseline * 1.1", "<=", None, 1.1),
        ("tokens[r] <= baseline * 110%", "<=", None, 1.1),
    ],
)
def test_comparisons_with_a_baseline(text: str, comparison: str, shift: float | None, factor: float | None) -> None:
    """Rates take a margin in points, amounts a factor."""
    rule = parse_gate(text).rule
    assert isinstance(rule, Versus)
    assert rule.comparison == comparison
    assert rule.shift == (None if shift is None else pytest.approx(shift))
    assert rule.factor == (None if factor is None else pytest.approx(factor))


def test_no_regression() -> None:
    """The practical gate of a small suite."""
    rule = parse_rule("no_regression( pass@2[r] )")
    assert isinstance(rule, NoRegression)
    assert str(rule.metric) == "pass@2[r]"


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("", 1, "it is empty"),
        ("pass@1", 7, "a comparison is needed"),
        ("pass@1 => 0.5", 8, "use >=, >, <= or <"),
        ("pass@1 == 0.5", 8, "'==' is no comparison"),
        ("pass@1 >= 42", 11, "write 42% or 0.42"),
        ("pass@1 >= ", 11, "a number is needed"),
        ("pass@1 >= basline", 11, "`baseline`"),
        ("pass@1 >= 0.5 and errors <= 2%", 15, "one gate per option"),
        ("pass@1 >= 0.5 0.6", 15, "nothing may follow"),
        ("pas@1 >= 0.5", 1, "did you mean 'pass@1'"),
        ("pass@0 >= 0.5", 1, "attempts count from 1"),
        ("pass@ >= 0.5", 1, "no metric 'pass@'"),
        ("no_regresion(pass@1)", 1, "did you mean 'no_regression'"),
        ("no_regression pass@1", 15, "'(' is needed"),
        ("no_regression(pass@1", 21, "')' is needed"),
        ("no_regression(cost_usd)", 15, "takes a rate"),
        ("0.5 <= pass@1", 1, "a metric is needed"),
        ("pass@1[r >= 0.5", 7, "not closed"),
        ("pass@1[] >= 0.5", 8, "a request name or category=NAME"),
        ("pass@1[a, b] >= 0.5", 11, "one request is enough"),
        ("pass@1 >= baseline * 2", 20, "a margin in points"),
        ("pass@1 <= baseline + 2%", 11, "better when it is higher"),
        ("pass@1 >= baseline - 5", 22, "0.02 or 2%"),
        ("cost_usd >= baseline * 2", 13, "better when it is lower"),
        ("cost_usd <= baseline + 4", 22, "by its ratio"),
        ("cost_usd <= 10%", 13, "no share"),
        ("duration_p95 <= baseline * 2", 1, "takes a number"),
        ("pass@1 >= 5s", 11, "no unit"),
        ("pass@1 ≥ 0.5", 8, "means nothing"),
        ("pass@1 >= 1e999", 11, "too large"),
    ],
)
def test_faults_name_place_and_remedy(text: str, column: int, message: str) -> None:
    """A gate that cannot be read says where and what may stand there."""
    with pytest.raises(ConfigError) as caught:
        parse_rule(text)
    assert f"column {column}:" in caught.value.message
    assert message in caught.value.message
    assert caught.value.message.rstrip().endswith("^")


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Whatever is typed, the answer is a rule or one error of ours."""
    try:
        found = str(parse_rule(text).metric)
    except ConfigError as error:
        found = error.message
    assert found


def test_settings_behind_semicolons() -> None:
    """The command line gives settings after the expression."""
    gate = parse_gate("pass@1 >= 0.5; max_infra_errors: 10%; policy=warn; confidence: 0.9; allow_partial: true;")
    assert gate.text == "pass@1 >= 0.5"
    assert gate.settings == GateSettings(0.9, None, "warn", 0.1, 0.9, True)


def test_a_margin_may_be_a_setting() -> None:
    """`>= baseline` with `margin:` is `>= baseline - margin`; a plain `>` is superiority and takes none."""
    rule = parse_gate("pass@1 >= baseline; margin: 2%").rule
    assert isinstance(rule, Versus)
    assert rule.shift == pytest.approx(-0.02)


def test_baseline_without_margin_asks_for_one() -> None:
    """Two runs of one agent never agree in every task, so a bare `>= baseline` is refused with the ways out."""
    with pytest.raises(ConfigError, match=r"baseline - 0\.02.*no_regression\(pass@1\)"):
        parse_gate("pass@1 >= baseline")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pass@1 >= 0.5; polcy: warn", "did you mean 'policy'"),
        ("pass@1 >= 0.5; policy: maybe", "known: fail, warn"),
        ("pass@1 >= 0.5; confidence: 0.3", "between 0.5 and 1"),
        ("pass@1 >= 0.5; confidence: high", "a number or a percentage"),
        ("pass@1 >= 0.5; max_infra_errors: 120%", "between 0 and 1"),
        ("pass@1 >= 0.5; allow_partial: perhaps", "true or false"),
        ("pass@1 >= 0.5; allow_partial", "key: value"),
        ("pass@1 >= 0.5; margin: nan", "a number or a percentage"),
    ],
)
def test_faulty_settings_are_named(text: str, message: str) -> None:
    """A setting that does not exist or cannot hold its value is a usage error."""
    with pytest.raises(ConfigError, match=message):
        parse_gate(text)


def test_gates_of_a_suite() -> None:
    """A list mixes expressions and mappings; the source is the suite."""
    found = parse_gates(
        ["pass@1 >= 0.4", {"gate": "errors <= 2%", "policy": "warn", "max_infra_errors": 0.1}], "s.yaml"
    )
    assert [gate.text for gate in found.gates] == ["pass@1 >= 0.4", "errors <= 2%"]
    assert found.gates[1].settings.policy == "warn"
    assert {gate.source for gate in found.gates} == {"s.yaml"}


def test_shared_settings_of_a_suite() -> None:
    """`require:` lists the gates; what stands beside it holds for all, and an entry may differ."""
    data = {
        "require": ["pass@1 >= 0.4", {"gate": "pass@2 >= 0.4", "max_infra_errors": "0%"}],
        "max_infra_errors": "10%",
        "baseline": "runs/main",
        "unresolved": "skipped",
    }
    found = parse_gates([data], "s.yaml")
    assert [gate.settings.max_infra_errors for gate in found.gates] == [0.1, 0.0]
    assert (found.baseline, found.unresolved) == ("runs/main", "skipped")


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (["pass@1 = 1"], "s.yaml: gate"),
        ([{"gate": 3}], "gate: EXPRESSION"),
        ([3], "an expression, or a mapping"),
        ([{"gat": "x"}], "key 'gat' is not known"),
        ([{"require": []}], "`require` must list"),
        ([{"require": ["pass@1 > 0"], "unresolved": "green"}], "known: failure, passed, skipped"),
        ([{"require": ["pass@1 > 0"], "baseline": 3}], "path of a run directory"),
        ([{"gate": "pass@1 > 0", "polici": "warn"}], "did you mean 'policy'"),
    ],
)
def test_faulty_suites_name_the_file(entries: list[object], message: str) -> None:
    """What a suite gets wrong is said with the suite's name and what is allowed."""
    with pytest.raises(ConfigError, match=message) as caught:
        parse_gates(entries, "s.yaml")
    assert "s.yaml" in caught.value.message


@pytest.mark.parametrize(
    "text",
    ["pass@1[r, category=x] >= 0.4; confidence: 0.9", "pass@1 >= baseline; margin: 3%", "cost_usd <= baseline * 2"],
)
def test_a_gate_survives_storage(text: str) -> None:
    """What a shard stores of its gates is what `merge` evaluates."""
    gate = parse_gate(text)
    assert parse_gates([gate.to_entry()], "command line").gates == (gate,)
