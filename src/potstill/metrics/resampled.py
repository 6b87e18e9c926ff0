"""Scores of models on all examples and on resamples of them, and what is read off: intervals, ratios of two models.

Knows no kind of task: how a score is computed is `bootstrap`'s (classes) and `regression`'s (numbers).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from potstill.errors import DataError
from potstill.metrics.metric import Metric

__all__ = ["Resampled", "draw_counts", "with_interval"]

_COUNTS_AT_ONCE = 4_000_000

# Two equal F1 scores can differ by this much, summed in another order; it is no gap.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Resampled:
    """Scores of c models, which share their resamples.

    Attributes:
        values: Metric → float64 (c,), on all examples.
        samples: Metric → float64 (resamples, c).
        n: Number of examples.
    """

    values: dict[str, np.ndarray]
    samples: dict[str, np.ndarray]
    n: int

    def metrics(self, model: int = 0) -> dict[str, Metric]:
        """Every score of one model with its 95 % percentile interval."""
        return {
            name: with_interval(values[model], self.samples[name][:, model], self.n)
            for name, values in self.values.items()
        }

    def retention(self, metric: str, *, student: int = 0, teacher: int = 1) -> Metric:
        """The student's score over the teacher's.

        Resamples in which the teacher's score is not positive have no ratio and are left out.

        Raises:
            DataError: The teacher's score is not positive, so that there is nothing to keep.
        """
        value, samples = self.values[metric], self.samples[metric]
        if value[teacher] <= 0:
            raise DataError(
                f"a teacher with {metric} {value[teacher]:.3f}",
                expected="more than 0",
                fix="fine-tune the teacher first",
            )
        return _ratio(value[student], value[teacher], samples[:, student], samples[:, teacher], self.n)

    def gap_closed(self, metric: str, *, student: int = 0, teacher: int = 1, hard: int = 2) -> Metric | None:
        """(student − hard) / (teacher − hard); None where the teacher is no better than `hard`: no gap to close."""
        value, samples = self.values[metric], self.samples[metric]
        gained, gap = samples[:, student] - samples[:, hard], samples[:, teacher] - samples[:, hard]
        if value[teacher] - value[hard] <= _ROUNDING:
            return None
        return _ratio(value[student] - value[hard], value[teacher] - value[hard], gained, gap, self.n)

    def over_seeds(self, metric: str, seeds: int, *, seed: int = 0) -> Metric:
        """The mean score of one way of training under several seeds, or how much better it is than another.

        A resample draws examples, the same for every model, and as many of the seeds with replacement.

        Args:
            metric: A name in `values`.
            seeds: The first so many models are of the one way; the others, as many or none, of the other under the same
                seeds: the mean is then that of the differences.
            seed: Of the draws of seeds.
        """
        values, samples = self.values[metric], self.samples[metric]
        if len(values) > seeds:  # seed by seed first: two that answer alike differ by 0 exactly
            values, samples = values[:seeds] - values[seeds:], samples[:, :seeds] - samples[:, seeds:]
        drawn = np.random.default_rng([seed, 1]).multinomial(seeds, [1 / seeds] * seeds, size=len(samples))
        return with_interval(float(values.mean()), (samples * drawn).sum(axis=1) / seeds, self.n)


def draw_counts(n: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """How often each example is in each resample, float64 (some, n), in portions that bound the memory."""
    generator = np.random.default_rng(seed)
    portion = max(1, _COUNTS_AT_ONCE // n)
    for start in range(0, resamples, portion):
        some = min(portion, resamples - start)
        drawn = generator.integers(0, n, size=(some, n)) + n * np.arange(some)[:, None]
        yield np.bincount(drawn.ravel(), minlength=some * n).reshape(some, n).astype(np.float64)


def with_interval(value: float, samples: np.ndarray, n: int) -> Metric:
    """A score with the 2.5th and 97.5th percentile of its resamples; `n` is the number of examples."""
    low, high = np.quantile(samples, [0.025, 0.975])
    return Metric(float(value), float(low), float(high), n)


def _ratio(above: float, below: float, above_samples: np.ndarray, below_samples: np.ndarray, n: int) -> Metric:
    """The quotient, with the percentiles of the resamples in which `below` is positive."""
    usable = below_samples > _ROUNDING
    if not usable.any():
        raise DataError(
            f"no resample of {len(usable)} has a ratio", fix="judge on more examples or take more resamples"
        )
    return with_interval(above / below, above_samples[usable] / below_samples[usable], n)
