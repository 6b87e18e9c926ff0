"""Scores of classes and of numbers, with 95 % intervals: pure functions of arrays.

Knows no model, no text and no file.
"""

from potstill.metrics.bootstrap import (
    bootstrap_metrics,
    gap_closed,
    mean_over_seeds,
    paired_difference,
    paired_retention,
    resampled_classification,
)
from potstill.metrics.classification import (
    METRICS,
    Disagreement,
    beats_majority,
    classification_metrics,
    confusion_matrix,
    disagreement,
    majority,
    majority_share,
)
from potstill.metrics.metric import Metric
from potstill.metrics.regression import SCORE_METRICS, regression_metrics, resampled_regression
from potstill.metrics.resampled import Resampled

__all__ = [
    "METRICS",
    "SCORE_METRICS",
    "Disagreement",
    "Metric",
    "Resampled",
    "beats_majority",
    "bootstrap_metrics",
    "classification_metrics",
    "confusion_matrix",
    "disagreement",
    "gap_closed",
    "majority",
    "majority_share",
    "mean_over_seeds",
    "paired_difference",
    "paired_retention",
    "regression_metrics",
    "resampled_classification",
    "resampled_regression",
]
