"""A student cut from its teacher with the teacher's own data: width, heads, FFN and depth, in closed form.

One orthogonal basis P (H_t × H_s) carries every hidden state; weights are rewritten in it, heads and FFN neurons are cut
by what the data use of them, and what each cut lost is refitted by ridge regression on the student's *own* inputs, layer
after layer, so that errors do not pile up. No gradient step is taken. Knows no loss and no task; a classifier head is
fitted to the teacher's logits.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.linalg
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from potstill.errors import ModelError
from potstill.models.anatomy import EncoderParts, LayerParts, encoder_parts
from potstill.models.record import Recording, inputs_of, output_of, record
from potstill.models.student import Shape, random_student
from potstill.progress import SILENT, Reporter

__all__ = ["Shrunk", "shrink"]

Inputs = Sequence[dict[str, Tensor]]
"""Calibration batches: keyword arguments of the model's forward, texts of one length each (no padding)."""


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
    inputs: Inputs,
    *,
    refit: bool = True,
    report: Reporter = SILENT,
) -> Shrunk:
    """Cut a student of `shape` out of `teacher`.

    Args:
        teacher: A post-norm encoder with a classification head, eval mode, any float dtype.
        shape: The student's; not wider, not deeper, with as many heads or fewer.
        layers: For each student layer, the teacher layer (1-based) it is cut from and follows.
        inputs: A few thousand texts of the task; about 16,000 tokens are enough.
        refit: Whether attention outputs and FFN outputs are refitted by regression on the student's own inputs.
        report: Receives progress.

    Raises:
        ModelError: A shape that is larger than the teacher in any direction.
    """
    full = Shape.of(teacher.config)
    if shape.hidden > full.hidden or shape.ffn > full.ffn or shape.heads > full.heads or shape.layers > full.layers:
        raise ModelError(
            f"a student {shape} shrunk from {full}", expected="no dimension larger", fix="start it at random"
        )
    student = random_student(teacher.config, shape, seed=0)
    source, target = encoder_parts(teacher), encoder_parts(student)
    chosen = [source.layers[layer - 1] for layer in layers]
    states = _teacher_states(teacher, source, chosen, inputs)
    hidden = [states[output_of(source.embedding_output)], *(states[output_of(part.layer)] for part in chosen)]
    basis, variance = _basis([*hidden, *(states[output_of(part.attention_norm)] for part in chosen)], shape.hidden)
    _cut_embeddings(source, target, basis)
    steps = 1 + len(chosen)
    report.progress(1, steps)
    _fit_norm(student, target.embedding_norm, inputs, hidden[0] @ basis)
    for number, (own, theirs) in enumerate(zip(target.layers, chosen, strict=True)):
        _cut_attention(own, theirs, states, basis, shape, full)
        _refit(student, own.output, own.attention_norm, inputs, states[output_of(theirs.attention_norm)] @ basis, refit)
        _cut_ffn(own, theirs, states, basis)
        _refit(student, own.ffn_out, own.ffn_norm, inputs, hidden[number + 1] @ basis, refit)
        report.progress(2 + number, steps)
    if source.relative_bias is not None and target.relative_bias is not None:
        kept = _kept_heads(chosen, states, shape, full)[0]
        target.relative_bias.weight.copy_(source.relative_bias.weight.float()[:, kept])
    _fit_head(student, teacher, states, inputs, basis)
    return Shrunk(student.eval(), basis, variance)


def _teacher_states(
    teacher: PreTrainedModel, source: EncoderParts, chosen: Sequence[LayerParts], inputs: Inputs
) -> Recording:
    wanted = [output_of(source.embedding_output), output_of(teacher)]
    for part in dict.fromkeys(chosen):
        wanted += [output_of(module) for module in (part.layer, part.attention_norm, part.query, part.key, part.value)]
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
    values, vectors = torch.linalg.eigh(moment)
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
    for theirs, own in (
        (source.word, target.word),
        (source.position, target.position),
        (source.token_type, target.token_type),
    ):
        if theirs is not None and own is not None:
            own.weight.copy_(theirs.weight.float() @ basis)
    # Gains and offsets are then refitted on data; these are where the fit starts.
    target.embedding_norm.weight.fill_(1.0)
    target.embedding_norm.bias.zero_()


