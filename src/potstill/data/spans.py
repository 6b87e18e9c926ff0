"""Where each token stands in its text: what joins the tokens of two tokenizers, whose ids have nothing in common.

Offsets are Python code points into the text as `potstill.data.encoding.readable` gives it. Knows no model.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from tokenizers import Encoding, Tokenizer

from potstill.errors import ModelError

__all__ = ["FIRST_TEXT", "SECOND_TEXT", "STRIDE", "UNIT", "Spans", "template_specials"]

FIRST_TEXT, SECOND_TEXT = 1, 3
UNIT = 60
"""Parts of a code point: 1 to 6 tokens share one without rounding."""
STRIDE = 1 << 32
"""Above every place in a text: what keeps the parts of windows apart in one ascending key."""

_SPACES = np.array([point for point in range(0x3001) if chr(point).isspace()], dtype=np.uint32)


@dataclass(frozen=True)
class Spans:
    """A place for each token of some encodings, in their flat order.

    Attributes:
        part: int8; 0 the special tokens before the first text, 1 the first text, 2 the specials after it, 3 the second
            text, 4 the specials after that. It never falls within a window.
        start, end: int32; in sixtieths of a code point of the text, so that no two tokens of a window overlap. White
            space at either side is left out (tokenizers differ in whether a token has the space before it), that of a
            token of white space alone kept. Tokens that share a code point (the bytes of an emoji, a mark that a
            normaliser took apart) have equal parts of it, in their order; so have the special tokens of one place. One
            token is then joined to one, one to two and two to one by the same rule everywhere.
    """

    part: np.ndarray
    start: np.ndarray
    end: np.ndarray

    @classmethod
    def of(cls, windows: Sequence[Encoding], texts: Sequence[str | tuple[str, str]], specials: tuple[int, int]) -> Self:
        """Of windows, each beside its whole text or pair.

        Args:
            windows: As the tokenizer gives them, special tokens included.
            texts: As long as `windows`.
            specials: By `template_specials`.
        """
        sequence = np.fromiter(
            (-1 if number is None else number for window in windows for number in window.sequence_ids), dtype=np.int8
        )
        offsets = np.array([pair for window in windows for pair in window.offsets], dtype=np.int64).reshape(-1, 2)
        lengths = np.fromiter((len(window.ids) for window in windows), dtype=np.int64, count=len(windows))
        owner = np.repeat(np.arange(len(windows)), lengths)
        is_special = sequence < 0
        in_window = np.bincount(owner[is_special], minlength=len(windows))
        rank = np.cumsum(is_special) - 1 - (np.cumsum(in_window) - in_window)[owner]
        before, middle = specials
        part = np.where(is_special, 2 * (rank >= before) + 2 * (rank >= before + middle), 1 + 2 * sequence)
        start, end = _trimmed(texts, owner, sequence, offsets[:, 0], offsets[:, 1])
        start, end = np.where(is_special, 0, start), np.where(is_special, 1, end)
        start, end = _shared((owner * 8 + part) * STRIDE, start, end)
        return cls(part.astype(np.int8), start.astype(np.int32), end.astype(np.int32))

    @classmethod
    def joined(cls, several: Sequence[Self]) -> Self:
        """One after another."""
        none = np.zeros(0, dtype=np.int32)
        return cls(
            np.concatenate([none.astype(np.int8), *(one.part for one in several)]),
            np.concatenate([none, *(one.start for one in several)]),
            np.concatenate([none, *(one.end for one in several)]),
        )

    def take(self, tokens: np.ndarray) -> Self:
        """Those of some tokens, by their place in the flat order."""
        return type(self)(self.part[tokens], self.start[tokens], self.end[tokens])


def template_specials(tokenizer: Tokenizer, *, is_pair: bool) -> tuple[int, int]:
    """How many special tokens stand before the first text, and how many after it (before the second, of a pair).

    Raises:
        ModelError: A tokenizer without a token for a letter.
    """
    encoding = tokenizer.encode("a", "a") if is_pair else tokenizer.encode("a")
    sequence = [-1 if number is None else number for number in encoding.sequence_ids]
    first = [place for place, number in enumerate(sequence) if number == 0]
    if not first:
        raise ModelError('a tokenizer that reads "a" as nothing', expected="a token for every text")
    last = first[-1] + 1
    following = next((place for place in range(last, len(sequence)) if sequence[place] == 1), len(sequence))
    return first[0], following - last


def _trimmed(
    texts: Sequence[str | tuple[str, str]], owner: np.ndarray, sequence: np.ndarray, start: np.ndarray, end: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The spans without white space at either side; what is nothing else stays."""
    sides = [text if isinstance(text, tuple) else (text, "") for text in texts]
    whole = "".join(f"{first}\0{second}\0" for first, second in sides)
    points = np.frombuffer(whole.encode("utf-32-le"), dtype=np.uint32)
    sizes = np.array([(len(first) + 1, len(second) + 1) for first, second in sides], dtype=np.int64).reshape(-1)
    bases = np.concatenate([[0], np.cumsum(sizes)])
    at = bases[2 * owner + (sequence == 1)]
    places = np.arange(len(points))
    solid = ~np.isin(points, _SPACES)
    following = np.minimum.accumulate(np.where(solid, places, len(points))[::-1])[::-1]
    preceding = np.maximum.accumulate(np.where(solid, places + 1, 0))
    low, high = at + start, at + end
    inside = np.flatnonzero(high > low)
    low[inside] = following[low[inside]]
    high[inside] = preceding[high[inside] - 1]
    kept = low < high
    return np.where(kept, low - at, start), np.where(kept, high - at, end)


def _shared(base: np.ndarray, start: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The spans in parts of a code point: one that n tokens cover is divided among them in their order."""
    starts = np.minimum.accumulate((base + start)[::-1])[::-1]
    ends = np.maximum.accumulate(base + end)
    own = np.arange(len(base))

    def share(point: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How many tokens cover a code point of each token, and how many of them stand before it."""
        first = np.searchsorted(ends, base + point, side="right")
        count = np.searchsorted(starts, base + point, side="right") - first
        rank = np.clip(own - first, 0, np.maximum(count - 1, 0))
        return np.maximum(count, 1), rank

    (first_count, first_rank), (last_count, last_rank) = share(start), share(np.maximum(end - 1, start))
    low = UNIT * start + first_rank * UNIT // first_count
    high = UNIT * (end - 1) + (last_rank + 1) * UNIT // last_count
    return low, np.where(end > start, high, low)
