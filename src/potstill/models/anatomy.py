"""Where the parts of an encoder are, in each architecture's own names.

One literal table; adding an architecture is adding a row. Knows modules, not losses or tasks.
"""

from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel

from potstill.errors import ModelError

__all__ = [
    "ANATOMIES",
    "Anatomy",
    "EncoderParts",
    "LayerParts",
    "Rows",
    "attention_width",
    "encoder_parts",
    "masked_lm_head",
]


@dataclass(frozen=True)
class Anatomy:
    """Dotted names of the parts: below the encoder for the first group, below one layer for the second.

    Attributes:
        pre_norm: Whether norms stand before attention and FFN (ModernBERT), and one more after the last layer.
        gated: Whether the FFN's first layer makes two halves, of which one, activated, multiplies the other (GeGLU).
        shared: Below a group of layers, the list of its layers, called over and over (ALBERT).
        rotary: Whether queries and keys are rotated by their place.
        disentangled: Whether position has queries and keys of its own in the score (DeBERTa).
        cuttable: Whether a student can be made out of the architecture's layers; MobileBERT's bottlenecks cannot be.
        masked_lm_head: The modules, below `transformers`' masked-LM class, that make scores of words out of the last
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
    attention: str = "attention"
    embedding_output: str = "embeddings"
    embedding_project: str | None = None
    word: str = "embeddings.word_embeddings"
    position: str | None = "embeddings.position_embeddings"
    token_type: str | None = "embeddings.token_type_embeddings"
    relative_bias: str | None = None
    relative_embeddings: str | None = None
    relative_norm: str | None = None
    convolution: str | None = None
    final_norm: str | None = None
    shared: str | None = None
    pre_norm: bool = False
    gated: bool = False
    rotary: bool = False
    disentangled: bool = False
    cuttable: bool = True
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
    "electra": replace(
        _BERT,
        embedding_project="embeddings_project",
        masked_lm_head=("generator_predictions", "generator_lm_head"),
    ),
    "albert": replace(
        _BERT,
        layers="encoder.albert_layer_groups",
        shared="albert_layers",
        embedding_project="encoder.embedding_hidden_mapping_in",
        query="attention.query",
        key="attention.key",
        value="attention.value",
        output="attention.dense",
        attention_norm="attention.LayerNorm",
        ffn_in="ffn",
        ffn_out="ffn_output",
        ffn_norm="full_layer_layer_norm",
        masked_lm_head=("predictions",),
    ),
    "mobilebert": replace(_BERT, cuttable=False),
    "deberta-v2": replace(
        _BERT,
        attention="attention.self",
        query="attention.self.query_proj",
        key="attention.self.key_proj",
        value="attention.self.value_proj",
        embedding_project="embeddings.embed_proj",
        relative_embeddings="encoder.rel_embeddings",
        relative_norm="encoder.LayerNorm",
        convolution="encoder.conv",
        disentangled=True,
    ),
    "modernbert": Anatomy(
        embeddings="embeddings",
        embedding_norm="embeddings.norm",
        layers="layers",
        attention="attn",
        query="attn.Wqkv",
        key="attn.Wqkv",
        value="attn.Wqkv",
        output="attn.Wo",
        attention_norm="attn_norm",
        ffn_in="mlp.Wi",
        ffn_out="mlp.Wo",
        ffn_norm="mlp_norm",
        word="embeddings.tok_embeddings",
        position=None,
        token_type=None,
        final_norm="final_norm",
        pre_norm=True,
        gated=True,
        rotary=True,
        masked_lm_head=("head", "decoder"),
    ),
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
class Rows:
    """Some output rows of a fused linear layer, under a linear layer's names; changes reach the layer."""

    module: nn.Linear
    start: int
    stop: int

    @property
    def weight(self) -> Tensor:
        """(rows, inputs), a view."""
        return self.module.weight[self.start : self.stop]

    @property
    def bias(self) -> Tensor | None:
        """(rows,), a view; None where the layer has none."""
        return None if self.module.bias is None else self.module.bias[self.start : self.stop]

    @property
    def out_features(self) -> int:
        """How many rows."""
        return self.stop - self.start


@dataclass(frozen=True)
class LayerParts:
    """The modules of one Transformer layer: attention (query, key, value, output, norm), then the FFN.

    Attributes:
        attention: The module that computes scores.
        attention_norm: After attention; before it where norms stand first (ModernBERT, whose first layer has none: an
            `nn.Identity`).
        ffn_norm: After the FFN, or before it.
        window: A token attends to those at most so far from it; None: to all.
        call: How many earlier layers are this same module (ALBERT).
    """

    layer: nn.Module
    attention: nn.Module
    query: nn.Linear | Rows
    key: nn.Linear | Rows
    value: nn.Linear | Rows
    output: nn.Linear
    attention_norm: nn.LayerNorm
    ffn_in: nn.Linear
    ffn_out: nn.Linear
    ffn_norm: nn.LayerNorm
    window: int | None = None
    call: int = 0


