"""Temperature, calibration error, negative log-likelihood and Brier score against plain loops, scipy, scikit-learn."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, special
from sklearn.metrics import brier_score_loss, log_loss

from potstill.errors import DataError
from potstill.metrics import (
    Metric,
    calibration_metrics,
    expected_calibration_error,
    fit_temperature,
    judge_softmax,
    reliability,
)
from potstill.metrics.calibration import log_softmax


def drawn(n: int, classes: int, temperature: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Gold answers that follow softmax(z / temperature), and the logits z."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(scale=2.5, size=(n, classes)).astype(np.float32)
    shares = special.softmax(logits.astype(np.float64) / temperature, axis=1)
    return np.array([rng.choice(classes, p=row) for row in shares]), logits


def loss(gold: np.ndarray, logits: np.ndarray, temperature: float) -> float:
    """The mean negative log-likelihood, as it is defined."""
    return float(
        -special.log_softmax(logits.astype(np.float64) / temperature, axis=1)[np.arange(len(gold)), gold].mean()
    )


class TestTemperature:
    @pytest.mark.parametrize(
        ("classes", "true", "seed"), [(2, 0.5, 0), (2, 1.0, 1), (3, 1.7, 2), (7, 3.0, 3), (40, 0.8, 4)]
    )
    def test_it_is_the_minimum_that_scipy_finds(self, classes, true, seed):
        gold, logits = drawn(3000, classes, true, seed)
        found = fit_temperature(gold, logits)
        wanted = optimize.minimize_scalar(
            lambda log_t: loss(gold, logits, math.exp(log_t)), bounds=(-3, 3), method="bounded", options={"xatol": 1e-9}
        )
        assert found.reason is None
        assert found.n == 3000
        assert math.log(found.value) == pytest.approx(wanted.x, abs=1e-6)
        assert found.value == pytest.approx(true, rel=0.12)

    def test_no_point_of_a_fine_grid_is_better_and_the_slope_is_nought(self):
        gold, logits = drawn(500, 4, 2.0, 5)
        found = fit_temperature(gold, logits).value
        least = loss(gold, logits, found)
        assert all(loss(gold, logits, t) >= least for t in np.exp(np.linspace(-2.9, 2.9, 4001)))
        step = 1e-5
        slope = (loss(gold, logits, found * (1 + step)) - loss(gold, logits, found * (1 - step))) / (2 * step)
        assert slope == pytest.approx(0.0, abs=1e-8)

    @given(seed=st.integers(0, 999), scale=st.sampled_from([0.25, 1.0, 4.0]))
    def test_scaled_logits_have_a_scaled_temperature_and_shifted_ones_the_same(self, seed, scale):
        gold, logits = drawn(200, 3, 1.5, seed)
        found = fit_temperature(gold, logits)
        assert fit_temperature(gold, logits * scale).value == pytest.approx(found.value * scale, rel=1e-6)
        moved = logits.astype(np.float64) + np.random.default_rng(seed).normal(size=(200, 1))
        assert fit_temperature(gold, moved).value == pytest.approx(found.value, rel=1e-9)
        order = np.random.default_rng(seed).permutation(200)
        assert fit_temperature(gold[order], logits[order]).value == pytest.approx(found.value, rel=1e-9)
        assert fit_temperature(gold, logits) == found

    def test_all_right(self):
        logits = np.eye(3)[np.arange(60) % 3]
        found = fit_temperature(np.arange(60) % 3, logits)
        assert found.value == 1.0
        assert found.reason == "all 60 answers are right, which no temperature could be too sure of"

    @pytest.mark.parametrize(
        ("wrong", "said"), [(9, "9 of 400 answers are wrong"), (391, "9 of 400 answers are right")]
    )
    def test_too_few_of_one_kind(self, wrong, said):
        gold = np.zeros(400, np.int64)
        gold[:wrong] = 1
        found = fit_temperature(gold, np.tile([1.0, 0.0], (400, 1)))
        assert (found.value, found.n) == (1.0, 400)
        assert found.reason.startswith(said)

    def test_logits_that_say_nothing_or_hardly_differ(self):
        gold, right = np.arange(400) % 2, np.arange(400) < 200
        nothing = np.where(right[:, None], 0.2 * np.eye(2)[gold], np.eye(2)[1 - gold])  # surer when wrong
        assert "high enough" in fit_temperature(gold, nothing).reason
        close = np.where(np.arange(400)[:, None] < 390, np.eye(2)[gold], 1 - np.eye(2)[gold]) * 1e-4
        assert "low enough" in fit_temperature(gold, close).reason

    def test_ten_of_each_are_enough(self):
        gold = np.repeat([0, 1], [30, 10])
        found = fit_temperature(gold, np.tile([1.0, 0.0], (40, 1)))
        assert found.reason is None
        assert found.value == pytest.approx(1 / math.log(3), rel=1e-9)  # sigmoid(1 / T) = 3 / 4

    @pytest.mark.parametrize(
        ("gold", "logits", "told"),
        [
            ([0, 1], [[0.0, 1.0]], r"logits of shape \(1, 2\)"),
            ([], np.zeros((0, 2)), "shape"),
            ([0, 2], [[0.0, 1.0], [1.0, 0.0]], "from 0 to 2; expected 0 to 1"),
            ([0, -1], [[0.0, 1.0], [1.0, 0.0]], "from -1"),
            ([0, 1], [[0.0, np.nan], [1.0, 0.0]], "NaN or infinity"),
            ([0.0, 1.0], [[0.0, 1.0], [1.0, 0.0]], "integers"),
        ],
    )
    def test_what_does_not_fit(self, gold, logits, told):
        for call in (fit_temperature, judge_softmax):
            with pytest.raises(DataError, match=told):
                call(np.array(gold), np.array(logits))


@given(seed=st.integers(0, 2**31), scale=st.sampled_from([1e-3, 1.0, 1e3]))
def test_log_softmax_is_scipys(seed, scale):
    logits = scale * np.random.default_rng(seed).normal(size=(5, 4))
    np.testing.assert_allclose(log_softmax(logits), special.log_softmax(logits, axis=1), rtol=1e-12, atol=1e-12)


class TestJudged:
    @pytest.mark.parametrize("classes", [2, 5])
    @pytest.mark.parametrize("temperature", [0.7, 1.0, 3.0])
    def test_scores_are_scikit_learns(self, classes, temperature):
        gold, logits = drawn(400, classes, 1.3, 6)
        judged = judge_softmax(gold, logits, temperature)
        shares = special.softmax(logits.astype(np.float64) / temperature, axis=1)
        assert judged.nll.mean() == pytest.approx(log_loss(gold, shares, labels=range(classes)), rel=1e-9)
        theirs = (
            brier_score_loss(gold, shares, labels=list(range(classes)), scale_by_half=False)
            if classes > 2
            else (2 * brier_score_loss(gold, shares[:, 1]))
        )
        assert judged.brier.mean() == pytest.approx(theirs, rel=1e-9)
        np.testing.assert_array_equal(judged.right, logits.argmax(axis=1) == gold)
        np.testing.assert_allclose(judged.confidence, shares.max(axis=1), rtol=1e-12)

    def test_no_temperature_moves_an_answer(self):
        gold, logits = drawn(300, 4, 1.0, 7)
        logits[::3, 1] = logits[::3].max(axis=1)  # ties and neighbours in float32
        logits[1::3, 2] = np.nextafter(logits[1::3].max(axis=1), np.float32(9e9))
        for temperature in (0.05, 0.3, 1.0, 7.1, 20.0):
            judged = judge_softmax(gold, logits, temperature)
            assert np.array_equal(judged.right, logits.argmax(axis=1) == gold)

    @pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan, math.inf])
    def test_no_such_temperature(self, temperature):
        with pytest.raises(DataError, match="temperature"):
            judge_softmax(np.array([0]), np.zeros((1, 2)), temperature)


def looped(confidence, right, bins):
    """ECE as Guo et al. write it: sums over bins of intervals (low, high]."""
    total = 0.0
    for b in range(bins):
        inside = [i for i, c in enumerate(confidence) if b / bins < c <= (b + 1) / bins or (b == 0 and c == 0)]
        if inside:
            accuracy = sum(bool(right[i]) for i in inside) / len(inside)
            sure = sum(confidence[i] for i in inside) / len(inside)
            total += len(inside) / len(confidence) * abs(accuracy - sure)
    return total


class TestExpectedCalibrationError:
    @given(seed=st.integers(0, 2**31), n=st.integers(1, 80), bins=st.sampled_from([1, 2, 15]))
    def test_it_is_that_of_a_plain_loop(self, seed, n, bins):
        gold, logits = drawn(n, 3, 2.0, seed)
        judged = judge_softmax(gold, logits)
        wanted = looped(judged.confidence, judged.right, bins)
        assert expected_calibration_error(judged, bins) == pytest.approx(wanted, abs=1e-12)
        (found,) = calibration_metrics([judged], resamples=5, bins=bins)
        assert found["ece"].value == pytest.approx(wanted, abs=1e-12)

    def test_by_hand(self):
        """Two answers at 0.9, one right; two at 0.6, both right: ½·0.4 + ½·0.4."""
        logits = np.log([[0.9, 0.1], [0.9, 0.1], [0.6, 0.4], [0.6, 0.4]])
        judged = judge_softmax(np.array([0, 1, 0, 0]), logits)
        assert expected_calibration_error(judged) == pytest.approx(0.4)
        filled = [one for one in reliability(judged) if one.n]
        assert [(one.n, one.accuracy) for one in filled] == [(2, 1.0), (2, 0.5)]
        assert [one.confidence for one in filled] == pytest.approx([0.6, 0.9])
        assert all(one.low < one.confidence <= one.high for one in filled)

    def test_bins_part_the_range_and_hold_everything(self):
        gold, logits = drawn(700, 3, 1.0, 8)
        found = reliability(judge_softmax(gold, logits))
        assert len(found) == 15
        assert (found[0].low, found[-1].high) == (0.0, 1.0)
        assert sum(one.n for one in found) == 700
        assert {one.confidence for one in found if one.n == 0} == {None}  # below 1/3 no answer of three is the largest

    def test_an_edge_belongs_to_the_bin_below_and_certainty_to_the_last(self):
        judged = judge_softmax(np.array([0, 0]), np.array([[np.log(3.0), 0.0], [2000.0, 0.0]]))
        assert [one.n for one in reliability(judged, 4)] == [0, 0, 1, 1]

    def test_the_temperature_lowers_it_where_a_model_is_too_sure(self):
        gold, logits = drawn(4000, 4, 2.5, 9)
        held, learned = slice(2000), slice(2000, None)
        found = fit_temperature(gold[learned], logits[learned])
        before, after = (judge_softmax(gold[held], logits[held], t) for t in (1.0, found.value))
        assert expected_calibration_error(after) < 0.25 * expected_calibration_error(before)
        assert after.nll.mean() < before.nll.mean()
        assert after.brier.mean() < before.brier.mean()


class TestIntervals:
    def test_they_are_those_of_drawing_examples(self):
        gold, logits = drawn(250, 3, 2.0, 10)
        judged = judge_softmax(gold, logits)
        (found,) = calibration_metrics([judged], resamples=2000, seed=1)
        rng = np.random.default_rng(2)
        rows = []
        for _ in range(1000):
            take = rng.integers(0, 250, 250)
            some = judge_softmax(gold[take], logits[take])
            rows.append((looped(some.confidence, some.right, 15), some.nll.mean(), some.brier.mean()))
        for name, samples in zip(("ece", "nll", "brier"), np.array(rows).T, strict=True):
            low, high = np.quantile(samples, [0.025, 0.975])
            width = high - low
            assert found[name].low == pytest.approx(low, abs=0.12 * width), name
            assert found[name].high == pytest.approx(high, abs=0.12 * width), name
            assert found[name].n == 250

    def test_an_interval_reaches_the_error_itself(self):
        gold, logits = drawn(60, 2, 1.0, 11)
        (found,) = calibration_metrics([judge_softmax(gold, logits)], resamples=300)
        assert found["ece"].low <= found["ece"].value <= found["ece"].high

    def test_several_share_their_resamples(self):
        gold, logits = drawn(90, 3, 2.0, 12)
        one, other = (judge_softmax(gold, logits, t) for t in (1.0, 2.0))
        both = calibration_metrics([one, other], resamples=50, seed=3)
        assert both[0] == calibration_metrics([one], resamples=50, seed=3)[0]
        assert both[1] == calibration_metrics([other], resamples=50, seed=3)[0]
        assert isinstance(both[0]["nll"], Metric)

    def test_what_does_not_fit(self):
        judged = [judge_softmax(*drawn(n, 2, 1.0, n)) for n in (5, 6)]
        with pytest.raises(DataError, match=r"\[5, 6\] answers"):
            calibration_metrics(judged)
        with pytest.raises(DataError, match="0 resamples"):
            calibration_metrics(judged[:1], resamples=0)
