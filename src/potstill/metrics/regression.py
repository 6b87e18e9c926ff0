"""Pearson, Spearman and root mean squared error of predicted scores, for one sample or a thousand resamples at once.

Resamples are counts of how often each example was drawn: every score here is a weighted moment, so that a thousand of
them are a few matrix products. Spearman is Pearson of average ranks, taken anew in each resample.
"""

from collections.abc import Sequence

import numpy as np

from potstill.errors import DataError
from potstill.metrics.resampled import Resampled, draw_counts

__all__ = ["SCORE_METRICS", "regression_metrics", "resampled_regression"]

SCORE_METRICS = ("pearson", "spearman", "rmse")
"""Names of all scores; of the first two more is better, of the last less."""

# A variance below this share of the mean square is rounding: predictions that are one number have no correlation.
_FLAT = 1e-20


def _checked(**arrays: np.ndarray) -> list[np.ndarray]:
    found = []
    for name, values in arrays.items():
        array = np.asarray(values)
        if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iuf":
            raise DataError(f"{name} of shape {array.shape} and type {array.dtype}", expected="numbers (n,) with n ≥ 1")
        if not np.isfinite(array).all():
            raise DataError(
                f"{name} with NaN or infinity", expected="finite numbers", fix="judge examples with a score"
            )
        found.append(array.astype(np.float64))
    if len({len(array) for array in found}) > 1:
        lengths = ", ".join(f"{len(array)} {name}" for name, array in zip(arrays, found, strict=True))
        raise DataError(lengths, expected="one of each per example")
    return found


def regression_metrics(scores: np.ndarray, predictions: np.ndarray) -> dict[str, float]:
    """Pearson's r, Spearman's ρ (average ranks where values are equal) and √(mean (y − ŷ)²).

    A correlation with a constant, which has none, is 0.

    Args:
        scores: Gold, float (n,).
        predictions: Predicted, float (n,).

    Returns:
        Values by name (`SCORE_METRICS`): correlations in -1 … 1, the error in units of the scores.
    """
    gold, predicted = _checked(scores=scores, predictions=predictions)
    found = _Columns(gold, [predicted]).scores(np.ones((1, len(gold))))
    return {name: float(values[0, 0]) for name, values in found.items()}


def resampled_regression(
    scores: np.ndarray, predictions: Sequence[np.ndarray], *, resamples: int = 1000, seed: int = 0
) -> Resampled:
    """The metrics of several models on all examples, and on resamples that all models share.

    Args:
        scores: Gold, float (n,).
        predictions: One float (n,) a model.
        resamples: Number of resamples.
        seed: Of the resamples.

    Raises:
        DataError: Arrays that do not fit, or no resamples.
    """
    if resamples < 1:
        raise DataError(f"{resamples} resamples", expected="1 or more")
    gold, *answers = _checked(scores=scores, **{f"predictions {n}": one for n, one in enumerate(predictions, 1)})
    columns = _Columns(gold, answers)
    whole = columns.scores(np.ones((1, len(gold))))
    parts = [columns.scores(drawn) for drawn in draw_counts(len(gold), resamples, seed)]
    return Resampled(
        {name: value[0] for name, value in whole.items()},
        {name: np.concatenate([part[name] for part in parts]) for name in whole},
        len(gold),
    )


class _Columns:
    """Gold and c predictions of n examples, ready to be weighted."""

    def __init__(self, gold: np.ndarray, predictions: Sequence[np.ndarray]) -> None:
        self.gold, self.predictions = gold, predictions
        self.ranked = [_Ranks(values) for values in (gold, *predictions)]
        # Moments of values far from 0 would lose digits.
        self.centred = [values - values.mean() for values in (gold, *predictions)]

    def scores(self, counts: np.ndarray) -> dict[str, np.ndarray]:
        """Each metric, (resamples, c), from counts (resamples, n)."""
        n = counts.sum(axis=1)
        gold, *others = self.centred
        pearson = [_correlation(counts, gold, other) for other in others]
        ranks = [ranked.of(counts) for ranked in self.ranked]
        spearman = [_correlation(counts, ranks[0], rank) for rank in ranks[1:]]
        error = [np.sqrt(counts @ np.square(self.gold - one) / n) for one in self.predictions]
        return {
            "pearson": np.stack(pearson, axis=1),
            "spearman": np.stack(spearman, axis=1),
            "rmse": np.stack(error, axis=1),
        }


def _correlation(counts: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Σw(x−x̄)(y−ȳ) / √(Σw(x−x̄)² Σw(y−ȳ)²) of each resample, 0 where a side is constant; x, y (n,) or (resamples, n)."""
    n = counts.sum(axis=1)

    def total(values: np.ndarray) -> np.ndarray:
        summed: np.ndarray = counts @ values if values.ndim == 1 else np.einsum("rn,rn->r", counts, values)
        return summed

    mean_x, mean_y = total(x) / n, total(y) / n
    square_x, square_y = total(x * x), total(y * y)
    covariance = total(x * y) - n * mean_x * mean_y
    spread_x, spread_y = square_x - n * mean_x**2, square_y - n * mean_y**2
    # What is left of a difference of equal sums is rounding.
    usable = (spread_x > 1e-12 * square_x + _FLAT) & (spread_y > 1e-12 * square_y + _FLAT)
    root = np.sqrt(np.where(usable, spread_x, 1.0)) * np.sqrt(np.where(usable, spread_y, 1.0))
    return np.asarray(np.where(usable, np.clip(covariance / root, -1.0, 1.0), 0.0))


class _Ranks:
    """Average ranks of values in any resample of them: from counts of the distinct values, sorted once."""

    def __init__(self, values: np.ndarray) -> None:
        distinct, self.place = np.unique(values, return_inverse=True)
        self.order = np.argsort(self.place, kind="stable")
        self.starts = np.searchsorted(self.place[self.order], np.arange(len(distinct)))

    def of(self, counts: np.ndarray) -> np.ndarray:
        """(resamples, n): of c equal values after b smaller ones each has the rank b + c/2, but for a constant."""
        by_value = np.add.reduceat(counts[:, self.order], self.starts, axis=1)
        ranks = np.cumsum(by_value, axis=1) - by_value / 2
        centred: np.ndarray = ranks - counts.sum(axis=1, keepdims=True) / 2
        return centred[:, self.place]
