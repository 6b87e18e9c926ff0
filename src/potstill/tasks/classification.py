"""Classification of one text or a pair: one label of several."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from potstill.data.label_sets import no_separator
from potstill.data.labels import LabelRule
from potstill.metrics import (
    ClassScores,
    Metric,
    Resampled,
    bootstrap_metrics,
    classification_metrics,
    confusion_matrix,
    disagreement,
    majority,
    majority_share,
    per_class,
    resampled_classification,
)
from potstill.models.heads import ProblemType
from potstill.tasks.confidence import Confidence, SoftmaxConfidence
from potstill.tasks.task import Disagreements, Floor, Loss
from potstill.tasks.windows import mean_of_windows

__all__ = ["Classification", "balanced_weights", "probabilities"]


def probabilities(logits: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    """Softmax of logits / temperature over the last axis, exp(x - max) / Σ exp(x - max), computed in float64.

    Args:
        logits: Raw scores, float (..., n_labels).
        temperature: Above 0; 1 leaves them as they are.

    Returns:
        float64 (..., n_labels), each row summing to 1.
    """
    exact = np.asarray(logits, np.float64) / temperature
    powers = np.exp(exact - exact.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def balanced_weights(labels: np.ndarray, classes: int) -> tuple[float, ...]:
    """N / (C · n_c), as scikit-learn's "balanced": every class counts the same; the mean over the examples is 1.

    Args:
        labels: int64 (n,); −1 where there is none.
        classes: C. One without an example has weight 1.
    """
    counts = np.bincount(labels[labels >= 0], minlength=classes)
    present = np.count_nonzero(counts)
    return tuple(float(counts.sum() / (present * count)) if count else 1.0 for count in counts.tolist())


@dataclass(frozen=True)
class Classification:
    """One label a text; a `Task`.

    Attributes:
        labels: Label names; a label's index is its place here, in data, teacher and student alike.
        pair: Whether an input is a pair of texts.
        weights: How much an example of each label counts in the loss on gold labels; empty: all the same.
    """

    labels: tuple[str, ...]
    pair: bool = False
    kind: str = "classification"
    primary_metric: str = "accuracy"
    problem_type: ProblemType = "single_label_classification"
    constant_name: str = "majority"
    gold_name: str = "labels"
    weights: tuple[float, ...] = ()
    names_outputs: ClassVar[bool] = True

    merge = staticmethod(mean_of_windows)

    @property
    def confidence(self) -> Confidence:
        """The probability of the label."""
        return SoftmaxConfidence()

    @property
    def outputs(self) -> int:
        """One logit a label."""
        return len(self.labels)

    @staticmethod
    def gold_rule(*, threshold: float | None = None, margin: float = 0.0, separator: str = ",") -> LabelRule:
        """Cells are names of labels, or numbers on one side of a threshold."""
        no_separator(separator, "one label a text")
        return LabelRule(threshold, margin)

    @property
    def loss(self) -> Loss:
        """Cross-entropy, weighted where there are weights."""
        from potstill.losses import WeightedCrossEntropy, hard_cross_entropy

        return WeightedCrossEntropy(self.weights) if self.weights else hard_cross_entropy

    @staticmethod
    def distillation_loss(published: Loss) -> Loss:
        """Methods are published for labels: as they are."""
        return published

    @staticmethod
    def scale(gold: np.ndarray) -> tuple[float, float]:
        """(0, 1)."""
        return 0.0, 1.0

    def fitted(self, gold: np.ndarray, logits: np.ndarray) -> Self:
        """As it is: nothing is chosen on dev."""
        return self

    @property
    def tuned(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def restored(self, values: Mapping[str, Any]) -> Self:
        """As it is."""
        return self

    @staticmethod
    def predictions(logits: np.ndarray) -> np.ndarray:
        """The label of the largest logit, int64 (n,)."""
        return np.asarray(logits.argmax(axis=1))

    @staticmethod
    def together(logits: np.ndarray, shares: np.ndarray) -> np.ndarray:
        """The mean probability of each label, as logits: its logarithm."""
        with np.errstate(divide="ignore"):  # a probability that no float64 holds
            return np.asarray(np.log(np.einsum("k,knc->nc", shares, probabilities(logits))))

    def decode(self, logits: np.ndarray, temperature: float = 1.0) -> list[dict[str, Any]]:
        """`label`, and `probabilities` by label."""
        chosen, shares = self.predictions(logits), probabilities(logits, temperature)
        return [
            {"label": self.labels[place], "probabilities": dict(zip(self.labels, map(float, row), strict=True))}
            for place, row in zip(chosen, shares, strict=True)
        ]

    def score(self, gold: np.ndarray, predictions: np.ndarray) -> float:
        """Accuracy."""
        return classification_metrics(gold, predictions, len(self.labels))[self.primary_metric]

    def resampled(
        self, gold: np.ndarray, predictions: Sequence[np.ndarray], *, resamples: int = 1000, seed: int = 0
    ) -> Resampled:
        """As `Task.resampled`."""
        return resampled_classification(gold, predictions, len(self.labels), resamples=resamples, seed=seed)

    def metrics(
        self, gold: np.ndarray, predictions: np.ndarray, *, resamples: int = 1000, seed: int = 0
    ) -> dict[str, Metric]:
        """Accuracy, macro and binary F1, Matthews, each with its 95 % bootstrap interval."""
        return bootstrap_metrics(gold, predictions, len(self.labels), resamples=resamples, seed=seed)

    def confusion(self, gold: np.ndarray, predictions: np.ndarray) -> list[list[int]]:
        """Rows gold, columns predicted."""
        found: list[list[int]] = confusion_matrix(gold, predictions, len(self.labels)).tolist()
        return found

    def by_label(
        self, gold: np.ndarray, predictions: np.ndarray, *, resamples: int = 1000, seed: int = 0
    ) -> dict[str, ClassScores]:
        """As `Task.by_label`."""
        found = per_class(gold, predictions, len(self.labels), resamples=resamples, seed=seed)
        return dict(zip(self.labels, found, strict=True))

    @staticmethod
    def constant(gold: np.ndarray) -> int:
        """The commonest label."""
        return majority(gold)

    @staticmethod
    def floor(gold: np.ndarray) -> Floor:
        """The share of the commonest label."""
        return majority_share(gold), "the majority class"

    @staticmethod
    def doubts(metrics: Mapping[str, Metric], gold: np.ndarray) -> None:
        """None."""
        return

    def disagreements(
        self,
        gold: np.ndarray,
        teacher: np.ndarray,
        student: np.ndarray,
        limit: int,
        *,
        teacher_task: "Self | None" = None,
    ) -> Disagreements:
        """Other labels, the most different probabilities first."""
        theirs, own = (probabilities(logits) for logits in (teacher, student))
        found = disagreement(gold, theirs, own)
        rows = [
            {
                "row": int(row),
                "gold": self.labels[gold[row]],
                "teacher": self.labels[int(theirs[row].argmax())],
                "student": self.labels[int(own[row].argmax())],
                "teacher_p": float(theirs[row].max()),
                "student_p": float(own[row].max()),
            }
            for row in found.differing[:limit]
        ]
        return rows, found.counts()
