"""A classifier as the converters want it: arrays in, logits out, and a batch to trace it with."""

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from inspect import signature

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from potstill.models.anatomy import ANATOMIES

__all__ = ["LogitsOnly", "quiet", "sample_inputs"]

_LOGGERS = ("onnx_ir", "onnxscript", "nncf", "torch.onnx", "transformers")


class LogitsOnly(nn.Module):
    """Calls a `transformers` classifier by name and gives its logits, float32 (b, n_labels).

    Args:
        model: In eval mode.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model
        anatomy = ANATOMIES.get(model.config.model_type)
        self.rotary = anatomy is not None and anatomy.rotary

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """Logits of one padded batch; each input int64 (b, longest)."""
        more = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        if self.rotary:  # ONNX Runtime's operator wants the angles of each text, though they are the same
            more["position_ids"] = torch.arange(input_ids.shape[1], device=input_ids.device).expand(input_ids.shape)
        logits: Tensor = self.model(input_ids=input_ids, attention_mask=attention_mask, **more).logits
        return logits


def sample_inputs(model: PreTrainedModel) -> dict[str, Tensor]:
    """A small batch with padding in it, by the names that the model knows.

    Three texts of up to eleven tokens: both numbers differ, and neither is 1, so that no converter takes one for the
    other or for a constant.
    """
    rows, longest = 3, 11
    padding = int(model.config.pad_token_id or 0)
    tokens = torch.arange(rows * longest).reshape(rows, longest) % int(model.config.vocab_size)
    mask = (torch.arange(longest)[None, :] < torch.tensor([[longest], [7], [4]])).long()
    inputs = {
        "input_ids": torch.where((mask == 1) & (tokens != padding), tokens, padding),
        "attention_mask": mask,
        "token_type_ids": torch.zeros_like(tokens),
    }
    known = signature(model.forward).parameters
    return {name: tensor for name, tensor in inputs.items() if name in known}


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep the converters' own progress bars, log lines and warnings to themselves.

    They speak of their own deprecations and of packages they do not need; a failure is still raised.
    """
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
