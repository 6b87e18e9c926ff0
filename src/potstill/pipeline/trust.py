"""What a report says of how far a model's answers can be trusted: probabilities, thresholds, scores of each label.

Temperature and thresholds are chosen on dev, and judged on the split that judges.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from potstill.data.examples import Examples
from potstill.metrics import (
    Judged,
    Temperature,
    abstained,
    calibration_metrics,
    choose_threshold,
    find_thresholds,
    reliability,
)
from potstill.tasks import Confidence, Task

__all__ = ["WANTED", "Trust", "of_deployment"]

WANTED = (0.9, 0.95, 0.98, 0.99)
"""Precisions for which a report shows the threshold."""

_KEPT = ("confidence", "coverage", "precision", "at_least")


@dataclass(frozen=True)
class Trust:
    """Measures trust in the models of a run.

    Attributes:
        task: The run's.
        splits: Dev, and test where there is one.
        judged: The one that judges.
        has_gold: Whether both have gold answers; a teacher's own answers, in their place, say nothing of its errors.
        resamples: Bootstrap resamples behind each interval.
        seed: Of these.
    """

    task: Task
    splits: Mapping[str, Examples]
    judged: str
    has_gold: bool
    resamples: int
    seed: int

    def temperature(self, logits: Mapping[str, np.ndarray]) -> Temperature | None:
        """The temperature fitted to a model's dev logits; None where answers have no probability, or dev no gold."""
        confidence = self._confidence()
        return None if confidence is None else confidence.fit(self.splits["dev"].labels, logits["dev"])

    def by_label(self, predictions: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """`by_label` of report.json, for a model's predictions by split."""
        gold = self.splits[self.judged].labels
        found = self.task.by_label(gold, predictions[self.judged], resamples=self.resamples, seed=self.seed)
        return {"by_label": found and {label: asdict(scores) for label, scores in found.items()}}

    def calibration(self, logits: Mapping[str, np.ndarray], fitted: Temperature | None) -> dict[str, Any]:
        """`calibration` of report.json, for a model's logits by split."""
        confidence = self._confidence()
        if fitted is None or confidence is None:
            return {"calibration": None}
        judged = [
            confidence.judge(self.splits[self.judged].labels, logits[self.judged], t) for t in (1.0, fitted.value)
        ]
        metrics = calibration_metrics(judged, resamples=self.resamples, seed=self.seed)
        before, after = (_probabilities(*pair) for pair in zip(judged, metrics, strict=True))
        facts = {"temperature": fitted.value, "n": fitted.n, "reason": fitted.reason}
        return {"calibration": {**facts, "before": before, "after": after}}

    def abstention(self, logits: Mapping[str, np.ndarray], fitted: Temperature | None) -> dict[str, Any]:
        """`abstention` of report.json, for the logits by split of the model that is handed out."""
        confidence = self._confidence()
        if fitted is None or confidence is None:
            return {"abstention": None}
        dev, own = (
            confidence.judge(self.splits[name].labels, logits[name], fitted.value) for name in ("dev", self.judged)
        )
        thresholds = find_thresholds(dev.confidence, dev.right)
        rows = []
        for one in thresholds:
            coverage, precision = abstained(
                own.confidence, own.right, one.confidence, resamples=self.resamples, seed=self.seed
            )
            met = {"judged_coverage": coverage.as_dict(), "judged_precision": precision and precision.as_dict()}
            rows.append({**asdict(one), **met})
        chosen = [(wanted, choose_threshold(thresholds, wanted)) for wanted in WANTED]
        named = [{"precision": wanted, "confidence": one and one.confidence} for wanted, one in chosen]
        return {"abstention": {"thresholds": rows, "wanted": named}}

    def _confidence(self) -> Confidence | None:
        return self.task.confidence if self.has_gold else None


def _probabilities(judged: Judged, metrics: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "metrics": {name: metric.as_dict() for name, metric in metrics.items()},
        "bins": [asdict(one) for one in reliability(judged)],
    }


def of_deployment(student: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of potstill.json that answering with trust needs, from `student` of report.json; none where none is."""
    found: dict[str, Any] = {}
    if (calibration := student.get("calibration")) is not None:
        found["temperature"] = calibration["temperature"]
    if (abstention := student.get("abstention")) is not None:
        found["abstention"] = [{key: row[key] for key in _KEPT} for row in abstention["thresholds"]]
    return found
