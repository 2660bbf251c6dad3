"""Verdicts: thresholds, baselines, missing data, partial runs, precedence, exit codes."""

from __future__ import annotations

import random
from typing import Any

import gates_fakes as fake
import pytest

from pytest_agentcompass.contracts.summary import Summary
from pytest_agentcompass.metrics.gates import (
    GateResult,
    PlannedRequest,
    RunState,
    Verdict,
    check_gates,
    evaluate_gate,
    exit_code,
    overall,
    parse_gate,
)
from pytest_agentcompass.metrics.gates.absolute import tasks_to_show
from pytest_agentcompass.metrics.statistics import mcnemar_power, paired_mde


def judge(text: str, run: Summary, baseline: Summary | None = None, state: RunState | None = None) -> GateResult:
    """Evaluate one gate."""
    return evaluate_gate(parse_gate(text), run, baseline, state or RunState())


def verdict(text: str, run: Summary, baseline: Summary | None = None, state: RunState | None = None) -> str:
    """Return the verdict of one gate."""
    return judge(text, run, baseline, state).verdict.value


# -- thresholds ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pass@1 >= 0.42", "PASS"),
        ("pass@1 > 0.42", "FAIL"),
        ("pass@1 >= 0.43", "FAIL"),
        ("pass@1 <= 0.42", "PASS"),
        ("pass@1 < 42%", "FAIL"),
        ("mean >= 0.42", "PASS"),
        ("errors <= 0%", "PASS"),
        ("agent_timeout <= 1%", "FAIL"),
        ("agent_timeout <= 2%", "PASS"),
    ],
)
def test_an_absolute_threshold_compares_the_point(text: str, expected: str) -> None:
    """21 of 50 are 42 %, which is what people mean by `>=`."""
    assert verdict(text, fake.one("P" * 21 + "F" * 28 + "T")) == expected


@pytest.mark.parametrize(
    ("solved", "tasks", "expected"), [(41, 50, "INCONCLUSIVE"), (410, 500, "INCONCLUSIVE"), (45, 50, "PASS")]
)
def test_confidence_demands_that_the_bound_clears_it(solved: int, tasks: int, expected: str) -> None:
    """82 % of 500 tasks do not prove 80 %; 90 % of 50 do (lower bound 0.809)."""
    assert verdict("pass@1 >= 0.8; confidence: 0.95", fake.one("P" * solved + "F" * (tasks - solved))) == expected


def test_confidence_can_fail() -> None:
    """A rate whose upper bound misses the threshold fails."""
    assert verdict("pass@1 >= 0.8; confidence: 0.95", fake.one("P" * 20 + "F" * 30)) == "FAIL"


def test_inconclusive_says_how_many_tasks_would_do() -> None:
    """The way out of an inconclusive verdict is named."""
    found = judge("pass@1 >= 0.8; confidence: 0.95", fake.one("P" * 41 + "F" * 9))
    needed = tasks_to_show(0.82, 0.8, 0.95)
    assert needed is not None
    assert any(f"about {needed:,} tasks would show it" in text for text in found.why)
    assert tasks_to_show(0.8, 0.8, 0.95) is None


def test_several_attempts_use_the_unbiased_estimators() -> None:
    """Four tasks with 4, 2, 1 and 0 of 4."""
    run = fake.one(["PPPP", "PPFF", "PFFF", "FFFF"])
    for text, value in (
        ("pass@1 > 0", 0.4375),
        ("pass@2 > 0", 0.583333),
        ("pass^2 > 0", 0.291667),
        ("avg@4 > 0", 0.4375),
    ):
        assert judge(text, run).value == pytest.approx(value, abs=1e-6)


def test_one_request_one_category_or_everything() -> None:
    """Without a selector tasks of all requests weigh the same; a selector narrows."""
    web, ops = fake.tasks("PP", category="web"), fake.tasks("FFFF", category="ops")
    run = fake.run(fake.request(web, "a"), fake.request(ops, "b"))
    for text, value in (("pass@1 > 0", 1 / 3), ("pass@1[a] > 0", 1), ("pass@1[category=ops] > 0", 0)):
        assert judge(text, run).value == pytest.approx(value)
    assert "there is no request 'c'" in judge("pass@1[c] > 0", run).why[0]
    assert "write [category=web]" in judge("pass@1[web] > 0", run).why[0]
    assert "did you mean 'web'" in judge("pass@1[category=weg] > 0", run).why[0]
    assert verdict("pass@1[c] > 0", run) == "INVALID"


