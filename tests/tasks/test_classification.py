"""How windows become a text's answer, and what is measured."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from potstill.tasks import Classification

TASK = Classification(("bad", "fair", "good"))


@given(counts=st.lists(st.integers(1, 4), max_size=6), classes=st.integers(2, 5), seed=st.integers(0, 2**31))
def test_a_texts_scores_are_the_mean_over_its_windows(counts, classes, seed):
    logits = np.random.default_rng(seed).normal(size=(sum(counts), classes)).astype(np.float32)
    example = np.repeat(np.arange(len(counts)), counts)
    merged = Classification.merge(logits, example)
    start = 0
    for text, count in enumerate(counts):
        wanted = [sum(float(logits[row, c]) for row in range(start, start + count)) / count for c in range(classes)]
        np.testing.assert_allclose(merged[text], wanted, rtol=1e-5, atol=1e-6)
        start += count
    assert merged.shape == (len(counts), classes)
    assert merged.dtype == np.float32


def test_texts_of_one_window_are_left_to_the_bit():
    logits = np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32)
    assert np.array_equal(Classification.merge(logits, np.arange(9)), logits)


@given(seed=st.integers(0, 2**31), spread=st.sampled_from([0.1, 10.0, 1e4]))
def test_decoding(seed, spread):
    logits = (spread * np.random.default_rng(seed).normal(size=(5, 3))).astype(np.float32)
    answers = TASK.decode(logits)
    for row, answer in enumerate(answers):
        best = max(range(3), key=lambda c: logits[row, c])
        assert answer["label"] == TASK.labels[best]
        assert TASK.predictions(logits)[row] == best
        powers = [np.exp(np.float64(value) - max(map(float, logits[row]))) for value in logits[row]]
        found = [answer["probabilities"][name] for name in TASK.labels]
        np.testing.assert_allclose(found, np.array(powers) / sum(powers), rtol=1e-6, atol=1e-12)
        assert sum(found) == pytest.approx(1.0)


def test_very_large_scores_do_not_overflow():
    (answer,) = TASK.decode(np.array([[3e38, 0.0, -3e38]], dtype=np.float32))
    assert answer["probabilities"] == {"bad": 1.0, "fair": 0.0, "good": 0.0}


@given(seed=st.integers(0, 2**31), temperature=st.floats(0.1, 10))
def test_probabilities_at_a_temperature(seed, temperature):
    logits = np.random.default_rng(seed).normal(size=(4, 3)).astype(np.float32)
    for row, answer, usual in zip(logits, TASK.decode(logits, temperature), TASK.decode(logits), strict=True):
        powers = [np.exp(float(value) / temperature) for value in row]
        assert list(answer["probabilities"].values()) == pytest.approx([power / sum(powers) for power in powers])
        assert answer["label"] == usual["label"]
        (sure,) = TASK.confidence.of(row[None], temperature)
        assert sure == pytest.approx(answer["probabilities"][answer["label"]])


def test_metrics_are_of_these_labels():
    gold, predicted = np.array([0, 1, 2, 2]), np.array([0, 1, 2, 0])
    metrics = TASK.metrics(gold, predicted, resamples=50)
    assert metrics["accuracy"].value == 0.75
    assert metrics["accuracy"].n == 4
    assert metrics["accuracy"].low <= 0.75 <= metrics["accuracy"].high
    assert {"accuracy", "macro_f1", "matthews"} <= metrics.keys()
    assert "f1" not in metrics  # binary only
    assert "f1" in Classification(("no", "yes")).metrics(np.array([0, 1]), np.array([0, 1]), resamples=20)
    assert TASK.metrics(gold, predicted, resamples=50) == metrics
    assert TASK.primary_metric in metrics
