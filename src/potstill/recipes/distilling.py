"""Distilling, as a program: a student under a guide, with whatever terms a method declares.

It holds encoded texts and the student; the loop holds the optimiser, the pipeline holds files. What a term reads, and
what its count is: `potstill.recipes.reading`. What the teacher says, and how: `potstill.recipes.guidance`.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel

from potstill.data.batching import Batches
from potstill.errors import ModelError
from potstill.losses import value_kl
from potstill.models.forward import forward_inputs
from potstill.models.precision import choose_attention
from potstill.models.tap import LayerStates
from potstill.recipes.guidance import Guidance, Guide
from potstill.recipes.reading import (
    Outputs,
    Sizes,
    Told,
    count_of,
    facts_of,
    needs_projection,
    shared_name,
    tapped,
    values_of,
    weights_of,
)
from potstill.training.program import LossTerm, TermValue

__all__ = ["Distilling", "check_widths", "projections_for"]


def projections_for(terms: Sequence[LossTerm], student_width: int, *teacher_widths: int, shared: bool) -> nn.ModuleDict:
    """Training-only maps D_s → D_t, at random: one for each term on hidden states, or one a teacher for all its terms.

    TinyBERT's paper has one for embeddings and one for hidden states, without bias; its code one shared, with bias.
    """
    widths = {
        shared_name(term) if shared else term.name: teacher_widths[term.teacher - 1]
        for term in terms
        if needs_projection(term)
    }
    return nn.ModuleDict({name: nn.Linear(student_width, width, bias=shared) for name, width in sorted(widths.items())})


class Distilling:
    """A student learns from a teacher's inner states and logits: terms are declared, not coded.

    Args:
        student: Trained.
        guide: The teacher's side.
        terms: Which losses, on what.
        projections: By `projections_for`; a term on hidden states without one compares them as they are.
        batches: The student's encodings.

    Raises:
        ModelError: A term on states under a guide without any, one on attention scores between models with different
            numbers of heads, one on hidden states of different widths without a projection, layers that the student
            does not have, or a guide to other windows.
    """

    def __init__(
        self,
        student: PreTrainedModel,
        guide: Guide,
        terms: Sequence[LossTerm],
        projections: nn.ModuleDict,
        batches: Batches,
    ) -> None:
        self.modules: dict[str, nn.Module] = {"student": student, "projections": projections}
        self.student, self.guide, self.declared, self.projections = student, guide, tuple(terms), projections
        self.advance(0.0)
        self.data = batches
        if guide.windows != len(batches.encodings):
            raise ModelError(f"a teacher's side of {guide.windows} windows for {len(batches.encodings)} windows")
        self.states: LayerStates | None = None
        if inner := [term.name for term in terms if term.layers]:
            for number, teacher in enumerate((guide, *guide.more), 1):
                if teacher.width is None:
                    raise ModelError(
                        f"the {inner[0]} loss under a teacher that gives logits alone",
                        expected="a model, whose inner states can be read",
                        fix="choose a method of logits and labels, such as distill.mode = logits",
                    )
                own = [term for term in self.terms if term.teacher == number]
                _check_heads(student, teacher, own)
                check_widths(student, teacher.width, own, projections)
            self.states = tapped(student, self.terms, side=0)

    def batches(self, epoch: int) -> Sequence[np.ndarray]:
        """As `Program.batches`."""
        return self.data.of_epoch(epoch)

    def advance(self, progress: float) -> None:
        """As `Program.advance`: weights and temperatures that are ramps."""
        self.terms = tuple(term.at(progress) for term in self.declared)
        self.weights = weights_of(self.terms)

    def size(self, rows: np.ndarray) -> float:
        """As `Program.size`."""
        return self.data.tokens(rows)

    def counts(self, rows: np.ndarray) -> dict[str, float]:
        """As `Program.counts`."""
        lengths, labels, sizes = self.data.encodings.lengths[rows], self.data.labels[rows], []
        for teacher in (self.guide, *self.guide.more):
            found = Sizes.of(lengths, labels, self.student, teacher.width, teacher.attention_width)
            if (heard := teacher.heard(rows)) is not None:
                found = replace(found, heard=float(heard.sum()))
            sizes.append(found)
        return {term.name: count_of(term, sizes[term.teacher - 1]) for term in self.terms}

    def step(self, rows: np.ndarray) -> dict[str, TermValue]:
        """As `Program.step`."""
        inputs = forward_inputs(self.student, self.data.encodings.batch(rows))
        theirs = self.guide.guidance(rows)
        choose_attention(self.student, inputs["input_ids"].shape[1], backward=True)
        logits = self.student(**inputs).logits
        labels = torch.from_numpy(self.data.labels[rows]).to(logits.device)
        target = None if theirs.logits is None else theirs.logits.to(logits.device)
        told = tuple(
            self._told(*each, rows, logits.device)
            for each in zip((self.guide, *self.guide.more), (theirs, *theirs.more), strict=True)
            if self.states is not None
        )
        mask = inputs.get("attention_mask")
        outputs = Outputs(logits, target, labels, mask, self.projections, self.states, told)
        return values_of(self.terms, outputs)

    @staticmethod
    def _told(guide: Guide, guidance: Guidance, rows: np.ndarray, device: torch.device) -> Told:
        assert guidance.states is not None
        own = guide.heard(rows)
        heard = None if own is None else torch.from_numpy(own).to(device)
        return Told(guidance.states, heard, guidance.texts)

    def describe(self, rows: np.ndarray) -> str:
        """As `Program.describe`."""
        return self.data.describe(rows)

    def state(self) -> dict[str, Any]:
        """As `Program.state`."""
        own = {"program": "distilling", "data": self.data.digest(), "terms": facts_of(self.declared)}
        return {**own, **self.guide.state()}

    def close(self) -> None:
        """Take the hooks off the models."""
        if self.states is not None:
            self.states.close()
        self.guide.close()


def _check_heads(student: PreTrainedModel, guide: Guide, terms: Sequence[LossTerm]) -> None:
    ours, theirs = student.config.num_attention_heads, guide.heads
    if ours != theirs and any(term.reads == "scores" or term.fn is value_kl for term in terms):
        raise ModelError(
            f"a student with {ours} attention heads under a teacher with {theirs}",
            expected="as many: the attention loss compares head with head",
            fix="set distill.weights.attention to 0, or choose distill.mode = minilm2, which needs no equal heads",
        )


def check_widths(student: PreTrainedModel, theirs: int, terms: Sequence[LossTerm], projections: nn.ModuleDict) -> None:
    """Raise `ModelError` where a term compares hidden states of different widths without a projection."""
    ours = int(student.config.hidden_size)
    bare = [
        term.name for term in terms if needs_projection(term) and not {shared_name(term), term.name} & set(projections)
    ]
    if ours != theirs and bare:
        raise ModelError(
            f"the {bare[0]} loss between hidden states {ours} and {theirs} wide, without a projection",
            expected="equal widths",
            fix="set distill.projection to each",
        )