def test_amounts_and_durations() -> None:
    """Money counts discarded tries; what an attempt does not tell can break a gate but not pass it."""
    rows = fake.tasks(
        "PP", cost_usd=2.0, discarded_usage={"cost_usd": 1.0}, usage={"input_tokens": 10, "output_tokens": 5}
    )
    run = fake.run(fake.request(rows))
    assert judge("cost_usd <= 6", run).value == pytest.approx(6)
    assert judge("cost_usd_mean <= 3", run).value == pytest.approx(3)
    assert judge("tokens <= 30", run).value == pytest.approx(30)
    assert verdict("cost_usd < 6", run) == "FAIL"
    rows[0]["attempts"][0]["cost_usd"] = None
    run = fake.run(fake.request(rows))
    assert verdict("cost_usd <= 100", run) == "INCONCLUSIVE"
    assert verdict("cost_usd <= 3", run) == "FAIL"
    assert verdict("model_calls <= 3", run) == "INVALID"
    assert verdict("duration_max <= 1s", run) == "PASS"


def test_observed_metrics() -> None:
    """What a benchmark observes is taken over the tasks that have it."""
    run = fake.run(fake.request(fake.tasks("PF", metrics={"coverage": 0.5})))
    assert verdict("coverage >= 0.5", run) == "PASS"
    assert "no scored attempt observed 'coverrage'" in judge("coverrage >= 0.5", run).why[0]


# -- missing data -------------------------------------------------------------------------------


def test_infrastructure_errors_are_missing_data() -> None:
    """72 of 90 and 10 errors: 15 % allowed leaves 0.75 open between 0.72 and 0.82; by default it is INVALID."""
    run = fake.one("P" * 72 + "F" * 18 + "E" * 10)
    assert verdict("pass@1 >= 0.75; max_infra_errors: 15%", run) == "INCONCLUSIVE"
    assert verdict("pass@1 >= 0.72; max_infra_errors: 15%", run) == "PASS"
    assert verdict("pass@1 >= 0.83; max_infra_errors: 15%", run) == "FAIL"
    found = judge("pass@1 >= 0.75", run)
    assert found.verdict is Verdict.INVALID
    assert "10 attempts of 100" in found.why[0]
    assert "no_reward" in found.why[0]
    assert found.infra_errors == 10
    assert verdict("errors <= 10%", run) == "PASS"
    assert verdict("errors <= 9%", run) == "FAIL"


def test_the_headline_counts_errors_as_not_solved() -> None:
    """Case 56: 2 of 8 with 2 errors is 0.25."""
    assert judge("pass@1 >= 0.25; max_infra_errors: 50%", fake.one("PPFFFFEE")).value == pytest.approx(0.25)


def test_policy_warn_lets_inconclusive_through_and_nothing_else() -> None:
    """WARN exits 0; a failure stays a failure."""
    run = fake.one("P" * 41 + "F" * 9)
    assert verdict("pass@1 >= 0.8; confidence: 0.95; policy: warn", run) == "WARN"
    assert verdict("pass@1 >= 0.9; policy: warn", run) == "FAIL"


@pytest.mark.parametrize("outcomes", ["", "N", "NN"])
def test_nothing_to_judge_is_never_a_pass(outcomes: str) -> None:
    """No tasks, or none with a solution to run: INVALID."""
    assert verdict("pass@1 >= 0", fake.one(outcomes)) == "INVALID"
    assert verdict("errors <= 100%", fake.one(outcomes)) == "INVALID"


def test_a_partial_run_is_invalid_unless_allowed() -> None:
    """Nobody ships on three tasks by mistake."""
    state = RunState(partial=("-k left out 97 of 100",))
    assert verdict("pass@1 >= 0.5", fake.one("PPP"), state=state) == "INVALID"
    assert verdict("pass@1 >= 0.5; allow_partial: true", fake.one("PPP"), state=state) == "PASS"