def _head_slices(tensor: Tensor, heads: int) -> list[Tensor]:
    return list(tensor.unflatten(-1, (heads, -1)).unbind(-2))


def _kept_heads(
    chosen: Sequence[LayerParts], states: Recording, shape: Shape, full: Shape
) -> tuple[list[int], list[list[int]]]:
    """Head numbers kept, for the shared relative bias and for each layer: by the energy of what they write."""
    energies = []
    for part in chosen:
        weight = part.output.weight.float()
        context = _head_slices(states[inputs_of(part.output)], full.heads)
        blocks = weight.unflatten(1, (full.heads, -1)).unbind(1)
        energies.append(
            [float((c - c.mean(0)).matmul(b.T).square().sum()) for c, b in zip(context, blocks, strict=True)]
        )
    shared = np.argsort(-np.sum(energies, axis=0), kind="stable")[: shape.heads]
    each = [sorted(np.argsort(-np.array(row), kind="stable")[: shape.heads].tolist()) for row in energies]
    return sorted(shared.tolist()), each


def _root(samples: Tensor) -> tuple[Tensor, Tensor]:
    """L with L·Lᵀ = the second moment of the rows, and L⁻¹, in float64; a ridge keeps it invertible."""
    moment = (samples.T @ samples).double() / len(samples)
    moment += torch.eye(len(moment), dtype=torch.float64) * (moment.diagonal().mean() * 1e-6 + 1e-12)
    lower = torch.linalg.cholesky(moment)
    return lower, torch.linalg.inv(lower)


def _cut_attention(
    own: LayerParts, theirs: LayerParts, states: Recording, basis: Tensor, shape: Shape, full: Shape
) -> None:
    """Per head: QKᵀ and V·W_O as products, whitened by the data, cut by SVD to the new head width."""
    wide, narrow = full.hidden // full.heads, shape.hidden // shape.heads
    biased = own.query.in_features and theirs.query.out_features != full.hidden
    if biased:
        raise ModelError(
            f"a query projection of {theirs.query.out_features}", expected=f"{full.hidden}, the hidden size"
        )
    kept = _kept_heads([theirs], states, shape, full)[1][0]
    columns = {
        name: _head_slices(states[output_of(getattr(theirs, name))], full.heads) for name in ("query", "key", "value")
    }
    context = _head_slices(states[inputs_of(theirs.output)], full.heads)
    write = theirs.output.weight.float().unflatten(1, (full.heads, wide))
    rank = min(narrow, wide)
    for place, head in enumerate(kept):
        rows, new = slice(head * wide, (head + 1) * wide), slice(place * narrow, place * narrow + rank)
        (root_q, inverse_q), (root_k, inverse_k) = _root(columns["query"][head]), _root(columns["key"][head])
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


def _normalised(norm: nn.LayerNorm, before: Tensor) -> tuple[Tensor, Tensor]:
    mean = before.mean(dim=1, keepdim=True)
    deviation = (before.var(dim=1, unbiased=False, keepdim=True) + norm.eps).sqrt()
    return (before - mean) / deviation, deviation


def _fit_gain(norm: nn.LayerNorm, before: Tensor, wanted: Tensor) -> None:
    """Gain and offset of each coordinate by least squares of `wanted` on the normalised input."""
    normal, _ = _normalised(norm, before)
    centre, aim = normal.mean(dim=0), wanted.mean(dim=0)
    spread = (normal - centre).square().mean(dim=0).clamp_min(1e-8)
    gain = ((normal - centre) * (wanted - aim)).mean(dim=0) / spread
    norm.weight.copy_(gain)
    norm.bias.copy_(aim - gain * centre)


def _fit_norm(student: PreTrainedModel, norm: nn.LayerNorm, inputs: Inputs, wanted: Tensor) -> None:
    before = record(student, inputs, [inputs_of(norm)])[inputs_of(norm)]
    _fit_gain(norm, before, wanted)


