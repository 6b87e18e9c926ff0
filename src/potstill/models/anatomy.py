"""Where the parts of an encoder are, in each architecture's own names.

One literal table; adding an architecture is adding a row. Knows modules, not losses or tasks.
"""

from dataclasses import dataclass, replace
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from potstill.errors import ModelError

__all__ = ["ANATOMIES", "Anatomy", "EncoderParts", "LayerParts", "encoder_parts"]


@dataclass(frozen=True)
class Anatomy:
    """Dotted names of the parts: below the encoder for the first group, below one layer for the second.

    `masked_lm_head` names the modules, below `transformers`' masked-LM class, that make scores of words out of the last
    hidden states, in the order in which they are applied.
    """

    embeddings: str
    embedding_norm: str
    layers: str
    query: str
    key: str
    value: str
    output: str
    attention_norm: str
    ffn_in: str
    ffn_out: str
    ffn_norm: str
    embedding_output: str = "embeddings"
    word: str = "embeddings.word_embeddings"
    position: str = "embeddings.position_embeddings"
    token_type: str | None = "embeddings.token_type_embeddings"
    relative_bias: str | None = None
    masked_lm_head: tuple[str, ...] = ("cls",)


_BERT = Anatomy(
    embeddings="embeddings",
    embedding_norm="embeddings.LayerNorm",
    layers="encoder.layer",
    query="attention.self.query",
    key="attention.self.key",
    value="attention.self.value",
    output="attention.output.dense",
    attention_norm="attention.output.LayerNorm",
    ffn_in="intermediate.dense",
    ffn_out="output.dense",
    ffn_norm="output.LayerNorm",
)

ANATOMIES: dict[str, Anatomy] = {
    "bert": _BERT,
    "roberta": replace(_BERT, masked_lm_head=("lm_head",)),
    "xlm-roberta": replace(_BERT, masked_lm_head=("lm_head",)),
    "camembert": replace(_BERT, masked_lm_head=("lm_head",)),
    "electra": replace(_BERT, masked_lm_head=("generator_predictions", "generator_lm_head")),
    "mpnet": Anatomy(
        embeddings="embeddings",
        embedding_norm="embeddings.LayerNorm",
        layers="encoder.layer",
        query="attention.attn.q",
        key="attention.attn.k",
        value="attention.attn.v",
        output="attention.attn.o",
        attention_norm="attention.LayerNorm",
        ffn_in="intermediate.dense",
        ffn_out="output.dense",
        ffn_norm="output.LayerNorm",
        token_type=None,
        relative_bias="encoder.relative_attention_bias",
        masked_lm_head=("lm_head",),
    ),
    "distilbert": Anatomy(
        embeddings="embeddings",
        embedding_norm="embeddings.LayerNorm",
        layers="transformer.layer",
        query="attention.q_lin",
        key="attention.k_lin",
        value="attention.v_lin",
        output="attention.out_lin",
        attention_norm="sa_layer_norm",
        ffn_in="ffn.lin1",
        ffn_out="ffn.lin2",
        ffn_norm="output_layer_norm",
        token_type=None,
        masked_lm_head=("vocab_transform", "activation", "vocab_layer_norm", "vocab_projector"),
    ),
}
"""By `config.model_type`."""


@dataclass(frozen=True)
class LayerParts:
    """The modules of one post-norm Transformer layer: attention (query, key, value, output, norm), then the FFN."""

    layer: nn.Module
    query: nn.Linear
    key: nn.Linear
    value: nn.Linear
    output: nn.Linear
    attention_norm: nn.LayerNorm
    ffn_in: nn.Linear
    ffn_out: nn.Linear
    ffn_norm: nn.LayerNorm


@dataclass(frozen=True)
class EncoderParts:
    """The modules of an encoder; None where the architecture has none.

    `embedding_project` widens embeddings to the hidden size after their norm (ELECTRA's small models).
    """

    encoder: PreTrainedModel
    embedding_output: nn.Module
    embedding_project: nn.Linear | None
    word: nn.Embedding
    position: nn.Embedding
    token_type: nn.Embedding | None
    embedding_norm: nn.LayerNorm
    relative_bias: nn.Embedding | None
    layers: tuple[LayerParts, ...]


def encoder_parts(model: PreTrainedModel) -> EncoderParts:
    """Find the parts of a model, with or without a head.

    Raises:
        ModelError: An architecture that is not in `ANATOMIES`.
    """
    kind = model.config.model_type
    if kind not in ANATOMIES:
        raise ModelError(f"a model of type {kind!r}", expected=f"one of {', '.join(sorted(ANATOMIES))}")
    anatomy = ANATOMIES[kind]
    encoder: Any = model.base_model

    def find(name: str | None, root: nn.Module = encoder) -> Any:
        return None if name is None else root.get_submodule(name)

    names = [name for name in LayerParts.__dataclass_fields__ if name != "layer"]
    layers = tuple(
        LayerParts(layer, *(find(getattr(anatomy, name), layer) for name in names)) for layer in find(anatomy.layers)
    )
    project = getattr(encoder, "embeddings_project", None)
    return EncoderParts(
        encoder,
        project if project is not None else find(anatomy.embedding_output),
        project,
        find(anatomy.word),
        find(anatomy.position),
        find(anatomy.token_type),
        find(anatomy.embedding_norm),
        find(anatomy.relative_bias),
        layers,
    )