def test_a_broken_run_is_invalid_whatever_is_allowed() -> None:
    """Collection errors and lost reports leave nothing to trust."""
    state = RunState(broken=("1 collection error",))
    assert verdict("pass@1 >= 0.5; allow_partial: true", fake.one("PPP"), state=state) == "INVALID"


def test_cut_attempts_of_an_allowed_partial_run_leave_it_open() -> None:
    """A budget that ended leaves the rest unknown: PASS only when it would pass anyway."""
    assert verdict("pass@1 >= 0.5; allow_partial: true", fake.one("PPFB")) == "PASS"
    assert verdict("pass@1 >= 0.6; allow_partial: true", fake.one("PPFM")) == "INCONCLUSIVE"


def test_early_stop_allows_only_pass_at_the_cap() -> None:
    """After stopping at the first success attempts are no samples; satisfied attempts count nowhere."""
    run = fake.run(fake.request(fake.tasks(["PSS", "FPS", "FFF"]), early_stop=True))
    assert judge("pass@3 >= 0.6", run).value == pytest.approx(2 / 3)
    assert judge("mean >= 0.6", run).value == pytest.approx(2 / 3)
    found = judge("pass@1 >= 0.1", run)
    assert found.verdict is Verdict.INVALID
    assert "only pass@3" in found.why[0]


# -- baselines ----------------------------------------------------------------------------------


def test_non_inferiority_has_three_ends() -> None:
    """Proven within the margin, proven worse, or neither."""
    base = fake.one("P" * 100 + "F" * 400)
    assert verdict("pass@1 >= baseline - 3%", fake.one("P" * 80 + "F" * 20 + "P" * 17 + "F" * 383), base) == "PASS"
    assert (
        verdict("pass@1 >= baseline - 2%", fake.one("P" * 80 + "F" * 20 + "P" * 17 + "F" * 383), base) == "INCONCLUSIVE"
    )
    small = fake.one("P" * 50 + "F" * 50)
    assert verdict("pass@1 >= baseline - 3%", fake.one("P" * 41 + "F" * 9 + "P" + "F" * 49), small) == "FAIL"


def test_five_equal_tasks_prove_nothing() -> None:
    """Wald's interval would have no width and pass; Tango's does not, with one attempt or several."""
    assert verdict("pass@1 >= baseline - 2%", fake.one("PPPPP"), fake.one("PPPPP")) == "INCONCLUSIVE"
    many = fake.one(["PPP"] * 5)
    assert verdict("pass@1 >= baseline - 2%", many, many) == "INCONCLUSIVE"


def test_superiority_must_be_shown() -> None:
    """`> baseline` passes on a one-sided p below alpha, fails when worse is shown."""
    base = fake.one("P" * 10 + "F" * 90)
    assert verdict("pass@1 > baseline", fake.one("P" * 20 + "F" * 80), base) == "PASS"
    assert verdict("pass@1 > baseline", fake.one("P" * 13 + "F" * 87), base) == "INCONCLUSIVE"
    assert verdict("pass@1 > baseline", fake.one("F" * 100), base) == "FAIL"


def test_no_regression_fails_only_when_worse_is_shown() -> None:
    """Four broken tasks are not enough, five are; passing is named as what it is, with the detectable effect."""
    base = fake.one("P" * 20 + "F" * 20)
    assert verdict("no_regression(pass@1)", fake.one("P" * 15 + "F" * 25), base) == "FAIL"
    found = judge("no_regression(pass@1)", fake.one("P" * 16 + "F" * 24), base)
    assert found.verdict is Verdict.PASS
    assert "does not prove" in found.why[0]
    assert any("smallest drop" in text and "80% power" in text for text in found.why)
    assert found.comparison is not None
    assert found.comparison.worse == tuple(("r", f"t{place}") for place in range(16, 20))


def test_several_attempts_compare_by_task_totals() -> None:
    """The specification's eight tasks of three attempts: p = 0.0625, so no regression is shown."""
    before = ["P" * n + "F" * (3 - n) for n in (3, 3, 2, 3, 1, 2, 0, 3)]
    after = ["P" * n + "F" * (3 - n) for n in (3, 2, 1, 3, 0, 2, 0, 1)]
    found = judge("no_regression(pass@1)", fake.one(after), fake.one(before))
    assert found.verdict is Verdict.PASS
    assert found.comparison is not None
    assert found.comparison.p_worse == pytest.approx(0.0625)
    assert found.comparison.difference == pytest.approx(-0.208333, abs=1e-6)
    assert verdict("no_regression(pass@1); confidence: 0.9", fake.one(after), fake.one(before)) == "FAIL"


