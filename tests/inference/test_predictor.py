"""Texts to answers: order, windows, what is cut, rows that fail, and which engine is taken."""

import json
import math
import shutil
import subprocess
import sys
import warnings
from itertools import count, islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax
from tests.tiny import TEXTS, tiny_tokenizer

from potstill.data.encoding import TextEncoder
from potstill.engines import load
from potstill.errors import DataError, ModelError, SettingsError, StorageError
from potstill.inference import Prediction, Predictor, predictor
from potstill.tasks import Classification, Regression

LABELS = ("short", "long")


class Counter:
    """Logits of a window = (0, its tokens / 10); keeps the shapes it got."""

    name, precision = "counter", "float32"

    def __init__(self):
        self.shapes = []

    def run(self, inputs):
        self.shapes.append(inputs["input_ids"].shape)
        tokens = inputs["attention_mask"].sum(1)
        return {"logits": np.stack([np.zeros(len(tokens)), tokens / 10], 1).astype(np.float32)}


def make(engine=None, labels=LABELS, max_length=12, *, pair=False, trust=None, **encoder):
    """`trust`: keywords of `Predictor` on temperature and withholding."""
    encoder = TextEncoder(tiny_tokenizer(), max_length=max_length, **encoder)
    return Predictor(engine or Counter(), encoder, Classification(labels, pair), **(trust or {}))


def tokens_of(answer):
    """The mean number of tokens a window, from the probability of `long`."""
    return 10 * math.log(answer.probabilities["long"] / answer.probabilities["short"])


def test_an_answer():
    (answer,) = make().predict(["good film"])
    low, high = softmax([0, 0.4])  # [CLS] good film [SEP]
    assert answer.label == "long"
    assert answer.probabilities == pytest.approx({"short": low, "long": high}, rel=1e-6)
    assert (answer.truncated, answer.windows, answer.reason) == (False, 1, None)


def test_a_temperature_moves_probabilities_and_no_label():
    for temperature in (0.25, 3.0):
        (answer,) = make(trust={"temperature": temperature}).predict(["good film"])
        low, high = softmax(np.array([0, 0.4]) / temperature)
        assert answer.label == "long"
        assert answer.probabilities == pytest.approx({"short": low, "long": high}, rel=1e-6)


def test_windows_are_merged_before_the_temperature():
    texts = ["good " * 8, "good"]
    usual = make(max_length=7, long_text="window", step=5).predict(texts)
    cooled = make(max_length=7, long_text="window", step=5, trust={"temperature": 2.0}).predict(texts)
    assert [2 * tokens_of(answer) for answer in cooled] == pytest.approx([tokens_of(answer) for answer in usual])


def test_doubtful_answers_are_withheld():
    """Of 3 and of 10 tokens: σ(0.3 / 2) = 0.54 and σ(1 / 2) = 0.62."""
    trust = {"temperature": 2.0, "abstain_below": 0.6}
    doubtful, sure, empty = make(trust=trust).predict(["good", "good " * 8, " "])
    assert (doubtful.label, doubtful.abstained, doubtful.reason) == (None, True, None)
    assert doubtful.answer() == {"label": None, "abstained": True, "probabilities": doubtful.probabilities}
    assert doubtful.probabilities["long"] == pytest.approx(1 / (1 + math.exp(-0.15)), rel=1e-6)
    assert (sure.label, sure.abstained) == ("long", False)
    assert "abstained" not in sure.answer()
    assert (empty.abstained, empty.reason) == (False, "empty")
    exact = make(trust={"temperature": 2.0, "abstain_below": doubtful.probabilities["long"]})
    assert not exact.predict(["good"])[0].abstained


class Length(Counter):
    """One logit: the tokens of a window."""

    def run(self, inputs):
        return {"logits": inputs["attention_mask"].sum(1, keepdims=True).astype(np.float32)}


