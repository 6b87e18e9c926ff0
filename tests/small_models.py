"""Random encoders of every architecture that Potstill knows, made in the code: some layers of width 24, 97 tokens.

Their weights are large enough, their biases and gains different enough, that nothing in them is near zero by accident.
"""

from typing import Any

import numpy as np
import torch
from transformers import (
    AlbertConfig,
    AutoModelForSequenceClassification,
    BertConfig,
    CamembertConfig,
    DebertaV2Config,
    DistilBertConfig,
    ElectraConfig,
    MobileBertConfig,
    ModernBertConfig,
    MPNetConfig,
    PretrainedConfig,
    PreTrainedModel,
    RobertaConfig,
    XLMRobertaConfig,
)

from potstill.data.encoding import Encodings

VOCABULARY = 97
FIRST_TOKEN = 5
"""Ids below it are special in one architecture or another."""

CONFIGS: dict[str, type[PretrainedConfig]] = {
    "bert": BertConfig,
    "roberta": RobertaConfig,
    "xlm-roberta": XLMRobertaConfig,
    "camembert": CamembertConfig,
    "electra": ElectraConfig,
    "mpnet": MPNetConfig,
    "distilbert": DistilBertConfig,
    "albert": AlbertConfig,
    "deberta-v2": DebertaV2Config,
    "modernbert": ModernBertConfig,
    "mobilebert": MobileBertConfig,
}
STUDENTS = tuple(kind for kind in CONFIGS if kind != "mobilebert")
"""Architectures that a student can be cut from: MobileBERT is a teacher only."""

_OWN: dict[str, dict[str, Any]] = {
    # In every published checkpoint there is one type of token.
    "roberta": {"type_vocab_size": 1},
    "xlm-roberta": {"type_vocab_size": 1},
    "camembert": {"type_vocab_size": 1},
    # As DeBERTa-v3: positions by shared projections, normed, in buckets, and none in the embeddings.
    "deberta-v2": {
        "relative_attention": True,
        "pos_att_type": ["p2c", "c2p"],
        "position_buckets": 6,
        "max_relative_positions": 12,
        "share_att_key": True,
        "norm_rel_ebd": "layer_norm",
        "position_biased_input": False,
    },
    # Windows shorter than the texts of most tests: 3 tokens in either direction, but in each third layer.
    "modernbert": {
        "local_attention": 6,
        "pad_token_id": 0,
        "bos_token_id": 2,
        "eos_token_id": 3,
        "cls_token_id": 2,
        "sep_token_id": 3,
    },
}


def small_config(
    kind: str = "bert",
    *,
    layers: int = 2,
    hidden: int = 24,
    heads: int = 4,
    ffn: int = 40,
    labels: int = 3,
    dropout: float = 0.0,
    **more,
) -> PretrainedConfig:
    shape: dict[str, Any] = (
        {"n_layers": layers, "dim": hidden, "n_heads": heads, "hidden_dim": ffn}
        if kind == "distilbert"
        else {
            "num_hidden_layers": layers,
            "hidden_size": hidden,
            "num_attention_heads": heads,
            "intermediate_size": ffn,
        }
    )
    names = {
        "distilbert": ("dropout", "attention_dropout", "seq_classif_dropout"),
        "modernbert": ("attention_dropout", "embedding_dropout", "mlp_dropout", "classifier_dropout"),
    }.get(kind, ("hidden_dropout_prob", "attention_probs_dropout_prob"))
    rates = dict.fromkeys(names, dropout)
    if kind == "albert":
        rates["classifier_dropout_prob"] = dropout
    if kind == "deberta-v2":
        rates["pooler_dropout"] = dropout
    if kind == "electra":
        shape["embedding_size"] = hidden
    if kind == "albert":
        shape["embedding_size"] = 10
    if kind == "mobilebert":
        shape |= {"embedding_size": 10, "intra_bottleneck_size": hidden // 2, "num_feedforward_networks": 2}
    sizes = {"vocab_size": VOCABULARY, "max_position_embeddings": 80, "num_labels": labels}
    return CONFIGS[kind](**{**sizes, **_OWN.get(kind, {}), **shape, **rates, **more})


def small_model(kind: str = "bert", *, seed: int = 0, scale: float = 0.3, **config) -> PreTrainedModel:
    """A classifier in eval mode: matrices N(0, scale²), vectors N(0, 0.1²), gains around 1."""
    model = AutoModelForSequenceClassification.from_config(small_config(kind, **config), attn_implementation="eager")
    generator = torch.Generator().manual_seed(seed)
    scale *= 0.4 if kind == "mobilebert" else 1.0  # its states grow: what it has for norms does not norm
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            drawn = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim > 1:
                parameter.copy_(drawn * scale)
            else:
                is_gain = "norm" in name.lower() and name.endswith("weight")
                parameter.copy_(drawn * 0.1 + float(is_gain))
        if kind == "mobilebert":  # as it is loaded: its words see their neighbours, padding too
            model.get_input_embeddings().weight[model.config.pad_token_id] = 0.0
    return model.eval()


def pad_id(kind: str) -> int:
    return int(small_config(kind).pad_token_id)


def random_encodings(lengths, *, seed: int = 0, kind: str = "bert") -> Encodings:
    """Windows of the given lengths, each a text of its own, random ids; the second half of each is of type 1."""
    lengths = np.asarray(lengths, dtype=np.int64)
    generator = np.random.default_rng(seed)
    types = [np.arange(length) >= (length + 1) // 2 for length in lengths]
    return Encodings(
        generator.integers(FIRST_TOKEN, VOCABULARY, lengths.sum()).astype(np.int32),
        np.concatenate(types).astype(np.int8) if len(types) else np.zeros(0, dtype=np.int8),
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        np.arange(len(lengths), dtype=np.int64),
        0,
        0,
        pad_id(kind),
    )
