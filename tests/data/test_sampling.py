"""Words masked and phrases cut out, against plain loops with the same draws."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from potstill.data.examples import Examples
from potstill.data.new_texts import NUMBERS
from potstill.data.sampling import masked_words, sampled_ngrams
from potstill.errors import SettingsError

BITS = (1 << 64) - 1
PATTERN = re.compile(r"\w+(?:'\w+)*|[^\w\s]")


def mix(value):
    value = (value + 0x9E3779B97F4A7C15) & BITS
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & BITS
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & BITS
    return value ^ (value >> 31)


def share(value):
    return (value >> 11) / 2**53


def key_of(seed, method, identifier, side, copy):
    return mix(mix(mix(seed & BITS) ^ (NUMBERS[method] << 45 | identifier * 2 + side)) ^ copy)


def plain_masked(text, key, probability):
    place = -1

    def hide(match):
        nonlocal place
        place += 1
        return "[M]" if match.group()[0].isalnum() and share(mix(key ^ place)) < probability else match.group()

    return PATTERN.sub(hide, text)


def plain_ngram(text, key, longest):
    spans = [match.span() for match in PATTERN.finditer(text)]
    if not spans:
        return text
    size = 1 + int(share(mix(key)) * min(longest, len(spans)))
    start = int(share(mix(mix(key))) * (len(spans) - size + 1))
    return text[spans[start][0] : spans[start + size - 1][1]] if size < len(spans) else text


WORDS = st.lists(st.sampled_from(["good", "the", "don't", "3d", ",", "!", "A"]), max_size=8)
TEXT = WORDS.map(" ".join) | WORDS.map("  ".join)


@given(
    st.lists(st.tuples(TEXT, TEXT), max_size=5),
    st.booleans(),
    st.sampled_from(["masking", "ngram"]),
    st.integers(-3, 2**64),
    st.integers(1, 5),
    st.sampled_from([0.1, 0.5, 1.0]),
    st.permutations(range(5)),
)
def test_against_a_plain_loop(rows, is_pair, method, seed, copies, probability, order):
    whole = Examples(
        np.arange(len(rows)) * 7, [a for a, _ in rows], [b for _, b in rows] if is_pair else None, np.zeros(len(rows))
    )
    given_examples = whole.select(np.array([i for i in order if i < len(rows)], dtype=np.int64))
    if method == "masking":
        found = masked_words(given_examples, "[M]", seed=seed, copies=copies, probability=probability)
    else:
        found = sampled_ngrams(given_examples, seed=seed, copies=copies, longest=3)
    assert found.method == method
    sides = [given_examples.texts, given_examples.pairs or []][: 1 + is_pair]
    for row, identifier in enumerate(given_examples.example_id.tolist()):
        wanted = []
        for side, texts in enumerate(sides):
            for copy in range(copies):
                key = key_of(seed, method, identifier, side, copy)
                text = texts[row]
                new = plain_masked(text, key, probability) if method == "masking" else plain_ngram(text, key, 3)
                if new != text:
                    other = new if not is_pair else (new, sides[1][row]) if side == 0 else (sides[0][row], new)
                    wanted.append((copy + 4096 * side, other))
        assert list(found.rows[row]) == wanted


def test_words_are_masked_as_often_as_told_and_phrases_are_of_all_lengths_and_places():
    texts = [" ".join("abcdefghij")] * 300
    given_examples = Examples(np.arange(300), texts, None, np.zeros(300, dtype=np.int64))
    made = masked_words(given_examples, "[M]", seed=0, copies=20)
    masks = sum(text.count("[M]") for row in made.rows for _, text in row)
    assert abs(masks - 0.1 * 60_000) < 5 * np.sqrt(60_000 * 0.09)
    phrases = [text.split() for row in sampled_ngrams(given_examples, seed=0, copies=20).rows for _, text in row]
    lengths = np.bincount([len(phrase) for phrase in phrases], minlength=6)[1:]
    assert len(lengths) == 5
    assert stats.chisquare(lengths).pvalue > 1e-4
    starts = np.bincount(["abcdefghij".index(phrase[0]) for phrase in phrases if len(phrase) == 3], minlength=8)
    assert stats.chisquare(starts).pvalue > 1e-4


@pytest.mark.parametrize(
    "wrong",
    [
        lambda e: masked_words(e, "[M]", seed=0, copies=2, probability=0.0),
        lambda e: masked_words(e, "[M]", seed=0, copies=0),
        lambda e: sampled_ngrams(e, seed=0, copies=4097),
        lambda e: sampled_ngrams(e, seed=0, copies=1, longest=0),
    ],
)
def test_settings_that_cannot_be(wrong):
    with pytest.raises(SettingsError):
        wrong(Examples(np.arange(1), ["good"], None, np.zeros(1, dtype=np.int64)))
