"""Texts with entities out of CoNLL's columns and out of spans; what is wrong is named by its line and set aside."""

import json
import re

import pytest

from potstill.data.conll import Sentence, conll_sentences
from potstill.data.entities import entities_in_text, entities_in_words, read_entities, read_spans
from potstill.data.rows import BadRow
from potstill.data.words import whole_words
from potstill.errors import DataError
from potstill.metrics import Entity

CONLL = """-DOCSTART- -X- -X- O

Ada NNP I-NP B-PER
Lovelace NNP I-NP I-PER
's POS B-NP O
U.S. NNP I-NP B-LOC
tour NN I-NP O


Zoë NNP I-NP B-PER
"""


def conll(tmp_path, content, name="train.conll"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def said(found):
    return [(one.row, one.text, [(one.text[e.start : e.end], e.label) for e in one.entities]) for one in found.texts]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("between", [" ", "\t"])
def test_sentences_of_columns(tmp_path, end, between):
    found = read_entities(conll(tmp_path, CONLL.replace(" ", between).replace("\n", end)))
    assert said(found) == [
        (3, "Ada Lovelace 's U.S. tour", [("Ada Lovelace", "PER"), ("U.S.", "LOC")]),
        (10, "Zoë", [("Zoë", "PER")]),
    ]
    assert found.bad == ()
    assert (found.scheme.scheme, found.scheme.odd) == ("IOB2", 0)


def test_the_last_sentence_needs_no_line_end_and_utf_16_is_read(tmp_path):
    text = "Ada\tI-PER\nwrote\tO"
    for content in (text, text.encode("utf-16"), text.encode("utf-8-sig")):
        found = read_entities(conll(tmp_path, content), format="conll")
        assert said(found) == [(1, "Ada wrote", [("Ada", "PER")])]
        assert found.scheme.scheme == "IOB1"


def test_offsets_are_those_of_the_words_in_the_text():
    sentence = Sentence(1, ("😀", "e\u0301té", "#", "שלום"), ("O",) * 4)
    assert [sentence.text[start:end] for start, end in sentence.offsets] == list(sentence.words)


def test_a_ragged_line_sets_its_sentence_aside_by_its_line(tmp_path):
    path = conll(tmp_path, "a O\nb O\n\nc O\nd\ne x O\n\nf O\n\n\tO\n\ng O\n")
    found = list(conll_sentences(path))
    assert [one for one in found if isinstance(one, BadRow)] == [
        BadRow(str(path), 5, "1 columns, not 2"),
        BadRow(str(path), 10, "1 columns, not 2"),
    ]
    assert [one.line for one in found if isinstance(one, Sentence)] == [1, 8, 12]


def test_a_missing_word_in_tabs_a_bad_tag_and_bytes_that_are_no_text_are_named(tmp_path):
    path = conll(tmp_path, b"a\tO\n\n\tO\n\nb\tPER\n\n\xff\tO\n\nc\tB-X\n")
    found = read_entities(path)
    assert [(row.row, row.reason) for row in found.bad] == [
        (3, "no word"),
        (5, "the tag 'PER'"),
        (7, "not UTF-8 at byte 1"),
    ]
    assert said(found) == [(1, "a", []), (9, "c", [("c", "X")])]


def test_comments_stand_before_a_sentence_and_a_number_sign_is_a_word(tmp_path):
    found = read_entities(conll(tmp_path, "# id = 1 of 2\n# O\nAda B-PER\n\nx O\n"))
    assert said(found) == [(2, "# Ada", [("Ada", "PER")]), (5, "x", [])]


@pytest.mark.parametrize("content", ["a\nb\n\nc\n", "\n\n"])
def test_a_file_of_one_column_is_refused(tmp_path, content):
    with pytest.raises(DataError, match="its tag in the last column"):
        read_entities(conll(tmp_path, content))


def test_a_file_without_a_usable_sentence_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"no text that can be used: the tag 'PER' in row 1"):
        read_entities(conll(tmp_path, "a PER\n"))


def test_spans_of_json_lines(tmp_path):
    path = tmp_path / "train.jsonl"
    text = "שלום 😀\tAda\u00a0Lovelace!"
    spans = [{"start": 7, "end": 19, "label": "PER", "id": 3}, {"start": 0, "end": 4, "label": "X-Y"}]
    rows = [
        {"text": text, "spans": spans},
        {"text": "none", "spans": []},
        {"text": "bad", "spans": "?"},
        {"text": "no"},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = read_entities(path)
    assert said(found) == [(1, text, [("שלום", "X-Y"), ("Ada\u00a0Lovelace", "PER")]), (2, "none", [])]
    assert [(row.row, row.reason) for row in found.bad] == [(3, "spans '?'"), (4, "no value in column 'spans'")]
    assert found.scheme is None


@pytest.mark.parametrize(
    ("spans", "reason"),
    [
        ([[0, 3, "PER"]], "the span"),
        ([{"start": 0, "end": 3}], "the span"),
        ([{"start": True, "end": 3, "label": "A"}], "the span"),
        ([{"start": 0.5, "end": 3, "label": "A"}], "the span"),
        ([{"start": 0, "end": 3, "label": " "}], "the span"),
        ([{"start": 4, "end": 99, "label": "A"}], "of a text of 14 characters"),
        ([{"start": -3, "end": 3, "label": "A"}], "of a text of 14 characters"),
        ([{"start": 3, "end": 3, "label": "A"}], "of a text of 14 characters"),
        ([{"start": 4, "end": 12, "label": "A"}, {"start": 0, "end": 12, "label": "B"}], "begins within"),
        ([{"start": 0, "end": 3, "label": "A"}, {"start": 0, "end": 3, "label": "B"}], "begins within"),
        ([{"start": 0, "end": 2, "label": "A"}], "'Ad' in 'Ada Lovelac'"),
        ([{"start": 0, "end": 4, "label": "A"}], "cuts a word or takes in a space"),
        ({"start": 0}, "spans"),
    ],
)
def test_spans_that_are_none_are_named(spans, reason):
    with pytest.raises(DataError, match=re.escape(reason)):
        read_spans(json.dumps(spans), "Ada Lovelace !")


def test_entities_count_characters_or_words_and_back():
    text = "Ada  Lovelace's U.S."
    words = whole_words(text)
    entities = [Entity(0, 13, "PER"), Entity(16, 20, "LOC")]
    assert entities_in_words(entities, words) == [Entity(0, 2, "PER"), Entity(4, 8, "LOC")]
    assert entities_in_text(entities_in_words(entities, words), words) == entities
