"""Keys compared on disk, against sets in memory."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from potstill.data.key_store import KeyStore, Repeats
from potstill.data.parts import text_digest


def plainly(files):
    """Repeats of each file and overlaps of every two, by dictionaries."""
    repeats, overlaps = [], {}
    for rows in files:
        golds = {}
        for text, gold in rows:
            golds.setdefault(text, []).append(gold)
        conflicting = [found for found in golds.values() if len(set(found)) > 1]
        repeats.append(Repeats(len(rows) - len(golds), len(conflicting), sum(map(len, conflicting))))
    for one in range(len(files)):
        for other in range(one + 1, len(files)):
            mine, theirs = ([text for text, _ in files[place]] for place in (one, other))
            both = set(mine) & set(theirs)
            if both:
                rows = (sum(text in both for text in mine), sum(text in both for text in theirs))
                first = {(mine.index(text) + 1, theirs.index(text) + 1) for text in both}
                overlaps[one, other] = (len(both), rows, first)
    return repeats, overlaps


def compared(files, blocks=2):
    with KeyStore() as store:
        for number, rows in enumerate(files):
            for part in np.array_split(np.arange(len(rows)), blocks):
                keys = [text_digest(rows[row][0], None) for row in part]
                golds = [str(rows[row][1]).encode().ljust(8) for row in part]
                store.add(number, keys, golds, part + 1)
        return store.compare(len(files))


def check(files):
    repeats, overlaps = compared(files)
    expected, shared = plainly(files)
    assert repeats == expected
    assert {one.between: (one.texts, one.rows) for one in overlaps} == {k: v[:2] for k, v in shared.items()}
    for one in overlaps:
        assert len(one.examples) == min(3, one.texts)
        assert set(one.examples) <= shared[one.between][2]


ROWS = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 2)), max_size=12)


@given(st.lists(ROWS, min_size=1, max_size=4))
def test_as_by_dictionaries(files):
    check(files)


def test_many():
    draw = random.Random(0)
    check([[(str(draw.randrange(3000)), draw.randrange(3)) for _ in range(2000)] for _ in range(3)])


def test_nothing_stays_on_disk():
    with KeyStore() as store:
        store.add(0, [text_digest("a", None)], [bytes(8)], np.array([1]))
        folder = store.folder
        assert list(folder.iterdir())
    assert not folder.exists()
    with pytest.raises(ZeroDivisionError), KeyStore() as store:
        folder = store.folder
        raise ZeroDivisionError
    assert not folder.exists()
