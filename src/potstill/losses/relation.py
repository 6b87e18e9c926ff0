"""Losses on relations between the vectors of one text. Shapes: B examples, L tokens, h and d of either model's own.

A relation is softmax(X·Xᵀ/√d) of queries, keys or values with themselves: L × L whatever the model's width, so that
models of any width and any number of heads can be compared without a projection.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from potstill.errors import ModelError
from potstill.losses.attention import narrower, outside
from potstill.losses.divergence import UNSEEN, product_kl

__all__ = ["EXACT_BELOW", "attention_kl", "relation_heads", "relation_kl", "value_kl"]

EXACT_BELOW = 0.002
"""Nats a row below which a divergence is computed in float64; above it float32 is right to 1e-5."""


def relation_kl(student: Tensor, teacher: Tensor, mask: Tensor | None, *, heads: int) -> tuple[Tensor, float]:
    """Σ KL(softmax(T·Tᵀ/√d_T) ‖ softmax(S·Sᵀ/√d_S)) over relation heads and real rows: MiniLMv2, eq. 6.

    The vectors of all attention heads are joined and cut anew into `heads` relation heads, of d_T and d_S each. All
    pairs of a text are related, also where attention is local. Computed in float32; in float64 where the two are so
    near that a row's divergence is below `EXACT_BELOW`: value and gradient are right to 1e-5 however near they are.

    Args:
        student: (B, h_S, L, d), queries, keys or values, any float dtype, unscaled.
        teacher: (B, h_T, L, d'), the same of the teacher; no gradient flows into it.
        mask: (B, L), 1 or True on real tokens; None where all are real.
        heads: Relation heads; divides h·d of both.

    Returns:
        Sum (float32 scalar, nats) and heads · Σ_b n_b, n_b the real tokens of example b.

    Raises:
        ModelError: A width that the relation heads do not divide.

    Paper: Wang et al. 2020, arXiv 2012.15828; values: Wang et al. 2020, arXiv 2002.10957.
    """

    def compute(dtype: torch.dtype) -> tuple[Tensor, float]:
        own, theirs = (_recut(part, heads).to(dtype) for part in (student, teacher.detach()))
        scales = own.shape[-1] ** -0.5, theirs.shape[-1] ** -0.5
        return product_kl((own, own), (theirs, theirs), scales, mask), heads * _real(student, mask)

    return _exactly(compute)


def value_kl(student: Tensor, teacher: Tensor, mask: Tensor | None) -> tuple[Tensor, float]:
    """MiniLM's value relation, eq. 4: `relation_kl` of values, each attention head by itself; as many heads in both."""
    return relation_kl(student, teacher, mask, heads=student.shape[1])


def attention_kl(
    student: tuple[Tensor, Tensor],
    teacher: tuple[Tensor, Tensor],
    scales: tuple[float, float],
    mask: Tensor | None,
    *,
    biases: tuple[Tensor | None, Tensor | None] = (None, None),
    windows: tuple[int | None, int | None] = (None, None),
) -> tuple[Tensor, float]:
    """Σ KL(softmax(scores_T) ‖ softmax(scores_S)) over heads and real rows: MiniLM, eq. 3.

    Args:
        student: Q and K, each (B, h, L, d), unscaled.
        teacher: Q and K, each (B, h, L, d'); as many heads.
        scales: What multiplies the products, 1/√d.
        mask: (B, L), 1 or True on real tokens; None where all are real.
        biases: What each architecture adds to its scores, broadcastable to (B, h, L, L); None adds nothing.
        windows: How far a token attends in student and teacher; None: to all. The distributions are those over the
            tokens that both models look at: elsewhere one of the two is zero.

    Returns:
        Sum (float32 scalar, nats) and h · Σ_b n_b.

    Paper: Wang et al. 2020, arXiv 2002.10957.
    """
    length = student[0].shape[2]
    window = narrower(windows, length)
    far = None if window is None else outside(length, window, student[0].device)

    def compute(dtype: torch.dtype) -> tuple[Tensor, float]:
        if biases == (None, None):
            own, theirs = (tuple(part.to(dtype) for part in side) for side in (student, teacher))
            sums = product_kl((own[0], own[1]), (theirs[0].detach(), theirs[1].detach()), scales, mask, far)
            return sums, student[0].shape[1] * _real(student[0], mask)
        scores = []
        for (queries, keys), scale, bias in zip((student, teacher), scales, biases, strict=True):
            found = queries.to(dtype) @ keys.to(dtype).mT * scale
            scores.append(found if bias is None else found + bias.to(dtype))
        return _row_kl(scores[0], scores[1].detach(), mask, far)

    return _exactly(compute)


def relation_heads(*widths: int, most: int = 48) -> int:
    """The largest number of relation heads up to `most` (MiniLMv2's 48) that divides every width."""
    return max(count for count in range(1, most + 1) if all(width % count == 0 for width in widths))


def _exactly(compute: Callable[[torch.dtype], tuple[Tensor, float]]) -> tuple[Tensor, float]:
    """Sum and count in float32, or, of models that are nearly equal, in float64: then the sum cancels."""
    sums, count = compute(torch.float32)
    if float(sums.detach()) < EXACT_BELOW * count:
        sums, _ = compute(torch.float64)
    return sums.float(), count


def _recut(vectors: Tensor, heads: int) -> Tensor:
    """(B, h, L, d) → float32 (B, heads, L, h·d/heads)."""
    joined = vectors.transpose(1, 2).flatten(-2)
    if joined.shape[-1] % heads:
        raise ModelError(f"{heads} relation heads for vectors of {joined.shape[-1]}", expected="a divisor of it")
    made: Tensor = joined.unflatten(-1, (heads, -1)).transpose(1, 2).float()
    return made


def _row_kl(student: Tensor, teacher: Tensor, mask: Tensor | None, far: Tensor | None = None) -> tuple[Tensor, float]:
    """KL of the rows of (B, H, L, L) scores; padded columns have no weight, padded rows do not count.

    `far`, (L, L), is True at columns that have no weight for a row.
    """
    gone = None if far is None else far[None, None]
    if mask is not None:
        padding = ~mask.bool()
        columns = padding[:, None, None, :]
        gone = columns if gone is None else gone | columns
    if gone is not None:
        # Finite, so that a column's 0 · (log 0 − log 0) is 0 in value and gradient.
        student, teacher = (part.masked_fill(gone, UNSEEN) for part in (student, teacher))
    wanted = functional.log_softmax(teacher, dim=-1)
    divergence = wanted.exp() * (wanted - functional.log_softmax(student, dim=-1))
    if gone is not None:
        divergence = divergence.masked_fill(gone, 0.0)
    if mask is not None:
        divergence = divergence.masked_fill(padding[:, None, :, None], 0.0)
    return divergence.sum(), student.shape[1] * _real(student, mask)


def _real(vectors: Tensor, mask: Tensor | None) -> float:
    """Real tokens of a batch of vectors, (B, h, L, ·)."""
    return float(vectors.shape[0] * vectors.shape[2]) if mask is None else float(torch.count_nonzero(mask))
