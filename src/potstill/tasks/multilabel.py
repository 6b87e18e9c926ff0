"""Any number of several labels for one text or a pair: each label is a decision of its own, with its own threshold."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from potstill.data.examples import is_labelled
from potstill.data.label_sets import LabelSetRule
from potstill.data.labels import no_threshold
from potstill.errors import ModelError
from potstill.metrics import (
    ClassScores,
    Metric,
    Resampled,
    best_constant_set,
    best_thresholds,
    multilabel_metrics,
    per_label,
    resampled_multilabel,
)
from potstill.models.heads import ProblemType
from potstill.tasks.task import Disagreements, Floor, Loss
from potstill.tasks.windows import mean_of_windows

__all__ = ["MultiLabel", "sigmoid"]


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(−z)) in float64, without overflow and with small values to full relative precision."""
    exact = np.asarray(logits, np.float64)
    small = np.exp(-np.abs(exact))
    return np.asarray(np.where(exact >= 0, 1.0, small) / (1.0 + small))


def _is_share(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= 1


@dataclass(frozen=True)
class MultiLabel:
    """A set of labels a text; a `Task`.

    Label c is given where σ(z_c) ≥ its threshold. Thresholds are tuned on dev (`fitted`), for each model its own, to
    the metric that decides: rare labels seldom get a probability of a half, however well they are told from others.

    A long text's windows are averaged: each learned the labels of the whole text, so that each window's logits are a
    guess at these already; the largest over the windows would grow with their number.

    A set has no one probability that a temperature could be fitted to, or by which an answer could be withheld:
    `confidence` is None.

    Attributes:
        labels: Label names; a label's index is its place here, in data, teacher and student alike.
        pair: Whether an input is a pair of texts.
        thresholds: Probability from which on a label is given, in the order of the labels; empty: 0.5 for all.
    """

    labels: tuple[str, ...]
    pair: bool = False
    kind: str = "multilabel"
    primary_metric: str = "micro_f1"
    problem_type: ProblemType = "multi_label_classification"
    confidence: None = None
    constant_name: str = "constant_set"
    gold_name: str = "labels"
    thresholds: tuple[float, ...] = ()
    names_outputs: ClassVar[bool] = True

    merge = staticmethod(mean_of_windows)

    @property
    def outputs(self) -> int:
        """One logit a label."""
        return len(self.labels)

    @staticmethod
    def gold_rule(*, threshold: float | None = None, margin: float = 0.0, separator: str = ",") -> LabelSetRule:
        """Cells hold several names."""
        no_threshold(threshold, margin, "sets of labels")
        return LabelSetRule(separator)

    @property
    def loss(self) -> Loss:
        """Binary cross-entropy, the mean over the labels."""
        from potstill.losses import binary_cross_entropy

        return binary_cross_entropy

    @staticmethod
    def distillation_loss(published: Loss) -> Loss:
        """The published loss with two classes for each label in place of one class of several; logits as they are."""
        from potstill import losses

        if published is losses.logits_mse:
            return published
        return losses.binary_kl if published is losses.logits_kl else losses.soft_binary_cross_entropy

    @staticmethod
    def scale(gold: np.ndarray) -> tuple[np.ndarray, float]:
        """The log-odds of each label, log (n_c + ½) / (n − n_c + ½), float64 (C,), and 1.

        From a probability of a half, which is `transformers`' start, a fine-tuning on rare labels first walks to how
        rare they are (Lin et al. 2017, arXiv 1708.02002, section 4.1).
        """
        marks = gold[is_labelled(gold)]
        present = marks.sum(axis=0, dtype=np.float64)
        return np.log(present + 0.5) - np.log(len(marks) - present + 0.5), 1.0

    def fitted(self, gold: np.ndarray, logits: np.ndarray) -> Self:
        """With the thresholds of the best micro F1 on dev (`best_thresholds`)."""
        return replace(self, thresholds=tuple(best_thresholds(gold, sigmoid(logits)).tolist()))

    @property
    def tuned(self) -> dict[str, Any]:
        """The thresholds by label."""
        return {"thresholds": dict(zip(self.labels, self.thresholds, strict=True))} if self.thresholds else {}

    def restored(self, values: Mapping[str, Any]) -> Self:
        """With the thresholds among `values`."""
        found = values.get("thresholds")
        if (
            not isinstance(found, Mapping)
            or found.keys() != set(self.labels)
            or not all(map(_is_share, found.values()))
        ):
            raise ModelError(f"thresholds is {found!r}", expected="for each of the labels a number from 0 to 1")
        return replace(self, thresholds=tuple(float(found[label]) for label in self.labels))

    def predictions(self, logits: np.ndarray) -> np.ndarray:
        """Marks, int8 (n, C)."""
        return np.asarray(sigmoid(logits) >= np.array(self.thresholds or 0.5), dtype=np.int8)

    @staticmethod
    def together(logits: np.ndarray, shares: np.ndarray) -> np.ndarray:
        """The mean probability of each label, as logits: log p − log (1 − p)."""
        present, absent = (np.einsum("k,knc->nc", shares, sigmoid(sign * logits)) for sign in (1.0, -1.0))
        with np.errstate(divide="ignore"):  # a probability that no float64 holds
            return np.asarray(np.log(present) - np.log(absent))

    def decode(self, logits: np.ndarray, temperature: float = 1.0) -> list[dict[str, Any]]:
        """`labels`, and the `probabilities` of all by label; there is no temperature for sets of labels."""
        return [
            {"labels": self._names(marks), "probabilities": dict(zip(self.labels, map(float, row), strict=True))}
            for marks, row in zip(self.predictions(logits), sigmoid(logits), strict=True)
        ]

    def _names(self, marks: np.ndarray) -> list[str]:
        return [self.labels[label] for label in np.flatnonzero(marks)]

    def score(self, gold: np.ndarray, predictions: np.ndarray) -> float:
        """Micro F1."""
        return multilabel_metrics(gold, predictions)[self.primary_metric]

    @staticmethod
    def resampled(
        gold: np.ndarray, predictions: Sequence[np.ndarray], *, resamples: int = 1000, seed: int = 0
    ) -> Resampled:
        """As `Task.resampled`."""
        return resampled_multilabel(gold, predictions, resamples=resamples, seed=seed)

    @staticmethod
    def metrics(
        gold: np.ndarray, predictions: np.ndarray, *, resamples: int = 1000, seed: int = 0
    ) -> dict[str, Metric]:
        """Micro F1, macro F1 and exact matches, each with its 95 % bootstrap interval."""
        return resampled_multilabel(gold, [predictions], resamples=resamples, seed=seed).metrics()

    def by_label(
        self, gold: np.ndarray, predictions: np.ndarray, *, resamples: int = 1000, seed: int = 0
    ) -> dict[str, ClassScores]:
        """As `Task.by_label`."""
        found = per_label(gold, predictions, resamples=resamples, seed=seed)
        return dict(zip(self.labels, found, strict=True))

    @staticmethod
    def confusion(gold: np.ndarray, predictions: np.ndarray) -> None:
        """None: a label is not taken for another."""
        return

    @staticmethod
    def constant(gold: np.ndarray) -> np.ndarray:
        """The set of the best micro F1, marks int8 (C,)."""
        return best_constant_set(gold)

    def floor(self, gold: np.ndarray) -> Floor:
        """The micro F1 of the best constant set."""
        everywhere = np.broadcast_to(best_constant_set(gold), gold.shape)
        return self.score(gold, everywhere), "the best set of labels for all"

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
        """Other sets, the most different probabilities first; right is a whole set."""
        answers = [(teacher_task or self).predictions(teacher), self.predictions(student)]
        distance = np.abs(sigmoid(teacher) - sigmoid(student)).sum(axis=1)
        order = np.argsort(-distance, kind="stable")
        differing = order[(answers[0] != answers[1]).any(axis=1)[order]][:limit]
        sides = zip(("gold", "teacher", "student"), (gold, *answers), strict=True)
        named = {side: [self._names(marks[row]) for row in differing] for side, marks in sides}
        rows: list[dict[str, Any]] = [
            {"row": int(row), **{side: names[place] for side, names in named.items()}}
            for place, row in enumerate(differing)
        ]
        right_t, right_s = ((gold == one).all(axis=1) for one in answers)
        counts = {
            "both_right": right_t & right_s,
            "teacher_only": right_t & ~right_s,
            "student_only": ~right_t & right_s,
            "both_wrong": ~right_t & ~right_s,
        }
        return rows, {name: int(np.count_nonzero(found)) for name, found in counts.items()}
