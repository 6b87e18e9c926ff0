"""A guide that reads what the teacher said before: `potstill.models.teacher_cache`, laid out as terms want it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from potstill import losses
from potstill.errors import ModelError
from potstill.models.anatomy import attention_width
from potstill.models.tap import LayerStates, tap
from potstill.models.teacher_cache import LOGITS, TeacherCache, state_field
from potstill.recipes.guidance import Guidance, Guide
from potstill.recipes.reading import wanted_states
from potstill.recipes.terms import Term
from potstill.storage import digest_array
from potstill.training.program import LossTerm

__all__ = ["CachedGuide", "fields_of", "padding_read"]

_OVER_PADDING = (losses.hidden_mse_reference, losses.attention_mse_reference)


def padding_read(terms: Sequence[LossTerm | Term]) -> str | None:
    """The first term that averages over the states of padding too, which no cache keeps; None where none does."""
    return next((term.name for term in terms if term.fn in _OVER_PADDING), None)


def fields_of(terms: Sequence[LossTerm], *, biased: bool, logits: bool = True) -> list[str]:
    """What of the teacher's the terms read, by the names of `potstill.models.teacher_cache`.

    Args:
        terms: What is learned.
        biased: Whether the teacher's scores have a bias of their own.
        logits: Whether its logits are wanted; False where others stand for them.
    """
    wanted = {want: layers for want, layers in wanted_states(terms, 1).items() if biased or want != "bias"}
    fields = [state_field(want, layer) for want, layers in wanted.items() for layer in layers]
    if logits and any(term.reads == "logits" for term in terms):
        fields.insert(0, LOGITS)
    return fields


class CachedGuide:
    """A teacher's logits and states from its cache; the model is not run.

    Args:
        teacher: For its width, heads and scale alone.
        cache: Filled, over the student's windows.
        logits: As in `potstill.recipes.guidance.LiveGuide`; the cache has logits where rows of these are NaN.

    Raises:
        ModelError: Logits of other windows.
    """

    more: tuple[Guide, ...] = ()

    def __init__(self, teacher: PreTrainedModel, cache: TeacherCache, logits: np.ndarray | None = None) -> None:
        self.cache, self.device = cache, teacher.device
        self.windows = len(cache.encodings)
        if logits is not None and len(logits) != self.windows:
            raise ModelError(f"{len(logits)} rows of the teacher's logits for {self.windows} windows")
        self.logits = cache.logits if logits is None else logits
        if logits is not None and cache.logits is not None:
            self.logits = np.where(np.isnan(logits), cache.logits, logits)
        self._given = logits
        self.width, self.heads = int(teacher.config.hidden_size), int(teacher.config.num_attention_heads)
        self.attention_width = attention_width(teacher)
        plain = tap(teacher, [], [])
        for field in cache.states:
            want, _, layer = field.partition("-")
            plain.extend(teacher, [int(layer)], [want])  # type: ignore[list-item]
        plain.close()
        self._scale, self._biased, self._windows = plain.scale, plain.biased, plain.windows

    def guidance(self, rows: np.ndarray) -> Guidance:
        """As `Guide.guidance`."""
        target = None if self.logits is None else torch.from_numpy(self.logits[rows]).to(self.device)
        if not self.cache.states:
            return Guidance(target, None)
        states = LayerStates(self.heads, self._scale, biased=self._biased)
        states.windows = self._windows
        for field, tensor in self.cache.read(rows).items():
            want, _, layer = field.partition("-")
            found = tensor.to(self.device)
            if want != "hidden":
                found = found.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            getattr(states, want)[int(layer)] = found
        length = int(self.cache.encodings.lengths[rows].max())
        for number, bias in self.cache.bias.items():
            states.bias[number] = bias[..., :length, :length].to(self.device)
        return Guidance(target, states)

    def heard(self, rows: np.ndarray) -> None:
        """As `Guide.heard`: the teacher reads the student's tokens."""

    def state(self) -> dict[str, Any]:
        """As `Guide.state`."""
        given = None if self._given is None else digest_array(self._given)
        return {"logits": given, "cache": self.cache.facts()}

    def close(self) -> None:
        """Close the files."""
        self.cache.close()
