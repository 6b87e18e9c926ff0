"""Losses on sets of labels: each of C labels is there or not, a decision of its own. Shapes: B examples, C labels.

The mean runs over the labels and the sum over the examples, so that the loss per example is `transformers`' for
`multi_label_classification`. Computed in float64 and returned as float32, as the losses on classes are.
"""

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["binary_cross_entropy", "binary_kl", "soft_binary_cross_entropy"]


def binary_cross_entropy(student: Tensor, labels: Tensor) -> tuple[Tensor, float]:
    """−1/C · Σ_c [y_c · log σ(z_c) + (1 − y_c) · log (1 − σ(z_c))], summed over the examples whose labels are known.

    Args:
        student: (B, C), any float dtype, unbounded scores.
        labels: Integer (B, C), 1 where the example has the label, 0 where not; −1 throughout where its labels are not
            known: the example then counts for nothing.

    Returns:
        Sum (float32 scalar, nats a label) and the number of examples with labels (0 is possible: the sum is then 0).
    """
    known = labels[:, 0] >= 0
    scores, target = student.double()[known], labels[known].double()
    sums = functional.binary_cross_entropy_with_logits(scores, target, reduction="sum") / student.shape[1]
    return sums.float(), float(torch.count_nonzero(known))


def soft_binary_cross_entropy(student: Tensor, teacher: Tensor, *, temperature: float = 1.0) -> tuple[Tensor, float]:
    """Cross-entropy of the teacher's probability of each label, p_c = σ(z_T/t)_c, and the student's, at temperature t.

    −1/C · Σ_c [p_c · log σ(z_S/t)_c + (1 − p_c) · log (1 − σ(z_S/t)_c)], summed over examples: `soft_cross_entropy`
    with two classes for each label. No t² factor, as there; never below the entropy of the teacher at t.

    Args:
        student: (B, C), any float dtype, unbounded scores.
        teacher: (B, C), the same; no gradient flows into it.
        temperature: t > 0.

    Returns:
        Sum over the B examples (float32 scalar, nats a label) and B.
    """
    target = torch.sigmoid(teacher.detach().double() / temperature)
    scores = student.double() / temperature
    sums = functional.binary_cross_entropy_with_logits(scores, target, reduction="sum") / student.shape[1]
    return sums.float(), float(student.shape[0])


def binary_kl(student: Tensor, teacher: Tensor, *, temperature: float = 1.0) -> tuple[Tensor, float]:
    """t² · 1/C · Σ_c KL(Bernoulli(σ(z_T/t)_c) ‖ Bernoulli(σ(z_S/t)_c)), summed over examples.

    `logits_kl` with two classes for each label; its t² keeps the gradient's size when t changes, its least value is 0,
    and at t = 1 its gradient is that of `soft_binary_cross_entropy`.

    Args, returns: As `soft_binary_cross_entropy`.
    """
    wanted, scores = teacher.detach().double() / temperature, student.double() / temperature
    present = torch.sigmoid(wanted) * (functional.logsigmoid(wanted) - functional.logsigmoid(scores))
    absent = torch.sigmoid(-wanted) * (functional.logsigmoid(-wanted) - functional.logsigmoid(-scores))
    sums = (present + absent).sum() * (temperature**2 / student.shape[1])
    return sums.float(), float(student.shape[0])
