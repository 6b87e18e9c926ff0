"""Linear layers of a model that is only read, laid out for the processor once in place of at every call."""

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from potstill.models.precision import Precision, held

__all__ = ["packed", "read_only"]


class _PackedLinear(nn.Linear):
    """y = xWᵀ + b by oneDNN, W in the blocks that its kernel wants.

    On weights as torch holds them the kernel has to make those blocks anew at each call, which costs as much as the
    product of a short batch. `weight` stays what it was: only its values at the time of packing are multiplied by.
    """

    blocks: Tensor

    def forward(self, input: Tensor) -> Tensor:
        """As nn.Linear's, without gradients."""
        product: Tensor = torch.ops.mkldnn._linear_pointwise(input, self.blocks, self.bias, "none", [], "")
        return product


def packed(model: PreTrainedModel) -> PreTrainedModel:
    """The model, in place, without gradients, its linear layers packed where that is possible: bfloat16 on a CPU.

    They give the same values, from then on those of the weights as they are now.
    """
    model.requires_grad_(requires_grad=False)
    if model.device.type == "cpu" and torch.backends.mkldnn.is_available():
        for module in model.modules():
            if type(module) is nn.Linear and module.weight.dtype == torch.bfloat16:
                blocks = torch.ops.mkldnn._reorder_linear_weight(module.weight.detach(), None)
                module.__class__ = _PackedLinear
                module.blocks = blocks
    return model


def read_only(model: PreTrainedModel, precision: Precision) -> PreTrainedModel:
    """The model, in place, held as `precision` says and `packed`."""
    return packed(held(model, precision))
