"""The IR: float32 as stored, dynamic; and int8. Parity is tested in test_to_onnx.py, shape by shape."""

import pytest

from potstill.engines.openvino import import_openvino
from potstill.engines.torch import load_model
from potstill.errors import ModelError
from potstill.export.to_openvino import to_openvino


def read(path):
    return import_openvino().Core().read_model(str(path))


def kinds_of_constants(model):
    constants = [one for one in model.get_ops() if one.get_type_name() == "Constant"]
    return [one.get_element_type().get_type_name() for one in constants]


def test_graph(folder):
    model = read(folder / "openvino" / "model.xml")
    names = ["input_ids", "attention_mask"] + ["token_type_ids"] * ("bert" in folder.name)
    assert [one.get_any_name() for one in model.inputs] == names
    assert [one.get_any_name() for one in model.outputs] == ["logits"]
    for one in model.inputs:
        assert one.partial_shape.to_string() == "[?,?]"
        assert one.element_type.get_type_name() == "i64"


def test_weights_are_stored_in_float32(folder):
    parameters = sum(parameter.numel() for parameter in load_model(folder).parameters())
    assert (folder / "openvino" / "model.bin").stat().st_size >= 4 * parameters * 0.95
    assert "f16" not in kinds_of_constants(read(folder / "openvino" / "model.xml"))


def test_int8(folder):
    model = read(folder / "openvino" / "model_int8.xml")
    layers = 2
    quantised = [one for one in model.get_ops() if one.get_type_name() == "FakeQuantize"]
    assert len(quantised) >= 4 * layers
    # Six products a layer with a constant matrix; the embedding table too.
    assert kinds_of_constants(model).count("i8") >= 6 * layers + 1


def test_a_model_that_cannot_be_converted(bert, tmp_path, monkeypatch):
    model = load_model(bert)

    def broken(**_):
        raise RuntimeError("no such thing\nand more")

    monkeypatch.setattr(model, "forward", broken)
    with pytest.raises(ModelError, match="BertForSequenceClassification cannot be converted for OpenVINO: "):
        to_openvino(model, tmp_path / "model.xml")
    assert not list(tmp_path.iterdir())
