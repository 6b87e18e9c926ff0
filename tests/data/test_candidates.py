"""Candidates kept in shards: the same texts as without them, whatever was interrupted, and no one asked twice."""

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pytest

from potstill.data.augment import augment, sentences_of
from potstill.data.candidates import StoredCandidates, write_candidates
from potstill.data.examples import Examples
from potstill.data.stopwords import STOP_WORDS
from potstill.errors import StorageError


class InContext:
    """Proposes what depends on sentence and place; counts what it was asked; stops after so many calls."""

    needs_context = True

    def __init__(self, calls=10**9):
        self.asked, self.left = [], calls

    def propose(self, sentences, positions):
        if not self.left:
            raise KeyboardInterrupt
        self.left -= 1
        self.asked += [(tuple(s), p) for s, p in zip(sentences, positions, strict=True)]
        return [[f"{s[p]}{chr(97 + len(s))}{chr(97 + p)}{m}" for m in "uvw"] for s, p in self.asked[-len(positions) :]]


def many(count):
    words = ["good", "The", "film", "of", "x7", "plot", "Bad", "!", "café"]
    draw = np.random.default_rng(0)
    return [" ".join(draw.choice(words, draw.integers(1, 9))) for _ in range(count)]


def pairs_of(count):
    texts = many(2 * count)
    return Examples(np.arange(count) + 5, texts[:count], texts[count:], np.arange(count) % 2)


def rows(found):
    return (found.example_id.tolist(), found.texts, found.pairs, found.labels.tolist())


@pytest.mark.parametrize("shard", [20, 1000])
def test_the_same_texts_as_without_a_store(tmp_path, shard):
    given = pairs_of(60)
    write_candidates(tmp_path, sentences_of(given), InContext(), stop_words=STOP_WORDS, shard=shard)
    for options in ({"seed": 1}, {"seed": 2, "copies": 3}, {"seed": 3, "copies": 40, "probability": 0.9}):
        stored = augment(given, StoredCandidates(tmp_path), **options)
        assert rows(stored) == rows(augment(given, InContext(), **options))
        assert len(stored) > 100


def test_every_word_that_may_be_replaced_is_asked_for_once_and_no_other(tmp_path):
    given, asked = pairs_of(60), InContext()
    write_candidates(tmp_path, sentences_of(given), asked, stop_words=STOP_WORDS, shard=9)
    assert len(set(asked.asked)) == len(asked.asked)
    places = {
        (s, p) for s in sentences_of(given) for p, w in enumerate(s) if w in ("good", "film", "plot", "Bad", "café")
    }
    assert set(asked.asked) == places


def test_interrupted_is_uninterrupted_byte_by_byte(tmp_path):
    given = sentences_of(pairs_of(60))
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    write_candidates(whole, given, InContext(), stop_words=STOP_WORDS, shard=10)
    with pytest.raises(KeyboardInterrupt):
        write_candidates(parts, given, InContext(calls=3), stop_words=STOP_WORDS, shard=10)
    assert len(list(parts.iterdir())) == 3
    (parts / "000001.arrow").write_bytes(b"half")
    again = InContext()
    found = write_candidates(parts, given, again, stop_words=STOP_WORDS, shard=10)
    assert found == 20
    assert {s for s, _ in again.asked} <= set(given[10:20]) | set(given[30:])
    read = [{p.name: p.read_bytes() for p in folder.iterdir()} for folder in (whole, parts)]
    assert read[0] == read[1]
    assert len(read[0]) == -(-len(given) // 10)


def test_in_order_one_shard_is_read_at_a_time(tmp_path, monkeypatch):
    given = sentences_of(pairs_of(60))
    write_candidates(tmp_path, given, InContext(), stop_words=STOP_WORDS, shard=10)
    read = []
    plainly = StoredCandidates._read
    monkeypatch.setattr(StoredCandidates, "_read", staticmethod(lambda path: read.append(path.name) or plainly(path)))
    stored = StoredCandidates(tmp_path)
    for sentence in given:
        for place, word in enumerate(sentence):
            if word in ("good", "film"):
                stored.propose([sentence], [place])
    assert read == sorted(set(read))


def test_shards_of_long_texts_hold_fewer(tmp_path):
    texts = [("good",) * 9000, ("film",) * 9000, ("plot",) * 20_000, ("bad",), ("café",)]
    asked = InContext()
    asked.propose = lambda sentences, positions: [[] for _ in positions]
    write_candidates(tmp_path, texts, asked, stop_words=STOP_WORDS)
    rows = [len(set(pa.feather.read_table(str(path))["sentence"].to_pylist())) for path in sorted(tmp_path.iterdir())]
    assert rows == [1, 1, 1, 2]


def test_what_was_never_asked_for_is_said(tmp_path):
    write_candidates(tmp_path, [("good", "film")], InContext(), stop_words=STOP_WORDS)
    stored = StoredCandidates(tmp_path)
    for sentence, place in ((("bad", "film"), 0), (("good", "film"), 2)):
        with pytest.raises(StorageError, match=f"no candidates for word {place} of"):
            stored.propose([sentence], [place])
    (tmp_path / "000000.arrow").write_bytes(b"no shard")
    with pytest.raises(StorageError, match="cannot be read"):
        StoredCandidates(tmp_path).propose([("good", "film")], [0])
    assert StoredCandidates(tmp_path / "empty").propose([], []) == []
