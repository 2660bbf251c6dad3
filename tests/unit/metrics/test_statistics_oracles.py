"""The same figures from scipy and statsmodels, where those are installed (extra `oracles`)."""

from __future__ import annotations

import random

import pytest

from pytest_agentcompass.metrics.intervals import wilson
from pytest_agentcompass.metrics.statistics import benjamini_hochberg, holm, mcnemar, sign_flip


@pytest.mark.parametrize("seed", range(5))
def test_sign_flip_agrees_with_scipy(seed: int) -> None:
    """scipy's exact permutation test of paired samples gives the same p-values."""
    stats = pytest.importorskip("scipy.stats", reason="the extra `oracles` is not installed")
    rng = random.Random(seed)
    differences = [rng.choice((-3, -2, -1, 1, 2, 3)) for _ in range(9)]
    found = sign_flip(differences)
    for alternative, value in (("less", found.worse), ("greater", found.better), ("two-sided", found.two_sided)):
        theirs = stats.permutation_test(
            (differences,), sum, permutation_type="samples", n_resamples=float("inf"), alternative=alternative
        )
        assert value == pytest.approx(theirs.pvalue)


@pytest.mark.parametrize(("broken", "fixed"), [(8, 2), (12, 3), (1, 1), (30, 18)])
def test_mcnemar_agrees_with_statsmodels(broken: int, fixed: int) -> None:
    """statsmodels' exact McNemar is two-sided."""
    tables = pytest.importorskip("statsmodels.stats.contingency_tables", reason="the extra `oracles` is not installed")
    theirs = tables.mcnemar([[5, broken], [fixed, 7]], exact=True)
    assert mcnemar(broken, fixed).two_sided == pytest.approx(theirs.pvalue)


def test_wilson_and_corrections_agree_with_statsmodels() -> None:
    """Wilson's interval, Holm and Benjamini-Hochberg."""
    proportion = pytest.importorskip("statsmodels.stats.proportion", reason="the extra `oracles` is not installed")
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    found = wilson(41, 50)
    assert found is not None
    assert (found.low, found.high) == pytest.approx(proportion.proportion_confint(41, 50, method="wilson"))
    values = [0.01, 0.04, 0.03, 0.2]
    assert holm(values) == pytest.approx(list(multitest.multipletests(values, method="holm")[1]))
    assert benjamini_hochberg(values) == pytest.approx(list(multitest.multipletests(values, method="fdr_bh")[1]))
