"""Prediction through an engine: order, batches and windows change nothing."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax

from potstill.data.encoding import Encodings
from potstill.errors import DataError, ModelError, NonFiniteError
from potstill.evaluation import predict_logits, probabilities


class FakeEngine:
    """Logits that depend on every real token and its place, and on nothing else; padding would change them."""

    name, precision = "fake", "float32"

    def __init__(self, change=lambda logits: logits):
        self.batches = []
        self.change = change

    def run(self, inputs):
        self.batches.append(inputs)
        return {"logits": self.change(np.array([self.one(*row) for row in zip(*self.rows(inputs), strict=True)]))}

    @staticmethod
    def rows(inputs):
        return inputs["input_ids"], inputs["attention_mask"], inputs["token_type_ids"]

    @staticmethod
    def one(ids, mask, kinds):
        place = np.arange(1, len(ids) + 1)
        real = mask == 1
        return np.float32([np.sum((ids * place)[real]), np.sum((ids % 7 + kinds)[real]), real.sum()])


def encodings(windows, example):
    lengths = [len(window) for window in windows]
    ids = np.concatenate([np.array(window) for window in windows]).astype(np.int32)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Encodings(ids, (ids % 2).astype(np.int8), starts, np.array(example, np.int64), 0, 0, 99)


def expected(windows, example):
    rows = [FakeEngine.one(np.array(w), np.ones(len(w)), np.array(w) % 2) for w in windows]
    texts = sorted(set(example))
    return np.array([np.mean([r for r, e in zip(rows, example, strict=True) if e == t], axis=0) for t in texts])


@st.composite
def texts(draw):
    windows, example = [], []
    for text in range(draw(st.integers(1, 8))):
        for _ in range(draw(st.integers(1, 3))):
            windows.append(draw(st.lists(st.integers(0, 50), min_size=1, max_size=9)))
            example.append(text)
    return windows, example


@settings(max_examples=60, deadline=None)
@given(texts(), st.integers(1, 30))
def test_each_text_gets_the_mean_of_its_windows_whatever_the_batches(case, batch_size):
    engine = FakeEngine()
    got = predict_logits(engine, encodings(*case), batch_size=batch_size)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, expected(*case), rtol=1e-6)
    assert max(len(batch["input_ids"]) for batch in engine.batches) <= batch_size
    assert sum(len(batch["input_ids"]) for batch in engine.batches) == len(case[0])


def test_windows_are_batched_by_length_longest_first():
    windows = [[1] * length for length in (3, 9, 1, 7, 2, 8)]
    engine = FakeEngine()
    predict_logits(engine, encodings(windows, range(6)), batch_size=2)
    assert [batch["attention_mask"].sum(1).tolist() for batch in engine.batches] == [[9, 8], [7, 3], [2, 1]]


def test_the_order_of_texts_only_orders_the_answers():
    rng = np.random.default_rng(0)
    windows = [rng.integers(0, 50, rng.integers(1, 12)).tolist() for _ in range(40)]
    order = rng.permutation(40)
    got = predict_logits(FakeEngine(), encodings(windows, range(40)), batch_size=7)
    again = predict_logits(FakeEngine(), encodings([windows[i] for i in order], range(40)), batch_size=7)
    np.testing.assert_array_equal(got[order], again)


def test_progress_counts_windows():
    seen = []

    class Report:
        def progress(self, done, total, **values):
            seen.append((done, total))

    predict_logits(FakeEngine(), encodings([[1]] * 5, [0, 0, 1, 2, 2]), batch_size=2, report=Report())
    assert seen == [(2, 5), (4, 5), (5, 5)]


@pytest.mark.parametrize(
    ("change", "error", "named"),
    [
        (lambda logits: logits * np.nan, NonFiniteError, r"fake \(float32\) gives NaN"),
        (lambda logits: logits / 0, NonFiniteError, "infinity"),
        (lambda logits: logits[:1], ModelError, r"shape \(1, 3\); expected \(3, labels\)"),
        (lambda logits: logits[:, 0], ModelError, r"shape \(3,\)"),
    ],
)
def test_what_is_no_answer_is_refused(change, error, named):
    with np.errstate(divide="ignore"), pytest.raises(error, match=named):
        predict_logits(FakeEngine(change), encodings([[1], [2], [3]], [0, 1, 2]))


def test_missing_logits_and_missing_texts_are_refused():
    class Silent(FakeEngine):
        def run(self, inputs):
            return {"scores": np.zeros((1, 2))}

    one = encodings([[1]], [0])
    with pytest.raises(ModelError, match="gives scores; expected logits"):
        predict_logits(Silent(), one)
    with pytest.raises(DataError, match="0 windows"):
        predict_logits(
            FakeEngine(), Encodings(*(np.zeros(0, np.int64),) * 2, np.zeros(1, np.int64), one.starts[:0], 0, 0, 0)
        )
    with pytest.raises(DataError, match="batch size 0"):
        predict_logits(FakeEngine(), one, batch_size=0)


def test_probabilities_equal_scipys_and_do_not_overflow():
    logits = np.random.default_rng(0).normal(0, 10, (50, 4)).astype(np.float32)
    np.testing.assert_allclose(probabilities(logits), softmax(logits.astype(np.float64), axis=-1), rtol=1e-12)
    far = probabilities(np.float32([[1e5, 0, -1e5], [-3e38, -3e38, -3e38]]))
    np.testing.assert_allclose(far, [[1, 0, 0], [1 / 3, 1 / 3, 1 / 3]])
