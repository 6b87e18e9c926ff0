"""One suite for every engine and precision, on a BERT and an MPNet."""

import importlib.util
import shutil

import numpy as np
import pytest
import torch
from tests.tiny import encode_tiny
from transformers import AutoModelForSequenceClassification

from potstill import engines
from potstill.engines import FILES, load, model_file, obstacle
from potstill.errors import ModelError, StorageError

# How far logits of about ±3 may be from float32; float32's own gate is 1e-5.
TOLERANCE = {"float32": 1e-5, "bfloat16": 0.3, "int8": 0.5}

each = pytest.mark.parametrize(("name", "precision"), [pytest.param(*pair, id="-".join(pair)) for pair in FILES])


def open_or_skip(folder, name, precision):
    if (name, precision) == ("openvino", "bfloat16") and not engines.has_bfloat16():
        pytest.skip("this processor has no bfloat16")
    return load(folder, name, precision, threads=1)


@pytest.fixture
def expected(folder, batch):
    """What transformers itself says, in float32."""
    model = AutoModelForSequenceClassification.from_pretrained(folder, attn_implementation="eager").eval()
    inputs = {name: torch.from_numpy(array) for name, array in batch.items()}
    if model.config.model_type == "mpnet":
        del inputs["token_type_ids"]
    with torch.no_grad():
        return model(**inputs).logits.numpy()


@each
def test_logits(folder, batch, expected, name, precision):
    engine = open_or_skip(folder, name, precision)
    assert (engine.name, engine.precision) == (name, precision)
    logits = engine.run(batch)["logits"]
    assert logits.dtype == np.float32
    assert logits.shape == expected.shape
    assert expected.std() > 0.5, "a model whose answers do not differ tests nothing"
    assert np.abs(logits - expected).max() <= TOLERANCE[precision]


@each
def test_a_text_is_answered_the_same_whatever_is_beside_it(folder, batch, name, precision):
    engine = open_or_skip(folder, name, precision)
    together = engine.run(batch)["logits"]
    encodings = encode_tiny(folder)
    alone = np.concatenate([engine.run(encodings.batch(np.array([row])))["logits"] for row in range(len(encodings))])
    # ONNX's int8 takes one scale a token, so its padding costs nothing; the others round by shape.
    limit = 1e-5 if (name, precision) == ("onnxruntime", "int8") else TOLERANCE[precision]
    assert np.abs(together - alone).max() <= limit


@each
def test_token_types(folder, batch, name, precision):
    """BERT reads them; MPNet has no place for them."""
    engine = open_or_skip(folder, name, precision)
    changed = {**batch, "token_type_ids": batch["attention_mask"]}
    same = np.array_equal(engine.run(batch)["logits"], engine.run(changed)["logits"])
    assert same == ("mpnet" in folder.name)


@each
def test_an_input_that_is_missing(folder, batch, name, precision):
    engine = open_or_skip(folder, name, precision)
    del batch["attention_mask"]
    with pytest.raises(ModelError, match=r"no attention_mask; expected input_ids, attention_mask"):
        engine.run(batch)


@pytest.mark.parametrize("pair", [("torch", "int8"), ("onnxruntime", "bfloat16"), ("tflite", "float32")])
def test_what_does_not_exist(bert, pair):
    with pytest.raises(ModelError, match="expected one of: torch float32, torch bfloat16, onnxruntime float32"):
        load(bert, *pair)


def test_no_threads(bert):
    with pytest.raises(ModelError, match="0 threads; expected 1 or more"):
        load(bert, "torch", "float32", threads=0)


@each
def test_a_file_that_is_not_there(tmp_path, name, precision):
    path = model_file(tmp_path, name, precision)
    assert path == tmp_path / FILES[name, precision]
    if precision == "bfloat16" and name == "openvino":
        pytest.importorskip("openvino")
    with pytest.raises(StorageError) as caught:
        load(tmp_path, name, precision)
    wanted = {"torch": "save_pretrained", "onnxruntime": f"onnx-{precision}", "openvino": f"openvino-{precision}"}
    assert str(path) in str(caught.value)
    assert wanted[name] in str(caught.value)
    assert obstacle(tmp_path, name, precision) == str(caught.value)


@each
def test_an_engine_that_is_not_installed(bert, monkeypatch, name, precision):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda module: None if module == name else find(module))
    with pytest.raises(ModelError, match=rf"engine '{name}' is not installed; fix: pip install"):
        load(bert, name, precision)


@pytest.mark.parametrize(("name", "precision"), [("onnxruntime", "float32"), ("openvino", "int8")])
def test_a_damaged_file(bert, tmp_path, name, precision):
    shutil.copytree(bert, tmp_path / "damaged")
    path = model_file(tmp_path / "damaged", name, precision)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ModelError, match=r"cannot be opened: .*; fix: export the model again"):
        load(tmp_path / "damaged", name, precision)


def test_a_processor_without_bfloat16(bert, monkeypatch):
    monkeypatch.setattr("potstill.engines.openvino.capabilities", lambda: frozenset({"FP32", "INT8"}))
    assert not engines.has_bfloat16()
    with pytest.raises(ModelError, match="this processor has no bfloat16; fix: use float32 or int8"):
        load(bert, "openvino", "bfloat16")
