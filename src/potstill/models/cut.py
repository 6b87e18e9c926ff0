"""Single parts of a student cut out of its teacher's, in one basis: embeddings, attention, FFN. No regression here.

H_t and H_s are the widths of teacher and student, d_t and d_s of their heads; a basis is (H_t, H_s), orthonormal.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from potstill.models.anatomy import EncoderParts, LayerParts
from potstill.models.refit import fit_gain

__all__ = [
    "Read",
    "cut_attention",
    "cut_embeddings",
    "cut_ffn",
    "cut_norm",
    "cut_relative",
    "head_slices",
    "reader",
    "relative_vectors",
]

Read = Callable[[Tensor], Tensor]
"""Takes what a linear layer of the teacher reads, (out, H_t), to what the student's reads, (out, H_s)."""


def reader(basis: Tensor, own: nn.Module, theirs: nn.Module, deviation: float, *, pre_norm: bool) -> Read:
    """How weights behind a norm, or behind a norm's place, are rewritten in the basis.

    After a norm (BERT), W·P. Before one, the norm stands between stream and weights: with n = (h − mean)/deviation and
    gains g, g∘n(h) ≈ diag(g)·P·n(h_s)·√(H_t/H_s), for P keeps lengths: gains go into the weights, and the student's are
    1. `deviation` (the usual one of the stream) stands in where only one of the two models has a norm: a ModernBERT has
    none before its first attention.
    """
    if not pre_norm:
        return lambda weight: weight @ basis
    stretch = (basis.shape[0] / basis.shape[1]) ** 0.5
    factor = stretch if isinstance(own, nn.LayerNorm) else 1.0
    if not isinstance(theirs, nn.LayerNorm):
        return lambda weight: weight @ basis * (factor * (deviation if isinstance(own, nn.LayerNorm) else 1.0))
    gain = theirs.weight.float()
    if not isinstance(own, nn.LayerNorm):
        factor = 1.0 / deviation

    def read(weight: Tensor) -> Tensor:
        scaled = weight * gain
        return (scaled - scaled.mean(dim=1, keepdim=True)) @ basis * factor

    return read


def cut_norm(own: nn.Module, theirs: nn.Module, basis: Tensor, *, pre_norm: bool) -> None:
    """Where a norm starts: the teacher's gains as far as they are along the student's axes, or 1 before weights."""
    if not isinstance(own, nn.LayerNorm):
        return
    gain = theirs.weight.float() if isinstance(theirs, nn.LayerNorm) else torch.ones(len(basis))
    if pre_norm:
        own.weight.fill_(1.0)
    else:
        own.weight.copy_(gain @ basis.square())
    if getattr(own, "bias", None) is None:
        return
    offset = torch.zeros(len(basis))
    if isinstance(theirs, nn.LayerNorm) and theirs.bias is not None:
        offset = theirs.bias.float()
    if pre_norm:  # the gain is in the weights behind, and with it the stretch
        offset = offset / torch.where(gain.abs() < 1e-3, torch.full_like(gain, 1e-3), gain)
        offset = offset * (basis.shape[1] / basis.shape[0]) ** 0.5
    own.bias.copy_(offset @ basis)


def cut_embeddings(source: EncoderParts, target: EncoderParts, basis: Tensor) -> None:
    """The tables, through what widens them; gains of the norm behind them are fitted on data afterwards."""
    target.embedding_norm.weight.fill_(1.0)
    if target.embedding_norm.bias is not None:
        target.embedding_norm.bias.zero_()
    carry = basis
    project, own = source.embedding_project, target.embedding_project
    if project is not None and own is not None:  # the table is as narrow as the teacher's: what widens it is cut
        own.weight.copy_(basis.T @ project.weight.float())
        if own.bias is not None:
            own.bias.copy_(project.bias.float() @ basis)
        carry = torch.eye(project.in_features)
        if not source.anatomy.disentangled:  # the norm stands before it
            target.embedding_norm.load_state_dict(source.embedding_norm.state_dict())
    elif project is not None and source.anatomy.disentangled:
        carry = project.weight.float().T @ basis
    elif project is not None:  # norm, then projection, become one map; the new norm stands after it
        centre = torch.eye(project.in_features) - 1.0 / project.in_features
        carry = centre @ (source.embedding_norm.weight.float()[:, None] * project.weight.float().T @ basis)
    for name in ("word", "position", "token_type"):
        theirs, table = getattr(source, name), getattr(target, name)
        if theirs is not None and table is not None:
            table.weight.copy_(theirs.weight.float() @ carry)


