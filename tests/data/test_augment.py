"""Algorithm 1, against a plain loop over every example, copy and word."""

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from potstill.data.augment import ByPieces, Proposer, augment
from potstill.data.examples import Examples
from potstill.data.neighbours import StaticNeighbours
from potstill.data.stopwords import STOP_WORDS
from potstill.data.tables import read_table
from potstill.errors import SettingsError

SHARED = Path(__file__).parents[2].parent / "shared" / "data"
real = pytest.mark.skipif(not SHARED.is_dir(), reason="the real data sets are not beside the repository")

VOCABULARY = ["good", "The", "Bad", "FILM", "the", "not", "x", "3d", "café", "don't", "plot"]
NEAR = {
    "good": ["GOOD", "great", "fine", "n1", "great", "Nice"],
    "bad": ["poor", "awful"],
    "film": ["movie", "film", "picture", "show"],
    "x": [],
    "café": ["bistro", "bar"],
    "the": ["a", "every"],
    "plot": ["story", "Story", "tale", "yarn", "script"],
}


class Table:
    """Proposes from `NEAR` and remembers what it was asked."""

    needs_context = False

    def __init__(self):
        self.asked = []
        self.calls = 0

    def propose(self, sentences, positions):
        self.calls += 1
        words = [sentence[position] for sentence, position in zip(sentences, positions, strict=True)]
        self.asked += words
        return [NEAR.get(word.casefold(), []) for word in words]


class Context(Table):
    """Proposes what depends on the whole sentence."""

    needs_context = True

    def propose(self, sentences, positions):
        self.calls += 1
        self.asked += [(tuple(sentence), position) for sentence, position in zip(sentences, positions, strict=True)]
        return [
            [f"{sentence[position]}{chr(97 + len(sentence) % 26)}{mark}" for mark in "pqrs"]
            for sentence, position in zip(sentences, positions, strict=True)
        ]


def examples(texts, pairs=None, ids=None):
    ids = range(10, 10 + len(texts)) if ids is None else ids
    return Examples(np.array(list(ids), np.int64), texts, pairs, np.arange(len(texts), dtype=np.int64) % 3)


MASK = (1 << 64) - 1


def mix(value):
    value = (value + 0x9E3779B97F4A7C15) & MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


def plain_copy(text, identity, copy, proposer, seed, probability, stop_words, most):
    """One new text, word by word, as the docstrings say it is made."""
    pattern = re.compile(r"\w+(?:'\w+)*|[^\w\s]")
    sentence = [match.group() for match in pattern.finditer(text)]
    key = mix(mix(mix(seed & MASK) ^ identity) ^ copy)
    place = -1

    def replace(match):
        nonlocal place
        place += 1
        word = match.group()
        drawn = mix(key ^ place)
        if not word.isalpha() or word.casefold() in stop_words or (drawn >> 11) / 2**53 >= probability:
            return word
        (found,) = proposer.propose([sentence], [place])
        usable = {}
        for candidate in found:
            if candidate.isalpha() and candidate.casefold() != word.casefold():
                usable.setdefault(candidate.casefold(), candidate)
        usable = list(usable.values())[:most]
        if not usable:
            return word
        chosen = usable[int((mix(drawn) >> 11) / 2**53 * len(usable))]
        if word.isupper() and len(word) > 1:
            return chosen.upper()
        return chosen[0].upper() + chosen[1:] if word[0].isupper() else chosen

    return pattern.sub(replace, text)


def plain_augment(given_examples, proposer, *, seed, copies, probability, stop_words, max_candidates):
    rows = []
    sides = [given_examples.texts] + ([given_examples.pairs] if given_examples.pairs is not None else [])
    originals = set(zip(*sides, strict=True))
    order = np.argsort(given_examples.example_id)
    for row in order:
        identifier = int(given_examples.example_id[row])
        original = tuple(side[row] for side in sides)
        rows.append((identifier, original, int(given_examples.labels[row])))
        for side in range(len(sides)):
            for copy in range(copies):
                text = plain_copy(
                    original[side], identifier * 2 + side, copy, proposer, seed, probability, stop_words, max_candidates
                )
                new = tuple(text if place == side else other for place, other in enumerate(original))
                if new not in originals:
                    originals.add(new)
                    rows.append((2**62 + ((identifier * 2 + side) << 12) + copy, new, int(given_examples.labels[row])))
    return rows


def as_rows(found):
    sides = [found.texts] + ([found.pairs] if found.pairs is not None else [])
    return list(zip(found.example_id.tolist(), zip(*sides, strict=True), found.labels.tolist(), strict=True))


SENTENCE = st.lists(st.sampled_from([*VOCABULARY, ",", " ", "  ", "'"]), max_size=7).map(" ".join)


