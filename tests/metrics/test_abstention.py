"""Thresholds of confidence: bounds against scipy's, what they promise against what comes true."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from potstill.errors import DataError
from potstill.metrics import abstained, choose_threshold, find_thresholds
from potstill.metrics.abstention import LEVELS, SURENESS, lower_bound


def answers(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Confidences, and answers right as often as these say."""
    rng = np.random.default_rng(seed)
    confidence = 0.5 + 0.5 * rng.beta(2, 1, n)
    return confidence, rng.random(n) < confidence


@given(n=st.integers(1, 3000), share=st.floats(0, 1), error=st.sampled_from([0.05, 0.0025]))
def test_the_bound_is_clopper_and_pearsons(n, share, error):
    right = round(share * n)
    wanted = stats.beta.ppf(error, right, n - right + 1) if right else 0.0
    assert lower_bound(right, n, error) == pytest.approx(wanted, rel=1e-8, abs=1e-12)


def test_bounds_by_hand():
    assert lower_bound(0, 7, 0.05) == 0.0
    assert lower_bound(3, 3, 0.05) == pytest.approx(0.05 ** (1 / 3))
    assert lower_bound(100_000, 100_000, 0.0025) == pytest.approx(0.0025**1e-5)


@pytest.mark.parametrize(("right", "n", "error"), [(-1, 3, 0.1), (4, 3, 0.1), (0, 0, 0.1), (1, 2, 0.0), (1, 2, 1.0)])
def test_no_such_bound(right, n, error):
    with pytest.raises(DataError, match="right of"):
        lower_bound(right, n, error)


@given(n=st.integers(1, 200), seed=st.integers(0, 2**31), digits=st.sampled_from([1, 12]))
def test_thresholds_are_what_a_loop_over_texts_counts(n, seed, digits):
    confidence, right = answers(n, seed)
    confidence = confidence.round(digits)  # to one digit: many are equal
    found = find_thresholds(confidence, right)
    assert 1 <= len(found) <= LEVELS
    assert found[0].confidence == 0.0
    assert found[0].coverage == 1.0
    for lower, higher in pairwise(found):
        assert lower.confidence < higher.confidence
        assert lower.coverage > higher.coverage
    for one in found:
        given = [i for i in range(n) if confidence[i] >= one.confidence]
        hits = sum(bool(right[i]) for i in given)
        assert one.coverage == pytest.approx(len(given) / n)
        assert one.precision == pytest.approx(hits / len(given))
        error = (1 - SURENESS) / LEVELS
        assert one.at_least == pytest.approx(
            stats.beta.ppf(error, hits, len(given) - hits + 1) if hits else 0, abs=1e-9
        )
        assert one.at_least <= one.precision


def test_the_levels_are_those_that_answer_so_much():
    confidence, right = answers(1000, 0)
    found = find_thresholds(confidence, right)
    assert [round(one.coverage, 2) for one in found] == [round(level / 20, 2) for level in range(20, 0, -1)]


def test_the_lowest_that_is_good_enough_is_chosen():
    found = find_thresholds(*answers(5000, 1))
    for wanted in (0.0, 0.7, 0.9, 0.95):
        chosen = choose_threshold(found, wanted)
        assert chosen.at_least >= wanted
        assert all(one.at_least < wanted for one in found if one.confidence < chosen.confidence)
    assert choose_threshold(found, 0.0).confidence == 0.0
    assert choose_threshold(found, 0.9999) is None


def test_few_texts_promise_little():
    right = np.ones(30, bool)
    assert choose_threshold(find_thresholds(np.linspace(0.6, 0.99, 30), right), 0.9) is None
    many = find_thresholds(np.linspace(0.6, 0.99, 3000), np.ones(3000, bool))
    assert choose_threshold(many, 0.99).confidence == 0.0


def test_what_is_promised_comes_true():
    """Of many draws of dev, in at most 1 of 20 the chosen threshold's true precision is below the wanted one."""
    population = answers(200_000, 2)
    broken = chosen = 0
    for seed in range(300):
        take = np.random.default_rng(seed).integers(0, 200_000, 400)
        threshold = choose_threshold(find_thresholds(population[0][take], population[1][take]), 0.85)
        if threshold is not None:
            chosen += 1
            broken += population[1][population[0] >= threshold.confidence].mean() < 0.85
    assert chosen > 200
    assert broken <= 0.05 * 300


def test_a_threshold_elsewhere():
    confidence, right = np.array([0.9, 0.8, 0.7, 0.6]), np.array([True, False, True, True])
    coverage, precision = abstained(confidence, right, 0.7, resamples=4000)
    assert (coverage.value, coverage.n) == (0.75, 4)
    assert (precision.value, precision.n) == (pytest.approx(2 / 3), 3)
    assert abstained(confidence, right, 0.95)[1] is None
    assert abstained(confidence, right, 0.95)[0].value == 0.0
    whole = abstained(confidence, right, 0.0)
    assert whole[0].value == whole[0].low == 1.0


def test_intervals_are_those_of_drawing_texts():
    confidence, right = answers(300, 3)
    found = abstained(confidence, right, 0.8, resamples=4000, seed=1)
    rng, rows = np.random.default_rng(4), []
    for _ in range(4000):
        take = rng.integers(0, 300, 300)
        given = confidence[take] >= 0.8
        rows.append((given.mean(), right[take][given].mean()))
    for metric, samples in zip(found, np.array(rows).T, strict=True):
        low, high = np.quantile(samples, [0.025, 0.975])
        assert metric.low == pytest.approx(low, abs=0.1 * (high - low))
        assert metric.high == pytest.approx(high, abs=0.1 * (high - low))


def test_nothing_to_choose_from():
    with pytest.raises(DataError, match="0 confidences"):
        find_thresholds(np.array([]), np.array([], bool))