def cut_relative(source: EncoderParts, target: EncoderParts, basis: Tensor, heads: Sequence[int]) -> None:
    """Positions that stand in the score: MPNet's column a head, DeBERTa's table of vectors."""
    if source.relative_bias is not None and target.relative_bias is not None:
        target.relative_bias.weight.copy_(source.relative_bias.weight.float()[:, list(heads)])
    if source.relative_embeddings is not None and target.relative_embeddings is not None:
        own = target.relative_embeddings.weight
        own.copy_(source.relative_embeddings.weight.float() @ basis)
        if target.relative_norm is not None:
            wanted = relative_vectors(source)
            assert wanted is not None
            fit_gain(target.relative_norm, own, wanted @ basis)


def relative_vectors(parts: EncoderParts) -> Tensor | None:
    """DeBERTa's vectors of relative places as attention reads them: float32 (places, H); None for others."""
    if parts.relative_embeddings is None:
        return None
    table = parts.relative_embeddings.weight
    return (table if parts.relative_norm is None else parts.relative_norm(table)).float()


def head_slices(tensor: Tensor, heads: int) -> list[Tensor]:
    """(rows, heads·d) → a tensor (rows, d) for each head."""
    return list(tensor.unflatten(-1, (heads, -1)).unbind(-2))


def _root(samples: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """L with L·Lᵀ = the second moment of the rows, and L⁻¹, in float64; a ridge keeps it invertible.

    Of several sets of rows the mean of their moments.
    """
    moment = sum(((rows.T @ rows).double() / len(rows) for rows in samples), torch.zeros(1, dtype=torch.float64))
    moment = moment / len(samples)
    moment += torch.eye(len(moment), dtype=torch.float64) * (moment.diagonal().mean() * 1e-6 + 1e-12)
    lower = torch.linalg.cholesky(moment)
    return lower, torch.linalg.inv(lower)


def _position_projections(parts: LayerParts) -> dict[str, nn.Linear]:
    """DeBERTa's projections of relative places: its queries' and keys' own, or (`share_att_key`) those of content."""
    attention = parts.attention
    named = {"query": "pos_query_proj", "key": "pos_key_proj"}
    return {kind: getattr(attention, name) for kind, name in named.items() if hasattr(attention, name)}


def _of_places(parts: LayerParts, places: Tensor | None) -> dict[str, Tensor]:
    """What DeBERTa's score has for relative places, as `query` and `key` (places, heads·d)."""
    if places is None:
        return {}
    attention, own = parts.attention, _position_projections(parts)
    shared = {"query": parts.query, "key": parts.key} if getattr(attention, "share_att_key", False) else {}
    return {
        name: places @ part.weight.float().T + (0.0 if part.bias is None else part.bias.float())
        for name, part in {**shared, **own}.items()
    }


def _score_maps(queries: Sequence[Tensor], keys: Sequence[Tensor], narrow: int) -> dict[str, Tensor]:
    """A_q and A_k (d_s, d_t), whose products A_q·q and A_k·k keep most of q·k over the samples (whitened SVD)."""
    (root_q, inverse_q), (root_k, inverse_k) = _root(queries), _root(keys)
    left, values, right = torch.linalg.svd(root_q.T @ root_k)
    scale = values[:narrow].sqrt()[:, None] * (narrow / len(root_q)) ** 0.25  # scores keep their size under 1/√d_s
    found = {"query": scale * left.T[:narrow] @ inverse_q, "key": scale * right[:narrow] @ inverse_k}
    return {name: _padded(matrix, narrow) for name, matrix in found.items()}


def _padded(matrix: Tensor, rows: int) -> Tensor:
    return nn.functional.pad(matrix, (0, 0, 0, rows - len(matrix)))


def _rotary_maps(wide: int, narrow: int) -> dict[str, Tensor]:
    """A_q and A_k (d_s, d_t) that take each pair of dimensions to one that turns at the same frequency.

    Pair i of d/2 turns by place · θ^(−2i/d): of heads cut to a divisor of their width every d_t/d_s-th pair is kept; to
    a multiple, every d_s/d_t-th of the student's is one of the teacher's.
    """
    count = min(wide, narrow) // 2
    own, theirs = torch.arange(count) * (narrow // 2 // count), torch.arange(count) * (wide // 2 // count)
    matrix = torch.zeros(narrow, wide, dtype=torch.float64)
    for half in (0, 1):  # dimension i is turned together with i + d/2
        matrix[own + half * (narrow // 2), theirs + half * (wide // 2)] = (narrow / wide) ** 0.25
    return {"query": matrix, "key": matrix}


def cut_attention(
    own: LayerParts,
    theirs: LayerParts,
    *,
    queries: Tensor | None,
    keys: Tensor | None,
    context: Tensor,
    places: Tensor | None,
    basis: Tensor,
    read: Read,
    kept: Sequence[int],
    heads: int,
) -> None:
    """Per head: QKᵀ and V·W_O as products, whitened by the data, cut by SVD to the new head width.

    Args:
        own: The student's layer.
        theirs: The teacher's, of `heads` heads.
        queries: (rows, heads·d_t), what the data give; None where they are rotated: then whole pairs are kept.
        keys: The same.
        context: (rows, heads·d_t), what `theirs.output` reads.
        places: DeBERTa's vectors of relative places; None for others.
        basis: (H_t, H_s).
        read: As `reader`.
        kept: The teacher's heads that the student has.
        heads: The teacher's.
    """
    wide, narrow = theirs.query.out_features // heads, own.query.out_features // len(kept)
    place_rows = {name: head_slices(rows, heads) for name, rows in _of_places(theirs, places).items()}
    mixed = head_slices(context, heads)
    write = theirs.output.weight.float().unflatten(1, (heads, wide))
    ours, others = _position_projections(own), _position_projections(theirs)
    for place, head in enumerate(kept):
        if queries is None or keys is None:
            maps = _rotary_maps(wide, narrow)
        else:
            seen = {"query": [head_slices(queries, heads)[head]], "key": [head_slices(keys, heads)[head]]}
            for name, found in place_rows.items():
                seen[name].append(found[head])
            maps = _score_maps(seen["query"], seen["key"], narrow)
        root_v, inverse_v = _root([mixed[head]])
        out = (basis.T @ write[:, head]).double()
        left, values, right = torch.linalg.svd(out @ root_v, full_matrices=False)
        scale = values[:narrow].clamp_min(1e-12).sqrt()
        maps["value"] = _padded((scale[:, None] * right[:narrow]) @ inverse_v, narrow)
        rows, new = slice(head * wide, (head + 1) * wide), slice(place * narrow, (place + 1) * narrow)
        pairs = [(getattr(own, name), getattr(theirs, name), matrix) for name, matrix in maps.items()]
        pairs += [(ours[name], others[name], maps[name]) for name in ours]
        for module, origin, matrix in pairs:
            module.weight[new] = (matrix @ read(origin.weight[rows].float()).double()).float()
            if module.bias is not None and origin.bias is not None:
                module.bias[new] = (matrix @ origin.bias[rows].double()).float()
        own.output.weight[:, new] = _padded((left[:, :narrow] * scale).T, narrow).T.float()
    if own.output.bias is not None:
        own.output.bias.copy_(theirs.output.bias.float() @ basis)


def cut_ffn(own: LayerParts, theirs: LayerParts, active: Tensor, basis: Tensor, read: Read) -> None:
    """Neurons are kept by variance × norm of what they write; the mean of the others goes into the bias.

    Args:
        own: The student's layer.
        theirs: The teacher's.
        active: (rows, F_t), what `theirs.ffn_out` reads.
        basis: (H_t, H_s).
        read: As `reader`.
    """
    write = basis.T @ theirs.ffn_out.weight.float()
    worth = active.var(dim=0) * write.square().sum(dim=0)
    count = own.ffn_out.in_features
    order = torch.argsort(worth, descending=True, stable=True)
    kept, dropped = order[:count].sort().values, order[count:]
    halves = theirs.ffn_in.out_features // len(worth)  # two where one half gates the other
    rows = torch.cat([kept + half * len(worth) for half in range(halves)])
    own.ffn_in.weight.copy_(read(theirs.ffn_in.weight.float()[rows]))
    own.ffn_out.weight.copy_(write[:, kept])
    if own.ffn_in.bias is not None:
        own.ffn_in.bias.copy_(theirs.ffn_in.bias.float()[rows])
    if own.ffn_out.bias is not None:
        mean = write[:, dropped] @ active[:, dropped].mean(dim=0)
        own.ffn_out.bias.copy_(theirs.ffn_out.bias.float() @ basis + mean)
