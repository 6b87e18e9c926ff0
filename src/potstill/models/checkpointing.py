"""Gradient checkpointing: of each layer only the input is kept, and the layer is run again in the backward pass.

Chen et al. 2016, arXiv 1604.06174. On the layers themselves, so that it serves every architecture in
`potstill.models.anatomy`, those too for which `transformers` has no switch (MPNet).
"""

import functools

from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from potstill.models.anatomy import ANATOMIES, encoder_parts

__all__ = ["set_checkpointing"]


def set_checkpointing(model: PreTrainedModel, *, on: bool) -> None:
    """Whether training keeps no states inside the model's layers; gradients and dropout are the same either way.

    Costs about a third more time, and saves most of the memory of long inputs.

    Raises:
        ModelError: It is asked of an architecture whose layers are not known.
    """
    if not on and model.config.model_type not in ANATOMIES:
        return  # it never was
    for part in encoder_parts(model).layers:
        vars(part.layer).pop("forward", None)
        if on:
            part.layer.forward = functools.partial(checkpoint, part.layer.forward, use_reentrant=False)
