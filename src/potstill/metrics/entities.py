"""Precision, recall and F1 of entities, over all types and for each, with 95 % intervals over texts.

An entity is right where start, end and label all are (CoNLL-2003's rule): half of a name is one wrong answer and one
that is missed. All scores are functions of three sums over texts (right, gold, predicted), so that a thousand resamples
of texts are one matrix product. Conventions are seqeval's with `zero_division=0`.

What start and end count, words or characters, is the caller's.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from potstill.errors import DataError
from potstill.metrics.bootstrap import draw_cells
from potstill.metrics.metric import Metric
from potstill.metrics.resampled import Resampled

__all__ = ["ENTITY_METRICS", "Entity", "entities_by_type", "entity_metrics", "resampled_entities"]

ENTITY_METRICS = ("f1", "precision", "recall")
"""Names of all scores, 0 … 1."""

Answers = Sequence[Collection["Entity"]]
"""The entities of each of n texts; one that stands twice in a text counts once."""


class Entity(NamedTuple):
    """A stretch of a text and what it is.

    Attributes:
        start: Its first unit.
        end: The unit after its last; `end > start`.
        label: Its type, such as PER.
    """

    start: int
    end: int
    label: str


def entity_metrics(gold: Answers, predicted: Answers) -> dict[str, float]:
    """Over all types: P = right / predicted, R = right / gold, F1 = 2 · right / (gold + predicted); 0 for 0 / 0.

    Args:
        gold: The entities of each text, n ≥ 1.
        predicted: Those that a model found.

    Returns:
        Values by name (`ENTITY_METRICS`).

    Raises:
        DataError: No texts, or other numbers of them.
    """
    counts = _counts(gold, [predicted], [None])
    return {name: float(value) for name, value in _scores(counts.sum(axis=(0, 1, 2))).items()}


def resampled_entities(
    gold: Answers, predictions: Sequence[Answers], *, label: str | None = None, resamples: int = 1000, seed: int = 0
) -> Resampled:
    """The scores of several models on all texts, and on resamples of texts that all models share.

    Args:
        gold: As in `entity_metrics`.
        predictions: One a model.
        label: Judge entities of this type alone; None: all.
        resamples: Number of resamples.
        seed: Of the resamples.

    Raises:
        DataError: As `entity_metrics`; no resamples.
    """
    if resamples < 1:
        raise DataError(f"{resamples} resamples", expected="1 or more")
    return _resampled(_counts(gold, predictions, [label])[:, :, 0], resamples, seed)


def entities_by_type(
    gold: Answers, predicted: Answers, *, resamples: int = 1000, seed: int = 0
) -> dict[str, dict[str, Metric]]:
    """The scores of each type that is in `gold` or in `predicted`, sorted, with intervals; all types share resamples.

    Args:
        gold: As in `entity_metrics`.
        predicted: As in `entity_metrics`.
        resamples: Number of resamples.
        seed: Of the resamples.

    Returns:
        Type → name → score; `Metric.n` counts texts.

    Raises:
        DataError: As `resampled_entities`.
    """
    if resamples < 1:
        raise DataError(f"{resamples} resamples", expected="1 or more")
    labels = sorted({entity.label for answers in (gold, predicted) for found in answers for entity in found})
    counts = _counts(gold, [predicted], [*labels])
    if not labels:
        return {}
    # As if each type were a model: the texts of a resample are then the same for all.
    by_type = _resampled(counts[:, 0], resamples, seed)
    return {label: by_type.metrics(place) for place, label in enumerate(labels)}


def _counts(gold: Answers, predictions: Sequence[Answers], labels: Sequence[str | None]) -> np.ndarray:
    """Right, gold and predicted entities of each text, model and label (None: any), int64 (n, models, labels, 3)."""
    if len(gold) == 0 or any(len(found) != len(gold) for found in predictions):
        lengths = ", ".join(str(len(found)) for found in predictions)
        raise DataError(f"entities of {len(gold)} texts, and of {lengths} predicted", expected="one of each per text")
    counts = np.zeros((len(gold), len(predictions), len(labels), 3), dtype=np.int64)
    column = {label: place for place, label in enumerate(labels)}
    for model, answers in enumerate(predictions):
        for text, (known, found) in enumerate(zip(gold, answers, strict=True)):
            own, theirs = set(known), set(found)
            for kind, entities in enumerate((own & theirs, own, theirs)):
                for entity in entities:
                    place = column.get(entity.label, column.get(None))
                    if place is not None:
                        counts[text, model, place, kind] += 1
    return counts


def _resampled(counts: np.ndarray, resamples: int, seed: int) -> Resampled:
    """Of counts (n, c, 3): texts that count alike are one cell, whose size in a resample is drawn at once."""
    n = len(counts)
    cells, sizes = np.unique(counts.reshape(n, -1), axis=0, return_counts=True)
    shape = (-1, *counts.shape[1:])
    values = _scores((sizes[None] @ cells).reshape(shape))
    parts = [_scores((drawn @ cells).reshape(shape)) for drawn in draw_cells(sizes, resamples, seed)]
    samples = {name: np.concatenate([part[name] for part in parts]) for name in values}
    return Resampled({name: value[0] for name, value in values.items()}, samples, n)


def _scores(sums: np.ndarray) -> dict[str, np.ndarray]:
    """Scores by name, each of shape sums.shape[:-1], from sums (..., 3)."""
    right, gold, predicted = np.moveaxis(sums, -1, 0)
    return {
        "f1": 2 * right / np.maximum(gold + predicted, 1),
        "precision": right / np.maximum(predicted, 1),
        "recall": right / np.maximum(gold, 1),
    }
