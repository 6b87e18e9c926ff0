"""Scores of classes, of sets of labels, of numbers and of entities, with 95 % intervals: pure functions of arrays.

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
from potstill.metrics.entities import (
    ENTITY_METRICS,
    Entity,
    entities_by_type,
    entity_metrics,
    resampled_entities,
)
from potstill.metrics.metric import Metric
from potstill.metrics.multilabel import (
    LABEL_SET_METRICS,
    best_constant_set,
    best_thresholds,
    multilabel_metrics,
    per_label,
    resampled_multilabel,
)
from potstill.metrics.per_class import ClassScores, per_class
from potstill.metrics.regression import SCORE_METRICS, regression_metrics, resampled_regression
from potstill.metrics.resampled import Resampled
from potstill.metrics.tags import TagScheme, TagSchemeFound, detect_scheme, read_tags, split_tag, write_tags

__all__ = [
    "ENTITY_METRICS",
    "LABEL_SET_METRICS",
    "METRICS",
    "SCORE_METRICS",
    "ClassScores",
    "Disagreement",
    "Entity",
    "Judged",
    "Metric",
    "Resampled",
    "TagScheme",
    "TagSchemeFound",
    "Temperature",
    "Threshold",
    "abstained",
    "beats_majority",
    "best_constant_set",
    "best_thresholds",
    "bootstrap_metrics",
    "calibration_metrics",
    "choose_threshold",
    "classification_metrics",
    "confusion_matrix",
    "detect_scheme",
    "disagreement",
    "entities_by_type",
    "entity_metrics",
    "expected_calibration_error",
    "find_thresholds",
    "fit_temperature",
    "gap_closed",
    "judge_softmax",
    "majority",
    "majority_share",
    "mean_over_seeds",
    "multilabel_metrics",
    "paired_difference",
    "paired_retention",
    "per_class",
    "per_label",
    "read_tags",
    "regression_metrics",
    "reliability",
    "resampled_classification",
    "resampled_entities",
    "resampled_multilabel",
    "resampled_regression",
    "split_tag",
    "write_tags",
]
