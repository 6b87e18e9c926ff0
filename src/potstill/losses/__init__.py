"""Pure functions of tensors, each returning (sum, count); know no model and no settings.

The loss is Σ sum / Σ count, so that it is exact under accumulation, padding and several processes.
"""

from potstill.losses.attention import attention_mse, attention_mse_reference
from potstill.losses.hidden import hidden_mse, hidden_mse_reference
from potstill.losses.logits import (
    hard_cross_entropy,
    logits_kl,
    logits_mse,
    soft_cross_entropy,
    soft_cross_entropy_reference,
)
from potstill.losses.words import word_cross_entropy

__all__ = [
    "attention_mse",
    "attention_mse_reference",
    "hard_cross_entropy",
    "hidden_mse",
    "hidden_mse_reference",
    "logits_kl",
    "logits_mse",
    "soft_cross_entropy",
    "soft_cross_entropy_reference",
    "word_cross_entropy",
]
