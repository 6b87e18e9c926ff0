"""Whole words whatever the logits, under every tokenizer; labels of words against a rule written out word by word."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tokenizers_of import CORPUS, KINDS, small_tokenizer

from potstill.data.encoding import TextEncoder
from potstill.data.first_pieces import FirstPieces
from potstill.data.words import whole_words
from potstill.errors import DataError
from potstill.metrics import Entity
from potstill.tasks.entities import FoundEntity, entities_of_logits, gold_tags, tag_names

TOKENIZERS = {kind: small_tokenizer(kind) for kind in KINDS}
ADA = "Ada Lovelace was born in London and worked with Charles Babbage on the Analytical Engine."
TAGS = tag_names(["PER", "LOC"])
IOBES = ("O", *(f"{prefix}-{label}" for label in ("LOC", "PER") for prefix in "BIES"))
ODD = ("cafe\u0301", "👩\u200d💻", "U.S.", "...", "שלום", "日本語", "a\tb", "never's", "\u200b", "½")
texts = st.lists(
    st.one_of(st.sampled_from([*(word for text in CORPUS for word in text.split()), *ODD]), st.text(max_size=4)),
    max_size=10,
).map(" ".join)


def pieces_of(kind, several, length=256, **more):
    encodings = TextEncoder(TOKENIZERS[kind], max_length=length, **more).encode(several, with_spans=True)
    words = [whole_words(text) for text in several]
    return FirstPieces.of(encodings, words).deciding(), words


def one_hot(labels):
    """Logits that say just these labels; where there is none, O."""
    return np.eye(len(TAGS))[np.maximum(labels, 0)] * 9.0


def check_whole(text, entities):
    words = whole_words(text)
    starts, ends = {start for start, _ in words}, {end for _, end in words}
    at = 0
    for entity in entities:
        assert entity.start in starts
        assert entity.end in ends
        assert at <= entity.start < entity.end
        assert entity.answer(text)["text"] == text[entity.start : entity.end]
        assert 0 < entity.score <= 1
        at = entity.end


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tags", [TAGS, IOBES])
@pytest.mark.parametrize("more", [{}, {"length": 12, "long_text": "window", "step": 4}])
def test_never_a_part_of_a_word_whatever_the_logits(kind, tags, more):
    pieces, words = pieces_of(kind, [ADA], **more)
    for seed in range(200):
        logits = np.random.default_rng(seed).normal(0, 5, (len(pieces.word), len(tags)))
        found = entities_of_logits(logits, pieces, words, tags)[0]
        check_whole(ADA, found)
        assert not {entity.answer(ADA)["text"] for entity in found} & {"Analy", "Ana", "Love", "Lon"}


@settings(deadline=None)
@given(kind=st.sampled_from(KINDS), several=st.lists(texts, min_size=1, max_size=3), seed=st.integers(0, 999))
def test_never_a_part_of_a_word_whatever_the_text(kind, several, seed):
    pieces, words = pieces_of(kind, several, 9, long_text="window", step=3)
    logits = np.random.default_rng(seed).normal(0, 5, (len(pieces.word), len(TAGS)))
    for text, found in zip(several, entities_of_logits(logits, pieces, words, TAGS), strict=True):
        check_whole(text, found)


@st.composite
def sentences(draw):
    """Words that every tokenizer has pieces for, and entities over some of them."""
    chosen = draw(st.lists(st.sampled_from(CORPUS[0].split()), min_size=1, max_size=12))
    text = " ".join(chosen)
    words, entities, at = whole_words(text), [], 0
    while at < len(words):
        length = draw(st.integers(0, 3))
        if length and at + length <= len(words):
            label = draw(st.sampled_from(["PER", "LOC"]))
            entities.append(Entity(words[at][0], words[at + length - 1][1], label))
        at += max(1, length)
    return text, entities


@settings(deadline=None)
@given(kind=st.sampled_from(KINDS), several=st.lists(sentences(), min_size=1, max_size=3), windowed=st.booleans())
def test_logits_that_say_the_gold_labels_give_the_gold_entities(kind, several, windowed):
    more = {"length": 9, "long_text": "window", "step": 3} if windowed else {}
    pieces, words = pieces_of(kind, [text for text, _ in several], **more)
    gold = [entities for _, entities in several]
    labels = gold_tags(pieces, words, gold, TAGS)
    assert (labels >= 0).all()
    found = entities_of_logits(one_hot(labels), pieces, words, TAGS)
    assert [[Entity(*entity[:3]) for entity in one] for one in found] == gold


def test_labels_stand_on_first_pieces_in_the_order_of_the_words():
    pieces, words = pieces_of("wordpiece", [ADA, "Ada"])
    gold = [[Entity(0, 12, "PER"), Entity(25, 31, "LOC")], [Entity(0, 3, "PER")]]
    labels = [TAGS[label] for label in gold_tags(pieces, words, gold, TAGS)]
    assert labels == ["B-PER", "I-PER", "O", "O", "O", "B-LOC", *["O"] * 10, "B-PER"]
    assert labels[:6] == [TAGS[label] for label in gold_tags(pieces, words, gold, TAGS, "IOB2")][:6]
    single = gold_tags(pieces, words, gold, IOBES, "IOBES")
    assert [IOBES[label] for label in single[:6]] == ["B-PER", "E-PER", "O", "O", "O", "S-LOC"]


def test_words_that_begin_in_one_token_have_one_label_and_are_not_parted():
    # As byte pairs merge "...": three words, one token, then one word.
    four, two = np.zeros(4, dtype=np.int64), np.array([1, 1, 1, 2])
    pieces = FirstPieces(four, two, four, np.arange(4), four)
    words = [[(0, 1), (1, 2), (2, 3), (4, 7)]]
    assert gold_tags(pieces, words, [[Entity(0, 3, "PER")]], TAGS).tolist() == [TAGS.index("B-PER"), -1, -1, 0]
    assert gold_tags(pieces, words, [[Entity(1, 3, "PER")]], TAGS).tolist() == [0, -1, -1, 0]
    logits = one_hot(np.array([TAGS.index("B-PER")] * 3 + [TAGS.index("B-LOC")]))
    found = entities_of_logits(logits, pieces, words, TAGS)
    assert [entity[:3] for entity in found[0]] == [(0, 3, "PER"), (4, 7, "LOC")]


def test_a_word_without_a_token_is_within_the_entity_around_it_and_no_entity_itself():
    two = np.zeros(2, dtype=np.int64)
    pieces = FirstPieces(two, np.array([1, 2]), two, np.array([0, 2]), two)
    words = [[(0, 3), (4, 5), (6, 9)]]
    both = one_hot(np.array([TAGS.index("B-PER"), TAGS.index("I-PER")]))
    assert [entity[:3] for entity in entities_of_logits(both, pieces, words, TAGS)[0]] == [(0, 9, "PER")]
    assert gold_tags(pieces, words, [[Entity(4, 9, "PER")]], TAGS).tolist() == [0, TAGS.index("B-PER")]
    assert gold_tags(pieces, words, [[Entity(4, 5, "PER")]], TAGS).tolist() == [0, 0]


def test_the_score_is_the_mean_probability_of_the_tags():
    two = np.zeros(2, dtype=np.int64)
    pieces = FirstPieces(two, np.array([1, 2]), two, np.arange(2), two)
    shares = np.array([[0.1, 0.0, 0.0, 0.7, 0.2], [0.3, 0.1, 0.0, 0.1, 0.5]])
    with np.errstate(divide="ignore"):
        found = entities_of_logits(np.log(shares), pieces, [[(0, 1), (2, 3)]], TAGS)
    assert found == [[FoundEntity(0, 3, "PER", pytest.approx(0.6))]]


def test_texts_without_words_have_no_entities():
    pieces, words = pieces_of("bpe", ["", "a", " "])
    assert [len(one) for one in entities_of_logits(one_hot(np.array([3])), pieces, words, TAGS)] == [0, 1, 0]
    assert gold_tags(pieces, words, [[], [], []], TAGS).tolist() == [0]


def test_a_tag_that_the_model_has_not_and_a_part_of_a_word_are_refused():
    pieces, words = pieces_of("bpe", ["Ada"])
    with pytest.raises(DataError, match="the tag 'B-ORG'; expected one of the model's: O, B-LOC"):
        gold_tags(pieces, words, [[Entity(0, 3, "ORG")]], TAGS)
    with pytest.raises(DataError, match="cuts a word"):
        gold_tags(pieces, words, [[Entity(0, 2, "PER")]], TAGS)
