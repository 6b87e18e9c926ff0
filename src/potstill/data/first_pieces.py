"""The first piece of each word, found by characters under any tokenizer: what a word is labelled by.

Long texts are read in windows that overlap. A word is decided in one of them alone: of the windows that hold its first
piece, the one in which it has most context on its nearer side, of two alike the first.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from potstill.data.encoding import Encodings
from potstill.data.spans import FIRST_TEXT, UNIT
from potstill.errors import DataError

__all__ = ["FirstPieces"]


@dataclass(frozen=True)
class FirstPieces:
    """Where words begin among the tokens, ascending by window and word. A word that a tokenizer drops is not there.

    Attributes:
        window: int64 (k,), a window of the encodings.
        token: int64 (k,), the piece's place in its window, special tokens counted. Words that begin in one token
            (byte pairs merge `...`) have the same.
        text: int64 (k,), the text that the window belongs to.
        word: int64 (k,), the word's place in its text.
        context: int64 (k,), how many other pieces of its text the window holds on the side that has fewer.
    """

    window: np.ndarray
    token: np.ndarray
    text: np.ndarray
    word: np.ndarray
    context: np.ndarray

    @classmethod
    def of(cls, encodings: Encodings, words: Sequence[Sequence[tuple[int, int]]]) -> "FirstPieces":
        """The first pieces of the words of n texts.

        A piece is the first of a word where it is the first token with a character of it; a window that begins within
        a word, and so holds another of its pieces first, does not hold the word.

        Args:
            encodings: Of the n texts, `with_spans`, not of pairs.
            words: Start and end of each word of each text in code points, ascending, none over another.

        Raises:
            DataError: Encodings without spans, or other numbers of texts.
        """
        spans = encodings.spans
        texts = int(encodings.example[-1]) + 1 if len(encodings) else 0
        if spans is None or texts != len(words):
            raise DataError(
                f"encodings of {texts} texts with{'out' * (spans is None)} spans, words of {len(words)}",
                expected="encode(texts, with_spans=True), and the words of the same texts",
            )
        columns = [np.zeros((6, 0), dtype=np.int64)]
        for window, example in enumerate(encodings.example.tolist()):
            own = slice(encodings.starts[window], encodings.starts[window + 1])
            places = np.flatnonzero(spans.part[own] == FIRST_TEXT)
            start, end = spans.start[own][places].astype(np.int64), spans.end[own][places]
            limits = np.array(words[example], dtype=np.int64).reshape(-1, 2) * UNIT
            first = np.searchsorted(end, limits[:, 0], side="right")
            held = np.flatnonzero(first < len(places))
            held = held[start[first[held]] < limits[held, 1]]
            first = first[held]
            context = np.minimum(first, len(places) - 1 - first)
            same = np.ones_like(held)
            columns.append(np.stack([same * window, places[first], same * example, held, context, start[first]]))
        window_, token, text, word, context_, begin = np.concatenate(columns, axis=1)
        found = cls(window_, token, text, word, context_)
        return found._take(begin == _least(begin, found._word_number()))

    def deciding(self) -> "FirstPieces":
        """One entry a word, ascending by text and word: in the window that decides it."""
        number = self._word_number()
        order = np.lexsort((self.window, -self.context, number))
        ranked = number[order]
        return self._take(order[np.concatenate([[True], ranked[1:] != ranked[:-1]])] if len(order) else order)

    def _take(self, rows: np.ndarray) -> "FirstPieces":
        return FirstPieces(self.window[rows], self.token[rows], self.text[rows], self.word[rows], self.context[rows])

    def _word_number(self) -> np.ndarray:
        """int64 (k,): 0, 1, … by text and word."""
        width = int(self.word.max(initial=0)) + 1
        return np.asarray(np.unique(self.text * width + self.word, return_inverse=True)[1])


def _least(values: np.ndarray, group: np.ndarray) -> np.ndarray:
    """The least value of each one's group, (k,)."""
    least = np.full(int(group.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(least, group, values)
    return np.asarray(least[group])
