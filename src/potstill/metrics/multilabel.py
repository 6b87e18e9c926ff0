"""F1 and exact matches of predicted sets of labels, and the threshold from which on each label is given.

Shapes: n examples, C labels. A set of labels is a row of marks, 1 or 0. Every score is a function of sums over examples
(labels hit, gold and predicted, rows that match), so that resamples, which are counts of how often each example was
drawn, are a few matrix products. Conventions are scikit-learn's with `zero_division=0`.
"""

from collections.abc import Sequence

import numpy as np

from potstill.errors import DataError
from potstill.metrics.metric import Metric
from potstill.metrics.per_class import ClassScores, shares
from potstill.metrics.resampled import Resampled, draw_counts, with_interval

__all__ = [
    "LABEL_SET_METRICS",
    "best_constant_set",
    "best_thresholds",
    "multilabel_metrics",
    "per_label",
    "resampled_multilabel",
]

LABEL_SET_METRICS = ("micro_f1", "macro_f1", "exact_match")
"""Names of all scores."""

_HALF = 0.5


def _checked(**arrays: np.ndarray) -> list[np.ndarray]:
    found = []
    for name, values in arrays.items():
        array = np.asarray(values)
        if array.ndim != 2 or array.size == 0 or array.dtype.kind not in "iub":
            raise DataError(
                f"{name} of shape {array.shape} and type {array.dtype}", expected="marks (n, C) with n ≥ 1 and C ≥ 1"
            )
        if not np.isin(array, (0, 1)).all():
            wrong = array[~np.isin(array, (0, 1))][0]
            raise DataError(f"{name} with the mark {wrong}", expected="0 or 1", fix="judge labelled examples only")
        found.append(array.astype(bool))
    if len({array.shape for array in found}) > 1:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in zip(arrays, found, strict=True))
        raise DataError(shapes, expected="a mark for each example and label in all of them")
    return found


def _f1(right: np.ndarray, either: np.ndarray) -> np.ndarray:
    """2·right / either, with either = gold + predicted; 0 where there is neither."""
    return np.asarray(2 * right / np.where(either > 0, either, 1))