@dataclass(frozen=True)
class EncoderParts:
    """The modules of an encoder; None where the architecture has none.

    `embedding_project` widens embeddings to the hidden size: after their norm (ELECTRA's small models, ALBERT), or
    before it (DeBERTa-v2). `convolution` follows the first layer of DeBERTa-v2's large models.
    """

    encoder: PreTrainedModel
    anatomy: Anatomy
    embedding_output: nn.Module
    embedding_project: nn.Linear | None
    word: nn.Embedding
    position: nn.Embedding | None
    token_type: nn.Embedding | None
    embedding_norm: nn.LayerNorm
    relative_bias: nn.Embedding | None
    relative_embeddings: nn.Embedding | None
    relative_norm: nn.LayerNorm | None
    convolution: nn.Module | None
    final_norm: nn.LayerNorm | None
    layers: tuple[LayerParts, ...]

    @property
    def biased(self) -> bool:
        """Whether something is added to q·k that is no product of content with content."""
        return self.relative_bias is not None or self.relative_embeddings is not None

    @property
    def first_layer_differs(self) -> bool:
        """Whether the first layer is not built or used as the others are, so that no other can take its place."""
        return self.convolution is not None or self.anatomy.pre_norm

    def state_module(self, index: int) -> nn.Module:
        """The module whose output is hidden state `index` as `transformers` counts: 0 embeddings, i layer i."""
        if index == 0:
            return self.embedding_output
        if index == len(self.layers) and self.final_norm is not None:
            return self.final_norm
        if index == 1 and self.convolution is not None:
            return self.convolution
        return self.layers[index - 1].layer


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

    def find(name: str | None) -> Any:
        return _find(name, encoder)

    layers = _layers(anatomy, _layer_modules(anatomy, find(anatomy.layers), model.config), model.config)
    project = find(anatomy.embedding_project)
    widened_last = project is not None and not anatomy.disentangled
    return EncoderParts(
        encoder,
        anatomy,
        project if widened_last else find(anatomy.embedding_output),
        project,
        find(anatomy.word),
        find(anatomy.position),
        find(anatomy.token_type),
        find(anatomy.embedding_norm),
        find(anatomy.relative_bias),
        find(anatomy.relative_embeddings),
        find(anatomy.relative_norm),
        find(anatomy.convolution),
        find(anatomy.final_norm),
        layers,
    )


def _find(name: str | None, root: Any) -> Any:
    """The module of a dotted name; None where the model has none, or leaves the name empty."""
    for step in name.split(".") if name else ():
        root = getattr(root, step, None)
    return root if name else None


def _layer_modules(anatomy: Anatomy, found: Any, config: PretrainedConfig) -> list[nn.Module]:
    """One module a layer, in the order of their calls."""
    if anatomy.shared is None:
        return list(found)
    if (inner := int(config.inner_group_num)) != 1:
        raise ModelError(f"a {config.model_type!r} of {inner} layers in a group", expected="1, as published")
    count, groups = int(config.num_hidden_layers), len(found)
    return [getattr(found[int(i / (count / groups))], anatomy.shared)[0] for i in range(count)]


def _layers(anatomy: Anatomy, modules: list[nn.Module], config: PretrainedConfig) -> tuple[LayerParts, ...]:
    names = ("attention", "output", "attention_norm", "ffn_in", "ffn_out", "ffn_norm")
    kinds = getattr(config, "layer_types", None) or []
    made = []
    for place, module in enumerate(modules):
        parts = {name: _find(getattr(anatomy, name), module) for name in names}
        read = [_find(getattr(anatomy, name), module) for name in ("query", "key", "value")]
        if read[0] is read[1]:
            width = read[0].out_features // 3
            read = [Rows(read[0], third * width, (third + 1) * width) for third in range(3)]
        local = place < len(kinds) and kinds[place] == "sliding_attention"
        made.append(
            LayerParts(
                layer=module,
                query=read[0],
                key=read[1],
                value=read[2],
                window=int(config.sliding_window) if local else None,
                call=sum(earlier is module for earlier in modules[:place]),
                **parts,
            )
        )
    return tuple(made)


def attention_width(model: PreTrainedModel) -> int:
    """Width of all heads' queries together: the hidden size, but in MobileBERT, whose attention is narrower."""
    if model.config.model_type not in ANATOMIES:
        return int(model.config.hidden_size)
    return encoder_parts(model).layers[0].query.out_features


def masked_lm_head(config: PretrainedConfig) -> tuple[str, ...]:
    """The modules of the masked-LM head, as in `Anatomy`; none where the architecture has no row."""
    if config.model_type == "deberta-v2" and not config.legacy:
        return ("lm_predictions",)
    anatomy = ANATOMIES.get(config.model_type)
    return anatomy.masked_lm_head if anatomy is not None else ()
