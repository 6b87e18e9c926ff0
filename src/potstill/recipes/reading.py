"""What each kind of loss term is applied to, and what its sum is divided by. A new kind is a row here."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from potstill import losses
from potstill.data.examples import is_labelled
from potstill.models.anatomy import attention_width
from potstill.models.tap import LayerStates, Want, tap
from potstill.recipes.terms import Term
from potstill.storage import digest
from potstill.training.program import LossTerm, TermValue, value_at

__all__ = [
    "Outputs",
    "Sizes",
    "Told",
    "count_of",
    "facts_of",
    "needs_projection",
    "shared_name",
    "tapped",
    "values_of",
    "wanted_states",
    "weights_of",
]

_STATES: Mapping[str, tuple[Want, ...]] = {
    "hidden": ("hidden",),
    "scores": ("q", "k"),
    "queries": ("q",),
    "keys": ("k",),
    "values": ("v",),
    "logits": (),
    "labels": (),
    "words": (),
    "masked": (),
}
"""What is tapped for each thing that a term reads."""

_TEMPERED = (
    losses.soft_cross_entropy,
    losses.soft_cross_entropy_reference,
    losses.logits_kl,
    losses.soft_binary_cross_entropy,
    losses.binary_kl,
    losses.word_kl,
)
_WITHOUT_PROJECTION = (losses.pairwise_similarity_mse,)
_OF_TEXTS = (losses.vector_mse, losses.vector_cosine, losses.pairwise_similarity_mse)


@dataclass(frozen=True)
class Told:
    """What a teacher said of a batch's tokens.

    Attributes:
        states: Its own.
        heard: bool (B, L), the student's tokens that the states speak of; None means all real ones.
        texts: By teacher layer, (B, H): vectors of whole texts, where they are no mean of the states.
    """

    states: LayerStates
    heard: Tensor | None = None
    texts: Mapping[int, Tensor] | None = None


@dataclass(frozen=True)
class Outputs:
    """What student and teachers computed on a batch.

    Attributes:
        logits, target: (B, C), the student's and the teacher's; target is None where no term needs it. Of a masked LM
            (n, V), at the masked places.
        labels: As `Examples.labels`: int64 (B,), scores float64 (B,), or marks int8 (B, C). Of a masked LM (n,), the
            right words.
        mask: (B, L); None where nothing is padded.
        projections: Of hidden states; empty means that they are compared as they are.
        states: The student's; None where no term needs them.
        told: Of each teacher, as terms number them; empty where no term needs states.
    """

    logits: Tensor
    target: Tensor | None
    labels: Tensor
    mask: Tensor | None
    projections: nn.ModuleDict
    states: LayerStates | None
    told: tuple[Told, ...] = ()

    def theirs(self, term: LossTerm, layer: int) -> tuple[Tensor, Tensor | None]:
        """The hidden states of a layer of the term's teacher, and the mask of the tokens that they are compared at."""
        told = self.told[term.teacher - 1]
        hidden = told.states.hidden[layer]
        if told.texts is not None and term.fn in _OF_TEXTS:  # the mean of equal vectors is that vector
            return told.texts[layer].unsqueeze(1).expand_as(hidden), self.mask
        return hidden, self.mask if told.heard is None else told.heard

    def projected(self, term: LossTerm, hidden: Tensor) -> Tensor:
        """The student's hidden states at the width of the term's teacher."""
        for key in (shared_name(term), term.name):
            if key in self.projections:
                made: Tensor = self.projections[key](hidden)
                return made
        return hidden


def shared_name(term: LossTerm) -> str:
    """What the projection that all terms on a teacher's hidden states share is called."""
    return "all" if term.teacher == 1 else f"all-{term.teacher}"


def needs_projection(term: LossTerm | Term) -> bool:
    """Whether the term compares hidden states feature by feature, so that their widths must be equal."""
    return term.reads == "hidden" and term.fn not in _WITHOUT_PROJECTION


def wanted_states(terms: Sequence[LossTerm], side: int) -> dict[Want, list[int]]:
    """What to tap in the student (`side` 0) or the teacher (1): kind of state → layers."""
    found: dict[Want, set[int]] = {}
    for term in terms:
        biases: tuple[Want, ...] = ("bias",) if term.fn is losses.attention_kl else ()
        for want in (*_STATES[term.reads], *biases):
            found.setdefault(want, set()).update(pair[side] for pair in term.layers)
    return {want: sorted(layers) for want, layers in found.items()}


def tapped(model: PreTrainedModel, terms: Sequence[LossTerm], *, side: int) -> LayerStates:
    """Record, at each forward pass, what the terms read of the student (`side` 0) or of the teacher (1)."""
    states = tap(model, [], [])
    for want, layers in wanted_states(terms, side).items():
        states.extend(model, layers, [want])
    return states