def test_a_score_is_the_mean_of_the_windows():
    encoder = TextEncoder(tiny_tokenizer(), max_length=7, long_text="window", step=5)
    short, long, empty = Predictor(Length(), encoder, Regression()).predict(["good film", "good " * 8, " "])
    assert short.answer() == {"score": 4.0}
    assert (long.score, long.windows) == (6.0, 2)  # 7 and 5 tokens
    assert (short.label, short.probabilities) == (None, {})
    assert (empty.score, empty.reason) == (None, "empty")
    with pytest.raises(ModelError, match=r"expected \(1, 1\), a score"):
        Predictor(Counter(), encoder, Regression()).predict(["good"])


@given(st.lists(st.integers(1, 9), max_size=30), st.integers(1, 7))
def test_answers_are_in_the_order_of_the_texts(lengths, batch_size):
    answers = make().predict(["good " * length for length in lengths], batch_size=batch_size)
    assert [round(tokens_of(answer)) for answer in answers] == [length + 2 for length in lengths]


def test_batches_are_sorted_by_length_and_bounded():
    engine = Counter()
    make(engine).predict(["good " * length for length in (1, 9, 2, 8, 3)], batch_size=2)
    assert engine.shapes == [(2, 11), (2, 5), (1, 3)]


def test_pairs():
    (answer,) = make(pair=True).predict(["good"], ["bad film"])
    assert tokens_of(answer) == pytest.approx(6, rel=1e-5)  # [CLS] good [SEP] bad film [SEP]


def test_what_is_cut_is_told():
    answers = make().predict(["good " * 10, "good " * 11, "good"])
    assert [answer.truncated for answer in answers] == [False, True, False]
    assert [answer.windows for answer in answers] == [1, 1, 1]
    pairs = make(pair=True).predict(["good", "good"], ["bad " * 8, "bad " * 9])
    assert [answer.truncated for answer in pairs] == [False, True]


def test_windows_are_merged_by_the_mean_of_their_logits():
    """20 words in windows of 10, a new one every 5: 0-9, 5-14, 10-19."""
    answer, short = make(long_text="window", step=5).predict(["good " * 20, "good " * 3])
    assert (answer.windows, answer.truncated) == (3, False)
    assert tokens_of(answer) == pytest.approx(12, rel=1e-5)
    assert (short.windows, round(tokens_of(short))) == (1, 5)
    # 13 words: ten and, from the fifth on, eight.
    (uneven,) = make(long_text="window", step=5).predict(["good " * 13])
    assert (uneven.windows, tokens_of(uneven)) == (2, pytest.approx((12 + 10) / 2, rel=1e-5))


@pytest.mark.parametrize("bad", ["", "  \n", "\u2003", "a lone \udc80 surrogate"])
def test_a_bad_row_fails_and_the_others_go_on(bad):
    answers = make().predict(["good", bad, "bad film"])
    assert [answer.label for answer in answers] == ["long", None, "long"]
    assert answers[1].probabilities == {}
    assert answers[1].windows == 0
    assert answers[1].reason == ("empty" if not bad.strip() else "not a Unicode text: a lone surrogate at character 7")
    assert [round(tokens_of(answers[row])) for row in (0, 2)] == [3, 4]


def test_a_pair_with_one_empty_half_fails():
    answers = make(pair=True).predict(["good", "good"], ["", "bad"])
    assert [answer.reason for answer in answers] == ["empty", None]


def test_only_bad_rows():
    engine = Counter()
    assert make(engine).predict(["", " "]) == [Prediction(None, reason="empty")] * 2
    assert engine.shapes == []
    assert make(engine).predict([]) == []


def test_what_is_not_finite_is_no_answer():
    class Broken(Counter):
        def run(self, inputs):
            logits = super().run(inputs)["logits"]
            return {"logits": np.where(inputs["attention_mask"].sum(1, keepdims=True) == 4, np.nan, logits)}

    first, second = make(Broken()).predict(["good", "bad film"])
    assert (first.label, first.reason) == ("long", None)
    assert second == Prediction(None, reason="the model gives NaN or infinity for it")


