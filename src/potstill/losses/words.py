"""Losses on scores of words. Shapes: n places, V words."""

from torch import Tensor
from torch.nn import functional

__all__ = ["word_cross_entropy", "word_kl"]


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


def word_kl(student: Tensor, teacher: Tensor, *, temperature: float = 1.0) -> tuple[Tensor, float]:
    """t² · KL(softmax(z_T/t) ‖ softmax(z_S/t)) over words, summed over places: DistilBERT's soft loss.

    As `logits_kl`, in float32.

    Args:
        student: (n, V), any float dtype.
        teacher: (n, V), the same words; no gradient flows into it.
        temperature: t > 0; DistilBERT's is 2.

    Returns:
        Sum (float32 scalar, nats; 0 where n = 0) and n.

    Paper: Sanh et al. 2019, arXiv 1910.01108.
    """
    target = functional.log_softmax(teacher.detach().float() / temperature, dim=-1)
    own = functional.log_softmax(student.float() / temperature, dim=-1)
    sums = functional.kl_div(own, target, reduction="sum", log_target=True) * temperature**2
    return sums, float(len(student))
