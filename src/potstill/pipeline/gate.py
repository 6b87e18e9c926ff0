"""Whether a model says more than one answer for all texts would: the gate of teachers and of fine-tuned models."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from potstill.metrics import Metric
from potstill.report.wording import DECIMALS, metric_name, score
from potstill.tasks import Task

__all__ = ["ENOUGH", "Standing", "standing"]

ENOUGH = 0.02
"""How far the lower end of a model's score must be above what one answer for all texts reaches."""


@dataclass(frozen=True)
class Standing:
    """How a model stands on dev.

    Attributes:
        passed: Whether the lower end of its primary metric is `ENOUGH` above what one answer for all texts reaches.
        line: Both scores, in a line.
        expected: What would have passed.
    """

    passed: bool
    line: str
    expected: str


def standing(task: Task, metrics: Mapping[str, Metric], gold: np.ndarray, called: str) -> Standing:
    """Weigh a model's dev metrics.

    Args:
        task: Of the model.
        metrics: Of its answers on dev, by name.
        gold: The gold answers of dev, as in `Examples.labels`.
        called: What the line calls the model.
    """
    metric = task.primary_metric
    found, (floor, constant) = metrics[metric], task.floor(gold)
    what = "" if metric == "accuracy" else f" {metric_name(metric)}"
    more = f"{ENOUGH:g}" if metric in DECIMALS else f"{100 * ENOUGH:g} points"
    expected = f"{more} more, lower bound against {constant}"
    if found.low - floor >= ENOUGH - 1e-12:
        line = f"{called}: {score(found.value, metric)}{what} on dev, {constant} {score(floor, metric)}"
        return Standing(True, line, expected)
    line = (
        f"{called} scores {score(found.value, metric)}{what} on dev (at least {score(found.low, metric)} with 95 % "
        f"confidence), {constant} {score(floor, metric)}"
    )
    return Standing(False, line, expected)
