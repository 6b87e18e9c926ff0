"""Losses on hidden states. Shapes: B examples, L tokens, D_s and D_t the widths of student and teacher."""

import torch
from torch import Tensor

__all__ = ["hidden_mse", "hidden_mse_reference"]


def hidden_mse(student: Tensor, teacher: Tensor, mask: Tensor | None) -> tuple[Tensor, float]:
    """‖H_S·W − H_T‖² over real tokens: TinyBERT's embedding and hidden losses, eqs. 8 and 9.

    The projection W: D_s → D_t is applied by the caller; here both are D_t wide.

    Args:
        student: (B, L, D_t), projected, any float dtype.
        teacher: (B, L, D_t); no gradient flows into it.
        mask: (B, L), 1 or True on real tokens; None where all are real.

    Returns:
        Sum of squares (float32 scalar) and (real tokens)·D_t.

    Paper: Jiao et al. 2020, arXiv 1909.10351.
    """
    difference = student.float() - teacher.detach().float()
    if mask is None:
        return difference.square().sum(), float(difference.numel())
    kept = mask.bool()
    sums = difference.masked_fill(~kept.unsqueeze(-1), 0.0).square().sum()
    return sums, float(torch.count_nonzero(kept)) * student.shape[-1]


def hidden_mse_reference(student: Tensor, teacher: Tensor, mask: Tensor | None) -> tuple[Tensor, float]:
    """The released code's form: padding counts like any token. Arguments and result as `hidden_mse`; mask is unused."""
    return hidden_mse(student, teacher, None)