def test_errors_leave_a_comparison_open_in_both_directions() -> None:
    """Red only if a regression shows at the best case, green only if it shows not even at the worst."""
    base = fake.one("P" * 30 + "F" * 70)
    found = judge("no_regression(pass@1)", fake.one("P" * 25 + "FFFF" + "E" + "F" * 70), base)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert any("t29" in text and "dropped" in text for text in found.why)
    assert verdict("no_regression(pass@1)", fake.one("P" * 24 + "FFFFF" + "E" + "F" * 70), base) == "FAIL"
    assert verdict("no_regression(pass@1)", fake.one("P" * 28 + "F" + "E" + "F" * 70), base) == "PASS"


@pytest.mark.parametrize(
    ("baseline", "message"),
    [
        (fake.one("PPPP", mark="other"), "not the baseline's"),
        (fake.run(fake.request(fake.tasks("PPPP"), "x"), fake.request(fake.tasks("P"), "y")), "no request 'r'"),
        (fake.run(fake.request(fake.tasks("P" * 9)[4:])), "none of these tasks"),
        (fake.one("P" * 9), "only 4 tasks are in both runs"),
        (fake.one("EEPP"), "in the baseline 2 attempts of 4"),
        (fake.run(fake.request(fake.tasks(["PP"] * 4, mark=""))), "fingerprint"),
        (None, "there is no baseline"),
    ],
)
def test_a_baseline_that_is_none_makes_the_gate_invalid(baseline: Summary | None, message: str) -> None:
    """Another suite, other tasks, too few pairs, too many errors, none at all: said, and never green."""
    if baseline is not None and "fingerprint" in message:
        rows = [{**row, "fingerprint": ""} for row in fake.tasks("PPPP")]
        baseline = fake.run(fake.request(rows))
    found = judge("no_regression(pass@1)", fake.one("PPPP"), baseline)
    assert found.verdict is Verdict.INVALID
    assert message in found.why[0]


def test_tasks_in_one_run_alone_are_listed() -> None:
    """One new task of twenty is no obstacle, but it is said."""
    found = judge("no_regression(pass@1)", fake.one("P" * 20), fake.one("P" * 19))
    assert found.verdict is Verdict.PASS
    assert any("only in this run: t19" in text for text in found.why)


def test_single_requests_pair_whatever_their_names() -> None:
    """A request that was renamed is still the same tasks: fingerprints decide."""
    base = fake.run(fake.request(fake.tasks("PPPP"), "old name"))
    assert verdict("no_regression(pass@1)", fake.one("PPPP"), base) == "PASS"


def test_guards_compare_the_ratio_of_means() -> None:
    """Cost per task against the same task's cost before."""
    rng = random.Random(5)

    def priced(factor: float) -> Summary:
        rows = fake.tasks("P" * 60)
        for row in rows:
            row["attempts"][0]["cost_usd"] = factor * (1 + rng.random())
        return fake.run(fake.request(rows))

    base = priced(1.0)
    assert verdict("cost_usd <= baseline * 1.3", priced(1.0), base) == "PASS"
    assert verdict("cost_usd <= baseline * 1.3", priced(2.0), base) == "FAIL"
    assert verdict("cost_usd <= baseline * 1.3", priced(1.3), base) == "INCONCLUSIVE"
    assert verdict("cost_usd <= baseline * 1.3", fake.one("P" * 60), base) == "INVALID"


