"""Accuracy, F1 and Matthews of a classifier, and where two classifiers disagree.

Every score here is a function of three counts per class (right answers, gold labels, predictions), so the bootstrap can
compute it for a thousand resamples at once. Conventions are scikit-learn's with `zero_division=0`.
"""

from dataclasses import dataclass

import numpy as np

from potstill.errors import DataError
from potstill.metrics.metric import Metric

__all__ = [
    "METRICS",
    "Disagreement",
    "beats_majority",
    "checked",
    "classification_metrics",
    "confusion_matrix",
    "disagreement",
    "majority",
    "majority_share",
    "scores_from_counts",
]

METRICS = ("accuracy", "macro_f1", "f1", "matthews")
"""Names of all scores; `f1` exists where one class is the positive one."""


def checked(values: np.ndarray, n_labels: int, what: str) -> np.ndarray:
    """`values` as int64 (n,), after each was found to be a class index.

    Args:
        values: Integers (n,).
        n_labels: Number of classes.
        what: What the values are, for the error.

    Raises:
        DataError: No values, another shape or kind, or a value outside 0 … n_labels - 1 (-1 is an absent label).
    """
    array = np.asarray(values)
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iu":
        raise DataError(f"{what} of shape {array.shape} and type {array.dtype}", expected="integers (n,) with n ≥ 1")
    if array.min() < 0 or array.max() >= n_labels:
        wrong = array.min() if array.min() < 0 else array.max()
        raise DataError(
            f"{what} with the value {wrong}", expected=f"0 to {n_labels - 1}", fix="judge labelled examples only"
        )
    return array.astype(np.int64, copy=False)


def checked_together(n_labels: int, **arrays: np.ndarray) -> list[np.ndarray]:
    """Each array `checked`, after all were found to be equally long; the names are used in errors."""
    result = [checked(values, n_labels, name) for name, values in arrays.items()]
    if len({len(values) for values in result}) > 1:
        lengths = ", ".join(f"{len(values)} {name}" for name, values in zip(arrays, result, strict=True))
        raise DataError(lengths, expected="one of each per example")
    return result


def checked_positive(positive: int | None, n_labels: int) -> int | None:
    """The class that `f1` is about: as given, else class 1 of two, else None."""
    if positive is None:
        return 1 if n_labels == 2 else None
    if not 0 <= positive < n_labels:
        raise DataError(f"positive class {positive}", expected=f"0 to {n_labels - 1}")
    return positive


def scores_from_counts(
    right: np.ndarray, gold: np.ndarray, predicted: np.ndarray, positive: int | None
) -> dict[str, np.ndarray]:
    """Every score, from counts per class.

    With n = Σ gold, per class F1 = 2·right / (gold + predicted), 0 without a right answer; macro F1 is the mean over
    the classes that occur in gold or predictions; and
    Matthews = (n·Σ right − Σ gold·predicted) / √((n² − Σ gold²)(n² − Σ predicted²)), 0 where the root is 0.

    Args:
        right: Right answers, int64 (..., n_labels).
        gold: Gold labels, int64 (..., n_labels).
        predicted: Predictions, int64 (..., n_labels).
        positive: The class of `f1`; None leaves `f1` out.

    Returns:
        float64 (...) by name.
    """
    r, g, p = (counts.astype(np.float64) for counts in (right, gold, predicted))
    n = g.sum(-1)
    either = g + p
    f1 = 2 * r / np.where(either > 0, either, 1)
    scores = {"accuracy": r.sum(-1) / n, "macro_f1": f1.sum(-1) / (either > 0).sum(-1)}
    if positive is not None:
        scores["f1"] = f1[..., positive]
    covariance = n * r.sum(-1) - (g * p).sum(-1)
    spread = (n**2 - (g**2).sum(-1)) * (n**2 - (p**2).sum(-1))
    scores["matthews"] = np.where(spread > 0, covariance / np.sqrt(np.where(spread > 0, spread, 1)), 0.0)
    return scores


def confusion_matrix(labels: np.ndarray, predictions: np.ndarray, n_labels: int) -> np.ndarray:
    """How often each gold class (row) was given each class (column).

    Args:
        labels: Gold class indices, int64 (n,).
        predictions: Predicted class indices, int64 (n,).
        n_labels: Number of classes.

    Returns:
        int64 (n_labels, n_labels).
    """
    labels, predictions = checked_together(n_labels, labels=labels, predictions=predictions)
    counts = np.bincount(labels * n_labels + predictions, minlength=n_labels**2)
    return counts.reshape(n_labels, n_labels).astype(np.int64)


