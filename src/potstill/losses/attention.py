"""Losses on attention scores, raw (before softmax), with or without forming them.

Shapes: B examples, h heads, L tokens, d_s and d_t the head widths of student and teacher.
"""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["EXACT_BELOW", "GRAM_FROM", "attention_mse", "attention_mse_reference", "narrower", "outside"]

GRAM_FROM = 128
"""Length from which the Gram form is chosen: measured by benchmarks/attention_loss.py. From 512 on it is the rule."""

EXACT_BELOW = 0.05
"""‖ΔS‖²/‖S_T‖² below which the Gram form's products are float64; above it float32 is right to 1e-5."""


def attention_mse(
    student: tuple[Tensor, Tensor],
    teacher: tuple[Tensor, Tensor],
    scales: tuple[float, float],
    mask: Tensor | None,
    *,
    windows: tuple[int | None, int | None] = (None, None),
    form: Literal["auto", "gram", "materialised"] = "auto",
) -> tuple[Tensor, float]:
    """‖Q_S·K_Sᵀ·c_S − Q_T·K_Tᵀ·c_T‖² over real query-key pairs, averaged over heads: TinyBERT's eq. 7.

    `gram` never forms an L×L matrix, with rows of padding set to zero:
    ‖·‖²_F = c_S²⟨Q_SᵀQ_S, K_SᵀK_S⟩ + c_T²⟨Q_TᵀQ_T, K_TᵀK_T⟩ − 2·c_S·c_T⟨Q_SᵀQ_T, K_SᵀK_T⟩,
    in O(L·d²) time and O(L·d) memory. Products and their gradients are float32, never less, their sum float64. It
    cancels when the scores are nearly equal: with δ = ‖ΔS‖/‖S_T‖ the value's relative error grows as ε/δ², the
    gradient's as ε/δ. So where δ² is below `EXACT_BELOW` the products are float64 too: right to 1e-5 for any δ.

    Where attention is local (ModernBERT), scores outside the window decide nothing: of pairs, those that both models
    look at are compared, band by band in O(L·w) memory, and each text's sum is set against its own number of them, so
    that a layer weighs the same with a window and without one.

    What an architecture adds to q·k on its own (MPNet's relative bias, DeBERTa's terms of position) is not compared.

    Args:
        student: Q and K, each (B, h, L, d_s), any float dtype, unscaled.
        teacher: Q and K, each (B, h, L, d_t); no gradient flows into them.
        scales: c_S and c_T, what multiplies the products, 1/√d.
        mask: (B, L), 1 or True on real tokens; None where all are real.
        windows: How far a token attends in student and teacher; None: to all.
        form: `auto` takes the Gram form from length `GRAM_FROM` on.

    Returns:
        Sum of squares (float32 scalar) and h·Σ_b n_b², n_b the real tokens of example b.

    Paper: Jiao et al. 2020, arXiv 1909.10351.
    """
    q_s, k_s = student
    q_t, k_t = (tensor.detach() for tensor in teacher)
    heads, length = q_s.shape[1], q_s.shape[2]
    kept = None if mask is None else mask.bool()
    if kept is None:
        pairs = float(q_s.shape[0]) * length**2
    else:
        pairs = float(kept.sum(dim=-1).double().square().sum())
        gone = ~kept[:, None, :, None]
        q_s, k_s, q_t, k_t = (tensor.masked_fill(gone, 0.0) for tensor in (q_s, k_s, q_t, k_t))
    window = narrower(windows, length)
    if window is not None:
        sums = _banded(q_s * scales[0], k_s, q_t * scales[1], k_t, window)
        return (sums * _shares(kept, sums, length, window)).sum(), heads * pairs
    if form == "gram" or (form == "auto" and length >= GRAM_FROM):
        sums = _gram(q_s.float() * scales[0], k_s.float(), q_t.float() * scales[1], k_t.float())
    else:
        sums = _materialised(q_s * scales[0], k_s, q_t * scales[1], k_t)
    return sums, heads * pairs


def narrower(windows: tuple[int | None, int | None], length: int) -> int | None:
    """How far apart two of `length` tokens may be that attend to one another in both models; None: any distance."""
    window = min((window for window in windows if window is not None), default=length)
    return window if window < length - 1 else None


def outside(length: int, window: int, device: torch.device) -> Tensor:
    """(L, L), True where two tokens are further apart than the window."""
    places = torch.arange(length, device=device)
    return (places[:, None] - places[None, :]).abs() > window


