"""What the training loop runs: named modules, batches, and a step that gives sums of losses.

Fine-tuning, distilling and masked-LM training are programs. A program knows no optimiser and no schedule.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from torch import Tensor, nn

__all__ = ["LossTerm", "Program", "Ramp", "TermValue", "Value", "value_at"]


@dataclass(frozen=True)
class Ramp:
    """A value that moves in equal steps over a training.

    Attributes:
        start: At the first update.
        end: At the last.
    """

    start: float
    end: float

    def __str__(self) -> str:
        return f"{self.start:g} → {self.end:g}"


Value = float | Ramp
"""A weight or a temperature: one number all along, or a ramp."""


def value_at(value: Value, progress: float) -> float:
    """The value when `progress` (0 to 1) of a training's updates are made."""
    if isinstance(value, Ramp):
        return value.start + (value.end - value.start) * progress
    return value


@dataclass(frozen=True)
class LossTerm:
    """One term of a loss: weight · Σ sum / Σ count.

    Attributes:
        name: Shown in curves: `embedding`, `hidden`, `attention`, `logits`, `hard`.
        fn: A function of `potstill.losses`, → (sum, count).
        layers: Pairs (student layer, teacher layer), 0 being the embedding output; empty for losses on logits. The
            term is the *sum* over the pairs, each averaged by its own count.
        weight: What multiplies the term; over a training where it is a ramp.
        temperature: For soft targets; 1.0 elsewhere. The same.
        reads: What it is applied to; programs know what that means.
        teacher: Which teacher's states it compares, where there are several; from 1.
    """

    name: str
    fn: Callable[..., tuple[Tensor, float]]
    layers: tuple[tuple[int, int], ...] = ()
    weight: Value = 1.0
    temperature: Value = 1.0
    reads: str = ""
    teacher: int = 1

    def at(self, progress: float) -> "LossTerm":
        """The term as it is when `progress` (0 to 1) of the updates are made."""
        weight, temperature = value_at(self.weight, progress), value_at(self.temperature, progress)
        return replace(self, weight=weight, temperature=temperature)


@dataclass(frozen=True)
class TermValue:
    """A term's sum on one micro-batch, on the graph, and the count that goes with it."""

    sum: Tensor
    count: float


class Program(Protocol):
    """See `potstill.recipes` and `potstill.pretraining` for those there are."""

    @property
    def modules(self) -> Mapping[str, nn.Module]:
        """What is trained, by name; saved under these names in checkpoints."""

    @property
    def weights(self) -> Mapping[str, float]:
        """Term name → weight, at present."""

    def advance(self, progress: float) -> None:
        """Told before each update what share of the updates is behind it, 0 at the first to 1 at the last."""

    def batches(self, epoch: int) -> Sequence[np.ndarray]:
        """The micro-batches of an epoch in their order, arrays of row numbers; depends on nothing but `epoch`."""

    def size(self, rows: np.ndarray) -> float:
        """What the time of a step on the batch grows with: its tokens, padding included."""

    def step(self, rows: np.ndarray) -> dict[str, TermValue]:
        """Forward pass on one micro-batch."""

    def counts(self, rows: np.ndarray) -> dict[str, float]:
        """The counts that `step` will give, without running it: accumulation needs their total first."""

    def describe(self, rows: np.ndarray) -> str:
        """Names the batch for an error message (example ids)."""

    def state(self) -> dict[str, Any]:
        """Facts that a checkpoint must agree with (data digest, batch size …)."""
