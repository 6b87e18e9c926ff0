"""Random encoders of every architecture that Potstill knows, made in the code: some layers of width 24, 97 tokens.

Their weights are large enough, their biases and gains different enough, that nothing in them is near zero by accident.
"""

import numpy as np
import torch
from transformers import (
    AutoModelForSequenceClassification,
    BertConfig,
    CamembertConfig,
    DistilBertConfig,
    ElectraConfig,
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
    shape = (
        {"n_layers": layers, "dim": hidden, "n_heads": heads, "hidden_dim": ffn}
        if kind == "distilbert"
        else {
            "num_hidden_layers": layers,
            "hidden_size": hidden,
            "num_attention_heads": heads,
            "intermediate_size": ffn,
        }
    )
    rates = (
        {"dropout": dropout, "attention_dropout": dropout, "seq_classif_dropout": dropout}
        if kind == "distilbert"
        else {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    )
    if kind == "electra":
        shape["embedding_size"] = hidden
    if kind in ("roberta", "xlm-roberta", "camembert"):
        shape["type_vocab_size"] = 1  # as in every published checkpoint
    sizes = {"vocab_size": VOCABULARY, "max_position_embeddings": 80, "num_labels": labels}
    return CONFIGS[kind](**{**sizes, **shape, **rates, **more})


def small_model(kind: str = "bert", *, seed: int = 0, scale: float = 0.3, **config) -> PreTrainedModel:
    """A classifier in eval mode: matrices N(0, scale²), vectors N(0, 0.1²), gains around 1."""
    model = AutoModelForSequenceClassification.from_config(small_config(kind, **config), attn_implementation="eager")
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            drawn = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim > 1:
                parameter.copy_(drawn * scale)
            else:
                is_gain = "norm" in name.lower() and name.endswith("weight")
                parameter.copy_(drawn * 0.1 + float(is_gain))
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
