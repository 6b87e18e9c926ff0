"""Texts that stand in more than one place: splits cut so that they cannot, and those that do taken out."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from potstill.data.examples import Examples
from potstill.data.parts import Part, text_digest
from potstill.errors import SettingsError

__all__ = [
    "count_repeats",
    "cut_missing",
    "evaluation_keys",
    "examples_without",
    "fewer_rows",
    "place_of",
    "remove_overlaps",
    "text_keys",
    "texts_without",
]

_EXAMPLES = 3
_EXAMPLE_LENGTH = 200


def place_of(text: str) -> float:
    """A text's place in [0, 1), by its key alone: what splits are cut by."""
    return _place(text_digest(text, None))


def _place(key: bytes) -> float:
    return int.from_bytes(key[:8], "big") / 2**64


def cut_missing(parts: dict[str, Part], dev_share: float, test_share: float) -> dict[str, int]:
    """Cut the splits that are missing out of `parts["train"]`, in place.

    Each row's place in [0, 1) is the first 64 bits of its key: below `test_share` it goes to test, below the sum of
    both shares to dev. A share counts only for a split that is missing. Equal keys go together, whatever else train
    holds.

    Returns:
        The number of rows cut, by split.

    Raises:
        SettingsError: The shares leave nothing to train on.
    """
    shares = {
        "test": test_share if "test" not in parts else 0.0,
        "dev": dev_share if "dev" not in parts else 0.0,
    }
    if sum(shares.values()) >= 1:
        raise SettingsError(f"dev and test shares of {shares['dev']} and {shares['test']}", expected="together below 1")
    rows: dict[str, list[int]] = {"test": [], "dev": [], "train": []}
    for row, key in enumerate(parts["train"].keys):
        place = _place(key)
        role = "test" if place < shares["test"] else "dev" if place < sum(shares.values()) else "train"
        rows[role].append(row)
    made = {role: rows[role] for role, share in shares.items() if share}
    whole = parts["train"]
    for role in made:
        parts[role] = whole.select(rows[role], role)
    if made:
        parts["train"] = whole.select(rows["train"])
    return {role: len(found) for role, found in made.items()}


def remove_overlaps(parts: dict[str, Part]) -> list[dict[str, Any]]:
    """Take rows whose key stands in dev or test out of train and unlabelled, and those in test out of dev, in place.

    Returns:
        For each pair of splits with something in common: `between` (the split that lost rows, then the other),
        `removed`, and up to three `examples`, cut to 200 characters a text.
    """
    found = []
    for loser, winner in (
        ("dev", "test"),
        ("train", "test"),
        ("train", "dev"),
        ("unlabelled", "test"),
        ("unlabelled", "dev"),
    ):
        if loser not in parts or winner not in parts:
            continue
        part, taken = parts[loser], set(parts[winner].keys)
        common = [row for row, key in enumerate(part.keys) if key in taken]
        if common:
            shown = list(dict.fromkeys(_shown(part, row) for row in common))[:_EXAMPLES]
            found.append({"between": [loser, winner], "removed": len(common), "examples": shown})
            gone = set(common)
            parts[loser] = part.select(row for row in range(len(part.keys)) if row not in gone)
    return found


def fewer_rows(part: Part, rows: int | None) -> Part:
    """The `rows` rows of lowest place, in their order; None: all.

    Fewer rows are a part of more, whatever order the file has.
    """
    if rows is None or rows >= len(part.keys):
        return part
    places = np.array([_place(key) for key in part.keys])
    return part.select(np.sort(np.argsort(places, kind="stable")[:rows]).tolist())


def _shown(part: Part, row: int) -> str:
    sides = [part.texts[row]] if part.pairs is None else [part.texts[row], part.pairs[row]]
    return " | ".join(side if len(side) <= _EXAMPLE_LENGTH else f"{side[:_EXAMPLE_LENGTH]}…" for side in sides)


def count_repeats(train: Part) -> dict[str, int]:
    """Count rows of the same key.

    Returns:
        `repeated_texts`: rows beyond the first of their key. `conflicting_texts`: keys with more than one label or
        score; `conflicting_rows`: the rows they stand in.
    """
    labels: dict[bytes, set[Any]] = {}
    for key, gold in zip(train.keys, train.golds or (), strict=True):
        labels.setdefault(key, set()).add(gold)
    conflicting = {key for key, found in labels.items() if len(found) > 1}
    return {
        "repeated_texts": len(train.keys) - len(labels),
        "conflicting_texts": len(conflicting),
        "conflicting_rows": sum(key in conflicting for key in train.keys),
    }


def evaluation_keys(*splits: Examples | None) -> frozenset[bytes]:
    """Digests of every text in `splits` (dev and test): of whole pairs, and of each side of them; None is passed over.

    With `texts_without` and `examples_without` they keep text from elsewhere (a corpus, augmented text) apart from what
    is judged on.
    """
    found: set[bytes] = set()
    for part in splits:
        if part is not None:
            found.update(text_digest(text, None) for text in part.texts)
        if part is not None and part.pairs is not None:
            found.update(text_digest(text, None) for text in part.pairs)
            found.update(map(text_digest, part.texts, part.pairs))
    return frozenset(found)


def text_keys(texts: Iterable[str]) -> frozenset[bytes]:
    """Digests of texts, for `texts_without`."""
    return frozenset(text_digest(text, None) for text in texts)


def texts_without(texts: Iterable[str], keys: frozenset[bytes]) -> Iterator[str]:
    """Those of `texts`, in order, whose digest is not among `keys`; memory stays flat."""
    return (text for text in texts if text_digest(text, None) not in keys)


def examples_without(examples: Examples, keys: frozenset[bytes]) -> Examples:
    """Those of `examples`, in order, whose text (or whole pair) is not among `keys`."""
    sides = examples.pairs if examples.pairs is not None else [None] * len(examples)
    digests = map(text_digest, examples.texts, sides)
    return examples.select(np.flatnonzero([digest not in keys for digest in digests]))
