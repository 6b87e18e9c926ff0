"""Fine-tuning on gold answers, as a program: the teacher's, and that of students whose method ends with it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel

from potstill.data.batching import Batches
from potstill.data.examples import is_labelled
from potstill.losses import hard_cross_entropy
from potstill.models.forward import forward_inputs
from potstill.models.precision import choose_attention
from potstill.tasks import Loss
from potstill.training.program import TermValue

__all__ = ["FineTuning"]


class FineTuning:
    """BERT's fine-tuning (Devlin et al., arXiv 1810.04805, section 4).

    Args:
        model: Trained.
        batches: Its windows and their gold answers.
        loss: `Task.loss`: cross-entropy on labels, squared error on scores.
        unit: The spread of the scores, 1 for labels: the loss counts in its squares, so that clipping and learning do
            not depend on the unit of the scores.
    """

    def __init__(
        self, model: PreTrainedModel, batches: Batches, loss: Loss = hard_cross_entropy, *, unit: float = 1.0
    ) -> None:
        self.modules: dict[str, nn.Module] = {"model": model}
        self.weights = {"hard": 1.0 / unit**2}
        self.model, self.data, self.loss = model, batches, loss

    def batches(self, epoch: int) -> Sequence[np.ndarray]:
        """As `Program.batches`."""
        return self.data.of_epoch(epoch)

    def advance(self, progress: float) -> None:
        """As `Program.advance`: nothing changes on the way."""

    def size(self, rows: np.ndarray) -> float:
        """As `Program.size`."""
        return self.data.tokens(rows)

    def counts(self, rows: np.ndarray) -> dict[str, float]:
        """As `Program.counts`."""
        return {"hard": float(np.count_nonzero(is_labelled(self.data.labels[rows])))}

    def step(self, rows: np.ndarray) -> dict[str, TermValue]:
        """As `Program.step`."""
        inputs = forward_inputs(self.model, self.data.encodings.batch(rows))
        choose_attention(self.model, inputs["input_ids"].shape[1], backward=True)
        logits = self.model(**inputs).logits
        return {"hard": TermValue(*self.loss(logits, torch.from_numpy(self.data.labels[rows]).to(logits.device)))}

    def describe(self, rows: np.ndarray) -> str:
        """As `Program.describe`."""
        return self.data.describe(rows)

    def state(self) -> dict[str, Any]:
        """As `Program.state`."""
        return {"program": "fine-tuning", "data": self.data.digest(), "loss": self.loss.__name__}
