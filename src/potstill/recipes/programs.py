"""Programs for the training loop: fine-tuning on labels, and distilling.

They hold encoded texts and models; the loop holds the optimiser, the pipeline holds files.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from potstill.data.batching import Batches
from potstill.errors import ModelError
from potstill.losses import hard_cross_entropy
from potstill.models.forward import forward_inputs
from potstill.models.precision import choose_attention
from potstill.models.tap import LayerStates, tap
from potstill.storage import digest, digest_array
from potstill.training.program import LossTerm, TermValue

__all__ = ["Distilling", "FineTuning", "projections_for"]


class FineTuning:
    """Cross-entropy on labels: BERT's fine-tuning (Devlin et al., arXiv 1810.04805, section 4)."""

    def __init__(self, model: PreTrainedModel, batches: Batches) -> None:
        self.modules: dict[str, nn.Module] = {"model": model}
        self.weights = {"hard": 1.0}
        self.model, self.data = model, batches

    def batches(self, epoch: int) -> Sequence[np.ndarray]:
        """As `Program.batches`."""
        return self.data.of_epoch(epoch)

    def size(self, rows: np.ndarray) -> float:
        """As `Program.size`."""
        return self.data.tokens(rows)

    def counts(self, rows: np.ndarray) -> dict[str, float]:
        """As `Program.counts`."""
        return {"hard": float(np.count_nonzero(self.data.labels[rows] >= 0))}

    def step(self, rows: np.ndarray) -> dict[str, TermValue]:
        """As `Program.step`."""
        inputs = forward_inputs(self.model, self.data.encodings.batch(rows))
        choose_attention(self.model, inputs["input_ids"].shape[1], backward=True)
        logits = self.model(**inputs).logits
        return {
            "hard": TermValue(*hard_cross_entropy(logits, torch.from_numpy(self.data.labels[rows]).to(logits.device)))
        }

    def describe(self, rows: np.ndarray) -> str:
        """As `Program.describe`."""
        return self.data.describe(rows)

    def state(self) -> dict[str, Any]:
        """As `Program.state`."""
        return {"program": "fine-tuning", "data": self.data.digest()}


def projections_for(
    terms: Sequence[LossTerm], student_width: int, teacher_width: int, *, shared: bool
) -> nn.ModuleDict:
    """Training-only maps D_s → D_t, at random: one for the embedding term and one for hidden terms, or one shared.

    The paper has two without bias; the released code one shared, with bias.
    """
    names = {"all" if shared else term.name for term in terms if term.name in ("embedding", "hidden")}
    return nn.ModuleDict({name: nn.Linear(student_width, teacher_width, bias=shared) for name in sorted(names)})


