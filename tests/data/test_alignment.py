"""Tokens of two tokenizers joined by their characters: against a search over all pairs, on every kind of text."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tokenizers_of import CORPUS, KINDS, small_tokenizer

from potstill.data.alignment import Alignment
from potstill.data.encoding import TextEncoder, readable
from potstill.errors import ModelError

TOKENIZERS = {kind: small_tokenizer(kind) for kind in KINDS}
ODD = (
    "caf\u0301e naïve ÅNGSTRÖM",
    "😀 good 👩‍👩‍👧 film",
    "  two  spaces\tand\nlines ",
    "ﬁne ½ ①",
    "日本語 film",
    "\u200b",
    "a",
    "the [SEP] film </s>",
    "half a pair \ud83d of surrogates",
)
words = st.sampled_from([word for text in (*CORPUS, *ODD) for word in text.split(" ")])
texts = st.lists(st.one_of(words, words, st.text(max_size=6)), max_size=14).map(" ".join)
kinds = st.sampled_from(KINDS)


def encoder_of(kind, length, **more):
    return TextEncoder(TOKENIZERS[kind], max_length=length, **more)


def plain_tokens(kind, text, pair, length):
    """What the tokenizer itself says of a text, cut: of each token, the exact parts of (text, code point) it is.

    White space around a token is not the token's; n tokens of one code point divide it in order; so do special tokens
    of one role.
    """
    tokenizer = TOKENIZERS[kind]
    tokenizer.no_padding()
    tokenizer.enable_truncation(length)
    whole = [readable(text)] if pair is None else [readable(text), readable(pair)]
    encoding = tokenizer.encode(*whole)
    tokenizer.no_truncation()
    points, specials = [], 0
    for number, (start, end) in zip(encoding.sequence_ids, encoding.offsets, strict=True):
        if number is None:
            points.append([(role(kind, pair is not None, specials), 0)])
            specials += 1
            continue
        inside = range(start, end)
        solid = [at for at in inside if not whole[number][at].isspace()]
        points.append([(number, at) for at in (range(solid[0], solid[-1] + 1) if solid else inside)])
    parts = []
    for own, mine in enumerate(points):
        found = {}
        for point in mine:
            sharers = [other for other, theirs in enumerate(points) if point in theirs]
            found[point] = (Fraction(sharers.index(own), len(sharers)), Fraction(sharers.index(own) + 1, len(sharers)))
        parts.append(found)
    return parts


def role(kind, is_pair, rank):
    """[CLS], the middle, the end: RoBERTa has two separators in the middle of a pair."""
    if rank == 0:
        return "first"
    return "last" if is_pair and rank > (2 if kind == "bpe" else 1) else "after"


def oracle(kinds_of, text, pair, lengths):
    """weights[i][j] of the student's token i and the teacher's j, by comparing every pair of tokens."""
    own, other = (plain_tokens(kind, text, pair, length) for kind, length in zip(kinds_of, lengths, strict=True))
    weights = np.zeros((len(own), len(other)))
    for i, mine in enumerate(own):
        for j, theirs in enumerate(other):
            shared = [(mine[point], theirs[point]) for point in mine if point in theirs]
            weights[i, j] = sum(max(0, min(a[1], b[1]) - max(a[0], b[0])) for a, b in shared)
    sums = weights.sum(axis=1, keepdims=True)
    return np.divide(weights, sums, out=np.zeros_like(weights), where=sums > 0)


@settings(max_examples=25, deadline=None)
@given(
    rows=st.lists(st.tuples(texts, texts), min_size=1, max_size=5),
    is_pair=st.booleans(),
    student=kinds,
    teacher=kinds,
    lengths=st.tuples(st.integers(8, 60), st.integers(8, 60)),
)
def test_as_a_search_over_all_pairs_of_tokens(rows, is_pair, student, teacher, lengths):
    first, second = (list(side) for side in zip(*rows, strict=True))
    pairs = second if is_pair else None
    check(first, pairs, student, teacher, lengths)


@pytest.mark.parametrize("teacher", KINDS)
@pytest.mark.parametrize("student", KINDS)
def test_odd_texts_too(student, teacher):
    check(list(ODD), None, student, teacher, (40, 40))
    check(list(ODD), list(ODD[::-1]), student, teacher, (60, 30))


def check(first, pairs, student, teacher, lengths):
    own, other = (
        encoder_of(kind, length).encode(first, pairs, with_spans=True)
        for kind, length in zip((student, teacher), lengths, strict=True)
    )
    order = np.arange(len(first))[::-1].copy()
    joined = Alignment(own, other).of(order)
    assert joined.windows.tolist() == order.tolist()
    width = int(other.lengths.max())
    longest = joined.joined.shape[1]
    for row, text in enumerate(order):
        wanted = oracle((student, teacher), first[text], None if pairs is None else pairs[text], lengths)
        found = np.zeros((longest, width * len(first)))
        for token in range(longest):
            inside = slice(*joined.starts[row * longest + token : row * longest + token + 2])
            found[token, joined.tokens[inside]] += joined.weights[inside]
        own_block = found[: len(wanted), row * width : row * width + wanted.shape[1]]
        assert own_block == pytest.approx(wanted, abs=1e-6), first[text]
        assert found.sum() == pytest.approx(wanted.sum(), abs=1e-4)  # and nothing anywhere else
        assert joined.joined[row, : len(wanted)].tolist() == (wanted.sum(axis=1) > 0).tolist()
        assert not joined.joined[row, len(wanted) :].any()


LONG = " ".join(CORPUS * 3)


@pytest.mark.parametrize("is_pair", [False, True])
def test_a_tokenizer_joined_to_itself_is_the_identity_windows_and_all(is_pair):
    first, second = [LONG, "the film", CORPUS[2] * 4], [CORPUS[1] * 5, "a", LONG]
    for kind in KINDS:
        encoder = encoder_of(kind, 30, long_text="window")
        own = encoder.encode(["the plot"] * 3 if is_pair else first, second if is_pair else None, with_spans=True)
        assert len(own) > 6
        rows = np.random.default_rng(0).permutation(len(own))[:7]
        joined = Alignment(own, own).of(rows)
        assert joined.windows.tolist() == rows.tolist()
        assert np.array_equal(joined.shares, np.eye(len(rows)))
        longest = int(own.lengths[rows].max())
        real = np.arange(longest) < own.lengths[rows][:, None]
        for row in range(len(rows)):
            for token in np.flatnonzero(real[row]):
                inside = slice(*joined.starts[row * longest + token : row * longest + token + 2])
                at = joined.tokens[inside] - row * longest
                assert at.tolist() == [token]
        assert Alignment(own, own).unread() == (0, len(own.input_ids))


def test_windows_of_other_lengths_serve_each_token_once():
    texts = [LONG, "the film was good", CORPUS[0]]
    for student, teacher, lengths in (("wordpiece", "bpe", (60, 24)), ("bpe", "characters", (24, 90))):
        own, other = (
            encoder_of(kind, length, long_text="window").encode(texts, with_spans=True)
            for kind, length in zip((student, teacher), lengths, strict=True)
        )
        alignment = Alignment(own, other)
        # Of BPE's tokens, those of white space alone have no counterpart.
        assert (alignment.unread()[0] == 0) == (student == "wordpiece")
        joined = alignment.of(np.arange(len(own)))
        longest, width = joined.joined.shape[1], int(other.lengths[joined.windows].max())
        sums = np.add.reduceat(joined.weights, joined.starts[:-1][joined.joined.ravel()])
        assert sums == pytest.approx(np.ones(len(sums)), abs=1e-6)
        for row, window in enumerate(own.example):
            for token in np.flatnonzero(joined.joined[row]):
                inside = slice(*joined.starts[row * longest + token : row * longest + token + 2])
                served = joined.windows[joined.tokens[inside] // width]
                assert len(set(served)) == 1
                assert other.example[served[0]] == window
                assert joined.shares[row, joined.tokens[inside][0] // width] > 0
        assert joined.shares.sum(axis=1) == pytest.approx(np.ones(len(own)))
    # A student that reads more than one window of the teacher's gets the answers of all that it reads.
    logits = np.random.default_rng(0).normal(size=(len(other), 3)).astype(np.float32)
    assert alignment.answers(logits) == pytest.approx(joined.shares @ logits[joined.windows], abs=1e-6)


def test_what_the_teacher_does_not_reach_takes_no_part():
    own, other = (encoder_of("wordpiece", length).encode([LONG, "the film"], with_spans=True) for length in (64, 20))
    alignment = Alignment(own, other)
    joined = alignment.of(np.arange(2))
    assert joined.joined[0].tolist() == [True] * 19 + [False] * 44 + [True]
    assert alignment.unread() == (44, len(own.input_ids))


def test_other_texts_and_bare_encodings_are_refused():
    own = encoder_of("bpe", 30).encode(["a", "b"], with_spans=True)
    with pytest.raises(ModelError, match="2 and 1 texts"):
        Alignment(own, encoder_of("bpe", 30).encode(["a"], with_spans=True))
    with pytest.raises(ModelError, match="without spans"):
        Alignment(own, encoder_of("bpe", 30).encode(["a", "b"]))
    none = encoder_of("bpe", 30).encode([], with_spans=True)
    assert Alignment(none, none).unread() == (0, 0)
