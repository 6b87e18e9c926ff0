"""A student cut from its teacher with the teacher's own data: width, heads, FFN and depth, in closed form.

One orthogonal basis P (H_t × H_s) carries every hidden state; weights are rewritten in it, heads and FFN neurons are
cut by what the data use of them, and what each cut lost is refitted by ridge regression on the student's *own* inputs
(`potstill.models.refit`), layer after layer, so that errors do not pile up. No gradient step is taken. Knows no loss
and no task; a classifier head is fitted to the teacher's logits.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.linalg
import torch
from torch import Tensor
from transformers import PreTrainedModel

from potstill.errors import ModelError
from potstill.models.anatomy import EncoderParts, LayerParts, encoder_parts
from potstill.models.cut import (
    cut_attention,
    cut_embeddings,
    cut_ffn,
    cut_norm,
    cut_relative,
    head_slices,
    reader,
    relative_vectors,
)
from potstill.models.record import Calibration, Recording, Spot, inputs_of, output_of, record
from potstill.models.refit import fit_head, fit_norm, refit_linear, refit_residual
from potstill.models.student import Shape, check_start, random_student
from potstill.progress import SILENT, Reporter

__all__ = ["Shrunk", "shrink"]


@dataclass(frozen=True)
class Shrunk:
    """A student and the basis it was cut in.

    Attributes:
        model: float32, eval mode; its hidden states approximate the teacher's times `basis`.
        basis: float32 (H_t, H_s), orthonormal columns; the training-only projection starts at its transpose.
        variance: Share of the teacher's hidden energy that the basis carries, 0 to 1.
    """

    model: PreTrainedModel
    basis: Tensor
    variance: float


@torch.no_grad()
def shrink(
    teacher: PreTrainedModel,
    shape: Shape,
    layers: Sequence[int],
    inputs: Sequence[dict[str, Tensor]],
    *,
    refit: bool = True,
    report: Reporter = SILENT,
) -> Shrunk:
    """Cut a student of `shape` out of `teacher`.

    Args:
        teacher: An encoder with a classification head, eval mode, any float dtype.
        shape: The student's; not wider, not deeper, with as many heads or fewer.
        layers: For each student layer, the teacher layer (1-based) it is cut from and follows.
        inputs: A few thousand texts of the task, as keyword arguments of the model's forward, texts of one length in
            each batch (no padding); about 10,000 tokens are enough. Products are computed in the teacher's dtype.
        refit: Whether attention outputs and FFN outputs are refitted by regression on the student's own inputs.
        report: Receives progress.

    Raises:
        ModelError: A shape that is larger than the teacher in any direction, layers that do not fit it, or an
            architecture that cannot be cut so (`check_start`).
    """
    full = Shape.of(teacher.config)
    _check(shape, full, layers)
    check_start(teacher.config, shape, "shrunk", layers)
    student = random_student(teacher.config, shape, seed=0, layers=layers)
    source, target = encoder_parts(teacher), encoder_parts(student)
    chosen = [source.layers[layer - 1] for layer in layers]
    texts = Calibration(inputs, teacher.dtype)
    states = _teacher_states(teacher, source, chosen, texts)
    seen = _Seen(source, chosen, states)
    places = relative_vectors(source)
    basis, variance = _basis(seen.directions() + ([] if places is None else [places]), shape.hidden)
    groups = _groups(target)
    heads = _kept_heads(seen, groups, shape, full, shared=source.relative_bias is not None)
    cut_embeddings(source, target, basis)
    cut_relative(source, target, basis, heads[0])
    if target.embedding_project is None or source.anatomy.disentangled:
        fit_norm(student, target.embedding_norm, texts, seen.hidden[0] @ basis)
    for number, group in enumerate(groups):
        report.progress(1 + number, 1 + len(groups))
        _cut_group(target, seen, group, basis, places, heads[group[0]], full.heads)
        _fit_group(student, target, seen, group, texts, basis, refit=refit)
    if target.final_norm is not None and source.final_norm is not None:
        fit_norm(student, target.final_norm, texts, states[output_of(source.final_norm)] @ basis)
    fit_head(student, teacher, states[output_of(teacher)], texts, basis)
    report.progress(1 + len(groups), 1 + len(groups))
    return Shrunk(student.eval(), basis, variance)


def _check(shape: Shape, full: Shape, layers: Sequence[int]) -> None:
    if shape.hidden > full.hidden or shape.ffn > full.ffn or shape.heads > full.heads or shape.layers > full.layers:
        raise ModelError(
            f"a student {shape} shrunk from {full}", expected="no dimension larger", fix="start it at random"
        )
    if len(layers) != shape.layers or not all(1 <= layer <= full.layers for layer in layers):
        raise ModelError(
            f"the layers {list(layers)} for a student {shape}",
            expected=f"{shape.layers} numbers from 1 to {full.layers}",
        )


def _between(parts: EncoderParts, layer: LayerParts) -> Spot:
    """Where a layer's stream stands after attention: behind the norm that follows it, or before the FFN's."""
    return inputs_of(layer.ffn_norm) if parts.anatomy.pre_norm else output_of(layer.attention_norm, layer.call)


def _teacher_states(
    teacher: PreTrainedModel, source: EncoderParts, chosen: Sequence[LayerParts], inputs: Calibration
) -> Recording:
    wanted = [output_of(source.embedding_output), output_of(teacher)]
    if source.final_norm is not None:
        wanted.append(output_of(source.final_norm))
    for part in chosen:
        wanted += [output_of(part.layer, part.call), _between(source, part)]
        wanted += [inputs_of(part.ffn_out, part.call), inputs_of(part.output, part.call)]
        if source.anatomy.pre_norm:
            wanted.append(inputs_of(part.layer))
        if not source.anatomy.rotary:
            wanted += [output_of(module, part.call) for module in (part.query, part.key)]  # type: ignore[arg-type]
    return record(teacher, inputs, list(dict.fromkeys(wanted)))


class _Seen:
    """What the teacher computed, by the student's layers (numbers from 0): rows of tokens, float32."""

    def __init__(self, parts: EncoderParts, chosen: Sequence[LayerParts], states: Recording) -> None:
        self.parts, self.chosen, self.states = parts, chosen, states
        self.hidden = [states[output_of(parts.embedding_output)]]
        self.hidden += [states[output_of(part.layer, part.call)] for part in chosen]
        self.between = [states[_between(parts, part)] for part in chosen]
        self.active = [states[inputs_of(part.ffn_out, part.call)] for part in chosen]
        self.context = [states[inputs_of(part.output, part.call)] for part in chosen]

    def scores(self, name: str, group: Sequence[int]) -> Tensor | None:
        """Queries or keys of a group of layers, one after the other; None where they are rotated."""
        if self.parts.anatomy.rotary:
            return None
        parts = [self.chosen[number] for number in group]
        return torch.cat([self.states[output_of(getattr(part, name), part.call)] for part in parts])

    def directions(self) -> list[Tensor]:
        """States whose directions the student must be able to hold; before norms, as these pass them on."""
        found = [*self.hidden, *self.between]
        if not self.parts.anatomy.pre_norm:
            return found
        found += [self.states[inputs_of(part.layer)] for part in self.chosen]
        assert self.parts.final_norm is not None
        normal = [state / state.std(dim=1, keepdim=True).clamp_min(1e-6) for state in found]
        return [*normal, self.states[output_of(self.parts.final_norm)]]

    def deviation(self, number: int) -> float:
        """The usual standard deviation, over features, of the stream that enters a layer."""
        entering = self.states[inputs_of(self.chosen[number].layer)]
        return float(entering.var(dim=1, unbiased=False).mean().sqrt().clamp_min(1e-6))


