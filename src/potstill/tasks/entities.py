"""Entities to labels of words, and logits of words to entities: whole words, whatever the logits.

A word is labelled at its first piece (Devlin et al., arXiv 1810.04805, section 5.3), and only there; its other pieces
say nothing. So no entity begins or ends within a word, however sure a model is of half of one.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from potstill.data.entities import entities_in_words
from potstill.data.examples import UNLABELLED
from potstill.data.first_pieces import FirstPieces
from potstill.errors import DataError
from potstill.metrics import Entity, TagScheme, read_tags, write_tags
from potstill.tasks.classification import probabilities

__all__ = ["FoundEntity", "entities_of_logits", "gold_tags", "tag_names"]

Words = Sequence[Sequence[tuple[int, int]]]
"""Start and end of each word of each text, in code points, as `potstill.data.words.whole_words` gives them."""


class FoundEntity(NamedTuple):
    """An entity that a model found.

    Attributes:
        start: Its first code point in the text.
        end: The code point after its last.
        label: Its type.
        score: The mean, over its words, of the probability of the tag that each was given; 0 … 1.
    """

    start: int
    end: int
    label: str
    score: float

    def answer(self, text: str) -> dict[str, Any]:
        """`start`, `end`, `text` (exactly what stands there), `label` and `score`."""
        return {
            "start": self.start,
            "end": self.end,
            "text": text[self.start : self.end],
            "label": self.label,
            "score": self.score,
        }


def tag_names(types: Collection[str]) -> tuple[str, ...]:
    """IOB2's tags of some types, sorted, O first: the names of a fresh head's 2t + 1 outputs."""
    return ("O", *(f"{prefix}-{label}" for label in sorted(set(types)) for prefix in "BI"))


def gold_tags(
    pieces: FirstPieces,
    words: Words,
    entities: Sequence[Sequence[Entity]],
    tags: Sequence[str],
    scheme: TagScheme = "IOB2",
) -> np.ndarray:
    """The label of each first piece.

    Args:
        pieces: By `FirstPieces.deciding`: each word once.
        words: Of each of the n texts.
        entities: Gold, of each of the n texts, in code points.
        tags: The names of a model's outputs, in their order.
        scheme: How these are written.

    Returns:
        int64 (k,), indices into `tags`; −1 where a word begins in the token of the word before it, which has one label.
        An entity none of whose words has a token of its own is not there.

    Raises:
        DataError: An entity that is not whole words, or of a tag that the model has not.
    """
    place = {tag: number for number, tag in enumerate(tags)}
    labels = np.full(len(pieces.word), UNLABELLED, dtype=np.int64)
    for text, rows, _ in _units(pieces, len(words)):
        first = pieces.word[rows]
        units = []
        for start, end, label in entities_in_words(entities[text], words[text]):
            low, high = (int(at) for at in np.searchsorted(first, [start, end]))
            if low < high:
                units.append(Entity(low, high, label))
        written = write_tags(units, len(rows), scheme)
        if unknown := sorted(set(written) - place.keys()):
            raise DataError(f"the tag {unknown[0]!r}", expected=f"one of the model's: {', '.join(tags)}")
        labels[rows] = [place[tag] for tag in written]
    return labels


def entities_of_logits(
    logits: np.ndarray, pieces: FirstPieces, words: Words, tags: Sequence[str]
) -> list[list[FoundEntity]]:
    """The entities of n texts, each word's tag that of the largest logit at its first piece.

    Words that begin in one token have one tag and are not parted. A word without a token (one that the tokenizer
    drops) belongs to the entity on both its sides, where there is one; words that were cut off belong to none.

    Args:
        logits: Float (k, C), at the first piece of each entry of `pieces`.
        pieces: By `FirstPieces.deciding`.
        words: Of each of the n texts.
        tags: The C names of the model's outputs, of any scheme (`potstill.metrics.tags`).

    Returns:
        For each text, in order; none over another, each beginning and ending where a word does.
    """
    chosen, sure = logits.argmax(axis=1), probabilities(logits).max(axis=1)
    found: list[list[FoundEntity]] = [[] for _ in words]
    for text, rows, ends in _units(pieces, len(words)):
        for low, high, label in read_tags([tags[number] for number in chosen[rows]]):
            start, _ = words[text][pieces.word[rows[low]]]
            _, end = words[text][pieces.word[ends[high - 1]]]
            found[text].append(FoundEntity(start, end, label, float(sure[rows[low:high]].mean())))
    return found


def _units(pieces: FirstPieces, texts: int) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Of each text, the entries that have a label of their own, and the last entry of the words that share each."""
    bounds = np.searchsorted(pieces.text, np.arange(texts + 1))
    for text in range(texts):
        own = np.arange(bounds[text], bounds[text + 1])
        keys = np.stack([pieces.window[own], pieces.token[own]])
        fresh = np.ones(len(own), dtype=bool)
        fresh[1:] = (keys[:, 1:] != keys[:, :-1]).any(axis=0)
        rows = own[fresh]
        yield text, rows, np.append(rows[1:] - 1, own[-1:])
