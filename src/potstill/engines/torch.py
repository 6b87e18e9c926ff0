"""torch: the model as `transformers` opens it, from config.json and model.safetensors. The reference for the others.

Knows no export and no task. No code from the folder is run, and only safetensors are read.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from inspect import signature
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from transformers import AutoModelForSequenceClassification, PreTrainedModel
from transformers.utils import logging

from potstill.errors import ModelError
from potstill.models.packed import packed
from potstill.models.precision import choose_attention

__all__ = ["TorchEngine", "load_model", "open_model"]

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def load_model(folder: Path, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """The classifier in a folder, in eval mode, with fused attention where the architecture has it.

    Raises:
        ModelError: A folder that `transformers` cannot open, or a checkpoint that lacks weights: none are invented.
    """
    try:
        with _no_progress_bar():
            model, info = AutoModelForSequenceClassification.from_pretrained(
                folder,
                dtype=dtype,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
                output_loading_info=True,
                attn_implementation="eager",
            )
    except (OSError, RuntimeError, ValueError, KeyError, SafetensorError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ModelError(f"{folder} cannot be opened as a classifier: {reason}") from error
    lacking = sorted([*info["missing_keys"], *(str(key) for key in info.get("mismatched_keys", ()))])
    if lacking:
        raise ModelError(
            f"{folder} lacks weights: {', '.join(lacking[:3])}", expected="a model with a trained classification head"
        )
    choose_attention(model, 1, backward=False)
    classifier: PreTrainedModel = model.eval()
    return classifier


class TorchEngine:
    """A `transformers` classifier under `Engine`'s contract.

    Args:
        model: In eval mode; runs in the format its weights are held in.
        precision: The name of that format.
        threads: Set while a batch runs, and put back after it; None leaves torch's own setting.
    """

    name = "torch"

    def __init__(self, model: PreTrainedModel, precision: str, threads: int | None = None) -> None:
        self.model, self.precision, self.threads = model, precision, threads
        known = signature(model.forward).parameters
        self._names = [name for name in ("input_ids", "attention_mask", "token_type_ids") if name in known]

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Logits of one padded batch, float32 whatever the weights are held in."""
        if missing := sorted({"input_ids", "attention_mask"} - set(inputs)):
            raise ModelError(f"no {', '.join(missing)}", expected=", ".join(self._names))
        with torch.inference_mode(), _threads(self.threads):
            tensors = {name: torch.from_numpy(inputs[name]) for name in self._names if name in inputs}
            logits = self.model(**tensors).logits
            return {"logits": logits.float().numpy()}


@contextmanager
def _no_progress_bar() -> Iterator[None]:
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    if count is None or count == before:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def open_model(path: Path, precision: str, threads: int | None) -> TorchEngine:
    """Open the folder of `path` (its config.json); as `potstill.engines.load`, which checked the arguments."""
    return TorchEngine(packed(load_model(path.parent, _DTYPES[precision])), precision, threads)
