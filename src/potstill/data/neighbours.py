"""Words near a word in a table of word vectors: replacements that need no context.

Numpy only. Rows are compared by cosine; only the words asked for are looked up, in blocks.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from potstill.data.lines import byte_pieces, line_records, record_text
from potstill.data.words import is_letters
from potstill.errors import DataError
from potstill.progress import SILENT, Reporter

__all__ = ["StaticNeighbours"]

_BLOCK = 256
_BAD_LINES = 0.01


class StaticNeighbours:
    """Proposes the nearest words by cosine, whatever the sentence (a `potstill.data.augment.Proposer`).

    Built by `from_glove` or `from_vectors`. Words are compared without regard to case: of words that differ in case
    alone the first in the table stands for all, so a word is never proposed for itself or for a casing of it.
    """

    needs_context = False

    def __init__(self, words: Sequence[str], unit: np.ndarray, k: int) -> None:
        self.words = tuple(words)
        self.unit = unit
        self.k = min(k, max(0, len(words) - 1))
        self._place = {word.casefold(): place for place, word in enumerate(self.words)}
        self._known: dict[int, tuple[str, ...]] = {}

    @classmethod
    def from_vectors(cls, words: Sequence[str], matrix: np.ndarray, k: int = 15) -> "StaticNeighbours":
        """From words and their vectors: a teacher's own embedding table, for example, whole-word pieces only.

        Args:
            words: v words; those that are not letters alone are left out.
            matrix: float (v, d); rows that are zero or not finite are left out.
            k: Neighbours to propose, at least 1.
        """
        if len(words) != len(matrix) or k < 1:
            raise ValueError(f"{len(words)} words, {len(matrix)} vectors, k = {k}")
        vectors = np.asarray(matrix, dtype=np.float32)
        # Scaled by the largest entry first: squares of large values would overflow float32.
        largest = np.abs(vectors).max(axis=1, initial=0.0)
        usable = np.isfinite(largest) & (largest > 0)
        first: dict[str, int] = {}
        for place, word in enumerate(words):
            if usable[place] and is_letters(word):
                first.setdefault(word.casefold(), place)
        places = np.fromiter(first.values(), dtype=np.int64, count=len(first))
        unit = vectors[places] / largest[places, None]
        unit /= np.linalg.norm(unit, axis=1, keepdims=True)
        return cls([words[place] for place in places], unit, k)

    @classmethod
    def from_glove(
        cls, path: Path, k: int = 15, *, limit: int = 200_000, report: Reporter = SILENT
    ) -> "StaticNeighbours":
        """From a file in GloVe's text format: a word and its numbers a line, spaces between, most frequent words first.

        Args:
            path: The file; the two-number first line of word2vec's text format is passed over.
            k: Neighbours to propose.
            limit: Lines to read at most.
            report: Told of the bytes read, warned of lines that could not be used.

        Raises:
            DataError: The file is missing, holds no vectors, or over 1 % of its lines are malformed.
        """
        words: list[str] = []
        rows: list[np.ndarray] = []
        width, bad, read = 0, 0, 0
        for read, record in enumerate(line_records(byte_pieces(path, report)), 1):
            text, usable = record_text(record)
            fields = text.rstrip().split(" ") if usable else []
            if read == 1 and len(fields) == 2:
                continue
            width = width or len(fields) - 1
            try:
                # Some words of the large files have spaces in them: the numbers are the last `width` fields.
                row = np.array(fields[len(fields) - width :], dtype=np.float32)
                if not width or len(fields) <= width:
                    raise ValueError
            except ValueError:
                bad += 1
            else:
                words.append(" ".join(fields[: len(fields) - width]))
                rows.append(row)
            if read >= limit:
                break
        if not rows or bad > _BAD_LINES * read:
            raise DataError(
                f"{path}: {bad} of {read} lines hold no word vector", expected="a word and its numbers, spaces between"
            )
        if bad:
            report.warn(f"{path}: {bad} of {read} lines hold no word vector and are left out")
        return cls.from_vectors(words, np.stack(rows), k)

    def __contains__(self, word: str) -> bool:
        return word.casefold() in self._place

    def propose(self, sentences: Sequence[Sequence[str]], positions: Sequence[int]) -> list[tuple[str, ...]]:
        """The words nearest to word `positions[i]` of `sentences[i]`, nearest first; none where the table lacks it."""
        asked = [
            self._place.get(words[position].casefold(), -1)
            for words, position in zip(sentences, positions, strict=True)
        ]
        self._look_up(sorted({place for place in asked if place >= 0 and place not in self._known}))
        return [self._known[place] if place >= 0 else () for place in asked]

    def _look_up(self, places: Sequence[int]) -> None:
        for start in range(0, len(places) if self.k else 0, _BLOCK):
            block = np.array(places[start : start + _BLOCK])
            cosine = self.unit[block] @ self.unit.T
            cosine[np.arange(len(block)), block] = -np.inf
            nearest = np.argpartition(cosine, -self.k, axis=1)[:, -self.k :]
            order = np.argsort(-np.take_along_axis(cosine, nearest, axis=1), axis=1, kind="stable")
            for place, row in zip(block, np.take_along_axis(nearest, order, axis=1), strict=True):
                self._known[int(place)] = tuple(self.words[near] for near in row)
        if not self.k:
            self._known.update((place, ()) for place in places)
