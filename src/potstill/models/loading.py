"""Loading a checkpoint as one of `transformers`' classes, checked before any work. Knows no data and no loss."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForSequenceClassification, PretrainedConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_MASKED_LM_MAPPING,
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
)

from potstill.errors import ModelError
from potstill.models.anatomy import ANATOMIES, encoder_parts

__all__ = ["check_encoder", "counts_from_padding", "load_model", "longest_input", "read_config"]


def read_config(folder: Path) -> PretrainedConfig:
    """The model's config, after it was checked to be an encoder that Potstill knows.

    Raises:
        ModelError: No config, a decoder, or an encoder that neither has a row in `ANATOMIES` nor is a masked LM and
            classifier on `transformers`' attention interface.
    """
    try:
        config: PretrainedConfig = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, TypeError, KeyError, StrictDataclassError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[-1].strip()
        raise ModelError(f"{folder} holds no model that transformers knows: {reason}") from error
    known = ", ".join(sorted(ANATOMIES))
    if getattr(config, "is_encoder_decoder", False) or getattr(config, "is_decoder", False):
        raise ModelError(f"{folder} is a {config.model_type!r} with a decoder", expected=f"an encoder: {known}")
    if config.model_type not in ANATOMIES and not _on_the_interface(config):
        raise ModelError(
            f"{folder} is of type {config.model_type!r}",
            expected=f"an encoder: {known}, or another on transformers' attention interface",
        )
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


def _on_the_interface(config: PretrainedConfig) -> bool:
    """Whether it is an encoder of any kind (a masked LM) that classifies, on `transformers`' attention interface."""
    kind = type(config)
    if kind not in MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING or kind not in MODEL_FOR_MASKED_LM_MAPPING:
        return False
    classifier = MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING[kind]
    return bool(getattr(classifier, "_supports_attention_backend", False))


def longest_input(config: PretrainedConfig) -> int:
    """The longest input in tokens: the position table, less the places that RoBERTa-like models leave unused."""
    positions = int(config.max_position_embeddings)
    return positions - 2 if counts_from_padding(config) else positions


def counts_from_padding(config: PretrainedConfig) -> bool:
    """Whether the architecture counts positions from the padding token's id on; of one not known, whether it may."""
    if config.model_type not in ANATOMIES:
        return bool(config.pad_token_id == 1)
    return config.model_type in ("roberta", "xlm-roberta", "camembert", "mpnet")


def load_model(
    kind: Any, folder: Path, config: PretrainedConfig, dtype: torch.dtype, *, new_head: bool = False
) -> tuple[PreTrainedModel, list[str]]:
    """A model in eval mode, and the names of weights between encoder and answer that the folder lacks.

    Args:
        kind: An Auto class of `transformers`, as `AutoModelForMaskedLM`.
        folder: The checkpoint.
        config: Its own, or with another number of labels.
        dtype: What the weights are held in.
        new_head: A head of other sizes than `config` says is replaced by a random one.

    Raises:
        ModelError: Weights that cannot be read, that are NaN, or that the encoder lacks or has no place for.
    """
    # The attention kernel is chosen later, by length; "eager" is what every architecture has.
    try:
        model, info = kind.from_pretrained(
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
    encoder += [name for name in mismatched if name.startswith(f"{model.base_model_prefix}.")]
    if encoder:
        raise ModelError(f"{folder} lacks weights of its encoder: {', '.join(encoder[:3])}")
    if getattr(config, "trigram_input", False) and config.pad_token_id is not None:
        # MobileBERT joins each word's vector with its neighbours', and nothing's is zero: padding's must be too, or a
        # text's last word would depend on whether others in the batch are longer.
        with torch.no_grad():
            model.get_input_embeddings().weight[config.pad_token_id] = 0.0
    return model.eval(), missing


def check_encoder(folder: Path) -> None:
    """Raise `ModelError` unless the folder's encoder can be loaded: its weights are there, whole and fit its config."""
    config = read_config(folder)
    with torch.random.fork_rng():
        model, _ = load_model(AutoModelForSequenceClassification, folder, config, torch.float32, new_head=True)
    if config.model_type in ANATOMIES:
        encoder_parts(model)
    else:
        _check_states(folder, model)


@torch.no_grad()
def _check_states(folder: Path, model: PreTrainedModel) -> None:
    """A forward pass of four tokens: an encoder that is not known must give its states as all do."""
    config = model.config
    try:
        hidden = model(input_ids=torch.arange(4)[None] % config.vocab_size, output_hidden_states=True).hidden_states
        shapes = [tuple(state.shape) for state in hidden]
    except (RuntimeError, ValueError, TypeError, IndexError, AttributeError) as error:
        raise ModelError(f"{folder}: a {config.model_type!r} that cannot be run on plain text: {error}") from error
    wanted = [(1, 4, config.hidden_size)] * (config.num_hidden_layers + 1)
    if shapes != wanted:
        raise ModelError(
            f"{folder}: a {config.model_type!r} that gives hidden states of the shapes {sorted(set(shapes))}",
            expected=f"{len(wanted)} of (1, 4, {config.hidden_size})",
        )


def _check_all_used(folder: Path, unused: Sequence[str]) -> None:
    """A config of fewer layers than the weights hold would cut the model without a word."""
    layers = sorted(name for name in unused if re.search(r"(^|\.)layers?\.\d+\.", name))
    if layers:
        raise ModelError(
            f"{folder} holds weights that its config.json has no place for ({layers[0]})",
            expected="as many layers in both",
            fix="correct num_hidden_layers in its config.json",
        )
