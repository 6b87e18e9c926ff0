"""What counts as blank, as a word, as the same text."""

import itertools
import re
import string
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from potstill.data.words import is_blank, is_letters, match_case, normalise, text_key, whole_words, word_spans


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  It's GREAT -- really!! ", "it s great really"),
        ("ＦＵＬＬ　width ①", "full width 1"),
        ("Straße", "strasse"),
        ("cafe\u0301", "caf\u00e9"),
        ("a_b", "a b"),
        ("हिन्दी पाठ", "हिन्दी पाठ"),
        (":-)", ""),
    ],
)
def test_normalise(text, expected):
    assert normalise(text) == expected


@given(st.text(alphabet=string.printable, max_size=60))
def test_normalise_of_ascii_is_letters_and_digits_with_single_spaces(text):
    letters = "".join(c if c.isalnum() else " " for c in text.lower())
    assert normalise(text) == " ".join(letters.split())


@given(st.text(max_size=60))
def test_normalise_is_idempotent_but_for_characters_that_unicode_itself_unfolds(text):
    once = normalise(text)
    assert normalise(once) == normalise(normalise(once))
    assert "  " not in once
    assert once == once.strip()


def test_vowel_signs_tell_hindi_words_apart():
    assert text_key("की") != text_key("का")


def test_keys():
    assert text_key("it 's a charming , affecting journey .") == text_key("It's a charming, affecting journey")
    assert text_key("!!!") != text_key(":)")
    assert text_key("😀") != text_key("😢")
    assert text_key("a b", "c") != text_key("a", "b c")
    assert text_key("a", "") != text_key("a")


@pytest.mark.parametrize("text", ["", " \t\n", "\u200b\u200d\ufeff", "\u00a0\u3000", "\x00\x1f", "\u2060"])
def test_blank(text):
    assert is_blank(text)


@pytest.mark.parametrize("text", ["a", " . ", "NA", "\u200bx", "0", "😀", "\u0301"])
def test_not_blank(text):
    assert not is_blank(text)


def test_is_letters():
    assert [
        w for w in ["word", "naïve", "हिन्दी", "слово", "don't", "a1", "", "_", "##ing", "co-op", "१"] if is_letters(w)
    ] == [
        "word",
        "naïve",
        "हिन्दी",
        "слово",
    ]


def test_word_spans():
    text = "Don't — ca n't, a_1  हिन्दी! x\u2019y 3.5"
    words = [text[start:end] for start, end in word_spans(text)]
    assert words == ["Don't", "—", "ca", "n't", ",", "a_1", "हिन्दी", "!", "x\u2019y", "3", ".", "5"]


@given(st.text(max_size=80))
def test_word_spans_cover_all_but_whitespace_in_order(text):
    spans = word_spans(text)
    assert all(a < b for a, b in spans)
    assert all(first[1] <= second[0] for first, second in itertools.pairwise(spans))
    inside = {place for start, end in spans for place in range(start, end)}
    left = [c for place, c in enumerate(text) if place not in inside]
    assert all(c.isspace() or unicodedata.category(c).startswith("M") for c in left)


@given(st.text(alphabet=string.ascii_letters + string.digits + "' .,-_", max_size=60))
def test_the_ascii_pattern_is_the_general_one(text):
    general = [(m.start(), m.end()) for m in re.finditer(r"\w+(?:'\w+)*|[^\w\s]", text)]
    assert word_spans(text) == general
    assert (
        [end - start for start, end in word_spans(text)]
        == [end - start for start, end in word_spans(text + "é")[: len(general)]]
        or text[-1:].isalnum()
        or text.endswith(("'", "_"))
    )


def test_floods_of_marks_take_linear_time():
    # Alternating classes make canonical ordering quadratic where the run is not cut: this would outlast the time limit.
    assert normalise("a" + "\u0315\u0300\u05ae" * 300_000).startswith("à")
    assert is_blank("\u200b" * 1_000_000)
    assert len(word_spans("é" + "\u0301" * 500_000 + "'" * 500_000)) > 1


@pytest.mark.parametrize(
    ("word", "like", "expected"),
    [
        ("film", "movie", "film"),
        ("film", "Movie", "Film"),
        ("film", "MOVIE", "FILM"),
        ("Paris", "rome", "Paris"),
        ("we", "I", "We"),
    ],
)
def test_match_case(word, like, expected):
    assert match_case(word, like) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("London's U.S. well-known", "London|'|s|U|.|S|.|well|-|known"),
        ("@ada #NLP 3.5% (Paris)", "@|ada|#|NLP|3|.|5|%|(|Paris|)"),
        ("cafe\u0301 naïve", "cafe\u0301|naïve"),
        ("हिन्दी में", "हिन्दी|में"),
        ("قال محمّد في القاهرة.", "قال|محمّد|في|القاهرة|."),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("我在Paris工作", "我|在|Paris|工|作"),
        ("東京へ", "東|京|へ"),
        ("ไปกรุง", "ไ|ป|ก|รุ|ง"),
        ("👩\u200d💻 👍🏽 ❤\ufe0f 🇫🇷🇩🇪", "👩\u200d💻|👍🏽|❤\ufe0f|🇫🇷|🇩🇪"),
        ("1\ufe0f\u20e3 a\tb\r\nc\u00a0d", "1\ufe0f\u20e3|a|b|c|d"),
        ("", ""),
        (" \t", ""),
    ],
)
def test_whole_words_in_many_scripts(text, words):
    assert [text[start:end] for start, end in whole_words(text)] == (words.split("|") if words else [])


@given(st.text())
def test_whole_words_leave_out_white_space_and_nothing_else(text):
    spans = whole_words(text)
    assert "".join(text[start:end] for start, end in spans) == "".join(text.split())
    assert all(start < end for start, end in spans)
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))


@given(st.text(st.characters(max_codepoint=127)))
def test_whole_words_of_ascii_do_not_change_with_a_letter_that_is_none_after_them(text):
    assert whole_words(text) == whole_words(f"{text} é")[:-1]
