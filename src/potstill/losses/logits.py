"""Losses on class scores. Shapes: B examples, C classes.

Computed in float64, since a divergence of almost equal scores is a small difference of larger numbers and B·C numbers
cost nothing; returned as float32.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

__all__ = [
    "WeightedCrossEntropy",
    "hard_cross_entropy",
    "logits_kl",
    "logits_mse",
    "soft_cross_entropy",
    "soft_cross_entropy_reference",
]


def soft_cross_entropy(student: Tensor, teacher: Tensor, *, temperature: float = 1.0) -> tuple[Tensor, float]:
    """−Σ_c softmax(z_T/t)_c · log softmax(z_S/t)_c, summed over examples: TinyBERT's prediction loss, eq. 10.

    No t² factor, as published. It is never below the entropy of the teacher at t, and equals it for a perfect student.

    Args:
        student: (B, C), any float dtype, unbounded scores.
        teacher: (B, C), the same; no gradient flows into it.
        temperature: t > 0; t = 1 worked best in the paper.

    Returns:
        Sum over the B examples (float32 scalar, nats) and B.

    Paper: Jiao et al. 2020, arXiv 1909.10351.
    """
    target = functional.softmax(teacher.detach().double() / temperature, dim=-1)
    sums = -(target * functional.log_softmax(student.double() / temperature, dim=-1)).sum()
    return sums.float(), float(student.shape[0])


def soft_cross_entropy_reference(student: Tensor, teacher: Tensor, *, temperature: float = 1.0) -> tuple[Tensor, float]:
    """The released code's form: the mean runs over examples *and classes*, so it is C times smaller.

    Arguments as `soft_cross_entropy`; returns the same sum, and B·C.
    """
    sums, _ = soft_cross_entropy(student, teacher, temperature=temperature)
    return sums, float(student.numel())


def logits_kl(student: Tensor, teacher: Tensor, *, temperature: float = 1.0) -> tuple[Tensor, float]:
    """t² · KL(softmax(z_T/t) ‖ softmax(z_S/t)), summed over examples.

    The t² keeps the gradient's size when t changes (Hinton et al. 2015, arXiv 1503.02531, section 2). At t = 1 its
    gradient is that of `soft_cross_entropy`; its least value is 0.

    Args, returns: As `soft_cross_entropy`.
    """
    target = functional.log_softmax(teacher.detach().double() / temperature, dim=-1)
    student_log = functional.log_softmax(student.double() / temperature, dim=-1)
    sums = functional.kl_div(student_log, target, reduction="sum", log_target=True) * temperature**2
    return sums.float(), float(student.shape[0])


def logits_mse(student: Tensor, teacher: Tensor) -> tuple[Tensor, float]:
    """(z_S − z_T)², summed over examples and classes (Ba & Caruana 2014). Scores are compared as they are.

    Args:
        student: (B, C), any float dtype.
        teacher: (B, C), the same; no gradient flows into it.

    Returns:
        Sum (float32 scalar) and B·C.
    """
    return (student.double() - teacher.detach().double()).square().sum().float(), float(student.numel())


def hard_cross_entropy(student: Tensor, labels: Tensor) -> tuple[Tensor, float]:
    """−log softmax(z_S)_y, summed over the examples that have a label.

    Args:
        student: (B, C), any float dtype.
        labels: int64 (B,); −1 where there is none: the example then counts for nothing.

    Returns:
        Sum (float32 scalar, nats) and the number of labelled examples (0 is possible: the sum is then 0).
    """
    sums = functional.cross_entropy(student.double(), labels, ignore_index=-1, reduction="sum")
    return sums.float(), float(torch.count_nonzero(labels >= 0))


@dataclass(frozen=True)
class WeightedCrossEntropy:
    """−w_y · log softmax(z_S)_y, summed over the examples that have a label: arguments as `hard_cross_entropy`.

    The count is that of the labelled examples, not the sum of their weights: with weights whose mean over the training
    examples is 1 the loss keeps its size, and a batch of common labels does not count as much as one of rare ones.

    Attributes:
        weights: One number above 0 a class, in the order of the logits.
    """

    weights: tuple[float, ...]

    @property
    def __name__(self) -> str:
        """As a function's: what a checkpoint must agree with."""
        return f"hard_cross_entropy weighted {', '.join(f'{weight:.6g}' for weight in self.weights)}"

    def __call__(self, student: Tensor, labels: Tensor) -> tuple[Tensor, float]:
        """The weighted sum (float32 scalar, nats) and the number of labelled examples."""
        weight = torch.tensor(self.weights, dtype=torch.float64, device=student.device)
        sums = functional.cross_entropy(student.double(), labels, weight=weight, ignore_index=-1, reduction="sum")
        return sums.float(), float(torch.count_nonzero(labels >= 0))
