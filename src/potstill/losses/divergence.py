"""Divergence between rows of two models' products, without keeping them: a part at a time, small enough for the cache.

Shapes: B examples, h heads, L tokens, d_s and d_t the widths of student and teacher.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

__all__ = ["product_kl"]

PART = 1 << 17
"""Scores in a part, about: half a megabyte of float32, which a processor's second cache holds."""

UNSEEN = -1e30
"""The score of what a row does not see. Finite, so that its 0 · (log 0 − log 0) is 0 in value and gradient."""


def product_kl(
    student: tuple[Tensor, Tensor],
    teacher: tuple[Tensor, Tensor],
    scales: tuple[float, float],
    mask: Tensor | None,
    far: Tensor | None = None,
) -> Tensor:
    """Σ KL(softmax(c_T·Q_T·K_Tᵀ) ‖ softmax(c_S·Q_S·K_Sᵀ)) over heads and real rows.

    With P and R the softmax of teacher and student, the gradient of a row's scores is R − P; it is formed beside the
    value, so that of all L × L scores only a part is ever there.

    Args:
        student: Q and K, each (B, h, L, d_s), float32 or float64.
        teacher: The same, (B, h, L, d_t); no gradient flows into it.
        scales: c_S and c_T.
        mask: (B, L), 1 or True on real tokens; None where all are real. Padded columns have no weight, padded rows do
            not count.
        far: (L, L), True at columns that have no weight for a row; None where there are none.

    Returns:
        Scalar of the student's dtype. It can be differentiated once.
    """
    found: Tensor = _ProductKL.apply(*student, *teacher, scales, mask, far)  # type: ignore[no-untyped-call]
    return found


class _ProductKL(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        queries: Tensor,
        keys: Tensor,
        theirs: Tensor,
        their_keys: Tensor,
        scales: tuple[float, float],
        mask: Tensor | None,
        far: Tensor | None,
    ) -> Tensor:
        padding = None if mask is None else ~mask.bool()
        wanted = [ctx.needs_input_grad[0], ctx.needs_input_grad[1]]
        slopes = [
            torch.zeros_like(part) if needed else None for part, needed in zip((queries, keys), wanted, strict=True)
        ]
        total = torch.zeros((), dtype=torch.float64, device=queries.device)
        for part in _parts(*queries.shape[:3]):
            gone = far
            if padding is not None:
                columns = padding[part[0], None, None, :]
                gone = columns if gone is None else gone | columns
            own, other = queries[part], keys[part]
            ours = _log_softmax(own, other, scales[0], gone)
            target = _log_softmax(theirs[part], their_keys[part], scales[1], gone)
            shares = target.exp()
            rows = target.sub_(ours).mul_(shares).sum(-1)
            if padding is not None:
                rows.masked_fill_(padding[part[0], None, :], 0.0)
            total += rows.sum(dtype=torch.float64)
            if not any(wanted):
                continue
            slope = ours.exp_().sub_(shares).mul_(scales[0])
            if padding is not None:
                slope.masked_fill_(padding[part[0], None, :, None], 0.0)
            for made, change, factor in zip(slopes, (slope, slope.mT), (other, own), strict=True):
                if made is not None:
                    made[part] = change @ factor
        ctx.save_for_backward(*slopes)
        return total.to(queries.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        made = (None if part is None else part * slope for part in ctx.saved_tensors)
        return (*made, None, None, None, None, None)


def _parts(examples: int, heads: int, length: int) -> Iterator[tuple[slice, slice]]:
    """Slices of examples and heads of about `PART` scores each."""
    matrices = max(1, PART // length**2)
    some = max(1, matrices // heads)
    for example in range(0, examples, some):
        for head in range(0, heads, min(heads, matrices)):
            yield slice(example, example + some), slice(head, head + min(heads, matrices))


def _log_softmax(queries: Tensor, keys: Tensor, scale: float, gone: Tensor | None) -> Tensor:
    scores = (queries * scale) @ keys.mT
    if gone is not None:
        scores.masked_fill_(gone, UNSEEN)
    return functional.log_softmax(scores, dim=-1)
