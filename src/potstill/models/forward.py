"""Encoded texts through a model: a batch as its arguments, and the logits of all windows. Knows no loss."""

from collections.abc import Callable, Mapping
from functools import cache
from inspect import signature
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from potstill.data.batching import length_batches
from potstill.data.encoding import Encodings
from potstill.models.precision import choose_attention
from potstill.progress import SILENT, Reporter

__all__ = ["forward_inputs", "run_logits"]


def forward_inputs(model: PreTrainedModel, batch: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
    """A batch as a model's keyword arguments: no mask where nothing is padded, no token types where it has none."""
    inputs = {"input_ids": torch.from_numpy(batch["input_ids"])}
    if not batch["attention_mask"].all():
        inputs["attention_mask"] = torch.from_numpy(batch["attention_mask"])
    if getattr(model.config, "type_vocab_size", 0) > 1 and _takes_types(type(model).forward):
        inputs["token_type_ids"] = torch.from_numpy(batch["token_type_ids"])
    return {name: tensor.to(model.device) for name, tensor in inputs.items()}


@cache
def _takes_types(forward: Callable[..., Any]) -> bool:
    return "token_type_ids" in signature(forward).parameters


@torch.inference_mode()
def run_logits(
    model: PreTrainedModel, encodings: Encodings, *, batch_tokens: int = 8192, report: Reporter = SILENT
) -> np.ndarray:
    """The model's logits for every window, as it is held, in eval mode: float32 (m, C).

    Args:
        model: A classifier; its mode is restored.
        encodings: m windows.
        batch_tokens: Tokens in a forward pass, padding included.
        report: Receives progress in windows.
    """
    was_training = model.training
    model.eval()
    result = np.zeros((len(encodings), int(model.config.num_labels or 0)), dtype=np.float32)
    rows = np.arange(len(encodings), dtype=np.int64)
    done = 0
    batches = length_batches(encodings.lengths, rows, batch_size=256, seed=0, epoch=0, max_tokens=batch_tokens)
    for windows in batches:
        inputs = forward_inputs(model, encodings.batch(windows))
        choose_attention(model, inputs["input_ids"].shape[1], backward=False)
        result[windows] = model(**inputs).logits.float().cpu().numpy()
        done += len(windows)
        report.progress(done, len(encodings))
    model.train(was_training)
    return result
