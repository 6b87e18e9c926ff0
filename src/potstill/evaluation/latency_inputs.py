"""What latency is measured on: the dev texts as they come, and inputs of given lengths made of their tokens."""

from collections.abc import Mapping, Sequence

import numpy as np

from potstill.data.encoding import Encodings
from potstill.errors import DataError

__all__ = ["Inputs", "Quantiles", "latency_inputs", "length_facts", "quantiles"]

Quantiles = dict[str, float]
"""`{"p50", "p95"}`; times are in milliseconds."""

Inputs = dict[str, dict[str, list[dict[str, np.ndarray]]]]
"""By length (`"16"`, `"dev"`), then by batch size (`"1"`, `"32"`): the batches to run."""


def quantiles(values: np.ndarray) -> Quantiles:
    """Median and 95th percentile of values (n,), n ≥ 1."""
    p50, p95 = np.percentile(values, [50, 95])
    return {"p50": float(p50), "p95": float(p95)}


def length_facts(encodings: Encodings) -> Quantiles:
    """`{"mean", "p50", "p95"}` of the windows' lengths in tokens, special tokens included."""
    lengths = encodings.lengths
    return {"mean": float(lengths.mean()), **quantiles(lengths)}


def latency_inputs(
    encodings: Encodings,
    *,
    lengths: Sequence[int] = (16, 128),
    batch_sizes: Sequence[int] = (1, 32),
    batches: Mapping[int, int] | None = None,
    seed: int = 0,
) -> Inputs:
    """Batches to measure on: texts as they come (`"dev"`), and real tokens cut and joined to given lengths.

    Texts are drawn at random and padded together unsorted, as requests would come; all windows of a text stay in its
    batch. Encodings of the same texts by another tokenizer give the same texts in the same batches.

    Args:
        encodings: The dev texts, one at least.
        lengths: Tokens of the made inputs, special tokens included, each at least 3.
        batch_sizes: Texts in a batch.
        batches: How many different batches of each size; None means 48 of one text and 4 of more.
        seed: Of the drawing.
    """
    if len(encodings) == 0 or min(lengths, default=3) < 3 or min(batch_sizes) < 1:
        raise DataError(
            f"{len(encodings)} windows, lengths {tuple(lengths)}, batch sizes {tuple(batch_sizes)}",
            expected="one text, three tokens and one text a batch, at least",
        )
    counts = {size: (batches or {}).get(size, 48 if size == 1 else 4) for size in batch_sizes}
    inputs: Inputs = {
        str(length): {str(size): _joined(encodings, length, size, counts[size]) for size in batch_sizes}
        for length in lengths
    }
    n = int(encodings.example[-1]) + 1
    order = np.random.default_rng(seed).permutation(n)
    starts = np.searchsorted(encodings.example, np.arange(n + 1))
    inputs["dev"] = {}
    for size in batch_sizes:
        texts = np.resize(order, (counts[size], size))
        windows = [np.concatenate([np.arange(starts[text], starts[text + 1]) for text in row]) for row in texts]
        inputs["dev"][str(size)] = [encodings.batch(chosen) for chosen in windows]
    return inputs


def _joined(encodings: Encodings, length: int, size: int, count: int) -> list[dict[str, np.ndarray]]:
    """Batches (size, length) of the texts' own tokens, in their order, between the first and the last special token."""
    inner = np.ones(len(encodings.input_ids), bool)
    inner[encodings.starts[:-1]] = inner[encodings.starts[1:] - 1] = False
    content = encodings.input_ids[inner] if inner.any() else encodings.input_ids
    ids = np.empty((count, size, length), np.int64)
    ids[:, :, 1:-1] = np.resize(content, (count, size, length - 2))
    ids[:, :, 0], ids[:, :, -1] = encodings.input_ids[0], encodings.input_ids[encodings.starts[1] - 1]
    ones, zeros = np.ones((size, length), np.int64), np.zeros((size, length), np.int64)
    return [{"input_ids": batch, "attention_mask": ones, "token_type_ids": zeros} for batch in ids]
