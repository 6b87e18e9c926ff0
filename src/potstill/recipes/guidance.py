"""The teacher's side of distilling, as a part that is passed in: what it says of a batch, however it comes by it.

A `Guide` may run a model, read what one said before, or hold a file of scores. The program that learns from it knows
no model and no tokenizer of the teacher's: everything is laid out on the student's tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from potstill.data.encoding import Encodings
from potstill.errors import ModelError
from potstill.models.anatomy import attention_width
from potstill.models.forward import forward_inputs
from potstill.models.precision import choose_attention
from potstill.models.tap import LayerStates
from potstill.recipes.reading import tapped
from potstill.storage import digest_array
from potstill.training.program import LossTerm

__all__ = ["Guidance", "Guide", "LiveGuide", "LogitsGuide"]


@dataclass(frozen=True)
class Guidance:
    """What the teacher's side says of a batch of B windows, L the longest of them in the student's tokens.

    Attributes:
        logits: Floating point (B, C); None where it has none to give, or no term reads them.
        states: By the teacher's layers, as the terms name them: hidden states (B, L, H), queries, keys and values
            (B, heads, L, head width), one place for each of the student's tokens; `scale` and `bias` of the scores.
            What stands at padded places, and where `Guide.heard` is false, means nothing. The reader clears them. None
            where no term reads states.
        texts: By layer, (B, H): the mean of the teacher's own tokens, where they are not the student's; None means that
            of `states`.
        more: What the teachers of `Guide.more` say, without their answers.
    """

    logits: Tensor | None
    states: LayerStates | None
    texts: Mapping[int, Tensor] | None = None
    more: tuple["Guidance", ...] = ()


class Guide(Protocol):
    """The teacher's side: those here, in `potstill.recipes.joined` and in `potstill.recipes.cached`."""

    @property
    def windows(self) -> int:
        """Of how many of the student's windows it can speak: rows are numbers below it."""

    @property
    def width(self) -> int | None:
        """Size of its hidden states; None where it has none, only logits."""

    @property
    def heads(self) -> int | None:
        """Its attention heads; None where it has no states."""

    @property
    def attention_width(self) -> int | None:
        """Width of all its heads' queries together; None where it has no states."""

    @property
    def more(self) -> tuple["Guide", ...]:
        """Further teachers whose states are learned too: those that terms number from 2 on."""

    def guidance(self, rows: np.ndarray) -> Guidance:
        """What it says of a batch, given by its row numbers, int64 (B,); without gradients."""

    def heard(self, rows: np.ndarray) -> np.ndarray | None:
        """Which of the student's tokens the states speak of: bool (B, L); None means all real ones."""

    def state(self) -> dict[str, Any]:
        """Facts that a checkpoint must agree with: JSON-able, such as digests of what is not in a model's weights."""

    def close(self) -> None:
        """Let go of models and files."""


class LogitsGuide:
    """Logits alone, known beforehand: another run's, a file of scores; there is no model.

    Args:
        logits: float32 (m, C), one row a window.
    """

    more: tuple[Guide, ...] = ()

    def __init__(self, logits: np.ndarray) -> None:
        self.logits = logits
        self.windows, self.width, self.heads, self.attention_width = len(logits), None, None, None

    def guidance(self, rows: np.ndarray) -> Guidance:
        """As `Guide.guidance`."""
        return Guidance(torch.from_numpy(self.logits[rows]), None)

    def heard(self, rows: np.ndarray) -> None:
        """As `Guide.heard`: there are no states."""

    def state(self) -> dict[str, Any]:
        """As `Guide.state`."""
        return {"logits": digest_array(self.logits)}

    def close(self) -> None:
        """As `Guide.close`."""


class LiveGuide:
    """A model run on every batch whose states or logits are asked for.

    Args:
        teacher: Eval mode, no gradients.
        terms: What is learned: they say what is tapped, and whether the model need be run at all.
        encodings: The student's windows; the teacher has the same tokenizer, or more pieces.
        logits: float32 (m, C), learned from in place of the model's own, one row a window; a row of NaN, or None, means
            the model's.
        teacher_ids: int64 (V,), the teacher's id of each of the student's pieces; None where they are the same.

    Raises:
        ModelError: Layers that the teacher does not have, or logits of other windows.
    """

    more: tuple[Guide, ...] = ()

    def __init__(
        self,
        teacher: PreTrainedModel,
        terms: Sequence[LossTerm],
        encodings: Encodings,
        *,
        logits: np.ndarray | None = None,
        teacher_ids: np.ndarray | None = None,
    ) -> None:
        if logits is not None and len(logits) != len(encodings):
            raise ModelError(f"{len(logits)} rows of the teacher's logits for {len(encodings)} windows")
        self.teacher, self.encodings, self.logits, self.teacher_ids = teacher, encodings, logits, teacher_ids
        self.windows = len(encodings)
        self.width, self.heads = int(teacher.config.hidden_size), int(teacher.config.num_attention_heads)
        self.attention_width = attention_width(teacher)
        self.needs_target = any(term.reads == "logits" for term in terms)
        self.states = tapped(teacher, terms, side=1) if any(term.layers for term in terms) else None

    def guidance(self, rows: np.ndarray) -> Guidance:
        """As `Guide.guidance`."""
        target, lacking = None, True
        if self.logits is not None:
            target = torch.from_numpy(self.logits[rows]).to(self.teacher.device)
            lacking = bool(target.isnan().any())
        if self.states is not None or (self.needs_target and lacking):
            arrays = self.encodings.batch(rows)
            choose_attention(self.teacher, arrays["input_ids"].shape[1], backward=False)
            if self.teacher_ids is not None:
                arrays["input_ids"] = self.teacher_ids[arrays["input_ids"]]
            with torch.no_grad():
                own = self.teacher(**forward_inputs(self.teacher, arrays)).logits
            target = own if target is None else torch.where(target.isnan(), own.float(), target)
        return Guidance(target, self.states)

    def heard(self, rows: np.ndarray) -> None:
        """As `Guide.heard`: the teacher reads the student's tokens."""

    def state(self) -> dict[str, Any]:
        """As `Guide.state`."""
        own = {"logits": None if self.logits is None else digest_array(self.logits)}
        return own if self.teacher_ids is None else {**own, "teacher_ids": digest_array(self.teacher_ids)}

    def close(self) -> None:
        """Take the hooks off the teacher."""
        if self.states is not None:
            self.states.close()
