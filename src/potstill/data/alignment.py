"""Which tokens of a teacher's encodings stand where a student's do, whatever the two tokenizers are.

A student's token is joined to the teacher's tokens whose characters overlap its own, each weighted by the overlap;
special tokens are joined by their role. A token that the teacher does not read (cut off, dropped by its normaliser) is
joined to none. Computed batch by batch, from spans alone: nothing grows with the data. Knows no model.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from potstill.data.encoding import Encodings
from potstill.data.spans import FIRST_TEXT, SECOND_TEXT, STRIDE, Spans
from potstill.errors import ModelError
from potstill.progress import SILENT, Reporter

__all__ = ["Alignment", "Joined", "same_reading"]

_AT_ONCE = 512


@dataclass(frozen=True)
class Joined:
    """A batch of the student's windows, b rows padded to L tokens, joined to u windows of the teacher.

    Attributes:
        windows: int64 (u,), the teacher's windows that are needed, in the order of the rows that need them first.
        starts: int64 (b·L + 1,); token i of the flattened batch is joined to `tokens[starts[i]:starts[i + 1]]`.
        tokens: int64; places in the teacher's batch of these windows, flattened: u rows, padded to their longest.
        weights: float32, as long as `tokens`, above 0; those of one student token sum to 1.
        joined: bool (b, L); whether the token is joined to any. False on padding.
        shares: float32 (b, u), rows sum to 1: how much of a student's window each of the teacher's windows covers.
    """

    windows: np.ndarray
    starts: np.ndarray
    tokens: np.ndarray
    weights: np.ndarray
    joined: np.ndarray
    shares: np.ndarray


@dataclass(frozen=True)
class _Pairs:
    """Pairs of a row (a student's window in the batch) and a teacher's window of the same text; rows ascend."""

    row: np.ndarray
    window: np.ndarray


@dataclass(frozen=True)
class _Overlaps:
    """One entry for each overlap of a student's token with a teacher's, by pair.

    `pair`, `own` (place of the student's token in its window), `other` (place of the teacher's in its), `length` (in
    the unit of spans).
    """

    pair: np.ndarray
    own: np.ndarray
    other: np.ndarray
    length: np.ndarray

    def where(self, kept: np.ndarray) -> "_Overlaps":
        return _Overlaps(self.pair[kept], self.own[kept], self.other[kept], self.length[kept])


class Alignment:
    """A student's and a teacher's encodings of the same texts, joined.

    A text of several windows: each student token is joined within the one window of the teacher's that covers it most,
    of equal ones the one that covers most of the student's window.

    Args:
        student: m windows of n texts, with spans.
        teacher: The teacher's of the same texts, in the same order, with spans.

    Raises:
        ModelError: Encodings of other texts, or without spans.
    """

    def __init__(self, student: Encodings, teacher: Encodings) -> None:
        if student.spans is None or teacher.spans is None:
            raise ModelError("encodings without spans", expected="TextEncoder.encode(…, with_spans=True)")
        texts = [int(own.example.max(initial=-1)) + 1 for own in (student, teacher)]
        if texts[0] != texts[1]:
            raise ModelError(f"encodings of {texts[0]} and {texts[1]} texts", expected="the same texts")
        self.student, self.teacher = student, teacher
        self._first = np.searchsorted(teacher.example, np.arange(texts[0] + 1))
        self._several = bool(len(teacher.example) > texts[0])
        self._extents = tuple(_extents(own) for own in (student, teacher)) if self._several else None

    def of(self, rows: np.ndarray) -> Joined:
        """A batch of the student's windows, in the order given."""
        pairs = self._candidates(rows)
        found = self._overlaps(rows, pairs)
        longest = int(self.student.lengths[rows].max(initial=0))
        place = pairs.row[found.pair] * longest + found.own
        if self._several:
            kept = self._chosen(pairs, found, place)
            found, place = found.where(kept), place[kept]
        order = np.argsort(place, kind="stable")
        found, place = found.where(order), place[order]
        served = self._served(rows, pairs, found)
        used, position = _in_order(pairs, (served > 0) | (np.bincount(found.pair, minlength=len(served)) > 0))
        length = int(self.teacher.lengths[used].max(initial=0))
        size = np.bincount(place, minlength=len(rows) * longest)
        total = np.bincount(place, weights=found.length, minlength=len(rows) * longest)
        shares = np.zeros((len(rows), len(used)), dtype=np.float32)
        kept_pairs = np.flatnonzero(served)
        shares[pairs.row[kept_pairs], position[kept_pairs]] = served[kept_pairs]
        return Joined(
            windows=used,
            starts=np.concatenate([[0], np.cumsum(size)]),
            tokens=position[found.pair] * length + found.other,
            weights=(found.length / total[place]).astype(np.float32),
            joined=(size > 0).reshape(len(rows), longest),
            shares=shares / shares.sum(axis=1, keepdims=True),
        )

    def unread(self, report: Reporter = SILENT) -> tuple[int, int]:
        """The student's tokens that the teacher does not read, and all of its tokens."""
        missing = 0
        for done, rows in self._chunks():
            missing += int(self.student.lengths[rows].sum()) - int(self.of(rows).joined.sum())
            report.progress(done, len(self.student))
        return missing, len(self.student.input_ids)

    def answers(self, logits: np.ndarray) -> np.ndarray:
        """The teacher's logits of its own windows, as answers to the student's: float32 (m, C)."""
        found = np.zeros((len(self.student), logits.shape[1]), dtype=np.float32)
        for _, rows in self._chunks():
            joined = self.of(rows)
            found[rows] = joined.shares @ logits[joined.windows]
        return found

    def _chunks(self) -> Iterator[tuple[int, np.ndarray]]:
        total = len(self.student)
        for start in range(0, total, _AT_ONCE):
            end = min(total, start + _AT_ONCE)
            yield end, np.arange(start, end, dtype=np.int64)

    def _candidates(self, rows: np.ndarray) -> _Pairs:
        """The teacher's windows of each row's text; of several, those that overlap it, or the nearest."""
        text = self.student.example[rows]
        count = self._first[text + 1] - self._first[text]
        row = np.repeat(np.arange(len(rows)), count)
        window = self._first[text][row] + np.arange(len(row)) - (np.cumsum(count) - count)[row]
        if self._extents is None:
            return _Pairs(row, window)
        (low, high), (other_low, other_high) = self._extents
        own = rows[row]
        shared = np.minimum(high[own], other_high[window]) - np.maximum(low[own], other_low[window])
        best = np.full(len(rows), np.iinfo(np.int64).min)
        np.maximum.at(best, row, shared)
        kept = (shared > 0) | (shared == best[row])
        return _Pairs(row[kept], window[kept])

    def _overlaps(self, rows: np.ndarray, pairs: _Pairs) -> _Overlaps:
        own, own_pair, own_place = _tokens(self.student, rows[pairs.row])
        other, other_pair, other_place = _tokens(self.teacher, pairs.window)
        first, last = _keys(own, own_pair)
        starts, ends = _keys(other, other_pair)
        # Spans ascend within a window; where a normaliser turned two of them round, the search takes in more than it
        # must, and the overlap itself, below, decides.
        low = np.searchsorted(np.maximum.accumulate(ends), first, side="right")
        high = np.searchsorted(np.minimum.accumulate(starts[::-1])[::-1], last, side="left")
        count = np.maximum(high - low, 0)
        mine = np.repeat(np.arange(len(count)), count)
        theirs = low[mine] + np.arange(len(mine)) - (np.cumsum(count) - count)[mine]
        length = np.minimum(own.end[mine], other.end[theirs]) - np.maximum(own.start[mine], other.start[theirs])
        same = (own.part[mine] == other.part[theirs]) & (own_pair[mine] == other_pair[theirs]) & (length > 0)
        mine, theirs = mine[same], theirs[same]
        return _Overlaps(own_pair[mine], own_place[mine], other_place[theirs], length[same].astype(np.int64))

    def _chosen(self, pairs: _Pairs, found: _Overlaps, place: np.ndarray) -> np.ndarray:
        """Of each student token, the overlaps within the teacher's window that is best for it; a mask."""
        width = int(found.own.max(initial=0)) + 1
        cover = np.bincount(found.pair * width + found.own, weights=found.length, minlength=len(pairs.row) * width)
        total = np.bincount(found.pair, weights=found.length, minlength=len(pairs.row))
        mine = cover[found.pair * width + found.own]
        order = np.lexsort((found.pair, -total[found.pair], -mine, place))
        first = np.concatenate([[True], place[order][1:] != place[order][:-1]])[: len(order)]
        best = np.full(int(place.max(initial=-1)) + 1, -1)
        best[place[order][first]] = found.pair[order][first]
        return np.asarray(found.pair == best[place])

    def _served(self, rows: np.ndarray, pairs: _Pairs, found: _Overlaps) -> np.ndarray:
        """How many of its row's text tokens each pair serves; 1 for a row's best pair where it is none."""
        assert self.student.spans is not None
        part = self.student.spans.part[self.student.starts[rows[pairs.row[found.pair]]] + found.own]
        count = np.bincount(found.pair[part % 2 == 1], minlength=len(pairs.row)).astype(np.float32)
        bare = np.bincount(pairs.row, weights=count, minlength=len(rows)) == 0
        if bare.any():
            first = np.searchsorted(pairs.row, np.flatnonzero(bare))
            count[first] = 1
        return count


def _tokens(encodings: Encodings, windows: np.ndarray) -> tuple[Spans, np.ndarray, np.ndarray]:
    """Spans of the tokens of some windows, with the number of the window (as given) and the place in it of each."""
    assert encodings.spans is not None
    lengths = encodings.lengths[windows]
    number = np.repeat(np.arange(len(windows)), lengths)
    place = np.arange(len(number)) - (np.cumsum(lengths) - lengths)[number]
    return encodings.spans.take(encodings.starts[windows][number] + place), number, place


def _keys(spans: Spans, number: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Starts and ends as integers that ascend over windows and their parts."""
    base = (number * 8 + spans.part) * STRIDE
    return base + spans.start, base + spans.end


def _extents(encodings: Encodings) -> tuple[np.ndarray, np.ndarray]:
    """First and last place that each window reads of the text that is windowed: the second of a pair."""
    assert encodings.spans is not None
    spans, count = encodings.spans, len(encodings)
    owner = np.repeat(np.arange(count), encodings.lengths)
    last = SECOND_TEXT if bool((spans.part == SECOND_TEXT).any()) else FIRST_TEXT
    inside = spans.part == last
    low, high = np.full(count, np.iinfo(np.int32).max, dtype=np.int64), np.zeros(count, dtype=np.int64)
    np.minimum.at(low, owner[inside], spans.start[inside])
    np.maximum.at(high, owner[inside], spans.end[inside])
    return np.minimum(low, high), high


def _in_order(pairs: _Pairs, needed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The windows of the pairs that are needed, by the first of them; and each pair's place among them."""
    used = pairs.window[needed]
    unique, first = np.unique(used, return_index=True)
    order = np.argsort(first, kind="stable")
    place = np.empty(len(unique), dtype=np.int64)
    place[order] = np.arange(len(unique))
    found = np.minimum(np.searchsorted(unique, pairs.window), max(0, len(unique) - 1))
    return unique[order], place[found]


def same_reading(one: Tokenizer, other: Tokenizer) -> bool:
    """Whether two tokenizers give every text the same ids: then one model may read what was encoded for the other.

    What a file says of truncation and padding does not matter (`potstill.data.encoding` sets both), nor how it writes
    its template.
    """
    return _reading(one) == _reading(other)


def _reading(tokenizer: Tokenizer) -> dict[str, Any]:
    content = json.loads(tokenizer.to_str())
    parts = {name: content[name] for name in ("normalizer", "pre_tokenizer")}
    model = {name: value for name, value in content["model"].items() if value}  # absent and null say the same
    added = {token["content"]: token for token in content["added_tokens"]}
    templates = [tokenizer.encode(*texts) for texts in (("a",), ("a", "a"))]
    return {**parts, "model": model, "added": added, "templates": [(one.ids, one.type_ids) for one in templates]}
