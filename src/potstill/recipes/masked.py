"""Distilling a masked LM on plain text, as a program: DistilBERT's first half, and pre-training alone."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel

from potstill.data.batching import Batches
from potstill.data.masking import MaskRule, MaskVocabulary
from potstill.models.forward import forward_inputs
from potstill.models.masked_lm import word_logits
from potstill.models.precision import choose_attention
from potstill.models.tap import LayerStates
from potstill.pretraining import MaskedLM
from potstill.recipes.distilling import check_widths
from potstill.recipes.reading import Outputs, Sizes, Told, count_of, facts_of, tapped, values_of, weights_of
from potstill.storage import digest_array
from potstill.training.program import LossTerm, TermValue

__all__ = ["MaskedDistilling"]


class MaskedDistilling(MaskedLM):
    """A student masked LM under a teacher masked LM; both read the same masked windows.

    Args:
        student: Trained.
        teacher: Eval mode, no gradients; None where no term needs it.
        terms: On words at masked places, on the right words, on hidden states.
        projections: As for `Distilling`.
        batches: Windows of text.
        rule: Which tokens are chosen.
        vocabulary: Of the student's tokenizer.
        teacher_ids: int64 (V,), the teacher's id of each of the student's pieces; None where they are the same.

    Raises:
        ModelError: A term on hidden states of different widths without a projection.
    """

    def __init__(
        self,
        student: PreTrainedModel,
        teacher: PreTrainedModel | None,
        terms: Sequence[LossTerm],
        projections: nn.ModuleDict,
        batches: Batches,
        rule: MaskRule,
        vocabulary: MaskVocabulary,
        teacher_ids: np.ndarray | None = None,
    ) -> None:
        super().__init__(student, batches, rule, vocabulary)
        self.modules = {"student": student, "projections": projections}
        self.teacher, self.declared, self.projections, self.teacher_ids = (
            teacher,
            tuple(terms),
            projections,
            teacher_ids,
        )
        self.advance(0.0)
        self.taps: tuple[LayerStates, LayerStates] | None = None
        if any(term.layers for term in terms):
            assert teacher is not None
            check_widths(student, int(teacher.config.hidden_size), self.terms, projections)
            self.taps = tapped(student, self.terms, side=0), tapped(teacher, self.terms, side=1)

    def advance(self, progress: float) -> None:
        """As `Program.advance`: weights and temperatures that are ramps."""
        self.terms = tuple(term.at(progress) for term in self.declared)
        self.weights = weights_of(self.terms)

    def counts(self, rows: np.ndarray) -> dict[str, float]:
        """As `Program.counts`."""
        arrays, masked = self.masked(rows)
        lengths = arrays["attention_mask"].sum(axis=1)
        width = None if self.teacher is None else int(self.teacher.config.hidden_size)
        sizes = Sizes.of(lengths, np.full(len(rows), -1), self.model, width)
        sizes = replace(sizes, masked=float(masked.chosen.sum()))
        return {term.name: count_of(term, sizes) for term in self.terms}

    def step(self, rows: np.ndarray) -> dict[str, TermValue]:
        """As `Program.step`."""
        whole, masked = self.masked(rows)
        arrays = {**whole, "input_ids": masked.input_ids}
        target = None
        if self.teacher is not None:
            choose_attention(self.teacher, arrays["input_ids"].shape[1], backward=False)
            with torch.no_grad():
                target = self._scores(self.teacher, self._for_teacher(arrays), masked.chosen)
                target = target if self.teacher_ids is None else target[:, torch.from_numpy(self.teacher_ids)]
        choose_attention(self.model, arrays["input_ids"].shape[1], backward=True)
        logits = self._scores(self.model, arrays, masked.chosen)
        words = torch.from_numpy(whole["input_ids"][masked.chosen]).to(logits.device)
        mask = None if arrays["attention_mask"].all() else torch.from_numpy(arrays["attention_mask"]).to(logits.device)
        states, told = (None, ()) if self.taps is None else (self.taps[0], (Told(self.taps[1]),))
        outputs = Outputs(logits, target, words, mask, self.projections, states, told)
        return values_of(self.terms, outputs)

    def _for_teacher(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        if self.teacher_ids is None:
            return arrays
        return {**arrays, "input_ids": self.teacher_ids[arrays["input_ids"]]}

    @staticmethod
    def _scores(model: PreTrainedModel, arrays: dict[str, np.ndarray], chosen: np.ndarray) -> torch.Tensor:
        hidden = model.base_model(**forward_inputs(model, arrays))[0]
        return word_logits(model, hidden[torch.from_numpy(chosen).to(hidden.device)])

    def state(self) -> dict[str, Any]:
        """As `Program.state`."""
        ids = None if self.teacher_ids is None else digest_array(self.teacher_ids)
        return {**super().state(), "program": "masked-distilling", "terms": facts_of(self.declared), "teacher_ids": ids}

    def close(self) -> None:
        """Take the hooks off the models."""
        for states in self.taps or ():
            states.close()
