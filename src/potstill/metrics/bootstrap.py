"""95 % percentile intervals of scores, and of ratios of two classifiers' scores, by the bootstrap.

Every score is a function of how many examples fall in each *cell*: (gold, prediction) for one classifier,
(gold, teacher, student) for two. Drawing n examples with replacement draws n cells independently, cell c with
probability count_c / n; so the counts of a resample are Multinomial(n, counts / n), exactly. We draw those counts
instead of examples: the same distribution, at the cost of a few cells instead of n examples, and the classifiers in one
resample are compared on the same examples.

A percentile interval can only show variation that is in the examples: without a single error it is one point.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from potstill.errors import DataError
from potstill.metrics.classification import METRICS, checked_positive, checked_together, scores_from_counts
from potstill.metrics.metric import Metric
from potstill.metrics.resampled import Resampled

__all__ = [
    "bootstrap_metrics",
    "class_sums",
    "draw_cells",
    "gap_closed",
    "mean_over_seeds",
    "paired_difference",
    "paired_retention",
    "resampled_classification",
]

_COUNTS_AT_ONCE = 4_000_000


def bootstrap_metrics(
    labels: np.ndarray,
    predictions: np.ndarray,
    n_labels: int,
    *,
    resamples: int = 1000,
    seed: int = 0,
    positive: int | None = None,
) -> dict[str, Metric]:
    """Each of `classification_metrics`' scores, with its interval.

    Args:
        labels: Gold class indices, int64 (n,).
        predictions: Predicted class indices, int64 (n,).
        n_labels: Number of classes.
        resamples: Number of resamples.
        seed: Of the resamples; the same seed gives the same interval.
        positive: The class of `f1`. None means class 1 of two, and no `f1` where there are more.

    Returns:
        Scores by name.
    """
    return resampled_classification(
        labels, [predictions], n_labels, resamples=resamples, seed=seed, positive=positive
    ).metrics()


def resampled_classification(
    labels: np.ndarray,
    predictions: Sequence[np.ndarray],
    n_labels: int,
    *,
    resamples: int = 1000,
    seed: int = 0,
    positive: int | None = None,
) -> Resampled:
    """`classification_metrics` of several classifiers on all examples, and on resamples that all of them share.

    Args:
        labels: Gold class indices, int64 (n,).
        predictions: One int64 (n,) a classifier.
        n_labels: Number of classes.
        resamples: As in `bootstrap_metrics`.
        seed: As in `bootstrap_metrics`.
        positive: As in `bootstrap_metrics`.
    """
    named = {f"predictions {number}": one for number, one in enumerate(predictions, 1)}
    gold, *answers = checked_together(n_labels, labels=labels, **named)
    return _resampled(gold, answers, checked_positive(positive, n_labels), resamples, seed)


def paired_retention(
    labels: np.ndarray,
    student: np.ndarray,
    teacher: np.ndarray,
    *,
    metric: str = "accuracy",
    positive: int | None = None,
    resamples: int = 1000,
    seed: int = 0,
) -> Metric:
    """How much of the teacher's score the student keeps: metric(student) / metric(teacher).

    Each resample holds the same examples for both. Resamples in which the teacher's score is not positive have no ratio
    and are left out.

    Args:
        labels: Gold class indices, int64 (n,).
        student: The student's predictions, int64 (n,).
        teacher: The teacher's predictions, int64 (n,).
        metric: One of `METRICS`.
        positive: The class of `f1`; None means class 1. Other metrics do not use it.
        resamples: Number of resamples.
        seed: Of the resamples.

    Returns:
        The ratio, and its interval.

    Raises:
        DataError: The teacher's score is not positive, so that there is nothing to keep.
    """
    compared = _compared(labels, {"student": student, "teacher": teacher}, metric, positive, resamples, seed)
    return compared.retention(metric)


def gap_closed(
    labels: np.ndarray,
    student: np.ndarray,
    teacher: np.ndarray,
    hard: np.ndarray,
    *,
    metric: str = "accuracy",
    positive: int | None = None,
    resamples: int = 1000,
    seed: int = 0,
) -> Metric | None:
    """How much of the way from the undistilled student to the teacher distillation went.

    (metric(student) - metric(hard)) / (metric(teacher) - metric(hard)): 0 is no gain, 1 the teacher's score; negative
    and above 1 both happen. Each resample holds the same examples for all three. A small gap gives a wide interval;
    resamples without a gap have no ratio and are left out.

    Args:
        labels: Gold class indices, int64 (n,).
        student: The student's predictions, int64 (n,).
        teacher: The teacher's predictions, int64 (n,).
        hard: The predictions of the same student trained with hard labels only, int64 (n,).
        metric: One of `METRICS`.
        positive: The class of `f1`; None means class 1. Other metrics do not use it.
        resamples: Number of resamples.
        seed: Of the resamples.

    Returns:
        The ratio and its interval; None where the teacher is no better than the undistilled student: no gap to close.
    """
    predictions = {"student": student, "teacher": teacher, "hard": hard}
    return _compared(labels, predictions, metric, positive, resamples, seed).gap_closed(metric)


def mean_over_seeds(
    labels: np.ndarray,
    predictions: np.ndarray,
    *,
    metric: str = "accuracy",
    positive: int | None = None,
    resamples: int = 1000,
    seed: int = 0,
) -> Metric:
    """The mean score of one way of training, run with several seeds; arguments as in `paired_difference`."""
    return _over_seeds(labels, predictions, None, metric, positive, resamples, seed)


def paired_difference(
    labels: np.ndarray,
    ours: np.ndarray,
    theirs: np.ndarray,
    *,
    metric: str = "accuracy",
    positive: int | None = None,
    resamples: int = 1000,
    seed: int = 0,
) -> Metric:
    """How much better one way of training is than another, over seeds: mean_s [metric(ours_s) - metric(theirs_s)].

    Paired twice: a resample draws n examples, the same for every model, and S seeds with replacement, the same for both
    ways. With one seed only the examples vary; few seeds show little of how much seeds differ.

    Args:
        labels: Gold class indices, int64 (n,).
        ours: Predictions, int64 (S, n), one row a seed.
        theirs: Predictions of the other way, int64 (S, n), of the same seeds.
        metric: One of `METRICS`.
        positive: The class of `f1`; None means class 1. Other metrics do not use it.
        resamples: Number of resamples.
        seed: Of the resamples.

    Returns:
        The difference, -1 … 1, and its interval; `n` counts examples.

    Raises:
        DataError: Other numbers of seeds or examples.
    """
    if np.shape(ours) != np.shape(theirs):
        raise DataError(
            f"predictions of shape {np.shape(ours)} and {np.shape(theirs)}", expected="the same seeds and examples"
        )
    return _over_seeds(labels, ours, theirs, metric, positive, resamples, seed)


def _over_seeds(
    labels: np.ndarray,
    ours: np.ndarray,
    theirs: np.ndarray | None,
    metric: str,
    positive: int | None,
    resamples: int,
    seed: int,
) -> Metric:
    if np.ndim(ours) != 2 or len(ours) == 0:
        raise DataError(f"predictions of shape {np.shape(ours)}", expected="(seeds, examples), one seed at least")
    rows = [*ours, *(() if theirs is None else theirs)]
    names = {f"predictions {number}": row for number, row in enumerate(rows)}
    found = _compared(labels, names, metric, positive, resamples, seed)
    return found.over_seeds(metric, len(ours), seed=seed)


def _compared(
    labels: np.ndarray, predictions: dict[str, np.ndarray], metric: str, positive: int | None, resamples: int, seed: int
) -> Resampled:
    """Several classifiers, after the metric was found to exist."""
    if metric not in METRICS:
        raise DataError(f"metric {metric!r}", expected=" | ".join(METRICS))
    n_labels = max(2, *(int(np.max(values, initial=0)) + 1 for values in (labels, *predictions.values())))
    if metric == "f1" and positive is None:
        positive = 1
    gold, *answers = checked_together(n_labels, labels=labels, **predictions)
    return _resampled(gold, answers, positive, resamples, seed)


def _resampled(
    labels: np.ndarray, predictions: list[np.ndarray], positive: int | None, resamples: int, seed: int
) -> Resampled:
    if resamples < 1:
        raise DataError(f"{resamples} resamples", expected="1 or more")
    n_labels = int(max(values.max() for values in (labels, *predictions))) + 1
    if positive is not None:
        n_labels = max(n_labels, positive + 1)
    # By columns, and not by one number a cell: of many classes and many classifiers it would not fit 64 bits.
    present, counts = np.unique(np.stack([labels, *predictions]), axis=1, return_counts=True)
    cells = tuple(present)
    values = _scores(counts[None, :], cells, n_labels, positive)
    parts = [_scores(drawn, cells, n_labels, positive) for drawn in draw_cells(counts, resamples, seed)]
    samples = {name: np.concatenate([part[name] for part in parts]) for name in values}
    return Resampled({name: value[0] for name, value in values.items()}, samples, len(labels))


def draw_cells(counts: np.ndarray, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """Counts per cell of each resample, int64 (some, cells), in portions that bound the memory."""
    generator = np.random.default_rng(seed)
    n = int(counts.sum())
    portion = max(1, _COUNTS_AT_ONCE // len(counts))
    for start in range(0, resamples, portion):
        yield generator.multinomial(n, counts / n, size=min(portion, resamples - start))


def _scores(
    counts: np.ndarray, cells: tuple[np.ndarray, ...], n_labels: int, positive: int | None
) -> dict[str, np.ndarray]:
    """Scores by name, (resamples, c), from counts per cell (resamples, cells) and the cells' coordinates."""
    gold, *predictions = cells
    by_gold = class_sums(counts, gold, n_labels)
    scores = []
    for predicted in predictions:
        hit = predicted == gold
        right = class_sums(counts[:, hit], gold[hit], n_labels)
        scores.append(scores_from_counts(right, by_gold, class_sums(counts, predicted, n_labels), positive))
    return {name: np.stack([score[name] for score in scores], axis=1) for name in scores[0]}


def class_sums(counts: np.ndarray, classes: np.ndarray, n_labels: int) -> np.ndarray:
    """Sum the cells of each class: (resamples, cells) to (resamples, n_labels)."""
    total = np.zeros((len(counts), n_labels), np.int64)
    if len(classes):
        order = np.argsort(classes, kind="stable")
        present, starts = np.unique(classes[order], return_index=True)
        total[:, present] = np.add.reduceat(counts[:, order], starts, axis=1)
    return total
