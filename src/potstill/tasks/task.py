"""What a task is: everything that knows whether an answer is a label or a number, and nothing else does.

A new task is one file beside this one and a row in `TASKS`. Losses come with torch, which they alone import, when they
are asked for: an engine without torch answers without it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

from potstill.data.labels import GoldRule
from potstill.metrics import ClassScores, Metric, Resampled
from potstill.models.heads import ProblemType
from potstill.tasks.confidence import Confidence

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Disagreements", "Floor", "Loss", "Task"]

Loss = Callable[..., "tuple[Tensor, float]"]
"""A function of `potstill.losses`."""

Floor = tuple[float, str]
"""The best primary metric that one answer for all texts reaches, and what that answer is called."""

Disagreements = tuple[list[dict[str, Any]], dict[str, int] | None]
"""Texts that two models answer differently, most different first: `row` and what the report says of it; and, where an
answer is right or wrong, how many examples both, one or none of them got right."""


class Task(Protocol):
    """One kind of answer to a text or a pair of texts."""

    @property
    def kind(self) -> str:
        """Its name in settings, in potstill.json and in reports."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the outputs, in the order of every model's logits; none where an output is a number."""

    @property
    def pair(self) -> bool:
        """Whether an input is a pair of texts."""

    @property
    def primary_metric(self) -> str:
        """The metric that choices, gates and retention go by; more is better."""

    @property
    def problem_type(self) -> ProblemType:
        """The head, as `transformers` names it."""

    @property
    def gold_name(self) -> str:
        """What gold answers are called, in the plural."""

    @property
    def outputs(self) -> int:
        """How many logits a text has."""

    @property
    def names_outputs(self) -> bool:
        """Whether an output stands for a label; else it is a number."""

    def gold_rule(self, *, threshold: float | None = None, margin: float = 0.0, separator: str = ",") -> GoldRule:
        """How cells of a label column become gold answers.

        Args:
            threshold: As in `LabelRule`.
            margin: As in `LabelRule`.
            separator: As in `LabelSetRule`.

        Raises:
            SettingsError: A threshold or a separator for answers that have none.
        """

    @property
    def loss(self) -> Loss:
        """(logits, gold answers) → (sum, count): learning from gold answers."""

    def distillation_loss(self, published: Loss) -> Loss:
        """(logits, the teacher's logits) → (sum, count), in place of the one that a method was `published` with."""

    def scale(self, gold: np.ndarray) -> tuple[float | np.ndarray, float]:
        """Centre of the logits that a training split asks for, one number or one for each output, and their spread.

        Of scores their mean and their spread; of sets of labels their log-odds, and 1; of one label of several (0, 1).

        A fresh head begins there, and squared errors are weighed in squares of the spread: so that what is learned, and
        how fast, does not depend on the unit of the scores, or on how rare labels are.
        """

    def merge(self, logits: np.ndarray, example: np.ndarray) -> np.ndarray:
        """Logits of windows (m, C) to logits of texts (n, C); `example` int64 (m,), ascending: the text of a window."""

    def fitted(self, gold: np.ndarray, logits: np.ndarray) -> Self:
        """The task with what a model's answers need that is chosen on dev, from its logits there; else as it is.

        Each model is judged, and deployed, by the task as fitted to it; `gold` is dev's.
        """

    @property
    def tuned(self) -> dict[str, Any]:
        """What `fitted` chose, as it stands in potstill.json; empty where nothing is chosen."""

    def restored(self, values: Mapping[str, Any]) -> Self:
        """The task with what `tuned` wrote, out of all the keys of a potstill.json.

        Raises:
            ModelError: What it needs is not there, or cannot be used.
        """

    def predictions(self, logits: np.ndarray) -> np.ndarray:
        """Logits of texts to what `metrics` judges, as in `Examples.labels`."""

    def together(self, logits: np.ndarray, shares: np.ndarray) -> np.ndarray:
        """Logits of k models as one's, (n, C): theirs (k, n, C), and how much each counts (k,), in all 1."""

    @property
    def confidence(self) -> Confidence | None:
        """How sure answers are; None where an answer has no probability, or several."""

    def decode(self, logits: np.ndarray, temperature: float = 1.0) -> list[dict[str, Any]]:
        """Logits of texts to answers, as `predict` gives them; `temperature` moves probabilities, and no answer."""

    def score(self, gold: np.ndarray, predictions: np.ndarray) -> float:
        """The primary metric alone."""

    def resampled(
        self, gold: np.ndarray, predictions: Sequence[np.ndarray], *, resamples: int = 1000, seed: int = 0
    ) -> Resampled:
        """All metrics of several models, on all examples and on resamples that the models share."""

    def metrics(
        self, gold: np.ndarray, predictions: np.ndarray, *, resamples: int = 1000, seed: int = 0
    ) -> dict[str, Metric]:
        """All metrics of one model, each with its 95 % bootstrap interval."""

    def confusion(self, gold: np.ndarray, predictions: np.ndarray) -> list[list[int]] | None:
        """How often each label was taken for each; None where answers are no labels."""

    def by_label(
        self, gold: np.ndarray, predictions: np.ndarray, *, resamples: int = 1000, seed: int = 0
    ) -> dict[str, ClassScores] | None:
        """Precision, recall and F1 of each label; None where answers are no labels."""

    def constant(self, gold: np.ndarray) -> Any:
        """The answer that is best for all of `gold` (a training split) at once, as an element of `predictions`."""

    @property
    def constant_name(self) -> str:
        """The baseline of always giving it, as reports name it."""

    def floor(self, gold: np.ndarray) -> Floor:
        """What one answer for all reaches on `gold`: a teacher must do better."""

    def doubts(self, metrics: Mapping[str, Metric], gold: np.ndarray) -> str | None:
        """What a teacher's metrics on `gold` say against it that the primary metric does not show; None: nothing."""

    def disagreements(
        self,
        gold: np.ndarray,
        teacher: np.ndarray,
        student: np.ndarray,
        limit: int,
        *,
        teacher_task: Self | None = None,
    ) -> Disagreements:
        """Where two models' logits of texts differ: this task is fitted to the student, `teacher_task` to the teacher.

        `teacher_task` None means that it is the same.
        """
