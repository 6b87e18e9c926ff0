"""New texts beside their examples: ids, labels, and which of equal ones stays."""

import numpy as np
import pytest

from potstill.data.examples import UNLABELLED, Examples
from potstill.data.new_texts import KEEPS_LABEL, NUMBERS, NewTexts, check_ids, combined, draw_key


def examples(texts, pairs=None, ids=None):
    ids = range(len(texts)) if ids is None else ids
    return Examples(np.array(list(ids), np.int64), texts, pairs, np.arange(len(texts), dtype=np.int64))


def test_each_method_has_ids_of_its_own_that_fit():
    largest = examples(["a"], ids=[2**44 - 1])
    check_ids(largest)
    seen = set()
    for method in NUMBERS:
        for place in (0, 4095, 4096, 8191):
            found = combined(largest, [NewTexts(method, [[(place, "new")]])])
            seen.add(int(found.example_id[1]))
    assert len(seen) == 4 * len(NUMBERS)
    assert all(2**62 <= identifier < 2**63 for identifier in seen)


@pytest.mark.parametrize("method", NUMBERS)
def test_who_keeps_the_label(method):
    found = combined(examples(["a", "b"]), [NewTexts(method, [[(0, "x")], [(0, "y")]])])
    kept = method in KEEPS_LABEL
    assert kept == (method in {"masked-lm", "conditional-masked-lm", "glove", "embeddings"})
    assert found.labels.tolist() == ([0, 0, 1, 1] if kept else [0, UNLABELLED, 1, UNLABELLED])
    assert found.texts == ["a", "x", "b", "y"]


def test_of_equal_texts_of_two_methods_the_one_of_the_smaller_id_stays():
    made = [NewTexts("ngram", [[(0, "x")], []]), NewTexts("glove", [[], [(3, "x"), (5, "z"), (6, "a")]])]
    for given in (made, made[::-1]):
        found = combined(examples(["a", "b"]), given)
        assert found.texts == ["a", "b", "x", "z"]
        assert found.labels.tolist() == [0, 1, 1, 1]
        assert found.example_id[2] == 2**62 + ((2 * 2**44 + 1) * 2 << 12) + 3


def test_what_is_drawn_differs_between_methods_sides_examples_and_seeds():
    keys = [
        int(draw_key(seed, method, np.array([identifier]), side)[0])
        for seed in (0, 1)
        for method in NUMBERS
        for identifier in (0, 1, 2**44 - 1)
        for side in (0, 1)
    ]
    assert len(set(keys)) == len(keys)
