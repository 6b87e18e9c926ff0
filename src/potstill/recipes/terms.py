"""What a loss term is before the models are known: a function, what it reads, and where.

A method is a list of these; a new one adds at most a loss function.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from potstill.losses import (
    attention_kl,
    attention_mse,
    cls_mse,
    cosine_distance,
    hard_cross_entropy,
    hidden_mse,
    logits_kl,
    pairwise_similarity_mse,
    relation_kl,
    value_kl,
    vector_cosine,
    vector_mse,
    word_cross_entropy,
    word_kl,
)
from potstill.training.program import Value

__all__ = [
    "ATTENTION",
    "CLS",
    "COSINE",
    "DIRECTION",
    "DISTRIBUTION",
    "EMBEDDING",
    "HARD",
    "HIDDEN",
    "HINT",
    "KEYS",
    "LOGITS",
    "MASKED",
    "QUERIES",
    "SIMILARITY",
    "VALUES",
    "VALUE_HEADS",
    "VECTOR",
    "WORDS",
    "Places",
    "Reads",
    "Term",
]

Reads = Literal["hidden", "scores", "queries", "keys", "values", "logits", "labels", "words", "masked"]
Places = Literal["none", "embedding", "mapped", "inner", "middle", "last"]


@dataclass(frozen=True)
class Term:
    """A loss term before the models are known.

    Attributes:
        name: What it is called in settings, curves and reports.
        fn: A function of `potstill.losses`.
        reads: What it is applied to: hidden states (the student's projected), raw attention scores (queries and keys),
            queries, keys or values alone, logits, the student's logits and the labels; of a masked LM, both models'
            scores of words at the masked places, or the student's and the right words.
        places: Of which layers: the embedding output, every mapped pair, the mapped pairs but the last, the pair in the
            middle, or the last layers of both. A term is the sum over its pairs.
        weight: What multiplies it.
        temperature: Of soft targets.
        otherwise: What takes its place, each with its weight, where student and teacher differ in heads and it compares
            head with head. Empty: the method asks for as many heads.
    """

    name: str
    fn: Callable[..., tuple[Tensor, float]]
    reads: Reads = "hidden"
    places: Places = "none"
    weight: Value = 1.0
    temperature: Value = 1.0
    otherwise: tuple["Term", ...] = ()


EMBEDDING = Term("embedding", hidden_mse, places="embedding")
HIDDEN = Term("hidden", hidden_mse, places="mapped")
ATTENTION = Term("attention", attention_mse, "scores", "mapped")
LOGITS = Term("logits", logits_kl, "logits")
HARD = Term("hard", hard_cross_entropy, "labels")
HINT = Term("hint", hidden_mse, places="middle")
CLS = Term("cls", cls_mse, places="inner")
VECTOR = Term("vector", vector_mse, places="last")
DIRECTION = Term("direction", vector_cosine, places="last")
SIMILARITY = Term("similarity", pairwise_similarity_mse, places="last")
DISTRIBUTION = Term("attention", attention_kl, "scores", "last")
QUERIES = Term("queries", relation_kl, "queries", "last")
KEYS = Term("keys", relation_kl, "keys", "last")
VALUES = Term("values", relation_kl, "values", "last")
WORDS = Term("words", word_kl, "words", temperature=2.0)
MASKED = Term("masked", word_cross_entropy, "masked")
COSINE = Term("cosine", cosine_distance, places="last")
VALUE_HEADS = Term("values", value_kl, "values", "last")
