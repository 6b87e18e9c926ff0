"""Dropout whose random numbers cost little: on a processor, drawing them takes longer than anything else in dropout.

Sixteen bits decide about a number, four numbers to a draw of the generator, in place of one draw each.
"""

from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["FastDropout", "fast_dropout", "set_dropout"]

_LEVELS = 1 << 15
_BITS = {2: torch.int16, 4: torch.int32}


def fast_dropout(values: Tensor, p: float) -> Tensor:
    """Zeroes numbers with probability p and scales the others by 1/(1 − p), as torch's dropout, from other draws.

    p is rounded to a multiple of 2⁻¹⁵, and the scale with it. The draws come from torch's default generator. On other
    devices than the processor, and in other formats than those of 16 and 32 bits, it is torch's own.
    """
    level = round(p * _LEVELS)
    if level == 0 or level >= _LEVELS or values.device.type != "cpu" or values.element_size() not in _BITS:
        return nn.functional.dropout(values, p)
    draws = torch.empty(-(-values.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    drawn = draws.view(torch.int16)[: values.numel()].view(values.shape)
    # A number is kept where its draw, −2¹⁴ to 2¹⁴ − 1 once halved, is not below the level: its sign is then 0.
    kept = (drawn >> 1).sub_(level - _LEVELS // 2).bitwise_right_shift_(15).bitwise_not_()
    dropped: Tensor = _Drop.apply(values, kept, _LEVELS / (_LEVELS - level))  # type: ignore[no-untyped-call]
    return dropped


class FastDropout(nn.Dropout):
    """`fast_dropout` as a module."""

    def forward(self, input: Tensor) -> Tensor:
        """As `nn.Dropout.forward`."""
        return fast_dropout(input, self.p) if self.training else input


class _Drop(torch.autograd.Function):
    """`kept` is int16, all bits set or none: to keep bits is many times faster than to fill by a mask of bools."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, kept: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(kept)
        ctx.scale = scale
        return _scaled(values, kept, scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (kept,) = ctx.saved_tensors
        return _scaled(gradients[0], kept, ctx.scale), None, None


def _scaled(values: Tensor, kept: Tensor, scale: float) -> Tensor:
    bits = _BITS[values.element_size()]
    return values.contiguous().view(bits).bitwise_and(kept.to(bits)).view(values.dtype).mul_(scale)


def set_dropout(model: nn.Module, *, on: bool) -> None:
    """Leave the model's rates of dropout as they are, drawn fast; or take dropout off."""
    for module in model.modules():
        if not on and isinstance(getattr(module, "attention_dropout", None), float):
            vars(module)["attention_dropout"] = 0.0  # a rate handed to the attention kernel: ModernBERT's has no module
        for name, child in module.named_children():
            if isinstance(child, nn.Dropout):
                setattr(module, name, FastDropout(child.p if on else 0.0))
