"""Words masked and phrases cut out: two of the rules by which Tang et al. (2019, arXiv 1903.12136) make transfer sets.

What is made keeps no certain label. Every choice is drawn by counter from (seed, method, example id, side, copy, word).
Their third rule, replacement by a word of the same part of speech, needs a tagger and is not here.
"""

from collections.abc import Callable, Iterator

import numpy as np

from potstill.data.augment import beside
from potstill.data.counter import mix, uniform
from potstill.data.examples import Examples
from potstill.data.new_texts import COPY_BITS, NewTexts, check_copies, check_ids, draw_key
from potstill.data.words import word_spans
from potstill.errors import SettingsError
from potstill.progress import SILENT, Reporter

__all__ = ["masked_words", "sampled_ngrams"]

_TOLD_EVERY = 1024
_Span = tuple[int, int]


def masked_words(
    examples: Examples, mask: str, *, seed: int, copies: int, probability: float = 0.1, report: Reporter = SILENT
) -> NewTexts:
    """Each word or number, independently, becomes the mask token: what the teacher says without it tells its part.

    Args:
        examples: n examples; of a pair each side is masked in turn.
        mask: The mask token as it is written in a text.
        seed: Any integer.
        copies: New texts for each text or side; 1 to 4,096. One in which nothing was masked is left out.
        probability: How likely a word is masked, above 0 to 1.
        report: Told of the texts read.
    """
    if not 0 < probability <= 1:
        raise SettingsError(f"words masked at probability {probability}", expected="above 0, at most 1")

    def make(text: str, spans: list[_Span], keys: np.ndarray) -> Iterator[tuple[int, str]]:
        words = np.array([text[start].isalnum() for start, _ in spans])
        places = np.arange(len(spans), dtype=np.uint64)
        hidden = (uniform(mix(keys[:, None] ^ places[None, :])) < probability) & words[None, :]
        for copy in np.flatnonzero(hidden.any(axis=1)).tolist():
            parts, at = [], 0
            for place in np.flatnonzero(hidden[copy]).tolist():
                start, end = spans[place]
                parts += [text[at:start], mask]
                at = end
            yield copy, "".join([*parts, text[at:]])

    return _made(examples, "masking", make, seed, copies, report)


def sampled_ngrams(
    examples: Examples, *, seed: int, copies: int, longest: int = 5, report: Reporter = SILENT
) -> NewTexts:
    """Runs of n words, n drawn from 1 … `longest`, cut out of each text; where they begin is drawn too.

    Args:
        examples: n examples; of a pair each side is cut in turn.
        seed: Any integer.
        copies: New texts for each text or side; 1 to 4,096. A run that is the whole text is left out.
        longest: Most words in a run; the paper's is 5.
        report: Told of the texts read.
    """
    if longest < 1:
        raise SettingsError(f"runs of {longest} words", expected="one or more")

    def make(text: str, spans: list[_Span], keys: np.ndarray) -> Iterator[tuple[int, str]]:
        most = min(longest, len(spans))
        sizes = 1 + (uniform(mix(keys)) * most).astype(np.int64)
        starts = (uniform(mix(mix(keys))) * (len(spans) - sizes + 1)).astype(np.int64)
        for copy, (size, start) in enumerate(zip(sizes.tolist(), starts.tolist(), strict=True)):
            if size < len(spans):
                yield copy, text[spans[start][0] : spans[start + size - 1][1]]

    return _made(examples, "ngram", make, seed, copies, report)


def _made(
    examples: Examples,
    method: str,
    make: Callable[[str, list[_Span], np.ndarray], Iterator[tuple[int, str]]],
    seed: int,
    copies: int,
    report: Reporter,
) -> NewTexts:
    """`make` gets a side's text, its words, and a mixed key for each copy; it gives (copy, text)."""
    check_copies(copies)
    check_ids(examples)
    sides = [examples.texts] if examples.pairs is None else [examples.texts, examples.pairs]
    numbers = np.arange(copies, dtype=np.uint64)
    keys = [mix(draw_key(seed, method, examples.example_id, side)) for side in range(len(sides))]
    rows: list[list[tuple[int, str | tuple[str, str]]]] = [[] for _ in range(len(examples))]
    for row in range(len(examples)):
        for side, texts in enumerate(sides):
            spans = word_spans(texts[row])
            if spans:
                made = make(texts[row], spans, mix(keys[side][row] ^ numbers))
                rows[row] += [(copy + (side << COPY_BITS), beside(examples, row, side, text)) for copy, text in made]
        if (row + 1) % _TOLD_EVERY == 0 or row + 1 == len(examples):
            report.progress(row + 1, len(examples))
    return NewTexts(method, rows)
