"""What a cut lost, fitted again in closed form: LayerNorm's gains, linear maps before a norm, a classifier head.

Regressions on what the student itself computes at the place; knows no cut and no loss.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from potstill.errors import ModelError
from potstill.models.record import Calibration, Spot, inputs_of, record

__all__ = ["fit_gain", "fit_head", "fit_norm", "refit_linear", "refit_residual"]

ROUNDS = 1
"""How often a linear map and its norm are fitted by turns."""


def _normalised(norm: nn.LayerNorm, before: Tensor) -> tuple[Tensor, Tensor]:
    mean = before.mean(dim=1, keepdim=True)
    deviation = (before.var(dim=1, unbiased=False, keepdim=True) + norm.eps).sqrt()
    return (before - mean) / deviation, deviation


def fit_gain(norm: nn.LayerNorm, before: Tensor, wanted: Tensor) -> None:
    """Gain and offset (where the norm has one) of each coordinate, by least squares of `wanted` on the normal input."""
    normal, _ = _normalised(norm, before)
    if getattr(norm, "bias", None) is None:
        norm.weight.copy_((normal * wanted).mean(dim=0) / normal.square().mean(dim=0).clamp_min(1e-8))
        return
    centre, aim = normal.mean(dim=0), wanted.mean(dim=0)
    spread = (normal - centre).square().mean(dim=0).clamp_min(1e-8)
    gain = ((normal - centre) * (wanted - aim)).mean(dim=0) / spread
    norm.weight.copy_(gain)
    norm.bias.copy_(aim - gain * centre)


def fit_norm(student: PreTrainedModel, norm: nn.LayerNorm, inputs: Calibration, wanted: Tensor) -> None:
    """Gain and offset of a norm, so that its output is near `wanted` (rows, H_s)."""
    before = record(student, inputs, [inputs_of(norm)])[inputs_of(norm)]
    fit_gain(norm, before, wanted)


def refit_linear(
    student: PreTrainedModel,
    linear: nn.Linear,
    norm: nn.LayerNorm,
    inputs: Calibration,
    wanted: Tensor,
    *,
    refit: bool,
    calls: Sequence[int] = (0,),
) -> None:
    """Fit `norm`; with `refit`, `linear` too, so that norm(residual + linear(x)) is near `wanted` (rows, H_s).

    The wanted output is undone through LayerNorm with each token's present deviation, which makes the fit linear; a
    ridge towards the present weights keeps what the data do not say. `calls`: which calls of the two in a forward pass
    the rows of `wanted` are for, one after the other (a layer that stands for several is fitted to them all).
    """
    before, features = _seen(student, inputs, [[inputs_of(part, call) for call in calls] for part in (norm, linear)])
    fit_gain(norm, before, wanted)
    if not refit:
        return
    for _ in range(ROUNDS):
        _, deviation = _normalised(norm, before)
        gain = torch.where(norm.weight.abs() < 1e-2, torch.full_like(norm.weight, 1e-2), norm.weight)
        missing = (wanted - norm.bias) / gain * deviation + before.mean(dim=1, keepdim=True) - before
        # A token counts by the gain over its deviation: the error that its residual makes after the norm.
        before = before + _change(linear, features, missing, 1.0 / deviation)
        fit_gain(norm, before, wanted)


def refit_residual(
    student: PreTrainedModel, linear: nn.Linear, stream: Spot, inputs: Calibration, wanted: Tensor
) -> None:
    """Fit `linear`, so that the stream that it is added to is near `wanted` (rows, H_s): before norms, not after.

    A token counts by one over the deviation of its stream, for norms divide by that before anything reads it.
    """
    before, features = _seen(student, inputs, [[stream], [inputs_of(linear)]])
    deviation = wanted.var(dim=1, unbiased=False, keepdim=True).sqrt().clamp_min(1e-6)
    _change(linear, features, wanted - before, 1.0 / deviation)


def _seen(student: PreTrainedModel, inputs: Calibration, groups: Sequence[Sequence[Spot]]) -> list[Tensor]:
    found = record(student, inputs, [spot for spots in groups for spot in spots])
    return [torch.cat([found[spot] for spot in spots]) for spots in groups]


def _change(linear: nn.Linear, features: Tensor, missing: Tensor, weight: Tensor) -> Tensor:
    """Add to a layer the ridge regression of what is missing; returns what its output changes by."""
    if getattr(linear, "bias", None) is None:
        change = _ridge(features * weight, missing * weight)
        linear.weight.add_(change.T)
        return features @ change
    change = _ridge(_with_ones(features) * weight, missing * weight)
    linear.weight.add_(change[:-1].T)
    linear.bias.add_(change[-1])
    return _with_ones(features) @ change


def _with_ones(features: Tensor) -> Tensor:
    return torch.cat([features, torch.ones(len(features), 1)], dim=1)


def _ridge(features: Tensor, wanted: Tensor, strength: float = 1e-2) -> Tensor:
    """argmin_W ‖features·W − wanted‖² + λ‖W‖², λ = strength × mean feature energy. float64 inside."""
    moment = (features.T @ features).double()
    moment += torch.eye(len(moment), dtype=torch.float64) * moment.diagonal().mean() * strength
    solution: Tensor = torch.cholesky_solve((features.T @ wanted).double(), torch.linalg.cholesky(moment))
    return solution.float()


def _head_parts(model: PreTrainedModel) -> tuple[nn.Linear, nn.LayerNorm | None, nn.Linear]:
    """The layer on the text's vector, the norm behind it (ModernBERT), and the layer that gives the logits."""
    head = getattr(model, "classifier", None)
    if isinstance(head, nn.Linear):
        for root, name in ((model, "pre_classifier"), (model, "head"), (model, "pooler"), (model.base_model, "pooler")):
            inner = getattr(root, name, None)
            dense = getattr(inner, "dense", inner)
            if isinstance(dense, nn.Linear):
                return dense, getattr(inner, "norm", None), head
    elif head is not None and hasattr(head, "dense") and hasattr(head, "out_proj"):
        return head.dense, None, head.out_proj
    raise ModelError(f"a {type(model).__name__}", expected="a classifier of two linear layers on a vector of the text")


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
        ModelError: A head that is not two linear layers on a vector of the text.
    """
    inner_t, norm_t, outer_t = _head_parts(teacher)
    inner_s, norm_s, outer_s = _head_parts(student)
    units = record(teacher, inputs, [inputs_of(outer_t)])[inputs_of(outer_t)]
    worth = units.var(dim=0) * outer_t.weight.float().square().sum(dim=0)
    kept = torch.argsort(worth, descending=True, stable=True)[: inner_s.out_features].sort().values
    inner_s.weight.copy_(inner_t.weight.float()[kept] @ basis)
    if inner_s.bias is not None:
        inner_s.bias.copy_(inner_t.bias.float()[kept])
    if norm_s is not None and norm_t is not None:
        norm_s.weight.copy_(norm_t.weight.float()[kept])
        if norm_s.bias is not None:
            norm_s.bias.copy_(norm_t.bias.float()[kept])
    own = record(student, inputs, [inputs_of(outer_s)])[inputs_of(outer_s)]
    features = _with_ones(own)
    present = torch.cat([outer_t.weight.float()[:, kept], outer_t.bias.float()[:, None]], dim=1).T
    solution = present + _ridge(features, logits - features @ present)
    outer_s.weight.copy_(solution[:-1].T)
    outer_s.bias.copy_(solution[-1])
