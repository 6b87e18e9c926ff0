"""What a cut lost, fitted again in closed form: LayerNorm's gains, linear maps before a norm, a classifier head.

Regressions on what the student itself computes at the place; knows no cut and no loss.
"""

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from potstill.errors import ModelError
from potstill.models.record import Calibration, inputs_of, record

__all__ = ["fit_head", "fit_norm", "refit_linear"]

ROUNDS = 1
"""How often a linear map and its norm are fitted by turns."""


def _normalised(norm: nn.LayerNorm, before: Tensor) -> tuple[Tensor, Tensor]:
    mean = before.mean(dim=1, keepdim=True)
    deviation = (before.var(dim=1, unbiased=False, keepdim=True) + norm.eps).sqrt()
    return (before - mean) / deviation, deviation


def _fit_gain(norm: nn.LayerNorm, before: Tensor, wanted: Tensor) -> None:
    """Gain and offset of each coordinate by least squares of `wanted` on the normalised input."""
    normal, _ = _normalised(norm, before)
    centre, aim = normal.mean(dim=0), wanted.mean(dim=0)
    spread = (normal - centre).square().mean(dim=0).clamp_min(1e-8)
    gain = ((normal - centre) * (wanted - aim)).mean(dim=0) / spread
    norm.weight.copy_(gain)
    norm.bias.copy_(aim - gain * centre)


def fit_norm(student: PreTrainedModel, norm: nn.LayerNorm, inputs: Calibration, wanted: Tensor) -> None:
    """Gain and offset of a norm, so that its output is near `wanted` (rows, H_s)."""
    before = record(student, inputs, [inputs_of(norm)])[inputs_of(norm)]
    _fit_gain(norm, before, wanted)


def refit_linear(
    student: PreTrainedModel, linear: nn.Linear, norm: nn.LayerNorm, inputs: Calibration, wanted: Tensor, *, refit: bool
) -> None:
    """Fit `norm`; with `refit`, `linear` too, so that norm(residual + linear(x)) is near `wanted` (rows, H_s).

    The wanted output is undone through LayerNorm with each token's present deviation, which makes the fit linear; a
    ridge towards the present weights keeps what the data do not say.
    """
    norm.weight.fill_(1.0)
    norm.bias.zero_()
    seen = record(student, inputs, [inputs_of(norm), inputs_of(linear)])
    before, features = seen[inputs_of(norm)], seen[inputs_of(linear)]
    _fit_gain(norm, before, wanted)
    if not refit:
        return
    for _ in range(ROUNDS):
        _, deviation = _normalised(norm, before)
        gain = torch.where(norm.weight.abs() < 1e-2, torch.full_like(norm.weight, 1e-2), norm.weight)
        missing = (wanted - norm.bias) / gain * deviation + before.mean(dim=1, keepdim=True) - before
        # A token counts by the gain over its deviation: the error that its residual makes after the norm.
        weight = 1.0 / deviation
        change = _ridge(_with_ones(features) * weight, missing * weight)
        linear.weight.add_(change[:-1].T)
        linear.bias.add_(change[-1])
        before = before + _with_ones(features) @ change
        _fit_gain(norm, before, wanted)


def _with_ones(features: Tensor) -> Tensor:
    return torch.cat([features, torch.ones(len(features), 1)], dim=1)


def _ridge(features: Tensor, wanted: Tensor, strength: float = 1e-2) -> Tensor:
    """argmin_W ‖features·W − wanted‖² + λ‖W‖², λ = strength × mean feature energy. float64 inside."""
    moment = (features.T @ features).double()
    moment += torch.eye(len(moment), dtype=torch.float64) * moment.diagonal().mean() * strength
    solution: Tensor = torch.cholesky_solve((features.T @ wanted).double(), torch.linalg.cholesky(moment))
    return solution.float()


def _head_linears(model: PreTrainedModel) -> tuple[nn.Linear, nn.Linear]:
    """The tanh layer on [CLS] and the layer that gives the logits."""
    head = getattr(model, "classifier", None)
    pooler = getattr(model.base_model, "pooler", None)
    if isinstance(head, nn.Linear):
        inner = pooler.dense if pooler is not None else getattr(model, "pre_classifier", None)
        if isinstance(inner, nn.Linear):
            return inner, head
    elif head is not None and hasattr(head, "dense") and hasattr(head, "out_proj"):
        return head.dense, head.out_proj
    raise ModelError(f"a {type(model).__name__}", expected="a classifier of two linear layers on [CLS]")


def fit_head(
    student: PreTrainedModel, teacher: PreTrainedModel, logits: Tensor, inputs: Calibration, basis: Tensor
) -> None:
    """Inner units kept by variance × norm of what they write, then the logits by ridge regression on the teacher's.

    Args:
        student: Its head is changed.
        teacher: Whose head is cut.
        logits: (texts, C), the teacher's on `inputs`.
        inputs: Calibration batches.
        basis: (H_t, H_s).

    Raises:
        ModelError: A head that is not two linear layers on [CLS].
    """
    inner_t, outer_t = _head_linears(teacher)
    inner_s, outer_s = _head_linears(student)
    units = record(teacher, inputs, [inputs_of(outer_t)])[inputs_of(outer_t)]
    worth = units.var(dim=0) * outer_t.weight.float().square().sum(dim=0)
    kept = torch.argsort(worth, descending=True, stable=True)[: inner_s.out_features].sort().values
    inner_s.weight.copy_(inner_t.weight.float()[kept] @ basis)
    inner_s.bias.copy_(inner_t.bias.float()[kept])
    own = record(student, inputs, [inputs_of(outer_s)])[inputs_of(outer_s)]
    features = _with_ones(own)
    present = torch.cat([outer_t.weight.float()[:, kept], outer_t.bias.float()[:, None]], dim=1).T
    solution = present + _ridge(features, logits - features @ present)
    outer_s.weight.copy_(solution[:-1].T)
    outer_s.bias.copy_(solution[-1])
