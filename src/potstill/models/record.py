"""What chosen modules of a model received or gave over a set of batches, one row a token (or a text)."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel

__all__ = ["Calibration", "Recording", "Spot", "inputs_of", "output_of", "record"]


@dataclass(frozen=True)
class Calibration:
    """Texts that a model is measured on.

    Attributes:
        batches: Keyword arguments of the model's forward, texts of one length each (no padding).
        dtype: What matrix products are computed in, whatever a model is held in.
    """

    batches: Sequence[dict[str, Tensor]]
    dtype: torch.dtype = torch.float32


class Spot(NamedTuple):
    """A module's input or output, at its call number `call` (from 0) in a forward pass."""

    module: nn.Module
    is_input: bool
    call: int = 0


Recording = dict[Spot, Tensor]
"""Spot → float32 (rows, width), batches and tokens flattened in order."""


def inputs_of(module: nn.Module, call: int = 0) -> Spot:
    """The first positional input of a module."""
    return Spot(module, True, call)


def output_of(module: nn.Module, call: int = 0) -> Spot:
    """The output of a module; of a model with a head, its logits."""
    return Spot(module, False, call)


class _Enough(Exception):
    """Every spot of the batch was seen: the rest of the forward pass is not needed."""


class _Batch:
    """Counts the spots seen in one forward pass, and the calls of each."""

    def __init__(self, spots: int) -> None:
        self.spots = self.missing = spots
        self.calls: dict[Spot, int] = {}

    def start(self) -> None:
        self.missing = self.spots
        self.calls.clear()

    def seen(self, spot: Spot, parts: list[Tensor], tensor: Tensor) -> None:
        number = self.calls.get(spot, 0)
        self.calls[spot] = number + 1
        if number != spot.call:
            return
        parts.append(tensor.detach().flatten(0, -2))
        self.missing -= 1
        if self.missing == 0:
            raise _Enough


@torch.no_grad()
def record(model: PreTrainedModel, inputs: Calibration, spots: Sequence[Spot]) -> Recording:
    """Run the batches, each as far as the last spot, and keep what passes; the model is in eval mode meanwhile."""
    kept: dict[Spot, list[Tensor]] = {spot: [] for spot in spots}
    batch = _Batch(len(kept))
    handles = [_watch(spot, parts, batch) for spot, parts in kept.items()]
    was_training = model.training
    lower = inputs.dtype != torch.float32
    try:
        model.eval()
        with torch.autocast(model.device.type, dtype=inputs.dtype if lower else None, enabled=lower):
            for given in inputs.batches:
                batch.start()
                with contextlib.suppress(_Enough):
                    model(**given)
    finally:
        model.train(was_training)
        for handle in handles:
            handle.remove()
    return {spot: torch.cat(parts).float() for spot, parts in kept.items()}


def _watch(spot: Spot, parts: list[Tensor], batch: _Batch) -> RemovableHandle:
    def before(_module: nn.Module, args: tuple[Any, ...]) -> None:
        batch.seen(spot, parts, args[0])

    def after(_module: nn.Module, _args: tuple[Any, ...], output: Any) -> None:
        tensor = output if isinstance(output, Tensor) else output.logits if hasattr(output, "logits") else output[0]
        batch.seen(spot, parts, tensor)

    if spot.is_input:
        return spot.module.register_forward_pre_hook(before)
    return spot.module.register_forward_hook(after)
