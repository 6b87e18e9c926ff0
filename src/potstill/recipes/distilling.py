"""Distilling, as a program: a student under a teacher, with whatever terms a method declares.

It holds encoded texts and models; the loop holds the optimiser, the pipeline holds files. What a term reads, and what
its count is: `potstill.recipes.reading`.
"""

from collections.abc import Sequence
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
from potstill.models.tap import LayerStates, tap
from potstill.recipes.reading import Outputs, Sizes, count_of, facts_of, needs_projection, values_of, wanted_states
from potstill.storage import digest_array
from potstill.training.program import LossTerm, TermValue

__all__ = ["Distilling", "check_widths", "projections_for", "tapped"]


def projections_for(
    terms: Sequence[LossTerm], student_width: int, teacher_width: int, *, shared: bool
) -> nn.ModuleDict:
    """Training-only maps D_s → D_t, at random: one for each term on hidden states, or one shared by all.

    TinyBERT's paper has one for embeddings and one for hidden states, without bias; its code one shared, with bias.
    """
    names = {"all" if shared else term.name for term in terms if needs_projection(term)}
    return nn.ModuleDict({name: nn.Linear(student_width, teacher_width, bias=shared) for name in sorted(names)})


class Distilling:
    """A student learns from a teacher's inner states and logits: terms are declared, not coded.

    Args:
        student: Trained.
        teacher: Eval mode, no gradients. Run on every batch that needs its states; None where `logits` says everything.
        terms: Which losses, on what.
        projections: By `projections_for`; a term on hidden states without one compares them as they are.
        batches: The student's encodings; the teacher has the same tokenizer, or more pieces.
        logits: float32 (m, C), the teacher's, one row a window; None where the teacher is run.
        teacher_ids: int64 (V,), the teacher's id of each of the student's pieces; None where they are the same.

    Raises:
        ModelError: A term on attention scores between models with different numbers of heads, one on hidden states of
            different widths without a projection, layers that do not exist, or logits of other windows.
    """

    def __init__(
        self,
        student: PreTrainedModel,
        teacher: PreTrainedModel | None,
        terms: Sequence[LossTerm],
        projections: nn.ModuleDict,
        batches: Batches,
        logits: np.ndarray | None = None,
        teacher_ids: np.ndarray | None = None,
    ) -> None:
        self.modules: dict[str, nn.Module] = {"student": student, "projections": projections}
        self.student, self.teacher, self.terms, self.projections = student, teacher, tuple(terms), projections
        self.weights = {term.name: term.weight for term in terms}
        self.data, self.logits, self.teacher_ids = batches, logits, teacher_ids
        if logits is not None and len(logits) != len(batches.encodings):
            raise ModelError(f"{len(logits)} rows of the teacher's logits for {len(batches.encodings)} windows")
        self.needs_states = any(term.layers for term in terms)
        self.needs_target = any(term.reads == "logits" for term in terms)
        self.taps: tuple[LayerStates, LayerStates] | None = None
        if self.needs_states:
            assert teacher is not None
            _check_heads(student, teacher, self.terms)
            check_widths(student, teacher, self.terms, projections)
            self.taps = tapped(student, teacher, self.terms)

    def batches(self, epoch: int) -> Sequence[np.ndarray]:
        """As `Program.batches`."""
        return self.data.of_epoch(epoch)

    def size(self, rows: np.ndarray) -> float:
        """As `Program.size`."""
        return self.data.tokens(rows)

    def counts(self, rows: np.ndarray) -> dict[str, float]:
        """As `Program.counts`."""
        sizes = Sizes.of(self.data.encodings.lengths[rows], self.data.labels[rows], self.student, self.teacher)
        return {term.name: count_of(term, sizes) for term in self.terms}

    def step(self, rows: np.ndarray) -> dict[str, TermValue]:
        """As `Program.step`."""
        arrays = self.data.encodings.batch(rows)
        inputs = forward_inputs(self.student, arrays)
        length = inputs["input_ids"].shape[1]
        target = None if self.logits is None else torch.from_numpy(self.logits[rows]).to(self.student.device)
        if self.teacher is not None and (self.needs_states or (self.needs_target and target is None)):
            choose_attention(self.teacher, length, backward=False)
            theirs = arrays
            if self.teacher_ids is not None:
                theirs = {**arrays, "input_ids": self.teacher_ids[arrays["input_ids"]]}
            with torch.no_grad():
                own = self.teacher(**forward_inputs(self.teacher, theirs)).logits
            target = own if target is None else target
        choose_attention(self.student, length, backward=True)
        logits = self.student(**inputs).logits
        labels = torch.from_numpy(self.data.labels[rows]).to(logits.device)
        outputs = Outputs(logits, target, labels, inputs.get("attention_mask"), self.projections, self.taps)
        return values_of(self.terms, outputs)

    def describe(self, rows: np.ndarray) -> str:
        """As `Program.describe`."""
        return self.data.describe(rows)

    def state(self) -> dict[str, Any]:
        """As `Program.state`."""
        logits = None if self.logits is None else digest_array(self.logits)
        own = {"program": "distilling", "data": self.data.digest(), "terms": facts_of(self.terms), "logits": logits}
        return own if self.teacher_ids is None else {**own, "teacher_ids": digest_array(self.teacher_ids)}

    def close(self) -> None:
        """Take the hooks off the models."""
        for states in self.taps or ():
            states.close()


def _check_heads(student: PreTrainedModel, teacher: PreTrainedModel, terms: Sequence[LossTerm]) -> None:
    ours, theirs = (model.config.num_attention_heads for model in (student, teacher))
    if ours != theirs and any(term.reads == "scores" or term.fn is value_kl for term in terms):
        raise ModelError(
            f"a student with {ours} attention heads under a teacher with {theirs}",
            expected="as many: the attention loss compares head with head",
            fix="set distill.weights.attention to 0, or choose distill.mode = minilm2, which needs no equal heads",
        )


def check_widths(
    student: PreTrainedModel, teacher: PreTrainedModel, terms: Sequence[LossTerm], projections: nn.ModuleDict
) -> None:
    """Raise `ModelError` where a term compares hidden states of different widths without a projection."""
    ours, theirs = (model.config.hidden_size for model in (student, teacher))
    bare = [term.name for term in terms if needs_projection(term) and not {"all", term.name} & set(projections)]
    if ours != theirs and bare:
        raise ModelError(
            f"the {bare[0]} loss between hidden states {ours} and {theirs} wide, without a projection",
            expected="equal widths",
            fix="set distill.projection to each",
        )


def tapped(
    student: PreTrainedModel, teacher: PreTrainedModel, terms: Sequence[LossTerm]
) -> tuple[LayerStates, LayerStates]:
    """Record what the terms read of either model, at each forward pass."""
    both = []
    for side, model in enumerate((student, teacher)):
        states = tap(model, [], [])
        for want, layers in wanted_states(terms, side).items():
            states.extend(model, layers, [want])
        both.append(states)
    return both[0], both[1]