def _refit(
    student: PreTrainedModel, linear: nn.Linear, norm: nn.LayerNorm, inputs: Inputs, wanted: Tensor, refit: bool
) -> None:
    """Fit `norm`, then `linear` so that norm(residual + linear(x)) is near `wanted`, then `norm` again.

    The wanted output is undone through LayerNorm with each token's present deviation, which makes the fit linear; a ridge
    towards the present weights keeps what the data do not say.
    """
    norm.weight.fill_(1.0)
    norm.bias.zero_()
    seen = record(student, inputs, [inputs_of(norm), inputs_of(linear)])
    before, features = seen[inputs_of(norm)], seen[inputs_of(linear)]
    _fit_gain(norm, before, wanted)
    if not refit:
        return
    for _ in range(2):
        _, deviation = _normalised(norm, before)
        gain = torch.where(norm.weight.abs() < 1e-2, torch.full_like(norm.weight, 1e-2), norm.weight)
        missing = (wanted - norm.bias) / gain * deviation + before.mean(dim=1, keepdim=True) - before
        # A token counts by the gain over its deviation: the error that its residual makes after the norm.
        weight = 1.0 / deviation
        change = _ridge(torch.cat([features, torch.ones(len(features), 1)], dim=1) * weight, missing * weight)
        linear.weight += change[:-1].T
        linear.bias += change[-1]
        before = before + torch.cat([features, torch.ones(len(features), 1)], dim=1) @ change
        _fit_gain(norm, before, wanted)


def _ridge(features: Tensor, wanted: Tensor, strength: float = 1e-2) -> Tensor:
    """argmin_W ‖features·W − wanted‖² + λ‖W‖², λ = strength × mean feature energy. float64 inside."""
    moment = (features.T @ features).double()
    moment += torch.eye(len(moment), dtype=torch.float64) * moment.diagonal().mean() * strength
    return torch.linalg.solve(moment, (features.T @ wanted).double()).float()


def _head_linears(model: PreTrainedModel) -> tuple[nn.Linear, nn.Linear]:
    """The tanh layer on [CLS] and the layer that gives the logits."""
    head = getattr(model, "classifier", None)
    pooler = getattr(model.base_model, "pooler", None)
    if isinstance(head, nn.Linear):
        inner = pooler.dense if pooler is not None else getattr(model, "pre_classifier", None)
        if isinstance(inner, nn.Linear):
            return inner, head
    elif head is not None and hasattr(head, "dense") and hasattr(head, "out_proj"):
        return head.dense, head.out_proj
    raise ModelError(f"a {type(model).__name__}", expected="a classifier of two linear layers on [CLS]")


def _fit_head(
    student: PreTrainedModel, teacher: PreTrainedModel, states: Recording, inputs: Inputs, basis: Tensor
) -> None:
    """Inner units kept by variance × norm of what they write, then the logits by ridge regression on the teacher's."""
    inner_t, outer_t = _head_linears(teacher)
    inner_s, outer_s = _head_linears(student)
    logits = states[output_of(teacher)]
    units = record(teacher, inputs, [inputs_of(outer_t)])[inputs_of(outer_t)]
    worth = units.var(dim=0) * outer_t.weight.float().square().sum(dim=0)
    kept = torch.argsort(worth, descending=True, stable=True)[: inner_s.out_features].sort().values
    inner_s.weight.copy_(inner_t.weight.float()[kept] @ basis)
    inner_s.bias.copy_(inner_t.bias.float()[kept])
    own = record(student, inputs, [inputs_of(outer_s)])[inputs_of(outer_s)]
    features = torch.cat([own, torch.ones(len(own), 1)], dim=1)
    present = torch.cat([outer_t.weight.float()[:, kept], outer_t.bias.float()[:, None]], dim=1).T
    solution = present + _ridge(features, logits - features @ present)
    outer_s.weight.copy_(solution[:-1].T)
    outer_s.bias.copy_(solution[-1])
