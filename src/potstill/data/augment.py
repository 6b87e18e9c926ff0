"""More texts out of those there are, by replacing words: Algorithm 1 of TinyBERT (arXiv 1909.10351).

What proposes the words is passed in; this module knows no model and no word vectors. Every choice is drawn by counter
from (seed, example id, side, copy, word), so a new text never depends on the other examples or their order.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Protocol

import numpy as np

from potstill.data.counter import mix, uniform
from potstill.data.examples import Examples
from potstill.data.neighbours import StaticNeighbours
from potstill.data.new_texts import COPY_BITS, NewTexts, check_copies, check_ids, combined, draw_key
from potstill.data.stopwords import STOP_WORDS
from potstill.data.words import is_letters, match_case, word_spans
from potstill.errors import SettingsError
from potstill.progress import SILENT, Reporter

__all__ = [
    "ByPieces",
    "Proposer",
    "Replacing",
    "StaticNeighbours",
    "augment",
    "beside",
    "is_replaceable",
    "replaced",
    "replaced_by_label",
    "sentences_of",
]

# A masked LM takes a thousand times as long over a sentence as a look-up: it is told of progress more often.
_ENTRIES_AT_ONCE = {True: 256, False: 2048}


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
    """Each example, followed by the texts that `replaced` makes of it with one proposer."""
    rule = Replacing(copies, probability, stop_words, max_candidates)
    return combined(examples, [replaced(examples, proposer, seed=seed, rule=rule, report=report)])


@dataclass(frozen=True)
class Replacing:
    """How words are replaced.

    Attributes:
        copies: New texts for each text, or for each side of a pair; 1 to 4,096.
        probability: How likely each word is replaced, above 0 to 1.
        stop_words: Casefolded words that stay.
        max_candidates: The first that many candidates are drawn from, all equally likely; at least 1.

    Raises:
        SettingsError: A value out of these ranges.
    """

    copies: int = 20
    probability: float = 0.4
    stop_words: frozenset[str] = STOP_WORDS
    max_candidates: int = 15

    def __post_init__(self) -> None:
        check_copies(self.copies)
        if not (0 < self.probability <= 1 and self.max_candidates >= 1):
            raise SettingsError(
                f"words replaced at probability {self.probability} from {self.max_candidates} candidates",
                expected="a probability above 0 to 1, one candidate or more",
            )


def replaced(
    examples: Examples,
    proposer: Proposer,
    *,
    seed: int,
    rule: Replacing,
    method: str = "masked-lm",
    report: Reporter = SILENT,
) -> NewTexts:
    """Make `copies` new texts of each text, each word replaced with `probability` by one of its candidates.

    Stop words, words that are not letters alone and words without candidates stay. A candidate takes the casing of the
    word it replaces (`Word`, `WORD`). Of a pair each side is rewritten in turn, beside the other side as it was, so
    there are up to twice as many.

    Args:
        examples: n examples; ids from 0 to 2^44 − 1.
        proposer: Proposes the candidates.
        seed: Any integer.
        rule: How words are replaced.
        method: Its name in `NUMBERS`.
        report: Told of the texts rewritten.
    """
    check_ids(examples)
    sides = [examples.texts] if examples.pairs is None else [examples.texts, examples.pairs]
    rewriter = _Rewriter(proposer, rule)
    rows: list[list[tuple[int, str | tuple[str, str]]]] = [[] for _ in range(len(examples))]
    done = 0
    keys = [draw_key(seed, method, examples.example_id, side) for side in range(len(sides))]
    for batch in _batches(sides, _ENTRIES_AT_ONCE[proposer.needs_context]):
        entries = [_Entry(row, side, int(keys[side][row]), sides[side][row]) for row, side in batch]
        for entry, found in zip(entries, rewriter.rewrite(entries), strict=True):
            rows[entry.row] += [(place, beside(examples, entry.row, entry.side, text)) for place, text in found]
        done += len(batch)
        report.progress(done, len(examples) * len(sides))
    return NewTexts(method, [sorted(found, key=itemgetter(0)) for found in rows])


def replaced_by_label(
    examples: Examples,
    proposers: Mapping[int, Proposer],
    *,
    seed: int,
    rule: Replacing,
    method: str,
    report: Reporter = SILENT,
) -> NewTexts:
    """As `replaced`, with a proposer for each label; examples of other labels are left as they are."""
    made: list[Sequence[tuple[int, str | tuple[str, str]]]] = [()] * len(examples)
    for label, proposer in proposers.items():
        own = np.flatnonzero(examples.labels == label)
        found = replaced(examples.select(own), proposer, seed=seed, rule=rule, method=method, report=report)
        for row, new in zip(own.tolist(), found.rows, strict=True):
            made[row] = new
    return NewTexts(method, made)


def beside(examples: Examples, row: int, side: int, text: str) -> str | tuple[str, str]:
    """A new text in the place of one side of an example, the other side as it was."""
    if examples.pairs is None:
        return text
    return (text, examples.pairs[row]) if side == 0 else (examples.texts[row], text)


def is_replaceable(word: str, stop_words: frozenset[str]) -> bool:
    """Whether Algorithm 1 may replace a word: letters alone, and no stop word."""
    return is_letters(word) and word.casefold() not in stop_words


def sentences_of(examples: Examples) -> list[tuple[str, ...]]:
    """The words of every text and second text, each distinct sequence once, in the order of their rewriting."""
    sides = [examples.texts] if examples.pairs is None else [examples.texts, examples.pairs]
    return list(dict.fromkeys(_words(text) for texts in sides for text in texts))


class _Entry:
    """One side of one example, and its words."""

    __slots__ = ("eligible", "key", "row", "side", "spans", "text", "words")

    def __init__(self, row: int, side: int, key: int, text: str) -> None:
        self.row, self.side, self.key, self.text = row, side, key, text
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


def _words(text: str) -> tuple[str, ...]:
    return tuple(text[start:end] for start, end in word_spans(text))


def _batches(sides: Sequence[Sequence[str]], size: int) -> Iterator[list[tuple[int, int]]]:
    # Equal sentences come together, so that candidates can be forgotten after each batch and none is asked for twice.
    together: dict[str, list[tuple[int, int]]] = {}
    for side, texts in enumerate(sides):
        for row, text in enumerate(texts):
            together.setdefault(" ".join(_words(text)), []).append((row, side))
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
    def __init__(self, proposer: Proposer, rule: Replacing) -> None:
        self.proposer, self.rule = proposer, rule
        self.can_change: dict[str, bool] = {}
        self.by_word: dict[str, list[str]] = {}

    def rewrite(self, entries: Sequence[_Entry]) -> list[list[tuple[int, str]]]:
        """The new texts of each entry as (place, text); a copy with no word replaced is left out."""
        for entry in entries:
            entry.eligible = [place for place, word in enumerate(entry.words) if self._is_eligible(word)]
        choices = self._choose(entries)
        requests, request = self._requests(entries, choices)
        candidates = self._candidates(requests)
        counts = np.array([len(found) for found in candidates], dtype=np.int64)[request]
        pick = (uniform(choices.draw) * counts).astype(np.int64)
        found: list[list[tuple[int, str]]] = [[] for _ in entries]
        places = [entry.side << COPY_BITS for entry in entries]
        now, pieces, original = (-1, -1), [""], [""]
        usable = np.flatnonzero(counts)
        columns = (choices.entry, choices.copy, choices.position, request, pick)
        for entry, copy, position, asked, which in zip(*(column[usable].tolist() for column in columns), strict=True):
            if now != (entry, copy):
                if now[0] >= 0:
                    found[now[0]].append((places[now[0]] + now[1], "".join(pieces)))
                original = original if now[0] == entry else entries[entry].pieces()
                now, pieces = (entry, copy), original.copy()
            pieces[2 * position + 1] = candidates[asked][which]
        if now[0] >= 0:
            found[now[0]].append((places[now[0]] + now[1], "".join(pieces)))
        return found

    def _is_eligible(self, word: str) -> bool:
        known = self.can_change.get(word)
        if known is None:
            known = self.can_change[word] = is_replaceable(word, self.rule.stop_words)
        return known

    def _choose(self, entries: Sequence[_Entry]) -> _Choices:
        sizes = np.array([len(entry.eligible) for entry in entries], dtype=np.int64)
        eligible = np.array([place for entry in entries for place in entry.eligible], dtype=np.int64)
        totals = sizes * self.rule.copies
        entry = np.repeat(np.arange(len(entries)), totals)
        within = np.arange(len(entry)) - np.repeat(np.cumsum(totals) - totals, totals)
        copy, slot = np.divmod(within, np.maximum(sizes, 1)[entry])
        position = eligible[(np.cumsum(sizes) - sizes)[entry] + slot]
        keys = np.array([entry.key for entry in entries], dtype=np.uint64)
        of_copy = mix(mix(keys)[entry] ^ copy.astype(np.uint64))
        of_word = mix(of_copy ^ position.astype(np.uint64))
        kept = np.flatnonzero(uniform(of_word) < self.rule.probability)
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
            if len(kept) == self.rule.max_candidates:
                break
        return kept