@given(
    st.lists(st.tuples(SENTENCE, SENTENCE), min_size=0, max_size=5),
    st.booleans(),
    st.booleans(),
    st.integers(-5, 2**65),
    st.integers(1, 5),
    st.sampled_from([0.1, 0.5, 1.0]),
    st.integers(1, 4),
)
def test_it_is_algorithm_1(rows, is_pair, in_context, seed, copies, probability, most):
    proposer = Context() if in_context else Table()
    given_examples = examples([a for a, _ in rows], [b for _, b in rows] if is_pair else None)
    options = {
        "seed": seed,
        "copies": copies,
        "probability": probability,
        "stop_words": STOP_WORDS,
        "max_candidates": most,
    }
    found = augment(given_examples, proposer, **options)
    assert sorted(as_rows(found)) == sorted(plain_augment(given_examples, proposer, **options))


@given(st.permutations(range(12)), st.integers(1, 11))
def test_neither_order_nor_batch_matters(order, cut):
    # No two share a text, so nothing is dropped across the cut.
    texts = [f"{'abcdefghijkl'[i] * 5} good plot , bad film" for i in range(12)]
    whole = examples(texts, list(reversed(texts)))
    options = {"seed": 4, "copies": 6}
    expected = {row[0]: row for row in as_rows(augment(whole, Table(), **options))}
    assert len(expected) > 100
    mixed = whole.select(np.array(order))
    assert {row[0]: row for row in as_rows(augment(mixed, Table(), **options))} == expected
    parts = [as_rows(augment(mixed.select(np.arange(a, b)), Table(), **options)) for a, b in ((0, cut), (cut, 12))]
    assert {row[0]: row for part in parts for row in part} == expected
    fewer = {row[0]: row for row in as_rows(augment(whole, Table(), seed=4, copies=3))}
    assert fewer.items() <= expected.items()
    assert {row[0]: row for row in as_rows(augment(whole, Table(), seed=5, copies=6))} != expected


def test_which_of_two_equal_new_texts_stays_does_not_depend_on_their_order():
    one = Examples(np.array([7, 3]), ["bad x", "bad x"], None, np.array([0, 1]))
    two = one.select(np.array([1, 0]))
    found, turned = (
        sorted(as_rows(augment(e, Table(), seed=0, copies=50, stop_words=frozenset()))) for e in (one, two)
    )
    assert found == turned
    new = [row for row in found if row[0] >= 2**62]
    assert Counter(text for _, (text,), _ in new) == {"poor x": 1, "awful x": 1}
    assert {label for _, _, label in new} == {1}


def test_a_new_text_that_is_an_original_is_dropped():
    given_examples = examples(["bad y", "poor y", "awful y"])
    assert as_rows(augment(given_examples, Table(), seed=0, copies=50)) == as_rows(given_examples)
    pairs = examples(["bad y", "poor y", "awful y"], ["z", "other", "z"])
    found = augment(pairs, Table(), seed=0, copies=50)
    assert [(a, b) for a, b, i in zip(found.texts, found.pairs, found.example_id, strict=True) if i >= 2**62] == [
        ("poor y", "z")
    ]


def test_what_a_word_can_become():
    found = augment(examples(["FILM 3d", "Good 4d", "Plot"]), Table(), seed=0, copies=500, probability=1.0)
    assert sorted(text for text, i in zip(found.texts, found.example_id, strict=True) if i >= 2**62) == [
        *("Fine 4d", "Great 4d", "MOVIE 3d", "Nice 4d", "PICTURE 3d", "SHOW 3d"),
        *("Script", "Story", "Tale", "Yarn"),
    ]


def test_originals_stay_in_their_order_each_before_its_copies():
    found = augment(examples(["good", "the", "good"], ids=[5, 9, 2]), Table(), seed=1)
    assert [i for i in found.example_id.tolist() if i < 2**62] == [5, 9, 2]
    assert [text for text, i in zip(found.texts, found.example_id.tolist(), strict=True) if i < 2**62] == [
        "good",
        "the",
        "good",
    ]
    owner = None
    for identifier in found.example_id.tolist():
        owner = identifier if identifier < 2**62 else owner
        assert identifier in (owner, 2**62 + (owner * 2 << 12) + (identifier & 4095))


def test_no_proposer_is_asked_twice_and_all_are_asked_in_batches():
    texts = ["good plot", "good  plot", "a good plot", "bad film , good plot"] * 700
    proposer = Context()
    augment(examples(texts), proposer, seed=0)
    assert len(proposer.asked) == len(set(proposer.asked)) == 8
    proposer = Table()
    augment(examples(texts, texts), proposer, seed=0)
    assert sorted(proposer.asked) == ["bad", "film", "good", "plot"]
    many = [
        f"good {'abcdefghij'[i % 10]}{'abcdefghij'[i // 10 % 10]}{'abcdefghij'[i // 100]}y plot" for i in range(1000)
    ]
    proposer = Context()
    augment(examples(many), proposer, seed=0)
    assert len(set(proposer.asked)) == len(proposer.asked) > 2900
    assert proposer.calls <= 5


