"""In which number format a model is held, and which attention kernel it uses: what measures faster on this machine."""

from typing import Literal

import torch
from transformers import PreTrainedModel

from potstill.models.attention import PLAIN

__all__ = ["SDPA_FROM", "Precision", "choose_attention", "held", "training_dtype"]

Precision = Literal["auto", "float32", "bfloat16"]

SDPA_FROM = 512
"""Length from which training uses fused attention: below it, its CPU backward in bfloat16 is many times slower than
matmul and softmax (benchmarks/attention_loss.py)."""


def training_dtype(precision: Precision) -> torch.dtype:
    """`auto` means bfloat16 where the processor multiplies it in hardware (AMX, or a CUDA device), else float32."""
    if precision == "auto":
        fast = torch.cuda.is_available() or bool(torch.cpu.get_capabilities().get("amx_bf16", False))
        return torch.bfloat16 if fast else torch.float32
    return torch.bfloat16 if precision == "bfloat16" else torch.float32


def held(model: PreTrainedModel, precision: Precision) -> PreTrainedModel:
    """The model, its weights held in what `training_dtype` says."""
    model.to(dtype=training_dtype(precision))  # type: ignore[call-arg]
    return model


def choose_attention(model: PreTrainedModel, length: int, *, backward: bool) -> None:
    """Set the attention kernel for inputs of `length`: fused without backward or from `SDPA_FROM` on, else plain.

    Architectures without the choice (MPNet) are left as they are.
    """
    wanted = "sdpa" if not backward or length >= SDPA_FROM else PLAIN
    if getattr(model, "_supports_sdpa", False) and model.config._attn_implementation != wanted:
        model.set_attn_implementation(wanted)
