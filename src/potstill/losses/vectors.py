"""Losses on vectors: of tokens, of [CLS], of whole texts. Shapes: B examples, L tokens, D the width of both sides.

Where the models' widths differ, the student's vectors are projected by the caller first.
"""

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["cls_mse", "cosine_distance", "mean_pooled", "pairwise_similarity_mse", "vector_cosine", "vector_mse"]


def cosine_distance(student: Tensor, teacher: Tensor, mask: Tensor | None) -> tuple[Tensor, float]:
    """Σ (1 − cos(h_S, h_T)) over real tokens: DistilBERT's cosine loss on the last hidden states.

    Args:
        student: (B, L, D), any float dtype.
        teacher: (B, L, D); no gradient flows into it.
        mask: (B, L), 1 or True on real tokens; None where all are real.

    Returns:
        Sum (float32 scalar, 0 to twice the count) and the number of real tokens.

    Paper: Sanh et al. 2019, arXiv 1910.01108.
    """
    distance = 1.0 - functional.cosine_similarity(student.float(), teacher.detach().float(), dim=-1)
    if mask is None:
        return distance.sum(), float(distance.numel())
    return distance.masked_fill(~mask.bool(), 0.0).sum(), float(torch.count_nonzero(mask))


def cls_mse(student: Tensor, teacher: Tensor, mask: Tensor | None) -> tuple[Tensor, float]:
    """‖h_S/‖h_S‖ − h_T/‖h_T‖‖² of the first token: BERT-PKD's loss on one pair of layers, eq. 7.

    Args:
        student: (B, L, D), any float dtype.
        teacher: (B, L, D); no gradient flows into it.
        mask: Unused: the first token is never padding.

    Returns:
        Sum over the B examples (float32 scalar) and B.

    Paper: Sun et al. 2019, arXiv 1908.09355.
    """
    own, theirs = (functional.normalize(part[:, 0].float(), dim=-1) for part in (student, teacher.detach()))
    return (own - theirs).square().sum(), float(len(own))


def mean_pooled(hidden: Tensor, mask: Tensor | None) -> Tensor:
    """The mean of each text's real tokens: (B, L, D) → float32 (B, D). Sentence-BERT's pooling."""
    if mask is None:
        return hidden.float().mean(dim=1)
    kept = mask.bool().unsqueeze(-1)
    summed = hidden.float().masked_fill(~kept, 0.0).sum(dim=1)
    return summed / torch.count_nonzero(mask, dim=1).unsqueeze(-1).clamp_min(1)


def vector_mse(student: Tensor, teacher: Tensor, mask: Tensor | None) -> tuple[Tensor, float]:
    """‖v_S − v_T‖² of the texts' mean-pooled vectors; returns the sum and B·D.

    Args:
        student: (B, L, D), any float dtype.
        teacher: (B, L, D); no gradient flows into it.
        mask: (B, L); None where all tokens are real.

    Paper: Reimers & Gurevych 2020, arXiv 2004.09813.
    """
    own, theirs = mean_pooled(student, mask), mean_pooled(teacher.detach(), mask)
    return (own - theirs).square().sum(), float(own.numel())


def vector_cosine(student: Tensor, teacher: Tensor, mask: Tensor | None) -> tuple[Tensor, float]:
    """1 − cos(v_S, v_T) of the texts' mean-pooled vectors; returns the sum and B. Arguments as `vector_mse`."""
    own, theirs = mean_pooled(student, mask), mean_pooled(teacher.detach(), mask)
    return (1.0 - functional.cosine_similarity(own, theirs, dim=-1)).sum(), float(len(own))


def pairwise_similarity_mse(student: Tensor, teacher: Tensor, mask: Tensor | None) -> tuple[Tensor, float]:
    """(cos(v_Si, v_Sj) − cos(v_Ti, v_Tj))² over all ordered pairs i ≠ j of the batch; returns the sum and B·(B − 1).

    What a text is near to is kept, not where it lies: the widths may differ. Unlike other losses it depends on which
    texts share a batch.

    Args:
        student: (B, L, D_S), any float dtype.
        teacher: (B, L, D_T); no gradient flows into it.
        mask: (B, L); None where all tokens are real.

    Paper: Tung & Mori 2019, arXiv 1907.09682; with cosines, Park et al. 2019, arXiv 1904.05068.
    """
    own, theirs = (functional.normalize(mean_pooled(part, mask), dim=-1) for part in (student, teacher.detach()))
    difference = own @ own.T - theirs @ theirs.T
    difference = difference - torch.diag(difference.diagonal())
    return difference.square().sum(), float(len(own) * (len(own) - 1))