class Distilling:
    """A student learns from a teacher's inner states and logits: terms are declared, not coded.

    Args:
        student: Trained.
        teacher: Eval mode, no gradients. Run on every batch that needs its states; None where `logits` says everything.
        terms: Which losses; `hidden`-like terms are applied to projected states, `attention` to queries and keys.
        projections: By `projections_for`; empty where no term needs one.
        batches: The student's encodings; the teacher has the same tokenizer, or more pieces.
        logits: float32 (m, C), the teacher's, one row a window; None where the teacher is run.
        teacher_ids: int64 (V,), the teacher's id of each of the student's pieces; None where they are the same.

    Raises:
        ModelError: An attention term between models with different numbers of heads, layers that do not exist, or
            logits of other windows.
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
        self.taps: tuple[LayerStates, LayerStates] | None = None
        if self.needs_states:
            assert teacher is not None
            _check_heads(student, teacher, self.terms)
            self.taps = _taps(student, teacher, self.terms)

    def batches(self, epoch: int) -> Sequence[np.ndarray]:
        """As `Program.batches`."""
        return self.data.of_epoch(epoch)

    def size(self, rows: np.ndarray) -> float:
        """As `Program.size`."""
        return self.data.tokens(rows)

    def counts(self, rows: np.ndarray) -> dict[str, float]:
        """As `Program.counts`."""
        lengths = self.data.encodings.lengths[rows]
        longest = float(lengths.max(initial=0))
        labels, classes = self.data.labels[rows], float(self.student.config.num_labels or 0)
        sizes = {
            "tokens": float(lengths.sum()),
            "padded": longest * len(rows),
            "pairs": float((lengths.astype(float) ** 2).sum()),
            "padded pairs": longest**2 * len(rows),
            "texts": float(len(rows)),
            "labelled": float(np.count_nonzero(labels >= 0)),
            "scores": len(rows) * classes,
        }
        width = float(self.teacher.config.hidden_size) if self.teacher is not None else 0.0
        heads = float(self.student.config.num_attention_heads)
        counted = {
            "hidden_mse": sizes["tokens"] * width,
            "hidden_mse_reference": sizes["padded"] * width,
            "attention_mse": sizes["pairs"] * heads,
            "attention_mse_reference": sizes["padded pairs"] * heads,
            "logits_mse": sizes["scores"],
            "soft_cross_entropy_reference": sizes["scores"],
            "hard_cross_entropy": sizes["labelled"],
        }
        return {term.name: counted.get(term.fn.__name__, sizes["texts"]) for term in self.terms}

    def step(self, rows: np.ndarray) -> dict[str, TermValue]:
        """As `Program.step`."""
        arrays = self.data.encodings.batch(rows)
        inputs = forward_inputs(self.student, arrays)
        length = inputs["input_ids"].shape[1]
        target = None if self.logits is None else torch.from_numpy(self.logits[rows]).to(self.student.device)
        if self.teacher is not None and (self.needs_states or target is None):
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
        mask = inputs.get("attention_mask")
        values = {term.name: self._value(term, logits, target, labels, mask) for term in self.terms}
        if self.taps is not None:
            for states in self.taps:
                states.clear()
        return values

    def _value(
        self, term: LossTerm, logits: Tensor, target: Tensor | None, labels: Tensor, mask: Tensor | None
    ) -> TermValue:
        if term.name == "hard":
            return TermValue(*term.fn(logits, labels))
        if not term.layers:
            options = {} if term.fn.__name__ == "logits_mse" else {"temperature": term.temperature}
            return TermValue(*term.fn(logits, target, **options))
        assert self.taps is not None
        student, teacher = self.taps
        sums, count = [], 0.0
        for own, theirs in term.layers:
            if term.name == "attention":
                scales = (student.scale, teacher.scale)
                pair = (student.q[own], student.k[own]), (teacher.q[theirs], teacher.k[theirs])
                value, count = term.fn(*pair, scales, mask)
            else:
                projection = self.projections["all" if "all" in self.projections else term.name]
                projected = projection(student.hidden[own])
                value, count = term.fn(projected, teacher.hidden[theirs], mask)
            sums.append(value)
        return TermValue(torch.stack(sums).sum(), count)

    def describe(self, rows: np.ndarray) -> str:
        """As `Program.describe`."""
        return self.data.describe(rows)

    def state(self) -> dict[str, Any]:
        """As `Program.state`."""
        terms = [[term.name, term.fn.__name__, list(term.layers), term.weight, term.temperature] for term in self.terms]
        logits = None if self.logits is None else digest_array(self.logits)
        own = {"program": "distilling", "data": self.data.digest(), "terms": digest(terms), "logits": logits}
        return own if self.teacher_ids is None else {**own, "teacher_ids": digest_array(self.teacher_ids)}

    def close(self) -> None:
        """Take the hooks off the models."""
        for states in self.taps or ():
            states.close()


def _check_heads(student: PreTrainedModel, teacher: PreTrainedModel, terms: Sequence[LossTerm]) -> None:
    ours, theirs = (model.config.num_attention_heads for model in (student, teacher))
    if ours != theirs and any(term.name == "attention" for term in terms):
        raise ModelError(
            f"a student with {ours} attention heads under a teacher with {theirs}",
            expected="as many: the attention loss compares head with head",
            fix="set distill.weights.attention to 0",
        )


def _taps(
    student: PreTrainedModel, teacher: PreTrainedModel, terms: Sequence[LossTerm]
) -> tuple[LayerStates, LayerStates]:
    both = []
    for side, model in enumerate((student, teacher)):
        hidden = sorted({pair[side] for term in terms if term.name != "attention" for pair in term.layers})
        scores = sorted({pair[side] for term in terms if term.name == "attention" for pair in term.layers})
        states = tap(model, hidden, ["hidden"])
        states.extend(model, scores, ["q", "k"])
        both.append(states)
    return both[0], both[1]
