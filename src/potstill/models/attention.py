"""Attention for training on short texts: matmul and softmax, as `transformers`' eager attention, with fast dropout.

Fused attention's backward in bfloat16 is many times slower at short lengths (`potstill.models.precision`), and eager
attention draws a random number for each of its L×L probabilities.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, eager_mask

from potstill.models.dropout import fast_dropout

__all__ = ["PLAIN"]

PLAIN = "potstill_plain"
"""Its name among `transformers`' attention implementations."""


def _plain_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **_: Any,
) -> tuple[Tensor, Tensor]:
    """softmax(QKᵀ·scaling + mask)·V: (B, h, L, d) each to (B, L, h, d), and the probabilities (B, h, L, L)."""
    if key.shape[1] != query.shape[1]:  # several queries share a key
        shared = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(shared, dim=1), value.repeat_interleave(shared, dim=1)
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    scores = query @ key.mT * scaling
    weights = functional.softmax(scores if attention_mask is None else scores + attention_mask, dim=-1)
    if module.training:
        weights = fast_dropout(weights, dropout)
    return torch.matmul(weights, value).transpose(1, 2).contiguous(), weights


# Without a mask function of the same name the library would pass no mask, silently.
AttentionInterface.register(PLAIN, _plain_attention)
AttentionMaskInterface.register(PLAIN, eager_mask)