class _Sums:
    """What a resample adds up: of each example its marks, as float64, which counts exactly up to 2⁵³."""

    def __init__(self, gold: np.ndarray, predictions: Sequence[np.ndarray]) -> None:
        self.gold = gold.astype(np.float64)
        self.either = [gold.astype(np.float64) + one for one in predictions]
        self.right = [(gold & one).astype(np.float64) for one in predictions]
        self.exact = np.stack([(gold == one).all(axis=1) for one in predictions], axis=1).astype(np.float64)

    def label_f1(self, counts: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """Of each model: labels hit, and gold + predicted, each (resamples, C)."""
        return [(counts @ right, counts @ either) for right, either in zip(self.right, self.either, strict=True)]

    def scores(self, counts: np.ndarray) -> dict[str, np.ndarray]:
        """Each metric, (resamples, c), from counts (resamples, n)."""
        sums = self.label_f1(counts)
        return {
            "micro_f1": np.stack([_f1(right.sum(1), either.sum(1)) for right, either in sums], axis=1),
            "macro_f1": np.stack([_f1(right, either).mean(1) for right, either in sums], axis=1),
            "exact_match": (counts @ self.exact) / counts.sum(axis=1, keepdims=True),
        }


def multilabel_metrics(gold: np.ndarray, predictions: np.ndarray) -> dict[str, float]:
    """Micro F1, macro F1 and the share of exact matches.

    With, for each label c, r_c examples that rightly have it, g_c that have it and p_c that are given it:
    micro F1 = 2·Σ r_c / Σ (g_c + p_c), macro F1 = 1/C · Σ 2·r_c / (g_c + p_c) over all C labels, both 0 for 0 / 0. An
    exact match is an example whose whole set is right, the empty set too.

    Args:
        gold: Marks, integer or bool (n, C).
        predictions: Marks, integer or bool (n, C).

    Returns:
        Values by name (`LABEL_SET_METRICS`), 0 … 1.

    Raises:
        DataError: Arrays that do not fit, or a mark that is neither 0 nor 1.
    """
    found = _Sums(*_grouped(gold, [predictions])).scores(np.ones((1, len(gold))))
    return {name: float(values[0, 0]) for name, values in found.items()}


def _grouped(gold: np.ndarray, predictions: Sequence[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
    marks, *answers = _checked(gold=gold, **{f"predictions {n}": one for n, one in enumerate(predictions, 1)})
    return marks, answers


def resampled_multilabel(
    gold: np.ndarray, predictions: Sequence[np.ndarray], *, resamples: int = 1000, seed: int = 0
) -> Resampled:
    """The metrics of several models on all examples, and on resamples that all models share.

    Args:
        gold: Marks, (n, C).
        predictions: Marks, one (n, C) a model.
        resamples: Number of resamples.
        seed: Of the resamples.

    Raises:
        DataError: Arrays that do not fit, or no resamples.
    """
    if resamples < 1:
        raise DataError(f"{resamples} resamples", expected="1 or more")
    marks, answers = _grouped(gold, predictions)
    sums = _Sums(marks, answers)
    whole = sums.scores(np.ones((1, len(marks))))
    parts = [sums.scores(drawn) for drawn in draw_counts(len(marks), resamples, seed)]
    samples = {name: np.concatenate([part[name] for part in parts]) for name in whole}
    return Resampled({name: value[0] for name, value in whole.items()}, samples, len(marks))


def per_label(gold: np.ndarray, predictions: np.ndarray, *, resamples: int = 1000, seed: int = 0) -> list[ClassScores]:
    """Scores of each label, with 95 % intervals of the resamples of `resampled_multilabel`.

    As with scikit-learn's `zero_division=0`, a quotient over nothing is 0: in resamples, too.

    Args:
        gold: Marks, (n, C).
        predictions: Marks, (n, C).
        resamples: Number of resamples of the examples.
        seed: Of these.

    Returns:
        One for each of the C labels; every `n` is the number of examples.

    Raises:
        DataError: As `resampled_multilabel`.
    """
    if resamples < 1:
        raise DataError(f"{resamples} resamples", expected="1 or more")
    marks, (given,) = _grouped(gold, [predictions])
    parts = [one.astype(np.float64) for one in (marks & given, marks, given)]
    value = shares(*(one.sum(axis=0, keepdims=True) for one in parts))
    drawn = [shares(*(counts @ one for one in parts)) for counts in draw_counts(len(marks), resamples, seed)]
    samples = {name: np.concatenate([part[name] for part in drawn]) for name in value}
    support, predicted = (one.sum(axis=0).tolist() for one in (marks, given))

    def scored(name: str, label: int) -> Metric:
        return with_interval(float(value[name][0, label]), samples[name][:, label], len(marks))

    return [
        ClassScores(scored("precision", c), scored("recall", c), scored("f1", c), support[c], predicted[c])
        for c in range(marks.shape[1])
    ]


def best_thresholds(gold: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """For each label a threshold, all of them together those of the best micro F1 on these examples.

    A label is given where its probability reaches its threshold. Micro F1 is 2·Σ r_c / Σ (g_c + p_c), a ratio whose
    numerator and denominator are sums over labels: the best ratio λ is that at which the labels, each for itself,
    maximise 2·r_c − λ·p_c (Dinkelbach 1967, doi 10.1287/mnsc.13.7.492), found by going from a λ to the ratio that its
    choices reach until that stays. Each label by its own best F1 would be another choice: it gives labels that the
    model hardly tells apart to every other text, since of a rare label most F1 is had by guessing often.

    A threshold lies halfway between two neighbouring probabilities, 0 and 1 among them, so that rounding turns no
    answer over. Of thresholds that are equally good the one nearest to 0.5 is taken, then the higher. A label that no
    example has keeps 0.5: nothing can be told of it.

    Args:
        gold: Marks, (n, C).
        probabilities: float (n, C), 0 … 1.

    Returns:
        float64 (C,), each in 0 … 1.

    Raises:
        DataError: Arrays that do not fit.
    """
    (marks,) = _checked(gold=gold)
    if probabilities.shape != marks.shape:
        raise DataError(f"probabilities of shape {probabilities.shape}", expected=f"{marks.shape}, as the marks")
    exact = np.asarray(probabilities, np.float64)
    known = np.flatnonzero(marks.any(axis=0))
    cuts = [_cuts(marks[:, label], exact[:, label]) for label in known]
    reached, ratio, chosen = 0.0, -1.0, list[int]()
    while cuts and reached > ratio:
        ratio = reached
        chosen = [_best_cut(*cut, ratio) for cut in cuts]
        sums = np.sum([(right[at], given[at]) for (right, given, _), at in zip(cuts, chosen, strict=True)], axis=0)
        reached = float(_f1(sums[0], sums[1] + marks.sum()))
    found = np.full(marks.shape[1], _HALF)
    found[known] = [cut[2][at] for cut, at in zip(cuts, chosen, strict=True)]
    return found


def _cuts(gold: np.ndarray, probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All that a threshold can do with a label: how many it rightly gives, how many it gives, and the threshold."""
    order = np.argsort(-probabilities, kind="stable")
    falling = np.concatenate([[1.0], probabilities[order], [0.0]])
    halfway = (falling[:-1] + falling[1:]) / 2
    # Examples of one probability are all given the label, or none; so are neighbours with no number between them.
    apart = halfway > falling[1:]
    apart[-1] = True
    right = np.concatenate([[0], np.cumsum(gold[order])])
    return right[apart], np.arange(len(gold) + 1)[apart], halfway[apart]


def _best_cut(right: np.ndarray, given: np.ndarray, thresholds: np.ndarray, ratio: float) -> int:
    """Where 2·right − ratio·given is largest."""
    worth = 2 * right - ratio * given
    best = np.flatnonzero(worth == worth.max())
    distance = np.abs(thresholds[best] - _HALF)
    return int(best[distance == distance.min()][0])  # thresholds fall: the first is the highest


def best_constant_set(gold: np.ndarray) -> np.ndarray:
    """Of all sets of labels that could be given to every example, one of the best micro F1 on `gold`.

    For a set S it is 2·Σ_S n_c / (Σ n_c + n·|S|), so that of the sets of one size the commonest labels are best; of
    equal sets the smallest is taken, of equally common labels the first.

    Args:
        gold: Marks, (n, C).

    Returns:
        int8 (C,), marks; one label at least.
    """
    (marks,) = _checked(gold=gold)
    counts = marks.sum(axis=0)
    order = np.argsort(-counts, kind="stable")
    f1 = _f1(np.cumsum(counts[order]), counts.sum() + len(marks) * np.arange(1, len(counts) + 1))
    found = np.zeros(len(counts), dtype=np.int8)
    found[order[: int(f1.argmax()) + 1]] = 1
    return found
