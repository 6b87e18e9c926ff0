"""Masked language modelling under a label: conditional BERT (Wu et al. 2019, arXiv 1812.06705).

The model learns to guess a text's masked words from the rest of the text and its label, so that what it proposes fits
both. Wu et al. put the label in the place of segment embeddings; here its name stands before the text, as in Kumar et
al. (2020, arXiv 2003.02245), which any architecture reads.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from transformers import PreTrainedModel

from potstill.data.batching import Batches
from potstill.data.encoding import Encodings, TextEncoder
from potstill.data.masking import Masked, MaskRule, MaskVocabulary, mask_tokens
from potstill.pretraining.masked import MaskedLM
from potstill.storage import digest_array

__all__ = ["ConditionalMaskedLM", "label_first"]


def label_first(encoder: TextEncoder, texts: Sequence[str], names: Sequence[str]) -> tuple[Encodings, np.ndarray]:
    """Each text after its label's name, and how many tokens of each window stand before the text, int64 (m,)."""
    encodings = encoder.encode(names, texts)
    alone = {name: len(encoder.tokenizer.encode(name).ids) for name in set(names)}
    return encodings, np.array([alone[names[row]] for row in encodings.example], dtype=np.int64)


class ConditionalMaskedLM(MaskedLM):
    """As `MaskedLM`, on windows that begin with a label, which is never masked.

    Args:
        model: A masked LM; trained in place.
        batches: Windows of label and text.
        before: int64 (m,), tokens before each window's text.
        rule: Which tokens of the text are chosen.
        vocabulary: Of the model's tokenizer.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        batches: Batches,
        before: np.ndarray,
        rule: MaskRule,
        vocabulary: MaskVocabulary,
    ) -> None:
        super().__init__(model, batches, rule, vocabulary)
        self.before = before

    def masked(self, rows: np.ndarray) -> tuple[dict[str, np.ndarray], Masked]:
        """As `MaskedLM.masked`."""
        windows = self._windows(rows)
        arrays = self.data.encodings.batch(windows)
        in_text = np.arange(arrays["input_ids"].shape[1])[None, :] >= self.before[windows][:, None]
        found = mask_tokens(
            arrays["input_ids"],
            arrays["attention_mask"] * in_text,
            self.data.ids[windows],
            rule=self.rule,
            vocabulary=self.vocabulary,
            seed=self.seed,
            epoch=rows // len(self.data.encodings),
        )
        return arrays, found

    def state(self) -> dict[str, Any]:
        """As `Program.state`."""
        return {**super().state(), "program": "conditional-masked-lm", "before": digest_array(self.before)}
