"""Regression: a number for one text or for a pair, as STS-B's similarity from 0 to 5."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from potstill.data.label_sets import no_separator
from potstill.data.labels import no_threshold
from potstill.data.scores import ScoreRule
from potstill.metrics import Metric, Resampled, regression_metrics, resampled_regression
from potstill.models.heads import ProblemType
from potstill.tasks.task import Disagreements, Floor, Loss
from potstill.tasks.windows import mean_of_windows

__all__ = ["Regression"]


@dataclass(frozen=True)
class Regression:
    """One score a text, learned as it is: mean squared error on raw scores, as `transformers` does; a `Task`.

    A fresh head answers the mean of the training scores, spread as they are. From 0, which is `transformers`' start, a
    fine-tuning first walks to that mean: the shorter it is, the more of it.

    Pearson's correlation decides, as for STS-B in GLUE, which shows Spearman's beside it.

    Attributes:
        labels: None.
        pair: Whether an input is a pair of texts.
    """

    labels: tuple[str, ...] = ()
    pair: bool = False
    kind: str = "regression"
    primary_metric: str = "pearson"
    problem_type: ProblemType = "regression"
    outputs: int = 1
    names_outputs: ClassVar[bool] = False
    confidence: None = None
    constant_name: str = "mean"
    gold_name: str = "scores"

    merge = staticmethod(mean_of_windows)

    @staticmethod
    def gold_rule(*, threshold: float | None = None, margin: float = 0.0, separator: str = ",") -> ScoreRule:
        """Cells are numbers, taken as they are."""
        no_threshold(threshold, margin, "scores")
        no_separator(separator, "scores")
        return ScoreRule()

    @property
    def loss(self) -> Loss:
        """Squared error."""
        from potstill.losses import score_mse

        return score_mse

    @staticmethod
    def distillation_loss(published: Loss) -> Loss:
        """Squared error to the teacher's score: a softmax over one number is 1."""
        from potstill.losses import logits_mse

        return logits_mse

    @staticmethod
    def scale(gold: np.ndarray) -> tuple[float, float]:
        """Mean and standard deviation."""
        known = gold[~np.isnan(gold)]
        return float(known.mean()), float(known.std())

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
        """float64 (n,)."""
        return logits[:, 0].astype(np.float64)

    @staticmethod
    def together(logits: np.ndarray, shares: np.ndarray) -> np.ndarray:
        """The mean score, float64 (n, 1)."""
        return np.asarray(np.einsum("k,knc->nc", shares, logits.astype(np.float64)))

    def decode(self, logits: np.ndarray, temperature: float = 1.0) -> list[dict[str, Any]]:
        """`score`, which no temperature moves."""
        return [{"score": float(value)} for value in self.predictions(logits)]

    def score(self, gold: np.ndarray, predictions: np.ndarray) -> float:
        """Pearson's correlation."""
        return regression_metrics(gold, predictions)[self.primary_metric]

    @staticmethod
    def resampled(
        gold: np.ndarray, predictions: Sequence[np.ndarray], *, resamples: int = 1000, seed: int = 0
    ) -> Resampled:
        """As `Task.resampled`."""
        return resampled_regression(gold, predictions, resamples=resamples, seed=seed)

    @staticmethod
    def metrics(
        gold: np.ndarray, predictions: np.ndarray, *, resamples: int = 1000, seed: int = 0
    ) -> dict[str, Metric]:
        """Pearson, Spearman, root mean squared error, each with its 95 % bootstrap interval."""
        return resampled_regression(gold, [predictions], resamples=resamples, seed=seed).metrics()

    @staticmethod
    def confusion(gold: np.ndarray, predictions: np.ndarray) -> None:
        """None: there are no labels."""
        return

    @staticmethod
    def by_label(gold: np.ndarray, predictions: np.ndarray, *, resamples: int = 1000, seed: int = 0) -> None:
        """None: there are no labels."""
        return

    @staticmethod
    def constant(gold: np.ndarray) -> float:
        """The mean score, of all constants that of the least squared error."""
        return float(np.mean(gold))

    @staticmethod
    def floor(gold: np.ndarray) -> Floor:
        """A constant has no correlation."""
        return 0.0, "a constant score"

    @staticmethod
    def doubts(metrics: Mapping[str, Metric], gold: np.ndarray) -> str | None:
        """Scores that rise and fall with the gold ones, and are further from them than their mean is."""
        error, spread = metrics["rmse"].value, float(np.std(gold))
        if error < spread:
            return None
        return (
            f"the teacher's scores are not on the data's scale: {error:.3g} off (root mean square), where giving "
            f"the mean score is {spread:.3g} off: it was taught other scores, or too little"
        )

    def disagreements(
        self,
        gold: np.ndarray,
        teacher: np.ndarray,
        student: np.ndarray,
        limit: int,
        *,
        teacher_task: "Self | None" = None,
    ) -> Disagreements:
        """The furthest apart first; a score is not right or wrong."""
        theirs, own = self.predictions(teacher), self.predictions(student)
        order = np.argsort(-np.abs(theirs - own), kind="stable")[:limit]
        rows: list[dict[str, Any]] = [
            {"row": int(row), "gold": float(gold[row]), "teacher": float(theirs[row]), "student": float(own[row])}
            for row in order
            if theirs[row] != own[row]
        ]
        return rows, None
