"""F1 and exact matches of sets of labels against scikit-learn, resample by resample; thresholds against trying all."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score, precision_recall_fscore_support

from potstill.errors import DataError
from potstill.metrics import (
    LABEL_SET_METRICS,
    best_constant_set,
    best_thresholds,
    multilabel_metrics,
    per_label,
    resampled_multilabel,
)
from potstill.metrics.resampled import draw_counts

seeds = given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 12), labels=st.integers(2, 5), share=st.floats(0, 1))


def marks(generator, n, labels, share):
    return (generator.random((n, labels)) < share).astype(np.int8)


def wanted(gold, predictions):
    options = {"zero_division": 0}
    return {
        "micro_f1": f1_score(gold, predictions, average="micro", **options),
        "macro_f1": f1_score(gold, predictions, average="macro", **options),
        "exact_match": accuracy_score(gold, predictions),
    }


@seeds
def test_scores_are_those_of_scikit_learn(seed, n, labels, share):
    generator = np.random.default_rng(seed)
    gold, predictions = marks(generator, n, labels, share), marks(generator, n, labels, 0.4)
    found = multilabel_metrics(gold, predictions)
    assert tuple(found) == LABEL_SET_METRICS
    assert found == pytest.approx(wanted(gold, predictions))
    by_label = per_label(gold, predictions, resamples=3)
    values = np.array([[one.precision.value, one.recall.value, one.f1.value, one.support] for one in by_label]).T
    np.testing.assert_allclose(values, precision_recall_fscore_support(gold, predictions, zero_division=0))
    assert [one.predicted for one in by_label] == predictions.sum(axis=0).tolist()


ZEROS, ONES, FIRST = np.zeros((4, 3), np.int8), np.ones((4, 3), np.int8), np.array([[1, 0, 0]] * 4, np.int8)


@pytest.mark.parametrize("gold", [ZEROS, ONES, FIRST])
@pytest.mark.parametrize("predictions", [ZEROS, ONES, FIRST])
def test_labels_that_nobody_has_or_nobody_gives(gold, predictions):
    assert multilabel_metrics(gold, predictions) == pytest.approx(wanted(gold, predictions))


def test_the_bootstrap_is_that_of_the_examples():
    generator = np.random.default_rng(3)
    gold = marks(generator, 30, 4, 0.3)
    gold[:, 3] = 0
    models = [marks(generator, 30, 4, 0.3), np.where(generator.random((30, 4)) < 0.9, gold, 1 - gold).astype(np.int8)]
    found = resampled_multilabel(gold, models, resamples=40, seed=7)
    counts = np.concatenate(list(draw_counts(30, 40, 7))).astype(int)
    for resample, drawn in enumerate(counts):
        rows = np.repeat(np.arange(30), drawn)
        for model, predictions in enumerate(models):
            for name, value in wanted(gold[rows], predictions[rows]).items():
                assert found.samples[name][resample, model] == pytest.approx(value)
    assert found.metrics(1)["micro_f1"].value == pytest.approx(wanted(gold, models[1])["micro_f1"])
    assert found.retention("micro_f1", student=0, teacher=1).value < 1
    drawn = [
        precision_recall_fscore_support(gold[rows], models[1][rows], zero_division=0)[:3]
        for rows in (np.repeat(np.arange(30), drawn) for drawn in counts)
    ]
    wanted_ends = np.quantile(drawn, [0.025, 0.975], axis=0)
    for c, one in enumerate(per_label(gold, models[1], resamples=40, seed=7)):
        ends = [(score.low, score.high) for score in (one.precision, one.recall, one.f1)]
        np.testing.assert_allclose(ends, wanted_ends[:, :, c].T)
        assert one.f1.n == 30


def given_by(thresholds, probabilities):
    return (probabilities >= thresholds).astype(np.int8)


@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 5), labels=st.integers(1, 3), coarse=st.booleans())
def test_no_other_thresholds_have_a_better_micro_f1(seed, n, labels, coarse):
    """All that thresholds can do is tried: every probability, and one above all, for every label."""
    generator = np.random.default_rng(seed)
    gold, probabilities = marks(generator, n, labels, 0.4), generator.random((n, labels))
    probabilities = np.round(probabilities * 4) / 4 if coarse else probabilities
    gold[0] = 1  # every label is known
    found = best_thresholds(gold, probabilities)
    every = [sorted({*probabilities[:, label], 1.5}) for label in range(labels)]
    best = max(
        f1_score(gold.ravel(), given_by(np.array(tried), probabilities).ravel(), zero_division=0)
        for tried in itertools.product(*every)
    )
    ours = multilabel_metrics(gold, given_by(found, probabilities))["micro_f1"]
    # A probability of 1 cannot be refused by a threshold that is no more than 1.
    if probabilities.max() < 1:
        assert ours == pytest.approx(best)
    constant = np.broadcast_to(best_constant_set(gold), gold.shape)
    assert ours >= multilabel_metrics(gold, constant)["micro_f1"] - 1e-12 or probabilities.max() == 1
    assert ((found >= 0) & (found <= 1)).all()


def test_thresholds_lie_between_answers_and_of_equals_nearest_to_a_half():
    gold = np.array([[1, 0, 1], [0, 0, 1], [0, 0, 1]], np.int8)
    probabilities = np.array([[0.9, 0.7, 0.9], [0.3, 0.2, 0.4], [0.1, 0.1, 0.2]])
    np.testing.assert_allclose(best_thresholds(gold, probabilities), [0.6, 0.5, 0.1])


def test_rounding_turns_no_answer_over():
    generator = np.random.default_rng(1)
    gold, probabilities = marks(generator, 50, 4, 0.3), generator.random((50, 4))
    found = best_thresholds(gold, probabilities)
    for noise in (-1e-7, 1e-7):
        assert np.array_equal(given_by(found, probabilities), given_by(found, probabilities + noise))
    assert np.array_equal(best_thresholds(gold, probabilities), found)
    order = generator.permutation(50)
    assert np.array_equal(best_thresholds(gold[order], probabilities[order]), found)


def test_neighbouring_numbers_and_certainty():
    """No number lies between two neighbours: they are not told apart; and 1 is not to be refused."""
    above = np.nextafter(0.3, 1)
    gold = np.array([[1], [0]], np.int8)
    found = best_thresholds(gold, np.array([[above], [0.3]]))
    assert multilabel_metrics(gold, given_by(found, np.array([[above], [0.3]])))["micro_f1"] >= 2 / 3
    assert best_thresholds(gold, np.array([[1.0], [1.0]])) == pytest.approx([0.5])


@seeds
def test_no_constant_set_is_better(seed, n, labels, share):
    gold = marks(np.random.default_rng(seed), n, labels, share)
    found = best_constant_set(gold)
    assert found.sum() >= 1
    every = [np.tile(one, (n, 1)).astype(np.int8) for one in itertools.product((0, 1), repeat=labels)]
    best = max(multilabel_metrics(gold, one)["micro_f1"] for one in every)
    assert multilabel_metrics(gold, np.tile(found, (n, 1)))["micro_f1"] == pytest.approx(best)


@pytest.mark.parametrize(
    ("gold", "predictions", "words"),
    [
        (ZEROS, ZEROS[:3], r"gold \(4, 3\), predictions 1 \(3, 3\)"),
        (ZEROS - 1, ZEROS, "gold with the mark -1"),
        (ZEROS[:, 0], ZEROS[:, 0], r"gold of shape \(4,\)"),
        (ZEROS[:0], ZEROS[:0], r"gold of shape \(0, 3\)"),
        (ZEROS.astype(float), ZEROS, "type float64"),
    ],
)
def test_refusals(gold, predictions, words):
    with pytest.raises(DataError, match=words):
        multilabel_metrics(gold, predictions)


def test_more_refusals():
    with pytest.raises(DataError, match="0 resamples"):
        resampled_multilabel(ZEROS, [ZEROS], resamples=0)
    with pytest.raises(DataError, match="0 resamples"):
        per_label(ZEROS, ZEROS, resamples=0)
    with pytest.raises(DataError, match=r"probabilities of shape \(4, 2\)"):
        best_thresholds(ZEROS, np.zeros((4, 2)))