def test_only_words_that_are_replaced_are_asked_for():
    proposer = Context()
    augment(examples(["good plot bad film good plot bad film"]), proposer, seed=0, copies=1, probability=0.3)
    assert 0 < len(proposer.asked) < 6


def test_words_are_replaced_as_often_as_they_should_be_and_by_all_alike():
    class Letters(Table):
        def propose(self, sentences, positions):
            return [[f"new{mark}" for mark in "abcde"]] * len(positions)

    names = ["".join(chr(97 + int(d)) for d in f"{i:04d}") for i in range(400)]
    texts = [" ".join([f"word{name}"] * 20) for name in names]
    found = augment(examples(texts), Letters(), seed=11, copies=10)
    new = [text.split(" ") for text, i in zip(found.texts, found.example_id, strict=True) if i >= 2**62]
    assert len(new) == 4000
    counts = Counter(word for words in new for word in words if word.startswith("new"))
    total, trials = sum(counts.values()), 4000 * 20
    assert abs(total - 0.4 * trials) < 5 * np.sqrt(trials * 0.4 * 0.6)
    assert stats.chisquare([counts[f"new{mark}"] for mark in "abcde"]).pvalue > 1e-4
    by_place = np.array([[word.startswith("new") for word in words] for words in new]).sum(axis=0)
    assert stats.chisquare(by_place, by_place.mean() * np.ones(20)).pvalue > 1e-4


def test_by_pieces_asks_the_one_that_should_know():
    context, table = Context(), Table()
    both: Proposer = ByPieces(context, table, lambda word: word != "plot")
    assert both.needs_context
    sentences = [("good", "plot", "film"), ("plot",), ("bad",)]
    asked = [(sentences[0], 0), (sentences[0], 1), (sentences[0], 2), (sentences[1], 0), (sentences[2], 0)]
    found = both.propose([sentence for sentence, _ in asked], [place for _, place in asked])
    assert context.asked == [asked[0], asked[2], asked[4]]
    assert table.asked == ["plot", "plot"]
    assert [list(candidates) for candidates in found] == [
        ["gooddp", "gooddq", "gooddr", "goodds"],
        NEAR["plot"],
        ["filmdp", "filmdq", "filmdr", "filmds"],
        NEAR["plot"],
        ["badbp", "badbq", "badbr", "badbs"],
    ]
    context.asked, table.asked = [], []
    both.propose([("plot",)], [0])
    assert context.calls == 1


def test_nothing_to_do():
    assert as_rows(augment(examples([]), Table(), seed=0)) == []
    assert as_rows(augment(examples([], []), Table(), seed=0)) == []
    none = Table()
    given_examples = examples(["the of not", "3d 12 !!!", "", "absent"])
    assert as_rows(augment(given_examples, none, seed=0)) == as_rows(given_examples)
    assert none.asked == ["absent"]


@pytest.mark.parametrize(
    "options", [{"copies": 0}, {"copies": 4097}, {"probability": 0.0}, {"probability": 1.1}, {"max_candidates": 0}]
)
def test_settings_that_cannot_be(options):
    with pytest.raises(SettingsError):
        augment(examples(["good"]), Table(), seed=0, **options)


@pytest.mark.parametrize("identifier", [-1, 2**44])
def test_ids_that_cannot_be(identifier):
    with pytest.raises(ValueError, match="ids"):
        augment(examples(["good"], ids=[identifier]), Table(), seed=0)
    augment(examples(["good"], ids=[2**44 - 1]), Table(), seed=0, copies=4096)


def test_progress_is_told():
    told = []

    class Reporter:
        def progress(self, done, total, **values):
            told.append((done, total))

    augment(
        examples([f"good {chr(97 + i % 26)}{chr(97 + i // 26)}z" for i in range(600)]),
        Context(),
        seed=0,
        copies=1,
        report=Reporter(),
    )
    assert told == [(256, 600), (512, 600), (600, 600)]


@real
def test_sst2_with_glove():
    table = read_table([SHARED / "glue/SST-2/dev.tsv"])
    texts = table.column("sentence")
    given_examples = Examples(np.arange(872), texts, None, np.array(table.column("label"), dtype=np.int64))
    neighbours = StaticNeighbours.from_glove(SHARED / "vectors/glove.6B.50d.7.8k.txt")
    found = augment(given_examples, neighbours, seed=1)
    assert len(found) > 872 * 15
    assert len(set(found.texts)) >= len(found) - (872 - len(set(texts)))
    assert len(set(found.example_id.tolist())) == len(found)
    for identifier, text, label in zip(found.example_id.tolist(), found.texts, found.labels.tolist(), strict=True):
        origin = identifier if identifier < 2**62 else (identifier - 2**62) >> 13
        assert label == given_examples.labels[origin]
        before, after = texts[origin].split(), text.split()
        assert len(before) == len(after)
        for old, new in zip(before, after, strict=True):
            if old != new and old.isalpha():
                assert old.casefold() not in STOP_WORDS
                assert new in neighbours.propose([[old]], [0])[0]
