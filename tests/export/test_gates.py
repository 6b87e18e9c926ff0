"""Parity and the loss of score, on engines that are made up."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tiny import encode_tiny

from potstill.errors import DataError, NonFiniteError
from potstill.export import judge, parity


class Linear:
    """Logits = (number of tokens, `factor` × sum of ids); `off` is added where a batch has padding."""

    name, precision = "made up", "float32"

    def __init__(self, factor=1.0, off=0.0):
        self.factor, self.off = factor, off
        self.rows = []

    def run(self, inputs):
        mask = inputs["attention_mask"]
        self.rows.append(len(mask))
        sums = (inputs["input_ids"] * mask).sum(1) * self.factor
        padding = self.off * (mask == 0).any()
        return {"logits": (np.stack([mask.sum(1), sums], 1) + padding).astype(np.float32)}


@pytest.fixture
def encodings(bert):
    return encode_tiny(bert)


def test_parity_is_the_worst_difference(encodings):
    sums = [int(encodings.input_ids[a:b].sum()) for a, b in zip(encodings.starts, encodings.starts[1:], strict=False)]
    assert parity(Linear(), Linear(), encodings) == 0
    assert parity(Linear(), Linear(1.5), encodings) == 0.5 * max(sums)


def test_parity_tests_padding(encodings):
    assert parity(Linear(), Linear(off=0.25), encodings) == 0.25


def test_parity_on_a_part(encodings):
    other = Linear()
    parity(Linear(), other, encodings, limit=5, batch_size=2)
    assert other.rows == [2, 2, 1]
    parity(Linear(), other, encodings, limit=None, batch_size=100)
    assert other.rows[3:] == [len(encodings)]


def test_parity_of_what_is_not_finite(encodings):
    with pytest.raises(NonFiniteError, match=r"made up \(float32\) gives NaN or infinity"):
        parity(Linear(), Linear(math.nan), encodings)


def test_parity_of_nothing(bert):
    with pytest.raises(DataError, match="no texts to compare engines on"):
        parity(Linear(), Linear(), encode_tiny(bert, []))


@pytest.mark.parametrize(
    ("score", "reference", "tolerance", "accepted"),
    [
        (0.90, 0.90, 0.01, True),
        (0.95, 0.90, 0.01, True),
        (0.891, 0.90, 0.01, True),  # exactly 1 %
        (0.8909, 0.90, 0.01, False),
        (0.88, 0.90, 0.05, True),
        (0.8999, 0.90, 0.0, False),
        (0.0, 0.0, 0.01, True),
        (-0.1, 0.0, 0.01, False),
        (-0.201, -0.2, 0.01, True),  # Matthews may be negative
        (-0.21, -0.2, 0.01, False),
        (math.nan, 0.9, 0.01, False),
    ],
)
def test_judge(score, reference, tolerance, accepted):
    verdict, reason = judge(score, reference, tolerance)
    assert verdict is accepted
    assert (reason is None) == accepted


def test_the_reason_in_words():
    assert judge(0.85, 0.9)[1] == "loses 5.6% of the score (0.8500 against 0.9000), more than 1.0%"
    assert judge(-0.5, 0.0)[1] == "loses 0.5 of score (-0.5000 against 0.0000), more than 1.0%"


@given(st.floats(-1, 1), st.floats(-1, 1), st.floats(0, 0.99))
def test_a_better_score_is_never_refused_where_a_worse_one_is_accepted(score, reference, tolerance):
    if judge(score, reference, tolerance)[0]:
        assert judge(min(1.0, score + 0.01), reference, tolerance)[0]
    assert judge(reference, reference, tolerance)[0]
