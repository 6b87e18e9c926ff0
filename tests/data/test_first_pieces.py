"""First pieces of words against a search token by token, on every kind of tokenizer and of text, whole and windowed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tokenizers_of import CORPUS, KINDS, small_tokenizer

from potstill.data.encoding import TextEncoder
from potstill.data.first_pieces import FirstPieces
from potstill.data.words import whole_words
from potstill.errors import DataError

TOKENIZERS = {kind: small_tokenizer(kind) for kind in KINDS}
ODD = ("cafe\u0301", "👩\u200d💻", "U.S.", "...", "שלום", "日本語", "a\tb", "x\r\ny", "never's", "\u200b", "ﬁne", "½")
texts = st.lists(
    st.one_of(st.sampled_from([*(word for text in CORPUS for word in text.split()), *ODD]), st.text(max_size=4)),
    max_size=12,
).map(" ".join)


def encode(kind, several, length=64, **more):
    return TextEncoder(TOKENIZERS[kind], max_length=length, **more).encode(several, with_spans=True)


def first_by_search(kind, text):
    """Word → its first token among all of the text, by the tokenizer's own offsets."""
    tokenizer = TOKENIZERS[kind]
    tokenizer.no_truncation()
    encoding = tokenizer.encode(text.encode("utf-8", "replace").decode())
    found = {}
    for word, (start, end) in enumerate(whole_words(text)):
        for token, (low, high) in enumerate(encoding.offsets):
            inside = range(max(low, start), min(high, end))
            if encoding.sequence_ids[token] == 0 and len(inside):
                found[word] = token
                break
    return found


@settings(deadline=None)
@given(kind=st.sampled_from(KINDS), several=st.lists(texts, min_size=1, max_size=3))
def test_the_first_piece_is_the_first_token_with_a_character_of_the_word(kind, several):
    found = FirstPieces.of(encode(kind, several, 512), [whole_words(text) for text in several])
    for number, text in enumerate(several):
        own = found.text == number
        assert dict(zip(found.word[own].tolist(), found.token[own].tolist(), strict=True)) == first_by_search(
            kind, text
        )


@settings(deadline=None)
@given(kind=st.sampled_from(KINDS), text=texts, length=st.integers(6, 12), data=st.data())
def test_windows_hold_the_words_that_the_whole_text_has_each_decided_where_it_has_most_context(
    kind, text, length, data
):
    step = data.draw(st.integers(1, length - 3))
    words = [whole_words(text)]
    windows = encode(kind, [text], length, long_text="window", step=step)
    whole = encode(kind, [text], 4096)
    found, wanted = FirstPieces.of(windows, words), FirstPieces.of(whole, words)
    chosen = found.deciding()
    assert chosen.word.tolist() == wanted.word.tolist()
    ids = windows.input_ids[windows.starts[chosen.window] + chosen.token]
    np.testing.assert_array_equal(ids, whole.input_ids[wanted.token])
    for word, window, context in zip(chosen.word, chosen.window, chosen.context, strict=True):
        rivals = found.word == word
        assert context == found.context[rivals].max()
        assert window == found.window[rivals][found.context[rivals] == context].min()


def test_context_is_counted_to_the_nearer_end_of_the_window():
    # Letters alone: one token each, "[CLS] a b c d [SEP]".
    windows = encode("characters", ["a b c d e f g"], 7, long_text="window", step=2)
    found = FirstPieces.of(windows, [whole_words("a b c d e f g")])
    assert found.context[found.window == 0].tolist() == [0, 1, 2, 1, 0]
    chosen = found.deciding()
    assert chosen.window.tolist() == [0, 0, 0, 0, 1, 1, 1]
    assert chosen.token.tolist() == [1, 2, 3, 4, 3, 4, 5]


def test_a_window_that_begins_within_a_word_does_not_hold_it():
    text = "unbelievable film"
    windows = encode("characters", [text], 8, long_text="window", step=3)
    found = FirstPieces.of(windows, [whole_words(text)])
    assert found.window[found.word == 0].tolist() == [0]
    assert found.token[found.word == 0].tolist() == [1]


def test_special_tokens_in_the_text_are_no_pieces_of_its_frame_and_a_cut_text_lacks_its_end():
    found = FirstPieces.of(encode("characters", ["a b c d", ""], 4), [whole_words("a b c d"), []])
    assert found.word.tolist() == [0, 1]
    assert found.token.tolist() == [1, 2]


def test_words_of_other_texts_and_encodings_without_spans_are_refused():
    encodings = TextEncoder(TOKENIZERS["bpe"], max_length=9).encode(["a"])
    for given_, words in ((encodings, [[(0, 1)]]), (encode("bpe", ["a"]), [])):
        with pytest.raises(DataError, match="with_spans=True"):
            FirstPieces.of(given_, words)
