"""Which windows go into which batch, in which order: by counter, so that any position can be taken up again.

Batches hold texts of one length as far as the data allow (no padding), the rest of near lengths.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from potstill.data.encoding import Encodings
from potstill.storage import digest, digest_array

__all__ = ["Batches", "length_batches", "row_keys"]


def row_keys(seed: int, epoch: int, ids: np.ndarray) -> np.ndarray:
    """A pseudo-random uint64 for each id, depending on (seed, epoch, id) alone: splitmix64.

    Args:
        seed: Any non-negative integer.
        epoch: The same.
        ids: int64 (n,).

    Returns:
        uint64 (n,); sorting by it shuffles, and an id's key does not depend on which other ids there are.
    """
    with np.errstate(over="ignore"):
        state = ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        state ^= np.uint64((seed * 0xD1342543DE82EF95 + epoch * 0xF1357AEA2E62A9C5 + 0x632BE59BD9B4E019) % 2**64)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            state = (state ^ (state >> np.uint64(shift))) * np.uint64(factor)
        return state ^ (state >> np.uint64(31))


def length_batches(
    lengths: np.ndarray, ids: np.ndarray, *, batch_size: int, seed: int, epoch: int, max_tokens: int | None = None
) -> list[np.ndarray]:
    """Every row once, in batches of like length, in shuffled order.

    Rows are shuffled, then sorted by length (stably), then cut: so most batches hold one length, and no row meets the
    same neighbours in two epochs. The batches are shuffled last.

    Args:
        lengths: int64 (n,), tokens.
        ids: int64 (n,), what the order is keyed by.
        batch_size: Rows a batch, at most.
        seed: Key of the shuffle.
        epoch: The same.
        max_tokens: Upper bound for rows × longest in a batch; None means none. A longer row stands alone.

    Returns:
        Arrays of row numbers, int64.
    """
    shuffled = np.argsort(row_keys(seed, epoch, ids), kind="stable")
    order = shuffled[np.argsort(lengths[shuffled], kind="stable")]
    sorted_lengths = lengths[order]
    batches = []
    start = 0
    while start < len(order):
        end = min(start + batch_size, len(order))
        if max_tokens is not None:
            while end - start > 1 and (end - start) * sorted_lengths[end - 1] > max_tokens:
                end -= 1
        batches.append(order[start:end])
        start = end
    keys = row_keys(seed + 1, epoch, np.arange(len(batches), dtype=np.int64))
    return [batches[index] for index in np.argsort(keys, kind="stable")]


@dataclass(frozen=True)
class Batches:
    """Encoded texts, and how they are cut into batches.

    Attributes:
        encodings: m windows.
        labels: A window's label or score is its text's, as in `Examples.labels`.
        ids: int64 (m,), example ids: what the order is keyed by and what errors name.
        batch_size: Windows a batch.
        seed: Of the order.
        max_tokens: Tokens a batch, padding included; None means no bound.
    """

    encodings: Encodings
    labels: np.ndarray
    ids: np.ndarray
    batch_size: int
    seed: int
    max_tokens: int | None = None

    def of_epoch(self, epoch: int) -> Sequence[np.ndarray]:
        """The batches of an epoch: every window once."""
        return length_batches(
            self.encodings.lengths,
            self.ids,
            batch_size=self.batch_size,
            seed=self.seed,
            epoch=epoch,
            max_tokens=self.max_tokens,
        )

    def tokens(self, rows: np.ndarray) -> float:
        """Tokens of a batch, padding included."""
        return float(self.encodings.lengths[rows].max(initial=0)) * len(rows)

    def describe(self, rows: np.ndarray) -> str:
        """Names a batch, for an error."""
        ids = self.ids[rows]
        shown = ", ".join(str(number) for number in ids[:8])
        return f"examples {shown}{' …' if len(ids) > 8 else ''}"

    def digest(self) -> str:
        """SHA-256 of everything that the order and content of batches depend on."""
        own = self.encodings
        parts = [own.input_ids, own.token_type_ids, own.starts, self.labels, self.ids]
        return digest([*map(digest_array, parts), own.pad_token_id, self.batch_size, self.seed, self.max_tokens])