def _groups(target: EncoderParts) -> list[list[int]]:
    """The student's layers (numbers from 0), those together that are one module (ALBERT)."""
    found: dict[int, list[int]] = {}
    for number, part in enumerate(target.layers):
        found.setdefault(id(part.layer), []).append(number)
    return list(found.values())


def _cut_group(
    target: EncoderParts,
    seen: _Seen,
    group: Sequence[int],
    basis: Tensor,
    places: Tensor | None,
    kept: Sequence[int],
    heads: int,
) -> None:
    """One module of the student, from what the layers that it stands for do together."""
    first = group[0]
    own, theirs, pre = target.layers[first], seen.chosen[first], target.anatomy.pre_norm
    deviation = seen.deviation(first) if pre else 1.0
    norms = ((own.attention_norm, theirs.attention_norm), (own.ffn_norm, theirs.ffn_norm))
    reads = [reader(basis, *pair, deviation, pre_norm=pre) for pair in norms]
    for pair in norms:
        cut_norm(*pair, basis, pre_norm=pre)
    cut_attention(
        own,
        theirs,
        queries=seen.scores("query", group),
        keys=seen.scores("key", group),
        context=torch.cat([seen.context[number] for number in group]),
        places=places,
        basis=basis,
        read=reads[0],
        kept=kept,
        heads=heads,
    )
    cut_ffn(own, theirs, torch.cat([seen.active[number] for number in group]), basis, reads[1])