def classification_metrics(
    labels: np.ndarray, predictions: np.ndarray, n_labels: int, positive: int | None = None
) -> dict[str, float]:
    """Accuracy, macro F1, F1 of one class and Matthews.

    Args:
        labels: Gold class indices, int64 (n,).
        predictions: Predicted class indices, int64 (n,).
        n_labels: Number of classes.
        positive: The class of `f1`. None means class 1 of two, and no `f1` where there are more.

    Returns:
        Values by name (`METRICS`): accuracy and F1 in 0 … 1, Matthews in -1 … 1.
    """
    labels, predictions = checked_together(n_labels, labels=labels, predictions=predictions)
    right, gold, predicted = (
        np.bincount(classes, minlength=n_labels) for classes in (labels[labels == predictions], labels, predictions)
    )
    scores = scores_from_counts(right, gold, predicted, checked_positive(positive, n_labels))
    return {name: float(value) for name, value in scores.items()}


def majority(labels: np.ndarray) -> int:
    """The most frequent class of `labels`, int64 (n,) with n ≥ 1; of equals the lowest."""
    values, counts = np.unique(labels, return_counts=True)
    if not len(values) or values[0] < 0:
        raise DataError(f"{len(labels)} labels, lowest {values.min(initial=0)}", expected="labelled examples")
    return int(values[counts.argmax()])


def majority_share(labels: np.ndarray) -> float:
    """The accuracy of always answering the most frequent class of `labels`, int64 (n,)."""
    labels = checked(labels, np.iinfo(np.int64).max, "labels")
    return float(np.unique(labels, return_counts=True)[1].max() / len(labels))


def beats_majority(metric: Metric, labels: np.ndarray, margin: float = 0.02) -> bool:
    """Whether an accuracy is surely better than answering the most frequent class.

    Args:
        metric: The accuracy on `labels`.
        labels: The gold labels that it was computed on, int64 (n,).
        margin: By how much the interval's lower end must beat the majority class. Above a majority of 1 - margin
            nothing can.

    Returns:
        `metric.low ≥ majority_share(labels) + margin`, up to rounding.
    """
    return metric.low - majority_share(labels) >= margin - 1e-12


@dataclass(frozen=True)
class Disagreement:
    """Where teacher and student differ.

    Attributes:
        both_right: Examples both answer rightly.
        teacher_only: Only the teacher does.
        student_only: Only the student does.
        both_wrong: Neither does.
        order: int64 (n,); all examples, most different probabilities first, ties by position.
        distance: float64 (n,); total variation ½ Σ |teacher - student| of each example, 0 … 1.
        differing: int64 (m,); of `order`, the examples that get two different answers.
    """

    both_right: int
    teacher_only: int
    student_only: int
    both_wrong: int
    order: np.ndarray
    distance: np.ndarray
    differing: np.ndarray

    def counts(self) -> dict[str, int]:
        """The four counts by name, as report.json's `student_errors`."""
        return {
            "both_right": self.both_right,
            "teacher_only": self.teacher_only,
            "student_only": self.student_only,
            "both_wrong": self.both_wrong,
        }


def disagreement(labels: np.ndarray, teacher_probs: np.ndarray, student_probs: np.ndarray) -> Disagreement:
    """Compare two classifiers' answers, example by example.

    Args:
        labels: Gold class indices, int64 (n,).
        teacher_probs: Probabilities, float (n, n_labels).
        student_probs: Probabilities, float (n, n_labels).

    Returns:
        Counts, and the examples ordered by how far the two are apart.

    Raises:
        DataError: Shapes that do not fit.
    """
    if teacher_probs.shape != student_probs.shape or teacher_probs.ndim != 2 or len(teacher_probs) != len(labels):
        got = f"probabilities of shape {teacher_probs.shape} and {student_probs.shape} for {len(labels)} labels"
        raise DataError(got, expected="two of shape (labels, classes)")
    labels = checked(labels, teacher_probs.shape[1], "labels")
    teacher, student = teacher_probs.argmax(1), student_probs.argmax(1)
    distance = np.abs(teacher_probs.astype(np.float64) - student_probs.astype(np.float64)).sum(1) / 2
    order = np.argsort(-distance, kind="stable")
    right_t, right_s = teacher == labels, student == labels
    return Disagreement(
        both_right=int((right_t & right_s).sum()),
        teacher_only=int((right_t & ~right_s).sum()),
        student_only=int((~right_t & right_s).sum()),
        both_wrong=int((~right_t & ~right_s).sum()),
        order=order,
        distance=distance,
        differing=order[teacher[order] != student[order]],
    )
