"""Scores of each class against scikit-learn's, their intervals against a plain loop over examples."""

import numpy as np
import pytest
from sklearn.metrics import precision_recall_fscore_support

from potstill.errors import DataError
from potstill.metrics import classification_metrics, per_class


def drawn(n: int, classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, n)
    return labels, np.where(rng.random(n) < 0.3, rng.integers(0, classes, n), labels)


@pytest.mark.parametrize(("n", "classes"), [(1, 2), (5, 9), (400, 2), (600, 7)])
def test_values_are_scikit_learns(n, classes):
    labels, predictions = drawn(n, classes, n)
    found = per_class(labels, predictions, classes, resamples=20)
    wanted = precision_recall_fscore_support(labels, predictions, labels=range(classes), zero_division=0)
    for name, values in zip(("precision", "recall", "f1"), wanted, strict=False):
        assert [getattr(one, name).value for one in found] == pytest.approx(list(values))
    assert [one.support for one in found] == wanted[3].tolist()
    assert [one.predicted for one in found] == np.bincount(predictions, minlength=classes).tolist()
    present = [one.f1.value for one in found if one.support or one.predicted]
    assert np.mean(present) == pytest.approx(classification_metrics(labels, predictions, classes)["macro_f1"])


def test_intervals_are_those_of_drawing_examples():
    labels, predictions = drawn(200, 3, 1)
    found = per_class(labels, predictions, 3, resamples=4000, seed=2)
    rng = np.random.default_rng(3)
    takes = [rng.integers(0, 200, 200) for _ in range(1500)]
    rows = [
        precision_recall_fscore_support(labels[t], predictions[t], labels=range(3), zero_division=0)[:3] for t in takes
    ]
    for place, name in enumerate(("precision", "recall", "f1")):
        for k in range(3):
            low, high = np.quantile([row[place][k] for row in rows], [0.025, 0.975])
            own = getattr(found[k], name)
            assert own.low == pytest.approx(low, abs=0.12 * (high - low))
            assert own.high == pytest.approx(high, abs=0.12 * (high - low))
            assert own.n == 200


def test_a_class_that_never_occurs_scores_nothing():
    found = per_class(np.array([0, 0, 1]), np.array([0, 1, 1]), 3, resamples=50)
    assert (found[2].support, found[2].predicted) == (0, 0)
    assert found[2].f1.value == found[2].f1.high == 0.0
    assert found == per_class(np.array([0, 0, 1]), np.array([0, 1, 1]), 3, resamples=50)


def test_what_does_not_fit():
    with pytest.raises(DataError, match="0 resamples"):
        per_class(np.array([0]), np.array([0]), 2, resamples=0)
    with pytest.raises(DataError, match="predictions with the value 2"):
        per_class(np.array([0]), np.array([2]), 2)
