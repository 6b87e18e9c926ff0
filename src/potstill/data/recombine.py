"""New pairs out of the sides of those there are, for the teacher to label.

A pair of texts that nobody wrote beside each other shows the teacher's judgement where the training pairs do not. Half
of the partners are drawn at random, half are near by TF-IDF: near ones are those whose label is not plain.
"""

from collections.abc import Iterator

import numpy as np

from potstill.data.counter import mix, uniform
from potstill.data.examples import Examples
from potstill.data.new_texts import NewTexts, check_copies, check_ids, draw_key
from potstill.data.stopwords import STOP_WORDS
from potstill.errors import DataError
from potstill.progress import SILENT, Reporter

__all__ = ["recombined"]

_ENTRIES = 1 << 24
"""Similarities held at once, at most: 200 MB."""


def recombined(examples: Examples, *, seed: int, copies: int, report: Reporter = SILENT) -> NewTexts:
    """For each first text, `copies` second texts of other pairs: every other one at random, the rest nearest first.

    Nearness is the cosine of TF-IDF vectors (words of two letters or more without stop words, sublinear counts) between
    the first text and the second texts; it is computed in blocks, so that memory does not grow with n². A text that
    shares no word has no near partner.

    Args:
        examples: n pairs.
        seed: Any integer.
        copies: New pairs for each pair; 1 to 4,096.
        report: Told of the pairs done.

    Raises:
        DataError: The examples are no pairs.
    """
    check_copies(copies)
    check_ids(examples)
    if examples.pairs is None:
        raise DataError("texts to recombine that are no pairs", expected="pairs", fix="choose the method ngram")
    # Partners are numbered in the order of ids, so that they do not depend on the order of the examples.
    order = np.argsort(examples.example_id, kind="stable")
    firsts, seconds = [examples.texts[row] for row in order], [examples.pairs[row] for row in order]
    partners = list(dict.fromkeys(seconds))
    keys = mix(draw_key(seed, "recombine", examples.example_id[order], 0))
    random = np.arange(0, copies, 2, dtype=np.uint64)
    drawn = (uniform(mix(keys[:, None] ^ random[None, :])) * len(partners)).astype(np.int64)
    rows: list[list[tuple[int, str | tuple[str, str]]]] = [[] for _ in range(len(examples))]
    near = _nearest(firsts, partners, copies // 2 + 1) if copies > 1 and partners else iter(())
    for place, row in enumerate(order.tolist()):
        own, first = seconds[place], firsts[place]
        found = [(2 * i, (first, partners[j])) for i, j in enumerate(drawn[place].tolist()) if partners[j] != own]
        others = [j for j in next(near, ()) if partners[j] != own][: copies // 2]
        found += [(2 * i + 1, (first, partners[j])) for i, j in enumerate(others)]
        rows[row] = sorted(found)
        if (place + 1) % 256 == 0 or place + 1 == len(order):
            report.progress(place + 1, len(order))
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
