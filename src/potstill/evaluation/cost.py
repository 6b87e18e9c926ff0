"""What a model costs: parameters from a file or a configuration, floating-point operations from a configuration.

Reads headers and numbers only: needs neither torch nor the weights. Times are measured in `latency`.
"""

import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from potstill.errors import ModelError, StorageError
from potstill.storage import read_json

__all__ = ["ParameterCounts", "encoder_parameters", "flops", "flops_per_token", "parameter_counts"]

# Modules whose weight is a table that tokens are looked up in, across BERT's relatives.
_TABLES = {
    "word_embeddings",
    "position_embeddings",
    "token_type_embeddings",
    "tok_embeddings",
    "embed_tokens",
    "embed_positions",
    "wte",
    "wpe",
}
_BERT_LIKE = {"bert", "roberta", "xlm-roberta", "camembert", "electra", "mpnet", "albert", "distilbert"}
_LONGEST_HEADER = 100_000_000


@dataclass(frozen=True)
class ParameterCounts:
    """Numbers that a model learns.

    Attributes:
        total: All of them.
        embedding: In the tables of words, positions and token types; looked up, not multiplied.
    """

    total: int
    embedding: int

    @property
    def non_embedding(self) -> int:
        """All others: what each token is multiplied by, twice as many operations as numbers."""
        return self.total - self.embedding


def parameter_counts(model: Path | Mapping[str, Sequence[int]]) -> ParameterCounts:
    """Count the parameters of a saved model, as they stand in its file.

    Args:
        model: A folder with `model.safetensors`, whole or in shards (only headers are read; integer tensors, which are
            buffers, do not count), or the shape of each parameter by name.

    Raises:
        ModelError: A folder without safetensors.
        StorageError: A file whose header cannot be read.
    """
    shapes = _shapes_in(model) if isinstance(model, Path) else model
    total = embedding = 0
    for name, shape in shapes.items():
        size = math.prod(shape)
        total += size
        module, _, kind = name.rpartition(".")
        embedding += size if kind == "weight" and module.rpartition(".")[2] in _TABLES else 0
    return ParameterCounts(total, embedding)


def _shapes_in(folder: Path) -> dict[str, list[int]]:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        files = sorted({folder / Path(name).name for name in read_json(index)["weight_map"].values()})
    else:
        files = [folder / "model.safetensors"]
    shapes: dict[str, list[int]] = {}
    for file in files:
        if not file.is_file():
            raise ModelError(f"{folder} has no {file.name}", fix="save the model there with save_pretrained")
        shapes.update(_header(file))
    return shapes


def _header(path: Path) -> dict[str, list[int]]:
    """Shapes of the floating-point tensors in a safetensors file."""
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > _LONGEST_HEADER:
                raise ValueError(f"a header of {length} bytes")
            entries = json.loads(file.read(length))
        return {
            name: entry["shape"]
            for name, entry in entries.items()
            if name != "__metadata__" and entry["dtype"].startswith(("F", "BF"))
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise StorageError(f"{path} is no safetensors file: {error}", fix="get it again") from error


@dataclass(frozen=True)
class _Shape:
    """The numbers of an encoder that decide its cost."""

    kind: str
    layers: int
    hidden: int
    ffn: int
    heads: int
    vocabulary: int
    positions: int
    token_types: int
    width: int
    relative_buckets: int
    shared: bool

    @property
    def per_layer(self) -> int:
        """Weights of one layer's products: query, key, value, output; two of the feed-forward network."""
        return 4 * self.hidden**2 + 2 * self.hidden * self.ffn

    @property
    def widening(self) -> int:
        """Weights of the product from the embedding's width to the model's; 0 where there is none."""
        return self.width * self.hidden if self.kind == "albert" or self.width != self.hidden else 0


def _shape(config: Mapping[str, Any]) -> _Shape:
    kind = str(config.get("model_type"))
    if kind not in _BERT_LIKE:
        raise ModelError(f"a model of type {kind!r}", expected=", ".join(sorted(_BERT_LIKE)))
    distil = kind == "distilbert"
    try:
        hidden = int(config["dim" if distil else "hidden_size"])
        return _Shape(
            kind=kind,
            layers=int(config["n_layers" if distil else "num_hidden_layers"]),
            hidden=hidden,
            ffn=int(config["hidden_dim" if distil else "intermediate_size"]),
            heads=int(config["n_heads" if distil else "num_attention_heads"]),
            vocabulary=int(config["vocab_size"]),
            positions=int(config["max_position_embeddings"]),
            token_types=0 if kind in ("distilbert", "mpnet") else int(config["type_vocab_size"]),
            width=int(config["embedding_size"]) if kind in ("albert", "electra") else hidden,
            relative_buckets=int(config["relative_attention_num_buckets"]) if kind == "mpnet" else 0,
            shared=kind == "albert",
        )
    except KeyError as error:
        raise ModelError(f"a configuration without {error}", fix="use a complete config.json") from error


def encoder_parameters(config: Mapping[str, Any], *, pooler: bool = True) -> ParameterCounts:
    """Count the parameters of an encoder without a head, from its configuration alone; exact.

    V·E + P·E + T·E + 2E for the embeddings, then a layer 4(H² + H) + 2HF + F + H + 4H (once where layers are shared),
    H² + H for the pooler. E is H except in ALBERT and ELECTRA, which widen by E·H + H; MPNet adds buckets × heads.

    Args:
        config: What config.json holds (`PretrainedConfig.to_dict()`): `bert`, `roberta`, `xlm-roberta`, `camembert`,
            `electra`, `mpnet`, `albert` or `distilbert`.
        pooler: Whether to count the pooler. DistilBERT and ELECTRA have none.

    Raises:
        ModelError: Another architecture, or a configuration with a key missing.
    """
    shape = _shape(config)
    hidden = shape.hidden
    tables = (shape.vocabulary + shape.positions + shape.token_types) * shape.width
    total = tables + 2 * shape.width + (shape.widening + hidden if shape.widening else 0)
    layer = shape.per_layer + 4 * hidden + shape.ffn + hidden + 4 * hidden
    total += layer * (1 if shape.shared else shape.layers)
    total += shape.relative_buckets * shape.heads
    if pooler and shape.kind not in ("distilbert", "electra"):
        total += hidden**2 + hidden
    return ParameterCounts(total, tables)


def flops_per_token(config: Mapping[str, Any]) -> int:
    """Operations of one forward pass for each token, attention's own products apart: 2 × the weights it meets.

    Products only, a multiplication and an addition each counting one; biases, norms, softmax, pooler and head are left
    out (below 1 % together).

    Args:
        config: As for `encoder_parameters`.
    """
    shape = _shape(config)
    return 2 * (shape.layers * shape.per_layer + shape.widening)


def flops(config: Mapping[str, Any], length: int) -> int:
    """Operations of one forward pass over one text: L · (`flops_per_token` + 4·L·H·layers).

    The second term is QKᵀ and the product with V, which grow with the square of the length.

    Args:
        config: As for `encoder_parameters`.
        length: L, in tokens.
    """
    shape = _shape(config)
    return length * (flops_per_token(config) + 4 * length * shape.hidden * shape.layers)
