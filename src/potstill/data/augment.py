"""More texts out of those there are, by replacing words: Algorithm 1 of TinyBERT (arXiv 1909.10351).

What proposes the words is passed in; this module knows no model and no word vectors. Every choice is drawn by counter
from (seed, example id, side, copy, word), so a new text never depends on the other examples or their order.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from potstill.data.counter import mix, seed_key, uniform
from potstill.data.examples import Examples
from potstill.data.neighbours import StaticNeighbours
from potstill.data.stopwords import STOP_WORDS
from potstill.data.words import is_letters, match_case, word_spans
from potstill.errors import SettingsError
from potstill.progress import SILENT, Reporter

__all__ = ["ByPieces", "Proposer", "StaticNeighbours", "augment"]

# A masked LM takes a thousand times as long over a sentence as a look-up: it is told of progress more often.
_ENTRIES_AT_ONCE = {True: 256, False: 2048}
_COPY_BITS = 12
_ID_BITS = 48
_NEW_ID = 1 << 62


class Proposer(Protocol):
    """Proposes words to put in the place of a word.

    It is called with many words at once and, within one `augment`, never twice for the same sentence and position
    (without context: for the same word). What it must not propose (the word itself, what is not letters alone) the
    caller drops.
    """

    @property
    def needs_context(self) -> bool:
        """True: what is proposed depends on the whole sentence (a masked LM). False: on the word alone."""

    def propose(self, sentences: Sequence[Sequence[str]], positions: Sequence[int]) -> Sequence[Sequence[str]]:
        """Candidates for word `positions[i]` of `sentences[i]`, best first, one list for each i; sentences repeat."""


@dataclass(frozen=True)
class ByPieces:
    """Algorithm 1's choice between two proposers, itself a `Proposer`.

    Attributes:
        contextual: For words that are one piece in the teacher's vocabulary: its masked LM.
        static: For the others: nearest words in a table.
        whole_word: True where a word is one piece.
    """

    contextual: Proposer
    static: Proposer
    whole_word: Callable[[str], bool]

    needs_context = True

    def propose(self, sentences: Sequence[Sequence[str]], positions: Sequence[int]) -> Sequence[Sequence[str]]:
        """As `Proposer.propose`; each request goes to one of the two."""
        found: list[Sequence[str]] = [()] * len(positions)
        words = [sentence[position] for sentence, position in zip(sentences, positions, strict=True)]
        whole = {word: self.whole_word(word) for word in set(words)}
        for proposer, wanted in ((self.contextual, True), (self.static, False)):
            chosen = [i for i, word in enumerate(words) if whole[word] is wanted]
            if chosen:
                given = proposer.propose([sentences[i] for i in chosen], [positions[i] for i in chosen])
                for i, candidates in zip(chosen, given, strict=True):
                    found[i] = candidates
        return found


def augment(
    examples: Examples,
    proposer: Proposer,
    *,
    seed: int,
    copies: int = 20,
    probability: float = 0.4,
    stop_words: frozenset[str] = STOP_WORDS,
    max_candidates: int = 15,
    report: Reporter = SILENT,
) -> Examples:
    """Make `copies` new texts of each text, each word replaced with `probability` by one of its candidates.

    Stop words, words that are not letters alone and words without candidates stay. A candidate takes the casing of the
    word it replaces (`Word`, `WORD`). Of a pair each side is rewritten in turn, beside the other side as it was, so
    there are up to twice as many. Labels are copied.

    Args:
        examples: n examples; ids from 0 to 2^48 − 1.
        proposer: Proposes the candidates.
        seed: Any integer.
        copies: New texts for each text, or for each side of a pair; 1 to 4,096.
        probability: How likely each word is replaced, above 0 to 1.
        stop_words: Casefolded words that stay.
        max_candidates: The first that many candidates are drawn from, all equally likely; at least 1.
        report: Told of the texts rewritten.

    Returns:
        Each example, followed by the new ones made from it. Originals keep their ids; a new id is
        2^62 + (id·2 + side)·2^12 + copy, so it depends on nothing else. A new text equal to an original or to another
        new one (both sides, exactly) is dropped: of equal new texts the one with the smallest id stays.
    """
    if not (1 <= copies <= 1 << _COPY_BITS and 0 < probability <= 1 and max_candidates >= 1):
        raise SettingsError(
            f"{copies} copies at probability {probability} from {max_candidates} candidates",
            expected="1 to 4,096 copies, a probability above 0 to 1, one candidate or more",
        )
    if len(examples) and not (examples.example_id.min() >= 0 and examples.example_id.max() < 1 << _ID_BITS):
        raise ValueError("example ids must be from 0 to 2^48 - 1")
    sides = [examples.texts] if examples.pairs is None else [examples.texts, examples.pairs]
    rewriter = _Rewriter(proposer, seed, copies, probability, stop_words, max_candidates)
    rewritten: list[list[list[tuple[int, str]]]] = [[[]] * len(examples) for _ in sides]
    done = 0
    for batch in _batches(sides, _ENTRIES_AT_ONCE[proposer.needs_context]):
        entries = [_Entry(row, side, int(examples.example_id[row]), sides[side][row]) for row, side in batch]
        for entry, found in zip(entries, rewriter.rewrite(entries), strict=True):
            rewritten[entry.side][entry.row] = found
        done += len(batch)
        report.progress(done, len(examples) * len(sides))
    return _assemble(examples, rewritten)


class _Entry:
    """One side of one example, and its words."""

    __slots__ = ("eligible", "id", "row", "side", "spans", "text", "words")

    def __init__(self, row: int, side: int, identifier: int, text: str) -> None:
        self.row, self.side, self.id, self.text = row, side, identifier, text
        self.spans = word_spans(text)
        self.words = tuple(text[start:end] for start, end in self.spans)
        self.eligible: list[int] = []

    def pieces(self) -> list[str]:
        """The text as gap, word, gap, word, …, gap: word i is piece 2i + 1."""
        found: list[str] = []
        at = 0
        for start, end in self.spans:
            found += (self.text[at:start], self.text[start:end])
            at = end
        return [*found, self.text[at:]]


def _batches(sides: Sequence[Sequence[str]], size: int) -> Iterator[list[tuple[int, int]]]:
    # Equal sentences come together, so that candidates can be forgotten after each batch and none is asked for twice.
    together: dict[str, list[tuple[int, int]]] = {}
    for side, texts in enumerate(sides):
        for row, text in enumerate(texts):
            sentence = " ".join(text[start:end] for start, end in word_spans(text))
            together.setdefault(sentence, []).append((row, side))
    batch: list[tuple[int, int]] = []
    for found in together.values():
        batch += found
        if len(batch) >= size:
            yield batch
            batch = []
    if batch:
        yield batch


@dataclass(frozen=True)
class _Choices:
    """The words to replace, as parallel arrays ordered by entry, copy, position; `draw` picks among the candidates."""

    entry: np.ndarray
    copy: np.ndarray
    position: np.ndarray
    draw: np.ndarray


class _Rewriter:
    def __init__(
        self,
        proposer: Proposer,
        seed: int,
        copies: int,
        probability: float,
        stop_words: frozenset[str],
        max_candidates: int,
    ) -> None:
        self.proposer, self.copies, self.probability = proposer, copies, probability
        self.stop_words, self.max_candidates = stop_words, max_candidates
        self.seed = seed_key(seed)
        self.can_change: dict[str, bool] = {}
        self.by_word: dict[str, list[str]] = {}

    def rewrite(self, entries: Sequence[_Entry]) -> list[list[tuple[int, str]]]:
        """The new texts of each entry as (copy, text); a copy with no word replaced is left out."""
        for entry in entries:
            entry.eligible = [place for place, word in enumerate(entry.words) if self._is_eligible(word)]
        choices = self._choose(entries)
        requests, request = self._requests(entries, choices)
        candidates = self._candidates(requests)
        counts = np.array([len(found) for found in candidates], dtype=np.int64)[request]
        pick = (uniform(choices.draw) * counts).astype(np.int64)
        found: list[list[tuple[int, str]]] = [[] for _ in entries]
        now, pieces, original = (-1, -1), [""], [""]
        usable = np.flatnonzero(counts)
        columns = (choices.entry, choices.copy, choices.position, request, pick)
        for entry, copy, position, asked, which in zip(*(column[usable].tolist() for column in columns), strict=True):
            if now != (entry, copy):
                if now[0] >= 0:
                    found[now[0]].append((now[1], "".join(pieces)))
                original = original if now[0] == entry else entries[entry].pieces()
                now, pieces = (entry, copy), original.copy()
            pieces[2 * position + 1] = candidates[asked][which]
        if now[0] >= 0:
            found[now[0]].append((now[1], "".join(pieces)))
        return found

    def _is_eligible(self, word: str) -> bool:
        known = self.can_change.get(word)
        if known is None:
            known = self.can_change[word] = is_letters(word) and word.casefold() not in self.stop_words
        return known

    def _choose(self, entries: Sequence[_Entry]) -> _Choices:
        sizes = np.array([len(entry.eligible) for entry in entries], dtype=np.int64)
        eligible = np.array([place for entry in entries for place in entry.eligible], dtype=np.int64)
        totals = sizes * self.copies
        entry = np.repeat(np.arange(len(entries)), totals)
        within = np.arange(len(entry)) - np.repeat(np.cumsum(totals) - totals, totals)
        copy, slot = np.divmod(within, np.maximum(sizes, 1)[entry])
        position = eligible[(np.cumsum(sizes) - sizes)[entry] + slot]
        identity = np.array([entry.id * 2 + entry.side for entry in entries], dtype=np.uint64)
        of_copy = mix(mix(self.seed ^ identity)[entry] ^ copy.astype(np.uint64))
        of_word = mix(of_copy ^ position.astype(np.uint64))
        kept = np.flatnonzero(uniform(of_word) < self.probability)
        return _Choices(entry[kept], copy[kept], position[kept], mix(of_word[kept]))

    def _requests(
        self, entries: Sequence[_Entry], choices: _Choices
    ) -> tuple[list[tuple[tuple[str, ...], int]], np.ndarray]:
        # Distinct (sentence, position) pairs, and the place among them of each choice.
        places: dict[tuple[str, ...], int] = {}
        sentence = np.array([places.setdefault(entry.words, len(places)) for entry in entries], dtype=np.int64)
        pairs, request = np.unique(sentence[choices.entry] << 32 | choices.position, return_inverse=True)
        sentences = list(places)
        return [(sentences[pair >> 32], pair & (1 << 32) - 1) for pair in pairs.tolist()], request

    def _candidates(self, requests: Sequence[tuple[tuple[str, ...], int]]) -> list[list[str]]:
        if self.proposer.needs_context:
            return self._ask(requests)
        new = {words[place]: (words, place) for words, place in requests if words[place] not in self.by_word}
        self.by_word.update(zip(new, self._ask(list(new.values())), strict=True))
        return [self.by_word[words[place]] for words, place in requests]

    def _ask(self, requests: Sequence[tuple[tuple[str, ...], int]]) -> list[list[str]]:
        if not requests:
            return []
        given = self.proposer.propose([words for words, _ in requests], [place for _, place in requests])
        return [self._usable(words[place], found) for (words, place), found in zip(requests, given, strict=True)]

    def _usable(self, word: str, proposed: Sequence[str]) -> list[str]:
        seen = {word.casefold()}
        kept: list[str] = []
        for candidate in proposed:
            fold = candidate.casefold()
            if fold not in seen and is_letters(candidate):
                seen.add(fold)
                kept.append(match_case(candidate, word))
            if len(kept) == self.max_candidates:
                break
        return kept


def _assemble(examples: Examples, rewritten: Sequence[Sequence[Sequence[tuple[int, str]]]]) -> Examples:
    pairs = examples.pairs
    rows: Sequence[str | tuple[str, str]] = (
        examples.texts if pairs is None else list(zip(examples.texts, pairs, strict=True))
    )
    seen = set(rows)
    made: list[list[tuple[int, str | tuple[str, str]]]] = [[] for _ in rows]
    # In the order of ids, so that which of two equal new texts stays does not depend on the order of the examples.
    for row in np.argsort(examples.example_id, kind="stable").tolist():
        for side, found in enumerate(rewritten):
            first_id = _NEW_ID + (int(examples.example_id[row]) * 2 + side << _COPY_BITS)
            for copy, text in found[row]:
                new: str | tuple[str, str] = text
                if pairs is not None:
                    new = (text, pairs[row]) if side == 0 else (examples.texts[row], text)
                if new not in seen:
                    seen.add(new)
                    made[row].append((first_id + copy, new))
    ids = [
        identifier
        for old, new_ones in zip(examples.example_id.tolist(), made, strict=True)
        for identifier in (old, *(new_id for new_id, _ in new_ones))
    ]
    texts = [text for row, new_ones in enumerate(made) for text in (rows[row], *(new for _, new in new_ones))]
    labels = np.repeat(examples.labels, [len(new_ones) + 1 for new_ones in made])
    firsts = [text if isinstance(text, str) else text[0] for text in texts]
    seconds = None if pairs is None else [text[1] for text in texts]
    return Examples(np.array(ids, dtype=np.int64), firsts, seconds, labels)