def _fit_group(
    student: PreTrainedModel,
    target: EncoderParts,
    seen: _Seen,
    group: Sequence[int],
    texts: Calibration,
    basis: Tensor,
    *,
    refit: bool,
) -> None:
    """Attention's and the FFN's output against the teacher's states, on what the student itself computes."""
    own = target.layers[group[0]]
    between = torch.cat([seen.between[number] for number in group]) @ basis
    after = torch.cat([seen.hidden[number + 1] for number in group]) @ basis
    if target.anatomy.pre_norm:
        if refit:
            refit_residual(student, own.output, inputs_of(own.ffn_norm), texts, between)
            refit_residual(student, own.ffn_out, output_of(own.layer), texts, after)
        return
    calls = [target.layers[number].call for number in group]
    refit_linear(student, own.output, own.attention_norm, texts, between, refit=refit, calls=calls)
    refit_linear(student, own.ffn_out, own.ffn_norm, texts, after, refit=refit, calls=calls)


def _basis(states: Sequence[Tensor], width: int) -> tuple[Tensor, float]:
    """P: the direction of the mean over features, then principal directions, turned to lie near coordinate axes.

    LayerNorm subtracts the mean over features, that is, the component along the ones vector: so P must carry ones to
    ones. Its gains act coordinate by coordinate: so, of all rotations within the student's space, the one nearest to a
    choice of coordinates is taken (orthogonal Procrustes), in which the teacher's gains stay almost diagonal.
    """
    full = states[0].shape[1]
    moment = torch.zeros(full, full, dtype=torch.float64)
    for state in states:
        centred = state - state.mean(dim=1, keepdim=True)
        moment += ((centred.T @ centred) / centred.square().sum()).double()
    if width == full:
        return torch.eye(full), 1.0
    _, vectors = torch.linalg.eigh(moment)
    ones = torch.full((full, 1), full**-0.5, dtype=torch.float64)
    principal = vectors.flip(1)[:, : width - 1]
    principal = torch.linalg.qr(torch.cat([ones, principal], dim=1)).Q[:, 1:]
    _, _, pivots = scipy.linalg.qr(principal.T.numpy(), mode="economic", pivoting=True)
    complement = torch.linalg.qr(torch.cat([torch.ones(width, 1), torch.eye(width)[:, 1:]], dim=1).double()).Q[:, 1:]
    alignment = principal.T[:, np.sort(pivots[:width])] @ complement
    left, _, right = torch.linalg.svd(alignment)
    basis = ones @ torch.full((1, width), width**-0.5, dtype=torch.float64) + principal @ (left @ right) @ complement.T
    carried = (basis.T @ moment @ basis).diagonal().sum() / moment.diagonal().sum()
    return basis.float(), float(carried)


def _kept_heads(
    seen: _Seen, groups: Sequence[Sequence[int]], shape: Shape, full: Shape, *, shared: bool
) -> list[list[int]]:
    """Head numbers kept in each of the student's layers, by the energy of what they write.

    Layers that are one module keep the same. `shared` keeps the same ones everywhere: one table of relative biases, a
    column a head, serves all layers (MPNet).
    """
    worth = np.zeros((len(seen.chosen), full.heads))
    for group in groups:
        part = seen.chosen[group[0]]
        context = head_slices(torch.cat([seen.context[number] for number in group]), full.heads)
        blocks = part.output.weight.float().unflatten(1, (full.heads, -1)).unbind(1)
        worth[list(group)] = [
            float((c - c.mean(0)).matmul(b.T).square().sum()) for c, b in zip(context, blocks, strict=True)
        ]
    if shared:
        worth[:] = (worth / worth.sum(axis=1, keepdims=True).clip(1e-30)).sum(axis=0)
    return [sorted(np.argsort(-row, kind="stable")[: shape.heads].tolist()) for row in worth]
