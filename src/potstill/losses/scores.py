"""Losses on a score: one number a text. Shapes: B examples."""

import torch
from torch import Tensor

__all__ = ["score_mse"]


def score_mse(student: Tensor, scores: Tensor) -> tuple[Tensor, float]:
    """(z − y)², summed over the examples that have a score: `transformers`' regression loss.

    Computed in float64, as the losses on classes are. Against a teacher's scores it is `logits_mse` with C = 1.

    Args:
        student: (B, 1), any float dtype.
        scores: float64 (B,), gold; NaN where there is none: the example then counts for nothing.

    Returns:
        Sum (float32 scalar) and the number of examples with a score (0 is possible: the sum is then 0).
    """
    known = ~torch.isnan(scores)
    difference = student.double().squeeze(-1) - scores.double().masked_fill(~known, 0.0)
    return difference.masked_fill(~known, 0.0).square().sum().float(), float(torch.count_nonzero(known))