def _arguments(term: LossTerm, outputs: Outputs) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Positional and keyword arguments of the term's function, once for each pair of layers."""
    if term.reads in ("labels", "masked"):
        yield (outputs.logits, outputs.labels), {}
        return
    if term.reads in ("logits", "words"):
        yield (outputs.logits, outputs.target), {"temperature": term.temperature} if term.fn in _TEMPERED else {}
        return
    assert outputs.states is not None
    student, teacher = outputs.states, outputs.told[term.teacher - 1].states
    for own, theirs in term.layers:
        if term.reads == "hidden":
            hidden = student.hidden[own]
            ours = outputs.projected(term, hidden) if needs_projection(term) else hidden
            yield (ours, *outputs.theirs(term, theirs)), {}
        elif term.reads == "scores":
            pairs = (student.q[own], student.k[own]), (teacher.q[theirs], teacher.k[theirs])
            more: dict[str, Any] = {"windows": (student.windows[own], teacher.windows[theirs])}
            if term.fn is losses.attention_kl:
                more["biases"] = (student.bias.get(own), teacher.bias.get(theirs))
            yield (*pairs, (student.scale, teacher.scale), outputs.mask), more
        else:
            kind = _STATES[term.reads][0]
            ours, other = (getattr(states, kind)[layer] for states, layer in ((student, own), (teacher, theirs)))
            widths = [part.shape[1] * part.shape[3] for part in (ours, other)]
            recut = {"heads": losses.relation_heads(*widths)} if term.fn is losses.relation_kl else {}
            yield (ours, other, outputs.mask), recut


def values_of(terms: Sequence[LossTerm], outputs: Outputs) -> dict[str, TermValue]:
    """Each term's sum over its pairs of layers, and the count of one pair: those of the others are alike.

    The states are let go of: the next forward pass makes others.
    """
    values = {}
    for term in terms:
        found = [term.fn(*given, **more) for given, more in _arguments(term, outputs)]
        values[term.name] = TermValue(torch.stack([value for value, _ in found]).sum(), found[-1][1])
    for states in (outputs.states, *(told.states for told in outputs.told)):
        if states is not None:
            states.clear()
    return values


def weights_of(terms: Sequence[LossTerm]) -> dict[str, float]:
    """Term name → weight, of terms as they are at one time of a training."""
    return {term.name: value_at(term.weight, 0.0) for term in terms}


def facts_of(terms: Sequence[LossTerm]) -> str:
    """SHA-256 of what the terms are: a checkpoint must agree with it."""
    return digest(
        [[t.name, t.fn.__name__, t.reads, list(t.layers), str(t.weight), str(t.temperature), t.teacher] for t in terms]
    )


@dataclass(frozen=True)
class Sizes:
    """Of a batch, known without running it.

    Attributes:
        texts, tokens, labelled: Numbers of them, real tokens only.
        heard: Tokens at which hidden states are compared.
        padded: Tokens, padding included.
        pairs, padded_pairs: Query-key pairs, of real tokens or of all.
        classes, width, heads: Logits; the teacher's hidden size; the student's attention heads.
        relations: Relation heads.
        masked: Masked places; 0 where nothing is masked.
    """

    texts: float
    tokens: float
    heard: float
    labelled: float
    padded: float
    pairs: float
    padded_pairs: float
    classes: float
    width: float
    heads: float
    relations: float
    masked: float = 0.0

    @classmethod
    def of(
        cls,
        lengths: np.ndarray,
        labels: np.ndarray,
        student: PreTrainedModel,
        teacher_width: int | None,
        teacher_attention: int | None = None,
    ) -> Self:
        """From a batch's lengths and labels, the student, and the widths of the teacher's states and queries, if any.

        `teacher_attention` None means as wide as the states.
        """
        count, longest = float(len(lengths)), float(lengths.max(initial=0))
        widths = [width for width in (int(student.config.hidden_size), teacher_width) if width is not None]
        attention = [attention_width(student), *widths[1:]]
        if teacher_attention is not None:
            attention[1:] = [teacher_attention]
        return cls(
            texts=count,
            tokens=float(lengths.sum()),
            heard=float(lengths.sum()),
            labelled=float(np.count_nonzero(is_labelled(labels))),
            padded=longest * count,
            pairs=float((lengths.astype(float) ** 2).sum()),
            padded_pairs=longest**2 * count,
            classes=float(student.config.num_labels or 0),
            width=float(widths[-1]),
            heads=float(student.config.num_attention_heads),
            relations=float(losses.relation_heads(*attention)),
        )


_COUNTS: Mapping[Callable[..., Any], Callable[[Sizes], float]] = {
    losses.hidden_mse: lambda s: s.heard * s.width,
    losses.hidden_mse_reference: lambda s: s.padded * s.width,
    losses.attention_mse: lambda s: s.pairs * s.heads,
    losses.attention_mse_reference: lambda s: s.padded_pairs * s.heads,
    losses.attention_kl: lambda s: s.tokens * s.heads,
    losses.relation_kl: lambda s: s.tokens * s.relations,
    losses.value_kl: lambda s: s.tokens * s.heads,
    losses.cosine_distance: lambda s: s.heard,
    losses.cls_mse: lambda s: s.texts,
    losses.vector_mse: lambda s: s.texts * s.width,
    losses.vector_cosine: lambda s: s.texts,
    losses.pairwise_similarity_mse: lambda s: s.texts * (s.texts - 1),
    losses.logits_mse: lambda s: s.texts * s.classes,
    losses.logits_kl: lambda s: s.texts,
    losses.soft_cross_entropy: lambda s: s.texts,
    losses.soft_binary_cross_entropy: lambda s: s.texts,
    losses.binary_kl: lambda s: s.texts,
    losses.soft_cross_entropy_reference: lambda s: s.texts * s.classes,
    losses.word_cross_entropy: lambda s: s.masked,
    losses.word_kl: lambda s: s.masked,
}


def count_of(term: LossTerm, sizes: Sizes) -> float:
    """The count that the term's function will return for a batch of these sizes."""
    return sizes.labelled if term.reads == "labels" else _COUNTS[term.fn](sizes)
