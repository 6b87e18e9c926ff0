"""Precision, recall and F1 of each class, with intervals."""

from dataclasses import dataclass

import numpy as np

from potstill.errors import DataError
from potstill.metrics.bootstrap import class_sums, draw_cells
from potstill.metrics.classification import checked_together
from potstill.metrics.metric import Metric
from potstill.metrics.resampled import with_interval

__all__ = ["ClassScores", "per_class", "shares"]


@dataclass(frozen=True)
class ClassScores:
    """How well one class is found.

    Attributes:
        precision: Of the examples given this class, the share that has it.
        recall: Of the examples that have it, the share that was given it.
        f1: 2·right / (gold + predicted), the harmonic mean of the two.
        support: How many examples have it.
        predicted: How many were given it.
    """

    precision: Metric
    recall: Metric
    f1: Metric
    support: int
    predicted: int


def per_class(
    labels: np.ndarray, predictions: np.ndarray, n_labels: int, *, resamples: int = 1000, seed: int = 0
) -> list[ClassScores]:
    """Scores of each class, with 95 % percentile intervals of the bootstrap that `bootstrap` describes.

    As with scikit-learn's `zero_division=0`, a quotient over nothing is 0: in resamples, too.

    Args:
        labels: Gold class indices, int64 (n,).
        predictions: Predicted class indices, int64 (n,).
        n_labels: Number of classes.
        resamples: Number of resamples.
        seed: Of these.

    Returns:
        One for each class, in their order; every `n` is the number of examples.
    """
    if resamples < 1:
        raise DataError(f"{resamples} resamples", expected="1 or more")
    gold, predicted = checked_together(n_labels, labels=labels, predictions=predictions)
    cells, counts = np.unique(np.stack([gold, predicted]), axis=1, return_counts=True)
    value = _shares(counts[None, :], cells, n_labels)
    parts = [_shares(drawn, cells, n_labels) for drawn in draw_cells(counts, resamples, seed)]
    samples = {name: np.concatenate([part[name] for part in parts]) for name in value}
    support, given = (np.bincount(one, minlength=n_labels).tolist() for one in (gold, predicted))

    def scored(name: str, k: int) -> Metric:
        return with_interval(float(value[name][0, k]), samples[name][:, k], len(gold))

    return [
        ClassScores(scored("precision", k), scored("recall", k), scored("f1", k), support[k], given[k])
        for k in range(n_labels)
    ]


def _shares(counts: np.ndarray, cells: np.ndarray, n_labels: int) -> dict[str, np.ndarray]:
    """Each score by class, float64 (resamples, n_labels), from counts of the cells (gold, predicted)."""
    hit = cells[0] == cells[1]
    right = class_sums(counts[:, hit], cells[0][hit], n_labels)
    return shares(right, *(class_sums(counts, one, n_labels) for one in cells))


def shares(right: np.ndarray, gold: np.ndarray, predicted: np.ndarray) -> dict[str, np.ndarray]:
    """Precision, recall and F1 from how many have a class and are given it, have it, and are given it; 0 for 0 / 0."""

    def share(parts: np.ndarray, whole: np.ndarray) -> np.ndarray:
        return parts / np.where(whole > 0, whole, 1)

    return {
        "precision": share(right, predicted),
        "recall": share(right, gold),
        "f1": share(2 * right, gold + predicted),
    }
