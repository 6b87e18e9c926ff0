"""Dropout whose random numbers cost little: on a processor, drawing them takes longer than anything else in dropout.

Sixteen bits decide about a number, four numbers to a draw of the generator, in place of one draw each.
"""

from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["FastDropout", "fast_dropout", "set_dropout"]

_LEVELS = 1 << 16


def fast_dropout(values: Tensor, p: float) -> Tensor:
    """Zeroes numbers with probability p and scales the others by 1/(1 − p), as torch's dropout, from other draws.

    p is rounded to a multiple of 2⁻¹⁶, and the scale with it. The draws come from torch's default generator. On other
    devices than the processor it is torch's own.
    """
    level = round(p * _LEVELS)
    if level == 0 or level >= _LEVELS or values.device.type != "cpu":
        return nn.functional.dropout(values, p)
    draws = torch.empty(-(-values.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    dropped = draws.view(torch.int16)[: values.numel()].view(values.shape) < level - _LEVELS // 2
    kept: Tensor = _Drop.apply(values, dropped, _LEVELS / (_LEVELS - level))  # type: ignore[no-untyped-call]
    return kept


class FastDropout(nn.Dropout):
    """`fast_dropout` as a module."""

    def forward(self, input: Tensor) -> Tensor:
        """As `nn.Dropout.forward`."""
        return fast_dropout(input, self.p) if self.training else input


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, dropped: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(dropped)
        ctx.scale = scale
        return values.masked_fill(dropped, 0.0).mul_(scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (dropped,) = ctx.saved_tensors
        return gradients[0].masked_fill(dropped, 0.0).mul_(ctx.scale), None, None


def set_dropout(model: nn.Module, *, on: bool) -> None:
    """Leave the model's rates of dropout as they are, drawn fast; or take dropout off."""
    for module in model.modules():
        if not on and isinstance(getattr(module, "attention_dropout", None), float):
            vars(module)["attention_dropout"] = 0.0  # a rate handed to the attention kernel: ModernBERT's has no module
        for name, child in module.named_children():
            if isinstance(child, nn.Dropout):
                setattr(module, name, FastDropout(child.p if on else 0.0))
