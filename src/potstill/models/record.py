"""What chosen modules of a model received or gave over a set of batches, one row a token (or a text)."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

__all__ = ["Recording", "Spot", "inputs_of", "output_of", "record"]


class Spot(NamedTuple):
    """A module's input or output."""

    module: nn.Module
    is_input: bool


Recording = dict[Spot, Tensor]
"""Spot → float32 (rows, width), batches and tokens flattened in order."""


def inputs_of(module: nn.Module) -> Spot:
    """The first positional input of a module."""
    return Spot(module, True)


def output_of(module: nn.Module) -> Spot:
    """The output of a module; of a model with a head, its logits."""
    return Spot(module, False)


@torch.no_grad()
def record(model: PreTrainedModel, inputs: Sequence[dict[str, Tensor]], spots: Sequence[Spot]) -> Recording:
    """Run the batches and keep what passes the spots; the model is in eval mode meanwhile."""
    kept: dict[Spot, list[Tensor]] = {spot: [] for spot in spots}
    handles: list[Any] = []
    for spot in kept:
        if spot.is_input:
            handles.append(spot.module.register_forward_pre_hook(_before(kept[spot])))
        else:
            handles.append(spot.module.register_forward_hook(_after(kept[spot])))
    was_training = model.training
    try:
        model.eval()
        for batch in inputs:
            model(**batch)
    finally:
        model.train(was_training)
        for handle in handles:
            handle.remove()
    return {spot: torch.cat(parts).float() for spot, parts in kept.items()}


def _before(parts: list[Tensor]) -> Any:
    def hook(_module: nn.Module, args: tuple[Any, ...]) -> None:
        parts.append(args[0].detach().flatten(0, -2))

    return hook


def _after(parts: list[Tensor]) -> Any:
    def hook(_module: nn.Module, _args: tuple[Any, ...], output: Any) -> None:
        tensor = output if isinstance(output, Tensor) else output.logits if hasattr(output, "logits") else output[0]
        parts.append(tensor.detach().flatten(0, -2))

    return hook
