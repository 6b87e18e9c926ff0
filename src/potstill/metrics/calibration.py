"""How far the probability of an answer can be believed, and the one temperature that mends it.

Everything is read off `Judged`: of each answer how sure it was, whether it was right, and its two proper scores. A task
says how its logits become that (`potstill.tasks.confidence`); nothing below asks which task it was.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from potstill.errors import DataError
from potstill.metrics.metric import Metric
from potstill.metrics.resampled import Resampled, draw_counts

__all__ = [
    "BINS",
    "FEWEST",
    "HOTTEST",
    "Bin",
    "Judged",
    "Temperature",
    "calibration_metrics",
    "expected_calibration_error",
    "fit_temperature",
    "judge_softmax",
    "log_softmax",
    "reliability",
]

BINS = 15
"""Equal-width bins of the expected calibration error, as in Guo et al. 2017."""

FEWEST = 10
"""A temperature is fitted to this many right and as many wrong answers, or more: fewer would decide it by chance."""

HOTTEST = 20.0
"""Temperatures looked at end here, and at its inverse."""

_HALVINGS = 60


@dataclass(frozen=True)
class Judged:
    """n answers held against gold ones.

    Attributes:
        confidence: float64 (n,); probability of the answer given, 0 … 1.
        right: bool (n,).
        nll: float64 (n,); −log of the probability of the gold answer, in nats, ≥ 0.
        brier: float64 (n,); Σ_c (p_c − y_c)², y 1 for the gold class and 0 for the others; 0 … 2.
    """

    confidence: np.ndarray
    right: np.ndarray
    nll: np.ndarray
    brier: np.ndarray


@dataclass(frozen=True)
class Temperature:
    """What logits are divided by before they become probabilities.

    Attributes:
        value: T > 0; above 1 makes a model less sure. 1 where none was fitted.
        n: How many examples it was fitted on.
        reason: Why none was fitted; None where one was.
    """

    value: float
    n: int
    reason: str | None = None


@dataclass(frozen=True)
class Bin:
    """The answers whose confidence lies in (low, high].

    Attributes:
        low: Lower end, which belongs to the bin before; in the first bin 0, which is its own.
        high: Upper end.
        n: How many answers.
        confidence: Their mean confidence; None where there are none.
        accuracy: The share of them that is right; None where there are none.
    """

    low: float
    high: float
    n: int
    confidence: float | None
    accuracy: float | None


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """X − max − log Σ exp(x − max) over the last axis, float64 (..., C)."""
    exact = np.asarray(logits, np.float64)
    shifted = exact - exact.max(-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)))


def judge_softmax(gold: np.ndarray, logits: np.ndarray, temperature: float = 1.0) -> Judged:
    """One class of several, answered by the largest logit; probabilities are softmax(logits / temperature).

    Args:
        gold: Class indices, int64 (n,).
        logits: float (n, C).
        temperature: T > 0. Whether an answer is right does not depend on it.

    Raises:
        DataError: Shapes that do not fit, a class that is none, logits that are not finite, or no temperature.
    """
    gold, logits = _checked(gold, logits)
    if not (np.isfinite(temperature) and temperature > 0):
        raise DataError(f"temperature {temperature}", expected="a number above 0")
    rows = np.arange(len(gold))
    logs = log_softmax(logits / temperature)
    answers, shares = logits.argmax(axis=1), np.exp(logs)
    truth = np.zeros_like(shares)
    truth[rows, gold] = 1.0
    return Judged(shares[rows, answers], answers == gold, -logs[rows, gold], np.square(shares - truth).sum(axis=1))


def fit_temperature(gold: np.ndarray, logits: np.ndarray) -> Temperature:
    """The temperature of the least negative log-likelihood: argmin_T −Σ_i log softmax(z_i / T)[y_i].

    In β = 1 / T the sum is convex, a log-sum-exp of linear functions; its derivative, Σ_i (Σ_c p_ic z_ic − z_iy), grows
    with β. So there is one minimum, and halving an interval of log T, [1 / `HOTTEST`, `HOTTEST`], finds it to the last
    digits, by the same steps every time.

    Nothing is fitted, and the value is 1, where fewer than `FEWEST` answers are wrong or right (with none wrong the
    best temperature would be 0), and where the minimum lies outside the interval.

    Args:
        gold: Class indices, int64 (n,), of examples that the model was not trained on.
        logits: float (n, C).

    Raises:
        DataError: As `judge_softmax`.

    Guo, Pleiss, Sun, Weinberger 2017, On Calibration of Modern Neural Networks, arXiv 1706.04599.
    """
    gold, logits = _checked(gold, logits)
    n, right = len(gold), int((logits.argmax(axis=1) == gold).sum())
    if right == n:
        return Temperature(1.0, n, f"all {n:,} answers are right, which no temperature could be too sure of")
    if min(right, n - right) < FEWEST:
        number, kind = (right, "right") if right < n - right else (n - right, "wrong")
        return Temperature(1.0, n, f"{number} of {n:,} answers are {kind}, and fewer than {FEWEST} tell too little")
    apart = logits - logits[np.arange(n), gold][:, None]

    def slope(log_t: float) -> float:
        """Of the sum, by β."""
        scaled = apart * np.exp(-log_t)
        powers = np.exp(scaled - scaled.max(axis=1, keepdims=True))
        return float(((powers * apart).sum(axis=1) / powers.sum(axis=1)).sum())

    low, high = -np.log(HOTTEST), np.log(HOTTEST)
    if slope(high) >= 0:
        return Temperature(1.0, n, f"no temperature up to {HOTTEST:g} is high enough: its logits say next to nothing")
    if slope(low) <= 0:
        return Temperature(1.0, n, f"no temperature down to {1 / HOTTEST:g} is low enough: its logits hardly differ")
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) > 0 else (low, middle)
    return Temperature(float(np.exp((low + high) / 2)), n)


def _checked(gold: np.ndarray, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    classes, exact = np.asarray(gold), np.asarray(logits, np.float64)
    if exact.ndim != 2 or classes.shape != exact.shape[:1] or len(classes) == 0 or classes.dtype.kind not in "iu":
        got = f"logits of shape {exact.shape} for gold answers of shape {classes.shape} and type {classes.dtype}"
        raise DataError(got, expected="(n, C) for integers (n,), n ≥ 1")
    if classes.min() < 0 or classes.max() >= exact.shape[1]:
        raise DataError(
            f"gold answers from {classes.min()} to {classes.max()}",
            expected=f"0 to {exact.shape[1] - 1}",
            fix="judge labelled examples only",
        )
    if not np.isfinite(exact).all():
        raise DataError("logits with NaN or infinity", expected="finite numbers")
    return classes, exact


def _bin_of(confidence: np.ndarray, bins: int) -> np.ndarray:
    """int64 (n,): the bin of each, by the edges k / bins; an edge belongs to the bin below it."""
    edges = np.arange(bins + 1) / bins
    return np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, bins - 1)


def reliability(judged: Judged, bins: int = BINS) -> list[Bin]:
    """Confidence and accuracy by bins of confidence, empty ones too: what a reliability diagram shows."""
    which = _bin_of(judged.confidence, bins)
    counts = np.bincount(which, minlength=bins)
    sure = np.bincount(which, judged.confidence, minlength=bins)
    right = np.bincount(which, judged.right, minlength=bins)
    return [
        Bin(k / bins, (k + 1) / bins, int(n), *((float(sure[k] / n), float(right[k] / n)) if n else (None, None)))
        for k, n in enumerate(counts)
    ]


def expected_calibration_error(judged: Judged, bins: int = BINS) -> float:
    """ECE = Σ_b n_b / n · |accuracy_b − confidence_b|, 0 … 1, over equal-width bins of the answer's own probability.

    Bin b of B holds the answers with a confidence in ((b − 1) / B, b / B]. It is about the answer given, the top label;
    what is said of the others, it does not see.

    Guo et al. 2017, arXiv 1706.04599, equation 3.
    """
    return float(_weighted([judged], np.ones((1, len(judged.right))), bins)["ece"][0, 0])


def calibration_metrics(
    judged: Sequence[Judged], *, resamples: int = 1000, seed: int = 0, bins: int = BINS
) -> list[dict[str, Metric]]:
    """`ece`, `nll` (mean, nats) and `brier` (mean) of several models or temperatures, each with its 95 % interval.

    All are resampled together. The ECE is a mean of absolute values: noise, of which a resample has more than the
    sample, makes it larger. Its percentiles may then lie above the value, and the interval is let down to it.

    Args:
        judged: Of the same n examples.
        resamples: Number of bootstrap resamples.
        seed: Of these.
        bins: Of the ECE.

    Returns:
        Metrics by name, one dict for each of `judged`.
    """
    if resamples < 1:
        raise DataError(f"{resamples} resamples", expected="1 or more")
    n = len(judged[0].right)
    if any(len(one.right) != n for one in judged):
        raise DataError(f"{[len(one.right) for one in judged]} answers", expected="the same examples in all")
    parts = [_weighted(judged, counts, bins) for counts in draw_counts(n, resamples, seed)]
    whole = _weighted(judged, np.ones((1, n)), bins)
    samples = {name: np.concatenate([part[name] for part in parts]) for name in whole}
    drawn = Resampled({name: values[0] for name, values in whole.items()}, samples, n)
    found = [drawn.metrics(number) for number in range(len(judged))]
    for metrics in found:
        ece = metrics["ece"]
        metrics["ece"] = Metric(ece.value, min(ece.low, ece.value), ece.high, ece.n)
    return found


def _weighted(judged: Sequence[Judged], counts: np.ndarray, bins: int) -> dict[str, np.ndarray]:
    """Each metric, (resamples, models), from how often each example was drawn, float64 (resamples, n)."""
    n = counts.sum(axis=1)
    errors = []
    for one in judged:
        gaps = np.zeros((len(one.right), bins))
        gaps[np.arange(len(one.right)), _bin_of(one.confidence, bins)] = one.right - one.confidence
        errors.append(np.abs(counts @ gaps).sum(axis=1) / n)
    return {
        "ece": np.stack(errors, axis=1),
        "nll": np.stack([counts @ one.nll / n for one in judged], axis=1),
        "brier": np.stack([counts @ one.brier / n for one in judged], axis=1),
    }
