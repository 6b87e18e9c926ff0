"""Scores of classes and of numbers, with 95 % intervals: pure functions of arrays.

Knows no model, no text and no file.
"""

from potstill.metrics.abstention import Threshold, abstained, choose_threshold, find_thresholds
from potstill.metrics.bootstrap import (
    bootstrap_metrics,
    gap_closed,
    mean_over_seeds,
    paired_difference,
    paired_retention,
    resampled_classification,
)
from potstill.metrics.calibration import (
    Judged,
    Temperature,
    calibration_metrics,
    expected_calibration_error,
    fit_temperature,
    judge_softmax,
    reliability,
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
from potstill.metrics.per_class import ClassScores, per_class
from potstill.metrics.regression import SCORE_METRICS, regression_metrics, resampled_regression
from potstill.metrics.resampled import Resampled

__all__ = [
    "METRICS",
    "SCORE_METRICS",
    "ClassScores",
    "Disagreement",
    "Judged",
    "Metric",
    "Resampled",
    "Temperature",
    "Threshold",
    "abstained",
    "beats_majority",
    "bootstrap_metrics",
    "calibration_metrics",
    "choose_threshold",
    "classification_metrics",
    "confusion_matrix",
    "disagreement",
    "expected_calibration_error",
    "find_thresholds",
    "fit_temperature",
    "gap_closed",
    "judge_softmax",
    "majority",
    "majority_share",
    "mean_over_seeds",
    "paired_difference",
    "paired_retention",
    "per_class",
    "regression_metrics",
    "reliability",
    "resampled_classification",
    "resampled_regression",
]
