"""Which windows go into which batch, in which order: by counter, so that any position can be taken up again.

Batches hold texts of one length as far as the data allow (no padding), the rest of near lengths.
"""

import numpy as np

__all__ = ["length_batches", "row_keys"]


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
