"""Pure functions of tensors, each returning (sum, count); know no model and no settings.

The loss is Σ sum / Σ count, so that it is exact under accumulation, padding and several processes.
"""

from potstill.losses.attention import attention_mse, attention_mse_reference
from potstill.losses.binary import binary_cross_entropy, binary_kl, soft_binary_cross_entropy
from potstill.losses.hidden import hidden_mse, hidden_mse_reference
from potstill.losses.logits import (
    WeightedCrossEntropy,
    hard_cross_entropy,
    logits_kl,
    logits_mse,
    soft_cross_entropy,
    soft_cross_entropy_reference,
)
from potstill.losses.relation import attention_kl, relation_heads, relation_kl, value_kl
from potstill.losses.scores import score_mse
from potstill.losses.vectors import (
    cls_mse,
    cosine_distance,
    mean_pooled,
    pairwise_similarity_mse,
    vector_cosine,
    vector_mse,
)
from potstill.losses.words import word_cross_entropy, word_kl

__all__ = [
    "WeightedCrossEntropy",
    "attention_kl",
    "attention_mse",
    "attention_mse_reference",
    "binary_cross_entropy",
    "binary_kl",
    "cls_mse",
    "cosine_distance",
    "hard_cross_entropy",
    "hidden_mse",
    "hidden_mse_reference",
    "logits_kl",
    "logits_mse",
    "mean_pooled",
    "pairwise_similarity_mse",
    "relation_heads",
    "relation_kl",
    "score_mse",
    "soft_binary_cross_entropy",
    "soft_cross_entropy",
    "soft_cross_entropy_reference",
    "value_kl",
    "vector_cosine",
    "vector_mse",
    "word_cross_entropy",
    "word_kl",
]
