"""Scores of classifiers, with 95 % intervals: pure functions of label arrays.

Knows no model, no text and no file.
"""

from potstill.metrics.bootstrap import (
    bootstrap_metrics,
    gap_closed,
    mean_over_seeds,
    paired_difference,
    paired_retention,
)
from potstill.metrics.classification import (
    METRICS,
    Disagreement,
    beats_majority,
    classification_metrics,
    confusion_matrix,
    disagreement,
    majority_share,
)
from potstill.metrics.metric import Metric

__all__ = [
    "METRICS",
    "Disagreement",
    "Metric",
    "beats_majority",
    "bootstrap_metrics",
    "classification_metrics",
    "confusion_matrix",
    "disagreement",
    "gap_closed",
    "majority_share",
    "mean_over_seeds",
    "paired_difference",
    "paired_retention",
]
