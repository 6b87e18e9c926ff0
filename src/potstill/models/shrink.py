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
from potstill.models.record import Calibration, Recording, inputs_of, output_of, record
from potstill.models.refit import fit_head, fit_norm, refit_linear
from potstill.models.student import Shape, random_student
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
        teacher: A post-norm encoder with a classification head, eval mode, any float dtype.
        shape: The student's; not wider, not deeper, with as many heads or fewer.
        layers: For each student layer, the teacher layer (1-based) it is cut from and follows.
        inputs: A few thousand texts of the task, as keyword arguments of the model's forward, texts of one length in
            each batch (no padding); about 10,000 tokens are enough. Products are computed in the teacher's dtype.
        refit: Whether attention outputs and FFN outputs are refitted by regression on the student's own inputs.
        report: Receives progress.

    Raises:
        ModelError: A shape that is larger than the teacher in any direction, or layers that do not fit it.
    """
    full = Shape.of(teacher.config)
    _check(shape, full, layers)
    student = random_student(teacher.config, shape, seed=0)
    source, target = encoder_parts(teacher), encoder_parts(student)
    chosen = [source.layers[layer - 1] for layer in layers]
    texts = Calibration(inputs, teacher.dtype)
    states = _teacher_states(teacher, source, chosen, texts)
    hidden = [states[output_of(source.embedding_output)], *(states[output_of(part.layer)] for part in chosen)]
    basis, variance = _basis([*hidden, *(states[output_of(part.attention_norm)] for part in chosen)], shape.hidden)
    heads = _kept_heads(chosen, states, shape, full, shared=source.relative_bias is not None)
    _cut_embeddings(source, target, basis)
    if source.relative_bias is not None and target.relative_bias is not None:
        target.relative_bias.weight.copy_(source.relative_bias.weight.float()[:, heads[0]])
    if target.embedding_project is None:
        fit_norm(student, target.embedding_norm, texts, hidden[0] @ basis)
    for number, (own, theirs) in enumerate(zip(target.layers, chosen, strict=True)):
        report.progress(1 + number, 1 + len(chosen))
        _cut_attention(own, theirs, states, basis, heads[number], full.heads)
        middle = states[output_of(theirs.attention_norm)] @ basis
        refit_linear(student, own.output, own.attention_norm, texts, middle, refit=refit)
        _cut_ffn(own, theirs, states, basis)
        refit_linear(student, own.ffn_out, own.ffn_norm, texts, hidden[number + 1] @ basis, refit=refit)
    fit_head(student, teacher, states[output_of(teacher)], texts, basis)
    report.progress(1 + len(chosen), 1 + len(chosen))
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


def _teacher_states(
    teacher: PreTrainedModel, source: EncoderParts, chosen: Sequence[LayerParts], inputs: Calibration
) -> Recording:
    wanted = [output_of(source.embedding_output), output_of(teacher)]
    for part in dict.fromkeys(chosen):
        wanted += [output_of(module) for module in (part.layer, part.attention_norm, part.query, part.key)]
        wanted += [inputs_of(part.ffn_out), inputs_of(part.output)]
    return record(teacher, inputs, wanted)


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


def _cut_embeddings(source: EncoderParts, target: EncoderParts, basis: Tensor) -> None:
    tables = (
        (source.word, target.word),
        (source.position, target.position),
        (source.token_type, target.token_type),
    )
    # Gains and offsets are then refitted on data; these are where the fit starts.
    target.embedding_norm.weight.fill_(1.0)
    target.embedding_norm.bias.zero_()
    carry = basis
    project = source.embedding_project
    if project is not None and target.embedding_project is not None:  # the same width: nothing is cut
        target.embedding_norm.load_state_dict(source.embedding_norm.state_dict())
        target.embedding_project.load_state_dict(project.state_dict())
        carry = torch.eye(project.in_features)
    elif project is not None:  # norm, then projection, become one map; the new norm stands after it
        centre = torch.eye(project.in_features) - 1.0 / project.in_features
        carry = centre @ (source.embedding_norm.weight.float()[:, None] * project.weight.float().T @ basis)
    for theirs, own in tables:
        if theirs is not None and own is not None:
            own.weight.copy_(theirs.weight.float() @ carry)


def _head_slices(tensor: Tensor, heads: int) -> list[Tensor]:
    return list(tensor.unflatten(-1, (heads, -1)).unbind(-2))


def _kept_heads(
    chosen: Sequence[LayerParts], states: Recording, shape: Shape, full: Shape, *, shared: bool
) -> list[list[int]]:
    """Head numbers kept in each layer, by the energy of what they write.

    `shared` keeps the same ones everywhere: one table of relative biases, a column a head, serves all layers (MPNet).
    """
    energies = []
    for part in chosen:
        context = _head_slices(states[inputs_of(part.output)], full.heads)
        blocks = part.output.weight.float().unflatten(1, (full.heads, -1)).unbind(1)
        energies.append(
            [float((c - c.mean(0)).matmul(b.T).square().sum()) for c, b in zip(context, blocks, strict=True)]
        )
    worth = np.array(energies)
    if shared:
        worth[:] = (worth / worth.sum(axis=1, keepdims=True).clip(1e-30)).sum(axis=0)
    return [sorted(np.argsort(-row, kind="stable")[: shape.heads].tolist()) for row in worth]


def _root(samples: Tensor) -> tuple[Tensor, Tensor]:
    """L with L·Lᵀ = the second moment of the rows, and L⁻¹, in float64; a ridge keeps it invertible."""
    moment = (samples.T @ samples).double() / len(samples)
    moment += torch.eye(len(moment), dtype=torch.float64) * (moment.diagonal().mean() * 1e-6 + 1e-12)
    lower = torch.linalg.cholesky(moment)
    return lower, torch.linalg.inv(lower)


def _cut_attention(
    own: LayerParts, theirs: LayerParts, states: Recording, basis: Tensor, kept: Sequence[int], heads: int
) -> None:
    """Per head: QKᵀ and V·W_O as products, whitened by the data, cut by SVD to the new head width."""
    wide, narrow = theirs.query.out_features // heads, own.query.out_features // len(kept)
    queries, keys = (_head_slices(states[output_of(module)], heads) for module in (theirs.query, theirs.key))
    context = _head_slices(states[inputs_of(theirs.output)], heads)
    write = theirs.output.weight.float().unflatten(1, (heads, wide))
    rank = min(narrow, wide)
    for place, head in enumerate(kept):
        rows, new = slice(head * wide, (head + 1) * wide), slice(place * narrow, place * narrow + rank)
        (root_q, inverse_q), (root_k, inverse_k) = _root(queries[head]), _root(keys[head])
        left, values, right = torch.linalg.svd(root_q.T @ root_k)
        gain = values[:rank].sqrt() * (narrow / wide) ** 0.25  # scores keep their size under the new 1/√d
        maps = {"query": (gain[:, None] * left.T[:rank]) @ inverse_q, "key": (gain[:, None] * right[:rank]) @ inverse_k}
        root_v, inverse_v = _root(context[head])
        out = (basis.T @ write[:, head]).double()
        left, values, right = torch.linalg.svd(out @ root_v, full_matrices=False)
        scale = values[:rank].clamp_min(1e-12).sqrt()
        maps["value"] = (scale[:, None] * right[:rank]) @ inverse_v
        for name, matrix in maps.items():
            module, origin = getattr(own, name), getattr(theirs, name)
            module.weight[place * narrow : (place + 1) * narrow].zero_()
            module.bias[place * narrow : (place + 1) * narrow].zero_()
            module.weight[new] = (matrix @ (origin.weight[rows].float() @ basis).double()).float()
            module.bias[new] = (matrix @ origin.bias[rows].double()).float()
        own.output.weight[:, place * narrow : (place + 1) * narrow].zero_()
        own.output.weight[:, new] = (left[:, :rank] * scale).float()
    own.output.bias.copy_(theirs.output.bias.float() @ basis)


def _cut_ffn(own: LayerParts, theirs: LayerParts, states: Recording, basis: Tensor) -> None:
    """Neurons are kept by variance × norm of what they write; the mean of the others goes into the bias."""
    active = states[inputs_of(theirs.ffn_out)]
    write = basis.T @ theirs.ffn_out.weight.float()
    worth = active.var(dim=0) * write.square().sum(dim=0)
    count = own.ffn_in.out_features
    order = torch.argsort(worth, descending=True, stable=True)
    kept, dropped = order[:count].sort().values, order[count:]
    own.ffn_in.weight.copy_(theirs.ffn_in.weight.float()[kept] @ basis)
    own.ffn_in.bias.copy_(theirs.ffn_in.bias.float()[kept])
    own.ffn_out.weight.copy_(write[:, kept])
    own.ffn_out.bias.copy_(theirs.ffn_out.bias.float() @ basis + write[:, dropped] @ active[:, dropped].mean(dim=0))
