"""Loading a model that classifies, or that can be taught to; checks before any work. Knows no data and no loss."""

import re
from collections.abc import Sequence
from pathlib import Path

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForSequenceClassification, PretrainedConfig, PreTrainedModel

from potstill.data.labels import match_labels
from potstill.errors import ModelError
from potstill.models.anatomy import ANATOMIES

_HEAD = ("pre_classifier", "classifier")

__all__ = ["check_encoder", "has_classifier", "load_classifier", "longest_input", "read_config"]


def read_config(folder: Path) -> PretrainedConfig:
    """The model's config, after it was checked to be an encoder that Potstill knows.

    Raises:
        ModelError: No config, a decoder, or an architecture without a row in `ANATOMIES`.
    """
    try:
        config: PretrainedConfig = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, TypeError, KeyError, StrictDataclassError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[-1].strip()
        raise ModelError(f"{folder} holds no model that transformers knows: {reason}") from error
    known = ", ".join(sorted(ANATOMIES))
    if getattr(config, "is_encoder_decoder", False) or getattr(config, "is_decoder", False):
        raise ModelError(f"{folder} is a {config.model_type!r} with a decoder", expected=f"an encoder: {known}")
    if config.model_type not in ANATOMIES:
        raise ModelError(f"{folder} is of type {config.model_type!r}", expected=f"an encoder: {known}")
    for name in ("num_hidden_layers", "hidden_size", "num_attention_heads", "max_position_embeddings", "vocab_size"):
        value = getattr(config, name, None)
        if not isinstance(value, int) or value < 1:
            raise ModelError(f"{folder}: {name} is {value!r} in its config.json", expected="a whole number from 1")
    if config.hidden_size % config.num_attention_heads:
        raise ModelError(
            f"{folder}: a width of {config.hidden_size} with {config.num_attention_heads} heads",
            expected="a width that the heads divide",
        )
    return config


def longest_input(config: PretrainedConfig) -> int:
    """The longest input in tokens: the position table, less the places that RoBERTa-like models leave unused."""
    positions = int(config.max_position_embeddings)
    shifted = config.model_type in ("roberta", "xlm-roberta", "camembert", "mpnet")
    return positions - 2 if shifted else positions


def has_classifier(folder: Path) -> bool:
    """Whether the checkpoint holds the weights of a classification head (not only a config that speaks of one)."""
    with torch.random.fork_rng():
        return not _load(folder, read_config(folder), torch.float32)[1]


def _load(
    folder: Path, config: PretrainedConfig, dtype: torch.dtype, *, new_head: bool = False
) -> tuple[PreTrainedModel, list[str]]:
    """A classifier in eval mode, and the names of weights between encoder and logits that the folder lacks."""
    # The attention kernel is chosen later, by length; "eager" is what every architecture has.
    try:
        model, info = AutoModelForSequenceClassification.from_pretrained(
            folder,
            config=config,
            dtype=dtype,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
            ignore_mismatched_sizes=new_head,  # a head of other classes is replaced; the encoder is checked below
            attn_implementation="eager",
        )
    except (OSError, RuntimeError, ValueError, KeyError, SafetensorError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ModelError(f"{folder} cannot be loaded: {reason}", fix="check its config.json and weights") from error
    if not all(bool(torch.isfinite(parameter).all()) for parameter in model.parameters()):
        raise ModelError(f"{folder} holds weights that are NaN or infinite", fix="fetch or train the model again")
    _check_all_used(folder, [str(name) for name in info.get("unexpected_keys", ())])
    missing = sorted(info["missing_keys"])
    mismatched = sorted(str(key[0]) for key in info.get("mismatched_keys", []))
    encoder = [name for name in missing if name.startswith(f"{model.base_model_prefix}.") and ".pooler." not in name]
    encoder += [name for name in mismatched if name.split(".")[0] not in _HEAD]
    if encoder:
        raise ModelError(f"{folder} lacks weights of its encoder: {', '.join(encoder[:3])}")
    return model.eval(), missing


def check_encoder(folder: Path) -> None:
    """Raise `ModelError` unless the folder's encoder can be loaded: its weights are there, whole and fit its config."""
    with torch.random.fork_rng():
        _load(folder, read_config(folder), torch.float32, new_head=True)


def _check_all_used(folder: Path, unused: Sequence[str]) -> None:
    """A config of fewer layers than the weights hold would cut the model without a word."""
    layers = sorted(name for name in unused if re.search(r"(^|\.)layers?\.\d+\.", name))
    if layers:
        raise ModelError(
            f"{folder} holds weights that its config.json has no place for ({layers[0]})",
            expected="as many layers in both",
            fix="correct num_hidden_layers in its config.json",
        )


def load_classifier(
    folder: Path,
    labels: Sequence[str],
    *,
    new_head: bool = False,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    assume_order: bool = False,
) -> PreTrainedModel:
    """A classifier whose outputs stand in the order of `labels`. Eval mode.

    Args:
        folder: A model's folder.
        labels: The data's label names.
        new_head: Put a fresh head on the encoder (drawn with `seed`), to be trained; False: the head must be there, and
            its outputs are reordered by name.
        seed: Of the fresh head.
        dtype: What the weights are held in.
        assume_order: As in `potstill.data.labels.match_labels`.

    Raises:
        ModelError: No encoder, or no classification head where one must be there.
        DataError: Labels that do not match; both lists are shown.
    """
    config = read_config(folder)
    names = {str(index): name for index, name in enumerate(labels)}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        if new_head:
            config.num_labels = len(labels)
            model, _ = _load(folder, config, dtype, new_head=True)
            _draw_head(model, seed)
        else:
            model, missing = _load(folder, config, dtype)
            if missing:
                raise ModelError(
                    f"{folder} has no classification head ({missing[0]} is missing)",
                    fix="set teacher.trained to false: it is then fine-tuned first",
                )
            own = _label_names(config, folder)
            _reorder(model, torch.from_numpy(match_labels(labels, own, assume_order=assume_order)))
    model.config.id2label = {int(index): name for index, name in names.items()}
    model.config.label2id = {name: int(index) for index, name in names.items()}
    model.config.problem_type = "single_label_classification"
    return model


def _label_names(config: PretrainedConfig, folder: Path) -> list[str]:
    named = {int(index): name for index, name in (config.id2label or {}).items()}
    if sorted(named) != list(range(len(named))):
        raise ModelError(f"{folder} numbers its labels {sorted(named)[:12]}", expected="0, 1, 2 … in its id2label")
    return [named[index] for index in range(len(named))]


@torch.no_grad()
def _draw_head(model: PreTrainedModel, seed: int) -> None:
    """Linear layers of the head from N(0, initializer_range), biases 0: whatever stood there, and by `seed` alone."""
    generator = torch.Generator().manual_seed(seed)
    deviation = float(getattr(model.config, "initializer_range", 0.02))
    for part in _HEAD:
        for module in getattr(model, part, torch.nn.Identity()).modules():
            if isinstance(module, torch.nn.Linear):
                drawn = torch.randn(module.weight.shape, generator=generator) * deviation
                module.weight.copy_(drawn)
                module.bias.zero_()


@torch.no_grad()
def _reorder(model: PreTrainedModel, order: torch.Tensor) -> None:
    """Put the rows of the last linear layer in the data's order."""
    head = model.get_submodule("classifier")
    last = head if isinstance(head, torch.nn.Linear) else head.get_submodule("out_proj")
    last.weight.copy_(last.weight[order])  # type: ignore[operator, index]
    last.bias.copy_(last.bias[order])  # type: ignore[operator, index]
