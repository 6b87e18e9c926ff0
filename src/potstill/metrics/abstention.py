"""Giving no answer rather than a doubtful one: thresholds of confidence, what is then answered, and how much is right.

Coverage is the share of texts that are answered, precision the share of the answered that is right.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from potstill.errors import DataError
from potstill.metrics.metric import Metric
from potstill.metrics.resampled import with_interval

__all__ = ["LEVELS", "SURENESS", "Threshold", "abstained", "choose_threshold", "find_thresholds", "lower_bound"]

LEVELS = 20
"""How many thresholds are tried: those that answer 5 %, 10 %, … 100 % of the texts."""

SURENESS = 0.95
"""How sure one is that the bounds of all thresholds hold together."""

_HALVINGS = 60


@dataclass(frozen=True)
class Threshold:
    """A confidence, and what happens on dev where answers below it are withheld.

    Attributes:
        confidence: Answers of this confidence or a higher one are given; 0 withholds none.
        coverage: Share of the texts that are answered.
        precision: Share of the answered that is right.
        at_least: A lower bound of the precision on other texts like these.
    """

    confidence: float
    coverage: float
    precision: float
    at_least: float


def lower_bound(right: int, n: int, error: float) -> float:
    """Clopper and Pearson's one-sided bound: the least p for which `right` or more of n come about in `error` of cases.

    Solves P(Binomial(n, p) ≥ right) = error by halving; 0 where nothing is right.

    Args:
        right: 0 … n.
        n: Number of trials, ≥ 1.
        error: How often the bound may lie above the true p; 0 < error < 1.

    Clopper, Pearson 1934, Biometrika 26.
    """
    if not (0 <= right <= n and n >= 1 and 0 < error < 1):
        raise DataError(f"{right} right of {n}, error {error}", expected="0 ≤ right ≤ n, n ≥ 1, an error in 0 … 1")
    if right == 0:
        return 0.0
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, n + 1)))])
    k = np.arange(right, n + 1)
    ways = logs[n] - logs[k] - logs[n - k]
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        p = (low + high) / 2
        tail = np.exp(ways + k * np.log(p) + (n - k) * np.log1p(-p)).sum()
        low, high = (p, high) if tail < error else (low, p)
    return low


def find_thresholds(confidence: np.ndarray, right: np.ndarray) -> tuple[Threshold, ...]:
    """The thresholds that answer k / `LEVELS` of the texts, k = 1 … `LEVELS`, each with its bound on the precision.

    A threshold picked because it did well on dev does less well elsewhere. So few are tried, chosen by how much they
    answer and not by how well, and each has Clopper and Pearson's lower bound at an error of (1 − `SURENESS`) /
    `LEVELS` (Bonferroni): with a probability of `SURENESS` or more all bounds hold, that of whichever is picked too, on
    texts drawn as dev was. Few texts give low bounds.

    Args:
        confidence: float64 (n,), of texts that the model was not trained on.
        right: bool (n,).

    Returns:
        From the lowest threshold to the highest; as many as are different. Equal confidences stand on one side of it.
    """
    if len(confidence) != len(right) or len(right) == 0:
        raise DataError(f"{len(confidence)} confidences for {len(right)} answers", expected="one of each per text")
    n, descending = len(right), np.sort(confidence)[::-1]
    found: dict[int, Threshold] = {}
    for level in range(LEVELS, 0, -1):
        edge = float(descending[-(-level * n // LEVELS) - 1])
        given = np.asarray(confidence) >= edge
        answered, hits = int(given.sum()), int((given & right).sum())
        bound = lower_bound(hits, answered, (1 - SURENESS) / LEVELS)
        found.setdefault(answered, Threshold(0.0 if answered == n else edge, answered / n, hits / answered, bound))
    return tuple(found.values())


def choose_threshold(thresholds: Sequence[Threshold], wanted: float) -> Threshold | None:
    """The lowest threshold whose precision is surely at least `wanted`, 0 … 1; None where that of none is."""
    return next((one for one in thresholds if one.at_least >= wanted), None)


def abstained(
    confidence: np.ndarray, right: np.ndarray, threshold: float, *, resamples: int = 1000, seed: int = 0
) -> tuple[Metric, Metric | None]:
    """Coverage and precision where answers below `threshold` are withheld, with 95 % bootstrap intervals.

    Resamples in which nothing is answered have no precision and are left out.

    Args:
        confidence: float64 (n,).
        right: bool (n,).
        threshold: 0 … 1.
        resamples: Number of resamples.
        seed: Of these.

    Returns:
        The two; the `n` of the precision counts the answered. None in place of it where nothing is answered.
    """
    given = np.asarray(confidence) >= threshold
    n, answered, hits = len(given), int(given.sum()), int((given & right).sum())
    cells = np.array([hits, answered - hits, n - answered])
    drawn = np.random.default_rng(seed).multinomial(n, cells / n, size=resamples)
    some = drawn[:, 0] + drawn[:, 1]
    coverage = with_interval(answered / n, some / n, n)
    if answered == 0:
        return coverage, None
    usable = some > 0
    return coverage, with_interval(hits / answered, drawn[usable, 0] / some[usable], answered)
