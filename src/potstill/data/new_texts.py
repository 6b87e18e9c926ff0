"""New texts beside the examples that they were made from: their ids, their labels, and which of equal ones stays.

What makes them is elsewhere: `augment` (words replaced), `sampling` (words masked, phrases), `recombine` (pairs).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from potstill.data.counter import seed_key
from potstill.data.examples import Examples, without_labels
from potstill.errors import SettingsError

__all__ = [
    "COPY_BITS",
    "KEEPS_LABEL",
    "NUMBERS",
    "NewTexts",
    "check_copies",
    "check_ids",
    "combined",
    "draw_key",
    "is_new",
]

COPY_BITS = 12
"""Of a place, for the copy's number."""
_ID_BITS = 44
_NEW_ID = 1 << 62

NUMBERS: Mapping[str, int] = {
    "masked-lm": 0,
    "conditional-masked-lm": 1,
    "glove": 2,
    "embeddings": 3,
    "masking": 4,
    "ngram": 5,
    "recombine": 6,
}
"""Of each method: part of the ids of its texts and of what it draws, so that methods do not depend on one another."""

KEEPS_LABEL = frozenset({"masked-lm", "conditional-masked-lm", "glove", "embeddings"})
"""Methods whose texts have their example's label; those of the others have none, for the teacher to label."""


@dataclass(frozen=True)
class NewTexts:
    """What one method made.

    Attributes:
        method: Its name in `NUMBERS`.
        rows: For each of n examples its new texts (of pairs: both sides) as (place, text), in the order of the places;
            a place is copy, or copy + 2^12 for the second side's.
    """

    method: str
    rows: Sequence[Sequence[tuple[int, str | tuple[str, str]]]]


def is_new(example_id: np.ndarray) -> np.ndarray:
    """Which ids, int64 (n,), are those of texts that a method made: bool (n,)."""
    found: np.ndarray = example_id >= _NEW_ID
    return found


def check_copies(copies: int) -> None:
    """Raise `SettingsError` unless the number of copies is one that ids have room for."""
    if not 1 <= copies <= 1 << COPY_BITS:
        raise SettingsError(f"{copies} copies of a text", expected="1 to 4,096")


def check_ids(examples: Examples) -> None:
    """Raise `ValueError` unless every id is from 0 to 2^44 − 1."""
    if len(examples) and not (examples.example_id.min() >= 0 and examples.example_id.max() < 1 << _ID_BITS):
        raise ValueError("example ids must be from 0 to 2^44 - 1")


def draw_key(seed: int, method: str, example_id: np.ndarray, side: int | np.ndarray) -> np.ndarray:
    """What everything drawn for one side of an example is keyed by: uint64 (n,), to be mixed."""
    number = np.uint64(NUMBERS[method] << _ID_BITS + 1)
    identity = example_id.astype(np.uint64) * np.uint64(2) + np.asarray(side).astype(np.uint64)
    key: np.ndarray = seed_key(seed) ^ (identity | number)
    return key


def combined(examples: Examples, made: Sequence[NewTexts]) -> Examples:
    """Each example, followed by what was made from it.

    Originals keep their ids; a new id is 2^62 + ((method·2^44 + id)·2 + side)·2^12 + copy, so it depends on nothing
    else. A new text equal to an original or to another new one (both sides, exactly) is dropped: of equal new texts the
    one with the smallest id stays. Labels are copied by the methods in `KEEPS_LABEL`, else −1.
    """
    pairs = examples.pairs
    rows: Sequence[str | tuple[str, str]] = (
        examples.texts if pairs is None else list(zip(examples.texts, pairs, strict=True))
    )
    seen = set(rows)
    kept: list[list[tuple[int, str | tuple[str, str], float]]] = [[] for _ in rows]
    # In the order of ids, so that which of two equal new texts stays does not depend on the order of the examples.
    order = np.argsort(examples.example_id, kind="stable").tolist()
    labels, absent = examples.labels.tolist(), without_labels(examples.labels, 1)[0].tolist()
    for part in sorted(made, key=lambda part: NUMBERS[part.method]):
        base = _NEW_ID + (NUMBERS[part.method] << _ID_BITS + 1 + COPY_BITS)
        keeps = part.method in KEEPS_LABEL
        for row in order:
            first = base + (int(examples.example_id[row]) * 2 << COPY_BITS)
            for place, new in part.rows[row]:
                if new not in seen:
                    seen.add(new)
                    kept[row].append((first + place, new, labels[row] if keeps else absent))
    whole = [
        entry
        for identifier, row, label, new_ones in zip(examples.example_id.tolist(), rows, labels, kept, strict=True)
        for entry in ((identifier, row, label), *new_ones)
    ]
    texts = [text for _, text, _ in whole]
    return Examples(
        np.array([identifier for identifier, _, _ in whole], dtype=np.int64),
        [text if isinstance(text, str) else text[0] for text in texts],
        None if pairs is None else [text[1] for text in texts],
        np.array([label for _, _, label in whole], dtype=examples.labels.dtype),
    )
