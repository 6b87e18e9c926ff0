"""Correlations and errors of scores, against SciPy and plain formulas; and what their intervals cover."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from potstill.errors import DataError
from potstill.metrics import regression_metrics, resampled_regression
from potstill.metrics.regression import _Columns


def drawn(seed, n, step):
    generator = np.random.default_rng(seed)
    gold = generator.normal(2.5, 1.5, n)
    predicted = 0.7 * gold + generator.normal(0, 1, n)
    # Rounded, so that there are ties.
    return (np.round(one / step) * step for one in (gold, predicted))


@given(seed=st.integers(0, 2**31), n=st.integers(3, 60), step=st.sampled_from([0.001, 0.2, 1.0]))
def test_equal_to_scipy_with_and_without_ties(seed, n, step):
    gold, predicted = drawn(seed, n, step)
    if len(set(gold)) < 2 or len(set(predicted)) < 2:
        return
    found = regression_metrics(gold, predicted)
    assert found["pearson"] == pytest.approx(stats.pearsonr(gold, predicted).statistic, abs=1e-9)
    assert found["spearman"] == pytest.approx(stats.spearmanr(gold, predicted).statistic, abs=1e-9)
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean((gold - predicted) ** 2)))


@given(seed=st.integers(0, 2**31), n=st.integers(3, 40))
def test_a_resample_scores_as_its_examples_written_out(seed, n):
    gold, predicted = drawn(seed, n, 0.5)
    counts = np.random.default_rng(seed + 1).multinomial(n, np.full(n, 1 / n), size=3).astype(float)
    found = _Columns(gold, [predicted]).scores(counts)
    for row, weights in enumerate(counts.astype(int)):
        wanted = regression_metrics(np.repeat(gold, weights), np.repeat(predicted, weights))
        for name, value in wanted.items():
            assert found[name][row, 0] == pytest.approx(value, abs=1e-9), name


def test_a_constant_has_no_correlation():
    gold = np.array([0.1, 0.2, 0.7, 3.3])
    for constant in (0.0, 0.1, 1e9 / 3):
        found = regression_metrics(gold, np.full(4, constant))
        assert (found["pearson"], found["spearman"]) == (0.0, 0.0)
    assert resampled_regression(gold, [np.full(4, 0.3)], resamples=20).metrics()["pearson"].high == 0.0


def test_far_from_zero_and_very_small():
    gold, predicted = (np.array(values) for values in ([1.0, 2.0, 4.0, 8.0], [1.1, 2.3, 3.0, 9.0]))
    wanted = regression_metrics(gold, predicted)["pearson"]
    assert regression_metrics(gold + 1e7, predicted)["pearson"] == pytest.approx(wanted, abs=1e-6)
    assert regression_metrics(gold * 1e-7, predicted * 1e-7)["pearson"] == pytest.approx(wanted)


def test_intervals_cover_and_are_the_seeds():
    gold, predicted = drawn(0, 400, 0.01)
    found = resampled_regression(gold, [predicted], resamples=500, seed=1)
    r = found.metrics()["pearson"]
    # Fisher's interval, near enough for 400 examples.
    low, high = np.tanh(np.arctanh(r.value) + np.array([-1.96, 1.96]) / np.sqrt(397))
    assert r.low == pytest.approx(low, abs=0.02)
    assert r.high == pytest.approx(high, abs=0.02)
    assert resampled_regression(gold, [predicted], resamples=500, seed=1).metrics()["pearson"] == r
    assert resampled_regression(gold, [predicted], resamples=500, seed=2).metrics()["pearson"] != r


def test_portions_change_nothing(monkeypatch):
    gold, predicted = drawn(3, 50, 0.1)
    whole = resampled_regression(gold, [predicted], resamples=40).samples["pearson"]
    monkeypatch.setattr("potstill.metrics.resampled._COUNTS_AT_ONCE", 300)
    parts = resampled_regression(gold, [predicted], resamples=40).samples["pearson"]
    np.testing.assert_allclose(parts, whole)


def test_ratios_are_of_the_same_resamples():
    gold, predicted = drawn(5, 200, 0.01)
    found = resampled_regression(gold, [predicted, predicted, gold[::-1]], resamples=100)
    kept = found.retention("pearson")
    assert (kept.value, kept.low, kept.high) == (1.0, 1.0, 1.0)
    gap = found.gap_closed("pearson")
    assert (gap.value, gap.low) == (pytest.approx(1.0), pytest.approx(1.0))
    assert resampled_regression(gold, [predicted, predicted, gold], resamples=10).gap_closed("pearson") is None
    with pytest.raises(DataError, match="a teacher with pearson -"):
        resampled_regression(gold, [predicted, -gold], resamples=10).retention("pearson")


@pytest.mark.parametrize(
    ("gold", "predicted", "message"),
    [
        ([1.0, np.nan], [1.0, 2.0], "NaN or infinity"),
        ([1.0, 2.0], [1.0, np.inf], "NaN or infinity"),
        ([1.0, 2.0], [1.0], "2 scores, 1 predictions"),
        ([], [], "n ≥ 1"),
        (["a"], [1.0], "expected numbers"),
    ],
)
def test_arrays_that_do_not_fit(gold, predicted, message):
    with pytest.raises(DataError, match=message):
        regression_metrics(np.array(gold), np.array(predicted))