def _banded(q_s: Tensor, k_s: Tensor, q_t: Tensor, k_t: Tensor, window: int) -> Tensor:
    """Sums of squares by example (B,), of pairs no further apart than the window; blocks of queries, bands of keys."""
    length = q_s.shape[2]
    sums = torch.zeros(q_s.shape[0], device=q_s.device)
    step = max(window, 64)
    for start in range(0, length, step):
        stop = min(start + step, length)
        low, high = max(0, start - window), min(length, stop + window)
        rows, columns = slice(start, stop), slice(low, high)
        with torch.no_grad():
            target = (q_t[:, :, rows] @ k_t[:, :, columns].mT).float()
        difference = (q_s[:, :, rows] @ k_s[:, :, columns].mT).float() - target
        own, theirs = (torch.arange(*ends, device=q_s.device) for ends in ((start, stop), (low, high)))
        far = (own[:, None] - theirs[None, :]).abs() > window
        sums = sums + difference.masked_fill(far, 0.0).square().sum(dim=(1, 2, 3))
    return sums


def _shares(kept: Tensor | None, sums: Tensor, length: int, window: int) -> Tensor:
    """(B,): all pairs of real tokens over those within the window."""
    real = torch.ones(len(sums), length, device=sums.device) if kept is None else kept.double()
    total = functional.pad(real.double().cumsum(dim=1), (1, 0))
    places = torch.arange(length, device=sums.device)
    high, low = (places + window + 1).clamp_max(length), (places - window).clamp_min(0)
    near = (real * (total[:, high] - total[:, low])).sum(dim=1)
    return (real.sum(dim=1).square() / near.clamp_min(1.0)).float()


def _gram(q_s: Tensor, k_s: Tensor, q_t: Tensor, k_t: Tensor) -> Tensor:
    sums, target = _gram_sums(q_s, k_s, q_t, k_t)
    if float(sums.detach()) < EXACT_BELOW * target:
        sums, _ = _gram_sums(q_s.double(), k_s.double(), q_t.double(), k_t.double())
    # Rounding can go below zero; the gradient must not be lost there.
    return (sums + (-sums).clamp_min(0.0).detach()).float()


def _gram_sums(q_s: Tensor, k_s: Tensor, q_t: Tensor, k_t: Tensor) -> tuple[Tensor, float]:
    """‖ΔS‖² and ‖S_T‖², float64."""

    def inner(first: Tensor, second: Tensor) -> Tensor:
        return (first * second).sum(dtype=torch.float64)

    own = inner(q_s.mT @ q_s, k_s.mT @ k_s)
    cross = inner(q_s.mT @ q_t, k_s.mT @ k_t)
    with torch.no_grad():
        target = inner(q_t.mT @ q_t, k_t.mT @ k_t)
    return own - 2.0 * cross + target, float(target)


def _materialised(q_s: Tensor, k_s: Tensor, q_t: Tensor, k_t: Tensor) -> Tensor:
    with torch.no_grad():
        target = (q_t @ k_t.mT).float()
    return ((q_s @ k_s.mT).float() - target).square().sum()


def attention_mse_reference(
    student: tuple[Tensor, Tensor],
    teacher: tuple[Tensor, Tensor],
    scales: tuple[float, float],
    mask: Tensor | None,
    *,
    windows: tuple[int | None, int | None] = (None, None),
) -> tuple[Tensor, float]:
    """The released code's form: mean over B·h·L·L, where only the *columns* of padding are zero, on either side.

    It sets scores ≤ −100 to zero: those of the columns to which the mask added −10,000, and any other as low; so too,
    on each side, those outside its window. Rows of padded queries count. Arguments and result as `attention_mse`.
    """
    q_s, k_s = student
    q_t, k_t = (tensor.detach() for tensor in teacher)
    ours = (q_s.float() @ k_s.float().mT) * scales[0]
    theirs = (q_t.float() @ k_t.float().mT) * scales[1]
    if mask is not None:
        gone = ~mask.bool()[:, None, None, :]
        ours, theirs = ours.masked_fill(gone, 0.0), theirs.masked_fill(gone, 0.0)
    ours, theirs = (
        scores if window is None else scores.masked_fill(outside(scores.shape[-1], window, scores.device), 0.0)
        for window, scores in zip(windows, (ours, theirs), strict=True)
    )
    ours = torch.where(ours <= -100.0, 0.0, ours)
    theirs = torch.where(theirs <= -100.0, 0.0, theirs)
    return (ours - theirs).square().sum(), float(ours.numel())
