"""Masked language modelling: BERT's objective (Devlin et al. 2018, arXiv 1810.04805), masked anew in each epoch.

The loss is the cross-entropy of the chosen places, in nats; the head is applied to these places alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from potstill.data.batching import Batches
from potstill.data.masking import Masked, MaskRule, MaskVocabulary, mask_tokens
from potstill.losses import word_cross_entropy
from potstill.models.forward import forward_inputs
from potstill.models.masked_lm import word_logits
from potstill.models.precision import choose_attention
from potstill.progress import SILENT, Reporter
from potstill.training.program import TermValue

__all__ = ["HeldOut", "MaskedLM", "unigram"]

_STAGE: dict[str, int] = {"train": 0, "held-out": 1}


class MaskedLM:
    """The program.

    Row numbers in its batches carry their epoch (row + epoch · rows), so that a window's mask depends on the seed, the
    epoch and the window alone.

    Args:
        model: A masked LM; trained in place.
        batches: Windows of text; their labels are not used.
        rule: Which tokens are chosen.
        vocabulary: Of the model's tokenizer.
        part: `held-out` masks otherwise than `train`.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        batches: Batches,
        rule: MaskRule,
        vocabulary: MaskVocabulary,
        part: Literal["train", "held-out"] = "train",
    ) -> None:
        self.modules: dict[str, nn.Module] = {"model": model}
        self.weights = {"masked": 1.0}
        self.model, self.data, self.rule, self.vocabulary = model, batches, rule, vocabulary
        self.seed = 2 * batches.seed + _STAGE[part]

    def batches(self, epoch: int) -> Sequence[np.ndarray]:
        """As `Program.batches`."""
        offset = epoch * len(self.data.encodings)
        return [rows + offset for rows in self.data.of_epoch(epoch)]

    def advance(self, progress: float) -> None:
        """As `Program.advance`: nothing changes on the way."""

    def size(self, rows: np.ndarray) -> float:
        """As `Program.size`."""
        return self.data.tokens(self._windows(rows))

    def counts(self, rows: np.ndarray) -> dict[str, float]:
        """As `Program.counts`."""
        return {"masked": float(self.masked(rows)[1].chosen.sum())}

    def step(self, rows: np.ndarray) -> dict[str, TermValue]:
        """As `Program.step`."""
        logits, words = self.answers(rows, backward=True)
        return {"masked": TermValue(*word_cross_entropy(logits, words))}

    def describe(self, rows: np.ndarray) -> str:
        """As `Program.describe`."""
        return self.data.describe(self._windows(rows))

    def state(self) -> dict[str, Any]:
        """As `Program.state`."""
        return {"program": "masked-lm", "data": self.data.digest(), "rule": vars(self.rule), "seed": self.seed}

    def _windows(self, rows: np.ndarray) -> np.ndarray:
        windows: np.ndarray = rows % len(self.data.encodings)
        return windows

    def masked(self, rows: np.ndarray) -> tuple[dict[str, np.ndarray], Masked]:
        """The windows as they are, and masked."""
        windows = self._windows(rows)
        arrays = self.data.encodings.batch(windows)
        found = mask_tokens(
            arrays["input_ids"],
            arrays["attention_mask"],
            self.data.ids[windows],
            rule=self.rule,
            vocabulary=self.vocabulary,
            seed=self.seed,
            epoch=rows // len(self.data.encodings),
        )
        return arrays, found

    def answers(self, rows: np.ndarray, *, backward: bool) -> tuple[Tensor, Tensor]:
        """Scores (n, V) at the chosen places, window by window, and the right words (n,)."""
        arrays, masked = self.masked(rows)
        inputs = forward_inputs(self.model, {**arrays, "input_ids": masked.input_ids})
        choose_attention(self.model, inputs["input_ids"].shape[1], backward=backward)
        hidden = self.model.base_model(**inputs)[0]
        chosen = torch.from_numpy(masked.chosen).to(hidden.device)
        words = torch.from_numpy(arrays["input_ids"][masked.chosen]).to(hidden.device)
        return word_logits(self.model, hidden[chosen]), words


@dataclass(frozen=True)
class HeldOut:
    """How well a masked LM guesses text that it has not seen.

    Attributes:
        loss: Mean cross-entropy of the chosen places, nats.
        accuracy: Share of them whose best word is right (top 1).
        places: How many there were.
    """

    loss: float
    accuracy: float
    places: int

    @classmethod
    @torch.inference_mode()
    def of(cls, program: MaskedLM, report: Reporter = SILENT) -> "HeldOut":
        """Judge the program's model on its windows, in eval mode; the mode is restored."""
        model = program.model
        was_training = model.training
        model.eval()
        loss, right, places = 0.0, 0, 0
        batches = program.batches(0)
        for number, rows in enumerate(batches, 1):
            logits, words = program.answers(rows, backward=False)
            sums, count = word_cross_entropy(logits, words)
            loss, places = loss + float(sums), places + int(count)
            right += int(torch.count_nonzero(logits.argmax(dim=1) == words))
            report.progress(number, len(batches))
        model.train(was_training)
        return cls(loss / max(1, places), right / max(1, places), places)


def unigram(program: MaskedLM) -> tuple[float, float]:
    """Entropy (nats) and largest share of the words in the program's windows, special tokens apart.

    What guessing by frequency alone would reach on this very text: a masked LM that has learned anything is below the
    first and above the second.
    """
    ids = np.asarray(program.data.encodings.input_ids)
    counts = np.bincount(ids[~program.vocabulary.special[ids]]).astype(float)
    shares = counts[counts > 0] / max(1.0, counts.sum())
    return float(-(shares * np.log(shares)).sum()), float(shares.max(initial=0.0))
