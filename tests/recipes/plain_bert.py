"""BERT and TinyBERT's losses written out from their papers: plain products in float64, every attention matrix formed.

It shares no line with the package and none with `transformers`: it reads weights by name and computes.
"""

import math

import torch
from torch import Tensor

PADDING = 0


class PlainBert:
    """Hidden states, raw scores and logits of a BERT classifier, from its float64 weights.

    `weights` are leaves of the graph; `hidden[0]` is the embedding output, `scores[i]` block i (0-based), before mask
    and softmax.
    """

    def __init__(self, weights: dict[str, Tensor], heads: int, layers: int) -> None:
        self.weights = {name: tensor.detach().double().clone().requires_grad_() for name, tensor in weights.items()}
        self.heads, self.layers = heads, layers

    def linear(self, inputs: Tensor, name: str) -> Tensor:
        return inputs @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def norm(self, inputs: Tensor, name: str) -> Tensor:
        mean = inputs.mean(dim=-1, keepdim=True)
        variance = ((inputs - mean) ** 2).mean(dim=-1, keepdim=True)
        normal = (inputs - mean) / torch.sqrt(variance + 1e-12)
        return normal * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def run(self, ids: Tensor, types: Tensor, mask: Tensor) -> tuple[list[Tensor], list[Tensor], Tensor]:
        table = "bert.embeddings"
        words = self.weights[f"{table}.word_embeddings.weight"]
        state = torch.where((ids == PADDING)[..., None], words.detach()[ids], words[ids])  # BERT never trains [PAD]
        state = state + self.weights[f"{table}.position_embeddings.weight"][: ids.shape[1]]
        state = state + self.weights[f"{table}.token_type_embeddings.weight"][types]
        state = self.norm(state, f"{table}.LayerNorm")
        hidden, scores = [state], []
        for number in range(self.layers):
            layer = f"bert.encoder.layer.{number}"
            state, raw = self.attention(state, mask, layer)
            inner = self.linear(state, f"{layer}.intermediate.dense")
            inner = inner * 0.5 * (1 + torch.erf(inner / math.sqrt(2)))
            state = self.norm(state + self.linear(inner, f"{layer}.output.dense"), f"{layer}.output.LayerNorm")
            hidden.append(state)
            scores.append(raw)
        pooled = torch.tanh(self.linear(state[:, 0], "bert.pooler.dense"))
        return hidden, scores, self.linear(pooled, "classifier")

    def attention(self, state: Tensor, mask: Tensor, layer: str) -> tuple[Tensor, Tensor]:
        width = state.shape[-1] // self.heads
        parts = [self.linear(state, f"{layer}.attention.self.{name}") for name in ("query", "key", "value")]
        contexts, raw = [], []
        for head in range(self.heads):
            query, key, value = (part[..., head * width : (head + 1) * width] for part in parts)
            scores = query @ key.transpose(1, 2) / math.sqrt(width)
            raw.append(scores)
            masked = torch.where(mask[:, None, :].bool(), scores, torch.tensor(-math.inf, dtype=torch.float64))
            powers = torch.exp(masked - masked.max(dim=-1, keepdim=True).values)
            contexts.append(powers / powers.sum(dim=-1, keepdim=True) @ value)
        written = self.linear(torch.cat(contexts, dim=-1), f"{layer}.attention.output.dense")
        return self.norm(state + written, f"{layer}.attention.output.LayerNorm"), torch.stack(raw, dim=1)


def paper_hidden(projected: Tensor, target: Tensor, mask: Tensor) -> Tensor:
    """Eqs. 8 and 9: the mean over real tokens and features."""
    squares = [((projected[b, i] - target[b, i]) ** 2).sum() for b, i in mask.nonzero().tolist()]
    return sum(squares) / (len(squares) * target.shape[-1])


def code_hidden(projected: Tensor, target: Tensor, mask: Tensor) -> Tensor:
    """The released code: the mean over batch, length and features."""
    return ((projected - target) ** 2).mean()


def paper_attention(ours: Tensor, theirs: Tensor, mask: Tensor) -> Tensor:
    """Eq. 7: the mean over heads and pairs of real tokens."""
    total, count = torch.zeros((), dtype=torch.float64), 0
    for b, length in enumerate(mask.sum(dim=1).tolist()):
        for head in range(ours.shape[1]):
            total = total + ((ours[b, head, :length, :length] - theirs[b, head, :length, :length]) ** 2).sum()
            count += length**2
    return total / count


def code_attention(ours: Tensor, theirs: Tensor, mask: Tensor) -> Tensor:
    """The released code: −10,000 added to padded columns, all ≤ −100 set to 0, the mean over batch, heads and L × L."""
    added = (1.0 - mask.double())[:, None, None, :] * -10_000.0
    ours, theirs = (torch.where(side + added <= -1e2, torch.zeros_like(side), side + added) for side in (ours, theirs))
    return ((ours - theirs) ** 2).mean()


def soft_cross_entropy(ours: Tensor, theirs: Tensor, temperature: float) -> Tensor:
    """Eq. 10, summed over classes, averaged over examples."""
    losses = []
    for own, other in zip(ours / temperature, theirs / temperature, strict=True):
        target = torch.exp(other) / torch.exp(other).sum()
        losses.append(-(target * torch.log(torch.exp(own) / torch.exp(own).sum())).sum())
    return torch.stack(losses).mean()


def adamw_step(weights: dict[str, Tensor], rate: float, *, decay: float, clip: float | None, eps: float) -> None:
    """One step of torch's own AdamW, not fused, after clipping by the global norm; vectors do not decay."""
    moved = [weight for weight in weights.values() if weight.grad is not None]
    norm = math.sqrt(sum(float((weight.grad**2).sum()) for weight in moved))
    if clip is not None and norm > clip:
        for weight in moved:
            weight.grad.mul_(clip / norm)
    groups = [
        {"params": [weight for weight in moved if weight.ndim > 1], "weight_decay": decay},
        {"params": [weight for weight in moved if weight.ndim == 1], "weight_decay": 0.0},
    ]
    torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.999), eps=eps, fused=False, foreach=False).step()
