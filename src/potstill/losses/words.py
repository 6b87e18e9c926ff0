"""Losses on scores of words. Shapes: n places, V words."""

from torch import Tensor
from torch.nn import functional

__all__ = ["word_cross_entropy"]


def word_cross_entropy(logits: Tensor, words: Tensor) -> tuple[Tensor, float]:
    """−log softmax(z)_w, summed over places: the masked-LM loss (Devlin et al., arXiv 1810.04805, section 3.1).

    Computed in float32, not float64 as the losses on classes are: n·V numbers are tens of millions.

    Args:
        logits: (n, V), any float dtype.
        words: int64 (n,), the right words.

    Returns:
        Sum (float32 scalar, nats; 0 where n = 0) and n.
    """
    return functional.cross_entropy(logits.float(), words, reduction="sum"), float(len(words))
