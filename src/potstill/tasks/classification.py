"""Classification of one text or a pair: how scores of windows become a text's answer, and what is measured.

numpy alone, so that an engine without torch can use it. The head is `transformers`' own (`potstill.models.teacher`),
the losses are declared in recipes.
"""

from dataclasses import dataclass

import numpy as np

from potstill.metrics import Metric, bootstrap_metrics

__all__ = ["Classification"]


@dataclass(frozen=True)
class Classification:
    """One label a text.

    Attributes:
        labels: Label names; a label's index is its place here, in data, teacher and student alike.
        pair: Whether an input is a pair of texts.
    """

    labels: tuple[str, ...]
    pair: bool = False
    kind: str = "classification"
    primary_metric: str = "accuracy"

    @staticmethod
    def merge(logits: np.ndarray, example: np.ndarray) -> np.ndarray:
        """Scores of a text = the mean over its windows.

        Args:
            logits: float32 (m, C), one row a window.
            example: int64 (m,), ascending, the text of each window, as in `Encodings`.

        Returns:
            float32 (n, C).
        """
        count = int(example[-1]) + 1 if len(example) else 0
        sums = np.zeros((count, logits.shape[1]), dtype=np.float64)
        np.add.at(sums, example, logits)
        return (sums / np.bincount(example, minlength=count)[:, None]).astype(np.float32)

    @staticmethod
    def decode(logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Predicted label (int64 (n,)) and probabilities (float64 (n, C), softmax) of texts."""
        wide = logits.astype(np.float64)
        shifted = np.exp(wide - wide.max(axis=1, keepdims=True))
        return logits.argmax(axis=1), shifted / shifted.sum(axis=1, keepdims=True)

    def metrics(
        self, labels: np.ndarray, predictions: np.ndarray, *, resamples: int = 1000, seed: int = 0
    ) -> dict[str, Metric]:
        """Accuracy, macro and binary F1, Matthews, each with its 95 % bootstrap interval."""
        return bootstrap_metrics(labels, predictions, len(self.labels), resamples=resamples, seed=seed)