# -- several gates ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verdicts", "expected", "code"),
    [
        ("PASS", "PASS", 0),
        ("PASS WARN", "WARN", 0),
        ("PASS INCONCLUSIVE WARN", "INCONCLUSIVE", 11),
        ("INCONCLUSIVE FAIL PASS", "FAIL", 1),
        ("FAIL INVALID INCONCLUSIVE", "INVALID", 12),
    ],
)
def test_precedence_and_exit_codes(verdicts: str, expected: str, code: int) -> None:
    """INVALID before FAIL before INCONCLUSIVE before PASS."""
    results = [GateResult(parse_gate("pass@1 > 0"), Verdict(name)) for name in verdicts.split()]
    assert overall(results).value == expected
    assert exit_code(results) == code


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pass@1[swe] >= 0.4", "there is no request 'swe'; did you mean 'swebench'"),
        ("pass@5 >= 0.4", "needs 5 attempts"),
        ("avg@2 >= 0.4", "is avg@3"),
        ("resolved_rate >= 0.4", "did you mean 'resolved'"),
        ("no_regression(pass@1)", "--agentcompass-baseline"),
        ("pass@1[category=x] >= 0.4", "known: django"),
        ("pass@2[early] >= 0.4", "only pass@3"),
    ],
)
def test_gates_are_checked_before_anything_runs(text: str, message: str) -> None:
    """What the plan already contradicts need not be paid for."""
    planned = [
        PlannedRequest("swebench", 3, False, frozenset({"resolved"}), frozenset({"django"})),
        PlannedRequest("early", 3, True, frozenset({"resolved"}), frozenset({"django"})),
    ]
    gates = [parse_gate(text)]
    if "early" not in text:
        planned = planned[:1]
    problems = check_gates(gates, planned, has_baseline=False)
    assert len(problems) == 1
    assert message in problems[0]


def test_sound_gates_pass_the_check() -> None:
    """Declared metrics, `score` and failure modes are known; open contracts allow any name."""
    planned = [PlannedRequest("r", 2, False, frozenset({"resolved"}))]
    texts = ["pass@2 > 0", "resolved > 0", "score > 0", "agent_timeout < 1%", "no_regression(pass^2)"]
    assert check_gates(map(parse_gate, texts), planned, has_baseline=True) == []
    assert check_gates([parse_gate("anything > 0")], [PlannedRequest("r", metrics=None)], has_baseline=False) == []


# -- simulated releases -------------------------------------------------------------------------


def _pair(rng: random.Random, tasks: int, flips: float, drop: float) -> tuple[Summary, Summary]:
    """Return a baseline and a candidate of which *flips* of the tasks differ, *drop* net downward."""
    down = (flips + drop) / 2
    before, after = [], []
    for _ in range(tasks):
        draw = rng.random()
        if draw < down:
            before.append("P")
            after.append("F")
        elif draw < flips:
            before.append("F")
            after.append("P")
        else:
            before.append("P" if rng.random() < 0.5 else "F")
            after.append(before[-1])
    return fake.one(before), fake.one(after)


def _rate(text: str, wanted: str, runs: int, **world: Any) -> float:
    rng = random.Random(2024)
    hits = 0
    for _ in range(runs):
        base, candidate = _pair(rng, **world)
        hits += verdict(text, candidate, base) == wanted
    return hits / runs


@pytest.mark.parametrize("text", ["no_regression(pass@1)", "pass@1 >= baseline - 0%", "pass@1 >= baseline - 2%"])
def test_equal_agents_are_red_at_most_at_the_nominal_rate(text: str) -> None:
    """250 releases that changed nothing, 20 % of tasks flipping: FAIL in at most 5 % (plus sampling noise)."""
    assert _rate(text, "FAIL", 250, tasks=100, flips=0.2, drop=0.0) <= 0.05 + 0.03


def test_equal_agents_with_several_attempts_are_rarely_red() -> None:
    """The same for three attempts per task, where sign-flip and bootstrap decide."""
    rng = random.Random(11)
    red = 0
    for _ in range(40):
        chances = [rng.random() for _ in range(40)]
        base, candidate = (
            fake.one(["".join("P" if rng.random() < chance else "F" for _ in range(3)) for chance in chances])
            for _ in "ab"
        )
        red += verdict("no_regression(pass@1)", candidate, base) == "FAIL"
    assert red / 40 <= 0.05 + 0.07


def test_the_stated_effect_is_caught_with_about_the_stated_power() -> None:
    """A true drop of the detectable effect is red in about 80 % of 200 releases (exact McNemar: 0.75)."""
    drop = paired_mde(100, 0.2)
    assert drop is not None
    found = _rate("no_regression(pass@1)", "FAIL", 200, tasks=100, flips=0.2, drop=drop)
    assert found == pytest.approx(mcnemar_power(100, 0.2, drop), abs=0.08)
    assert found >= 0.65
