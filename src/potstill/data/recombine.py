"""New examples out of the parts of those there are, for the teacher to label: other sides of pairs, spliced texts.

What nobody wrote side by side shows the teacher's judgement where the training texts do not. Half of a pair's partners
are drawn at random, half are near by TF-IDF: near ones are those whose label is not plain.
"""

from collections.abc import Iterator

import numpy as np

from potstill.data.counter import mix, uniform
from potstill.data.examples import Examples
from potstill.data.new_texts import NewTexts, check_copies, check_ids, draw_key
from potstill.data.stopwords import STOP_WORDS
from potstill.data.words import word_spans
from potstill.progress import SILENT, Reporter

__all__ = ["recombined"]

_TOLD_EVERY = 256
_NEAR_AMONG = 10_000
"""Texts that near ones are looked for among, drawn where there are more: the time then grows with n, not with n²."""

_ENTRIES = 1 << 24
"""Similarities held at once, at most: 200 MB."""


def recombined(examples: Examples, *, seed: int, copies: int, report: Reporter = SILENT) -> NewTexts:
    """`copies` new examples of each: of pairs, its first text beside others' second ones; of texts, spliced ones.

    Of pairs every other partner is drawn at random, the rest are the nearest, nearest first. Nearness is the cosine of
    TF-IDF vectors (words of two letters or more without stop words, sublinear counts) between the first text and the
    second texts (10,000 of them, where there are more), computed in blocks: neither time nor memory grows with n². A
    text that shares no word has no near partner.

    Of single texts, the first i words of one are followed by the last j of another; the partner, i and j are drawn,
    each from 1 to all. A text drawn as its own partner gives none.

    Args:
        examples: n pairs, or n texts.
        seed: Any integer.
        copies: New examples for each; 1 to 4,096.
        report: Told of the examples done.
    """
    check_copies(copies)
    check_ids(examples)
    if examples.pairs is None:
        return _spliced(examples, seed=seed, copies=copies, report=report)
    # Partners are numbered in the order of ids, so that they do not depend on the order of the examples.
    order = np.argsort(examples.example_id, kind="stable")
    firsts, seconds = [examples.texts[row] for row in order], [examples.pairs[row] for row in order]
    partners = list(dict.fromkeys(seconds))
    keys = mix(draw_key(seed, "recombine", examples.example_id[order], 0))
    random = np.arange(0, copies, 2, dtype=np.uint64)
    drawn = (uniform(mix(keys[:, None] ^ random[None, :])) * len(partners)).astype(np.int64)
    rows: list[list[tuple[int, str | tuple[str, str]]]] = [[] for _ in range(len(examples))]
    among = np.arange(len(partners))
    if len(partners) > _NEAR_AMONG:
        drawn_keys = mix(draw_key(seed, "recombine", among.astype(np.int64), 1))
        among = np.sort(np.argsort(drawn_keys, kind="stable")[:_NEAR_AMONG])
    near = _nearest(firsts, [partners[j] for j in among], copies // 2 + 1) if copies > 1 and partners else iter(())
    for place, row in enumerate(order.tolist()):
        own, first = seconds[place], firsts[place]
        found = [(2 * i, (first, partners[j])) for i, j in enumerate(drawn[place].tolist()) if partners[j] != own]
        others = [j for j in among[next(near, [])].tolist() if partners[j] != own][: copies // 2]
        found += [(2 * i + 1, (first, partners[j])) for i, j in enumerate(others)]
        rows[row] = sorted(found)
        if (place + 1) % _TOLD_EVERY == 0 or place + 1 == len(order):
            report.progress(place + 1, len(order))
    return NewTexts("recombine", rows)


def _spliced(examples: Examples, *, seed: int, copies: int, report: Reporter) -> NewTexts:
    # As above, partners are numbered in the order of ids.
    order = np.argsort(examples.example_id, kind="stable").tolist()
    spans = [word_spans(examples.texts[row]) for row in order]
    worded = [place for place, own in enumerate(spans) if own]
    keys = mix(draw_key(seed, "recombine", examples.example_id[order], 0))
    numbers = np.arange(copies, dtype=np.uint64)
    rows: list[list[tuple[int, str | tuple[str, str]]]] = [[] for _ in range(len(examples))]
    for done, place in enumerate(worded, 1):
        own = mix(keys[place] ^ numbers)
        drawn = [uniform(mix(own ^ np.uint64(choice))) for choice in range(3)]  # partner, words of one, of the other
        for copy, (which, first, last) in enumerate(zip(*(values.tolist() for values in drawn), strict=True)):
            other = worded[int(which * len(worded))]
            if other != place:
                end = spans[place][int(first * len(spans[place]))][1]
                start = spans[other][-1 - int(last * len(spans[other]))][0]
                text = f"{examples.texts[order[place]][:end]} {examples.texts[order[other]][start:]}"
                rows[order[place]].append((copy, text))
        if done % _TOLD_EVERY == 0 or done == len(worded):
            report.progress(done, len(worded))
    return NewTexts("recombine", rows)


def _nearest(texts: list[str], others: list[str], most: int) -> Iterator[list[int]]:
    """For each text the `most` nearest of `others`, nearest first, equally near ones in their order."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectoriser = TfidfVectorizer(stop_words=sorted(STOP_WORDS), sublinear_tf=True, dtype=np.float32)
    try:
        vectoriser.fit([*texts, *others])
    except ValueError:  # no word in any of them
        return
    theirs = vectoriser.transform(others).T.tocsr()
    block = max(1, _ENTRIES // len(others))
    for start in range(0, len(texts), block):
        similar = (vectoriser.transform(texts[start : start + block]) @ theirs).tocsr()
        similar.sort_indices()
        for row in range(similar.shape[0]):
            span = slice(similar.indptr[row], similar.indptr[row + 1])
            indices, values = similar.indices[span], similar.data[span]
            if len(values) > most:  # all that are as near as the last one, so that ties are told by order alone
                kept = values >= np.partition(values, -most)[-most]
                indices, values = indices[kept], values[kept]
            yield indices[np.argsort(-values, kind="stable")][:most].tolist()
