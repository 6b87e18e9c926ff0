"""The likeliest fillings of several blanks together: a beam over fillings and over the orders to fill them in.

Knows no model and no text: log-probabilities come from a function.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Found", "Partial", "Read", "joint_search"]

_SETS = 16
"""Sets of filled blanks that are gone on with: bounds memory, beam × sets × blanks × V log-probabilities of a step."""

Partial = tuple[int | None, ...]
"""A token for each blank; None where it is still open."""

Read = Callable[[Sequence[Partial]], np.ndarray]
"""Some partial fillings (n) → log-probabilities at every blank, float64 (n, blanks, V)."""


@dataclass(frozen=True)
class Found:
    """A filling of all blanks.

    Attributes:
        tokens: By blank, in the text's order.
        joint: log P by the chain rule in the best order found, nats.
        order: The blanks, from 0, in that order.
        independent: Σ of the blanks' own log P, each with all others open.
    """

    tokens: tuple[int, ...]
    joint: float
    order: tuple[int, ...]
    independent: float


def joint_search(read: Read, blanks: int, *, beam: int, allowed: np.ndarray) -> tuple[list[Found], tuple[int, ...]]:
    """The likeliest fillings of several blanks together: log P = Σ_i log P(x_i | those filled before), best first.

    A beam search that fills one blank a step, any of those open. Each set of filled blanks has a beam of its own, so
    that an easy blank crowds out no order; of one filling the best order is kept.

    Args:
        read: The model.
        blanks: How many there are, 1 or more.
        beam: Partial fillings kept for each set of filled blanks, and the most that come back.
        allowed: bool (V,), what may fill a blank.

    Returns:
        The fillings, and what filling blank by blank would have chosen.
    """
    nothing: Partial = (None,) * blanks
    first = read([nothing])[0]
    alone = tuple(int(token) for token in np.where(allowed, first, -np.inf).argmax(axis=1))
    kept: dict[Partial, tuple[float, tuple[int, ...]]] = {nothing: (0.0, ())}
    for step in range(blanks):
        partials = list(kept)
        rows = first[None] if step == 0 else read(partials)
        grown: dict[Partial, tuple[float, tuple[int, ...]]] = {}
        for partial, scores in zip(partials, rows, strict=True):
            so_far, order = kept[partial]
            for blank in (place for place, token in enumerate(partial) if token is None):
                for token in _best(scores[blank], allowed, beam):
                    whole = (*partial[:blank], token, *partial[blank + 1 :])
                    score = so_far + float(scores[blank, token])
                    if whole not in grown or score > grown[whole][0]:
                        grown[whole] = (score, (*order, blank))
        kept = _pruned(grown, beam)
    made = []
    for whole, (score, order) in kept.items():
        tokens = tuple(token for token in whole if token is not None)
        made.append(Found(tokens, score, order, float(first[np.arange(blanks), list(tokens)].sum())))
    return made, alone


def _best(scores: np.ndarray, allowed: np.ndarray, count: int) -> list[int]:
    """The likeliest allowed tokens, ties by their number."""
    open_ = np.where(allowed, scores, -np.inf)
    count = min(count, int(allowed.sum()))
    near = np.argpartition(-open_, count - 1)[:count]
    chosen: list[int] = near[np.lexsort((near, -open_[near]))].tolist()
    return chosen


def _pruned(
    grown: dict[Partial, tuple[float, tuple[int, ...]]], beam: int
) -> dict[Partial, tuple[float, tuple[int, ...]]]:
    """The best of each set of filled blanks, best first, and of the sets the best `_SETS`."""
    ordered = sorted(grown.items(), key=lambda item: (-item[1][0], [-1 if t is None else t for t in item[0]]))
    counts: dict[frozenset[int], int] = {}
    kept = {}
    for partial, found in ordered:
        filled = frozenset(found[1])
        if filled not in counts and len(counts) == _SETS:
            continue
        counts[filled] = counts.get(filled, 0) + 1
        if counts[filled] <= beam:
            kept[partial] = found
    return kept