def test_the_texts_na_and_null_are_texts():
    assert [answer.reason for answer in make().predict(["NA", "null", "0"])] == [None] * 3


def test_a_stream_reads_no_further_than_it_must(monkeypatch):
    monkeypatch.setattr(predictor, "_CHUNK_ROWS", 4)
    read = []
    rows = (read.append(number) or "good " * (number % 7 + 1) for number in count())
    answers = list(islice(make().predict_stream(rows), 6))
    assert len(read) == 8
    assert [round(tokens_of(answer)) for answer in answers] == [3, 4, 5, 6, 7, 8]


def test_a_chunk_is_closed_by_characters_too(monkeypatch):
    monkeypatch.setattr(predictor, "_CHUNK_CHARACTERS", 20)
    engine = Counter()
    list(make(engine).predict_stream(["good good", "good good", "good good", "bad"]))
    assert [shape[0] for shape in engine.shapes] == [3, 1]


def test_what_does_not_go_together():
    with pytest.raises(DataError, match="2 texts and 1 second texts; expected as many of both"):
        make().predict(["a", "b"], ["c"])
    with pytest.raises(DataError, match="reads single texts, and was given pairs"):
        list(make().predict_stream(["a", ("b", "c")]))
    with pytest.raises(DataError, match="reads pairs of texts, and was given single texts"):
        list(make(pair=True).predict_stream([("b", "c"), "a"]))
    with pytest.raises(DataError, match="batch size 0; expected 1 or more"):
        make().predict(["a"], batch_size=0)


def test_as_many_labels_as_logits():
    with pytest.raises(ModelError, match=r"logits of shape \(1, 2\); expected \(1, 3\), one a label"):
        make(labels=("a", "b", "c")).predict(["good"])


# With real engines


def deploy(folder, tmp_path, **changed):
    """A copy of a folder with other values in its potstill.json."""
    shutil.copytree(folder, tmp_path / "model", ignore=shutil.ignore_patterns(*changed.pop("without", ())))
    path = tmp_path / "model" / "potstill.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))
    return tmp_path / "model"


OPENVINO = {"engine": "openvino", "precision": "float32"}


@pytest.mark.parametrize("engine", ["torch", "onnxruntime", "openvino"])
def test_the_same_answers_from_each_engine(bert, engine):
    loaded = Predictor.load(bert, engine=engine, threads=1)
    assert loaded.engine.name == engine
    answers = loaded.predict(TEXTS)
    encoder = TextEncoder.from_folder(bert, max_length=64)
    reference = load(bert, "torch", "float32")
    for text, answer in zip(TEXTS, answers, strict=True):
        expected = softmax(reference.run(encoder.encode([text]).batch(np.array([0])))["logits"][0].astype(float))
        assert list(answer.probabilities.values()) == pytest.approx(expected, abs=1e-5)
        assert answer.label == ("negative", "positive")[expected.argmax()]


@pytest.mark.parametrize(
    ("deployed", "asked", "taken"),
    [
        (None, {}, ("torch", "float32")),
        (OPENVINO, {}, ("openvino", "float32")),
        (OPENVINO, {"precision": "int8"}, ("openvino", "int8")),
        (OPENVINO, {"engine": "onnxruntime"}, ("onnxruntime", "float32")),
        ({"engine": "onnxruntime", "precision": "int8"}, {"engine": "onnxruntime"}, ("onnxruntime", "int8")),
        (None, {"precision": "bfloat16"}, ("torch", "bfloat16")),
    ],
)
def test_which_engine(bert, tmp_path, deployed, asked, taken):
    with warnings.catch_warnings(action="error"):
        loaded = Predictor.load(deploy(bert, tmp_path, deploy=deployed), threads=1, **asked)
    assert (loaded.engine.name, loaded.engine.precision) == taken


