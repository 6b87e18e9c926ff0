"""How sure an answer is: what a temperature is fitted to, and what a threshold cuts by."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from potstill.metrics import Judged, Temperature, fit_temperature, judge_softmax
from potstill.metrics.calibration import log_softmax

__all__ = ["Confidence", "SoftmaxConfidence"]


class Confidence(Protocol):
    """What a task with probabilities says of how sure its answers are; answers themselves no temperature changes."""

    def of(self, logits: np.ndarray, temperature: float = 1.0) -> np.ndarray:
        """How sure the answer to each text is: logits of texts (n, C) → float64 (n,), 0 … 1."""

    def fit(self, gold: np.ndarray, logits: np.ndarray) -> Temperature:
        """The temperature under which the gold answers are the most likely."""

    def judge(self, gold: np.ndarray, logits: np.ndarray, temperature: float = 1.0) -> Judged:
        """Probabilities held against gold answers, of which calibration is measured."""


@dataclass(frozen=True)
class SoftmaxConfidence:
    """Of one label of several: the probability of the label given, max softmax(logits / temperature)."""

    @staticmethod
    def of(logits: np.ndarray, temperature: float = 1.0) -> np.ndarray:
        """As `Confidence.of`."""
        return np.asarray(np.exp(log_softmax(np.asarray(logits, np.float64) / temperature).max(-1)))

    @staticmethod
    def fit(gold: np.ndarray, logits: np.ndarray) -> Temperature:
        """As `Confidence.fit`: `potstill.metrics.fit_temperature`."""
        return fit_temperature(gold, logits)

    @staticmethod
    def judge(gold: np.ndarray, logits: np.ndarray, temperature: float = 1.0) -> Judged:
        """As `Confidence.judge`: `potstill.metrics.judge_softmax`."""
        return judge_softmax(gold, logits, temperature)
