"""Tags read against conlleval's own two questions, asked word by word; schemes written, read back and told apart."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from potstill.errors import DataError
from potstill.metrics import Entity, detect_scheme, read_tags, write_tags

SCHEMES = ("IOB1", "IOB2", "IOBES")


def chunk_ends(before, tag, before_type, own_type):
    """conlleval.pl's endOfChunk."""
    return (before in "BI" and tag in "BSO") or before in "ES" or (before != "O" and before_type != own_type)


def chunk_starts(before, tag, before_type, own_type):
    """conlleval.pl's startOfChunk."""
    return tag in "BS" or (before in "ESO" and tag in "EI") or (tag != "O" and before_type != own_type)


def by_conlleval(tags):
    chunks, begin, before, before_type = [], 0, "O", ""
    for place, whole in enumerate([*tags, "O"]):
        tag, _, own_type = whole.partition("-")
        if chunk_ends(before, tag, before_type, own_type):
            chunks.append((begin, place, before_type))
        if chunk_starts(before, tag, before_type, own_type):
            begin = place
        before, before_type = tag, own_type
    return chunks


any_tags = st.lists(
    st.sampled_from(["O", *(f"{prefix}-{kind}" for prefix in "BIES" for kind in ("PER", "creative-work"))])
)


@st.composite
def sentences(draw):
    """A number of words, and entities in it, often side by side."""
    entities, at = [], 0
    for gap, length, label in draw(
        st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4), st.sampled_from(["PER", "LOC"])), max_size=5)
    ):
        entities.append(Entity(at + gap, at + gap + length, label))
        at += gap + length
    return at + draw(st.integers(0, 2)), entities


@given(any_tags)
def test_whatever_a_model_says_is_read_as_conlleval_reads_it(tags):
    assert [tuple(entity) for entity in read_tags(tags)] == by_conlleval(tags)


@pytest.mark.parametrize("scheme", SCHEMES)
@given(sentence=sentences())
def test_what_is_written_is_read_back(scheme, sentence):
    words, entities = sentence
    assert read_tags(write_tags(entities, words, scheme)) == entities


@pytest.mark.parametrize(
    ("tags", "entities"),
    [
        ([], []),
        (["O", "O"], []),
        (["I-PER", "I-PER", "O"], [(0, 2, "PER")]),
        (["B-PER", "B-PER"], [(0, 1, "PER"), (1, 2, "PER")]),
        (["I-PER", "B-PER", "I-PER"], [(0, 1, "PER"), (1, 3, "PER")]),
        (["B-PER", "I-LOC"], [(0, 1, "PER"), (1, 2, "LOC")]),
        (["O", "I-creative-work"], [(1, 2, "creative-work")]),
        (["B-PER", "E-PER", "I-PER"], [(0, 2, "PER"), (2, 3, "PER")]),
        (["S-PER", "E-PER"], [(0, 1, "PER"), (1, 2, "PER")]),
        (["B-人名", "I-人名"], [(0, 2, "人名")]),
        (["B-PER", "I-PER", "L-PER", "U-LOC"], [(0, 3, "PER"), (3, 4, "LOC")]),
    ],
)
def test_tags_that_are_often_read_wrongly(tags, entities):
    assert read_tags(tags) == entities


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_scheme_is_told_by_tags_that_no_other_writes(scheme):
    entities = [[Entity(0, 2, "PER"), Entity(2, 3, "PER"), Entity(5, 6, "LOC")], [], [Entity(1, 4, "ORG")]]
    written = [write_tags(found, 7, scheme) for found in entities]
    found = detect_scheme(written)
    assert (found.scheme, found.odd, found.first_odd) == (scheme, 0, None)


def test_bilou_is_iobes_and_inside_tags_alone_are_iob1():
    assert detect_scheme([["B-PER", "L-PER", "U-LOC"]]).scheme == "IOBES"
    assert detect_scheme([["I-PER", "I-PER", "O", "I-LOC"]]).scheme == "IOB1"
    assert detect_scheme([["O"], []]).scheme == "IOB2"


def test_tags_that_do_not_fit_are_counted_and_the_first_is_named():
    found = detect_scheme([["O", "B-PER", "I-PER"], ["B-LOC", "O"], ["O", "I-LOC", "O", "I-PER"]])
    assert (found.scheme, found.odd, found.first_odd) == ("IOB2", 2, (2, 1))


@pytest.mark.parametrize("tag", ["PER", "B", "B-", "-PER", "X-PER", "b-PER", "", "o", "PER-B"])
def test_what_is_no_tag_is_named(tag):
    with pytest.raises(DataError, match="expected O, or B-"):
        read_tags(["O", tag])


@pytest.mark.parametrize(
    "entities", [[(0, 2, "A"), (1, 3, "A")], [(2, 2, "A")], [(2, 4, "A")], [(-1, 1, "A")], [(0, 1, "")]]
)
def test_entities_that_no_tags_can_say_are_refused(entities):
    with pytest.raises(DataError, match="none over another"):
        write_tags([Entity(*entity) for entity in entities], 3)