def test_the_named_engine_is_absent(bert, tmp_path):
    folder = deploy(bert, tmp_path, deploy=OPENVINO, without=["openvino"])
    with pytest.warns(UserWarning, match=r"openvino float32 is not used, torch float32 is: .*model.xml does not exist"):
        loaded = Predictor.load(folder)
    assert (loaded.engine.name, loaded.engine.precision) == ("torch", "float32")


def test_an_engine_that_is_asked_for_is_not_replaced(bert, tmp_path):
    folder = deploy(bert, tmp_path, without=["onnx"])
    with pytest.raises(StorageError, match=r"model\.onnx does not exist; fix: run `potstill distill` again"):
        Predictor.load(folder, engine="onnxruntime")


ROWS = [
    {"confidence": 0.0, "coverage": 1.0, "precision": 0.9, "at_least": 0.85},
    {"confidence": 0.8, "coverage": 0.5, "precision": 0.97, "at_least": 0.92},
    {"confidence": 0.9, "coverage": 0.3, "precision": 0.98, "at_least": 0.95},
]


def test_the_folders_temperature_and_abstention_are_used(bert, tmp_path):
    folder = deploy(bert, tmp_path, temperature=2.5, abstention=ROWS)
    plain, cooled = (Predictor.load(one).predict(TEXTS) for one in (bert, folder))
    for usual, answer in zip(plain, cooled, strict=True):
        assert answer.label == usual.label
        logits = np.log(list(usual.probabilities.values()))
        assert list(answer.probabilities.values()) == pytest.approx(softmax(logits / 2.5), abs=1e-6)
    for wanted, confidence in ((0.5, 0.0), (0.85, 0.0), (0.9, 0.8), (0.95, 0.9)):
        loaded = Predictor.load(folder, wanted_precision=wanted)
        assert loaded.abstain_below == loaded.threshold.confidence == confidence
        for usual, answer in zip(cooled, loaded.predict(TEXTS), strict=True):
            assert answer.probabilities == usual.probabilities
            assert answer.abstained == (max(usual.probabilities.values()) < confidence)
    assert Predictor.load(folder, abstain_below=0.7).threshold is None


@pytest.mark.parametrize(
    ("changed", "wish", "told"),
    [
        ({}, {"wanted_precision": 0.96}, r"is 0.96, which no threshold is sure to reach .*; expected at most 0.95"),
        ({}, {"wanted_precision": 0.9, "abstain_below": 0.5}, "both abstain_below and wanted_precision"),
        ({}, {"wanted_precision": 1.0}, "wanted_precision is 1.0; expected a share"),
        ({}, {"abstain_below": 95.0}, "abstain_below is 95.0; expected a share"),
        ({}, {"abstain_below": math.nan}, "abstain_below is nan"),
        ({"abstention": []}, {"wanted_precision": 0.9}, "has no abstention"),
        ({"task": "regression", "labels": []}, {"abstain_below": 0.9}, r"answers \(regression\) have no probability"),
    ],
)
def test_wishes_that_cannot_be_met(bert, tmp_path, changed, wish, told):
    folder = deploy(bert, tmp_path, **{"abstention": ROWS, **changed})
    with pytest.raises(SettingsError, match=told):
        Predictor.load(folder, **wish)


def test_settings_of_the_folder_are_used(bert, tmp_path):
    folder = deploy(bert, tmp_path, max_length=8, long_text="window", step=2)
    (answer,) = Predictor.load(folder).predict(["good " * 10])
    assert answer.windows == 3
    assert Predictor.load(bert).predict(["good " * 100])[0].truncated


SCRIPT = """
import sys
from pathlib import Path
from potstill.inference import Predictor
answers = Predictor.load(Path(sys.argv[1]), engine=sys.argv[2], threads=1).predict(["good", "a bad film"])
assert all(answer.label for answer in answers)
withheld = Predictor.load(Path(sys.argv[1]), engine=sys.argv[2], threads=1, abstain_below=1.0).predict(["good"])
assert withheld[0].abstained
assert "torch" not in sys.modules and "transformers" not in sys.modules
"""


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_answers_without_torch(bert, engine):
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT, str(bert), engine]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
