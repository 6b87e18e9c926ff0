"""New pairs out of old ones: near partners against plain dense TF-IDF, random ones and spliced texts against loops."""

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from tests.data.test_sampling import PATTERN, key_of, mix, share

from potstill.data import recombine
from potstill.data.examples import Examples
from potstill.data.new_texts import combined
from potstill.data.recombine import recombined
from potstill.data.stopwords import STOP_WORDS

WORDS = "film plot actor story good bad dull music scene camera light sound the of and".split()


def pairs(count, seed=0):
    draw = np.random.default_rng(seed)
    texts = [" ".join(draw.choice(WORDS, draw.integers(2, 9))) for _ in range(2 * count)]
    return Examples(np.arange(count) * 3 + 1, texts[:count], texts[count:], np.arange(count) % 2)


def plainly(given, seed, copies):
    """Every pair of texts compared, in float64."""
    partners = list(dict.fromkeys(given.pairs))
    own = TfidfVectorizer(stop_words=sorted(STOP_WORDS), sublinear_tf=True).fit([*given.texts, *partners])
    similar = own.transform(given.texts).toarray() @ own.transform(partners).toarray().T
    rows = []
    for row, (first, second) in enumerate(zip(given.texts, given.pairs, strict=True)):
        found = []
        key = mix(mix(seed) ^ (6 << 45 | int(given.example_id[row]) * 2))
        for copy in range(0, copies, 2):
            partner = partners[int(share(mix(key ^ copy)) * len(partners))]
            if partner != second:
                found.append((copy, (first, partner)))
        order = [j for j in np.argsort(-similar[row].round(5), kind="stable") if similar[row][j] > 0]
        near = [partners[j] for j in order if partners[j] != second][: copies // 2]
        rows.append((sorted(found), near, similar[row], partners))
    return rows


@pytest.mark.parametrize(("copies", "entries"), [(1, 10**6), (6, 10**6), (7, 90), (400, 1)])
def test_against_plain_tfidf(monkeypatch, copies, entries):
    monkeypatch.setattr(recombine, "_ENTRIES", entries)  # blocks of all, of two, of one
    given = pairs(40)
    found = recombined(given, seed=3, copies=copies)
    for row, (random, near, similar, partners) in enumerate(plainly(given, 3, copies)):
        assert [entry for entry in found.rows[row] if entry[0] % 2 == 0] == random
        chosen = [new for place, new in found.rows[row] if place % 2]
        assert [first for first, _ in chosen] == [given.texts[row]] * len(near)
        values = {partner: similar[j] for j, partner in enumerate(partners)}
        # Equally near ones may change places by rounding; how near they are may not.
        assert np.allclose([values[second] for _, second in chosen], [values[second] for second in near], atol=1e-5)
        assert len({second for _, second in chosen} - {given.pairs[row]}) == len(near)


def test_near_partners_are_looked_for_among_some_where_there_are_many(monkeypatch):
    given = pairs(60)
    whole = {new for row in recombined(given, seed=3, copies=8).rows for place, new in row if place % 2}
    monkeypatch.setattr(recombine, "_NEAR_AMONG", 20)
    some = {new for row in recombined(given, seed=3, copies=8).rows for place, new in row if place % 2}
    assert len({second for _, second in some}) <= 20 < len({second for _, second in whole})
    assert {second for _, second in some} <= set(given.pairs)
    order = np.random.default_rng(1).permutation(60)
    again = recombined(given.select(order), seed=3, copies=8).rows
    assert {new for row in again for place, new in row if place % 2} == some


def test_they_are_new_unlabelled_and_do_not_depend_on_order():
    given = pairs(30)
    found = combined(given, [recombined(given, seed=0, copies=8)])
    new = found.example_id >= 2**62
    assert new.sum() > 150
    assert (found.labels[new] == -1).all()
    whole = list(zip(found.texts, found.pairs, strict=True))
    assert len(set(whole)) == len(whole)
    assert set(found.texts) == set(given.texts)
    assert set(found.pairs) == set(given.pairs)
    mixed = given.select(np.random.default_rng(1).permutation(30))
    turned = combined(mixed, [recombined(mixed, seed=0, copies=8)])
    assert dict(zip(found.example_id.tolist(), whole, strict=True)) == dict(
        zip(turned.example_id.tolist(), zip(turned.texts, turned.pairs, strict=True), strict=True)
    )
    other = combined(given, [recombined(given, seed=1, copies=8)])
    assert set(zip(other.texts, other.pairs, strict=True)) != set(whole)


def plainly_spliced(given, seed, copies):
    worded = sorted((i, t) for i, t in zip(given.example_id.tolist(), given.texts, strict=True) if PATTERN.search(t))
    found = {}
    for identifier, text in worded:
        for copy in range(copies):
            key = key_of(seed, "recombine", identifier, 0, copy)
            which, first, last = (share(mix(key ^ choice)) for choice in range(3))
            other, partner = worded[int(which * len(worded))]
            if other != identifier:
                ours, theirs = list(PATTERN.finditer(text)), list(PATTERN.finditer(partner))
                head = text[: ours[int(first * len(ours))].end()]
                tail = partner[theirs[len(theirs) - 1 - int(last * len(theirs))].start() :]
                found[identifier, copy] = f"{head} {tail}"
    return found


def test_texts_are_spliced_as_by_plain_loops():
    texts = ["a dull film.", "What a (good) story", "!", "sound", "", " the  end of it "]
    given = Examples(np.arange(6) * 5 + 2, texts, None, np.zeros(6, dtype=np.int64))
    wanted = plainly_spliced(given, 7, 30)
    for order in (np.arange(6), np.array([3, 0, 5, 2, 1, 4])):
        mixed = given.select(order)
        made = recombined(mixed, seed=7, copies=30).rows
        ids = mixed.example_id.tolist()
        assert {(ids[row], copy): new for row, own in enumerate(made) for copy, new in own} == wanted
    assert len(wanted) > 100
    assert {new.split()[0] for new in wanted.values()} >= {"a", "What", "!", "sound", "the"}
    whole = combined(given, [recombined(given, seed=7, copies=30)])
    assert (whole.labels[whole.example_id >= 2**62] == -1).all()


def test_nothing_to_recombine():
    alone = Examples(np.arange(2), ["a b c", " "], None, np.zeros(2))
    assert [list(row) for row in recombined(alone, seed=0, copies=2).rows] == [[], []]
    none = Examples(np.zeros(0, dtype=np.int64), [], [], np.zeros(0, dtype=np.int64))
    assert list(recombined(none, seed=0, copies=4).rows) == []
    wordless = Examples(np.arange(2), ["!", "?"], ["of", "."], np.zeros(2, dtype=np.int64))
    assert all(place % 2 == 0 for row in recombined(wordless, seed=0, copies=20).rows for place, _ in row)
