"""The ONNX graph: any shape, parity with torch, standard operators alone, nothing of this machine."""

import numpy as np
import onnx
import pytest
import torch
from tests.tiny import tiny_bert

from potstill.engines import load
from potstill.engines.torch import load_model
from potstill.errors import ModelError
from potstill.export.to_onnx import OPSET, to_onnx

SHAPES = [(1, 1), (1, 2), (2, 1), (1, 64), (3, 11), (11, 3), (32, 7), (5, 64)]


@pytest.mark.parametrize("name", ["onnxruntime", "openvino"])
def test_parity_at_every_shape(folder, name):
    """Float32 to 1e-5, for each length and batch size, with padding."""
    reference, other = (load(folder, one, "float32", threads=1) for one in ("torch", name))
    generator = np.random.default_rng(0)
    for rows, longest in SHAPES:
        lengths = generator.integers(1, longest + 1, rows)
        lengths[0] = longest
        mask = (np.arange(longest)[None, :] < lengths[:, None]).astype(np.int64)
        ids = np.where(mask == 1, generator.integers(5, 60, (rows, longest)), reference.model.config.pad_token_id)
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": generator.integers(0, 2, ids.shape)}
        difference = reference.run(inputs)["logits"] - other.run(inputs)["logits"]
        assert np.abs(difference).max() <= 1e-5, (rows, longest)


def test_graph(folder):
    path = folder / "onnx" / "model.onnx"
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    assert [(one.domain, one.version) for one in model.opset_import] == [("", OPSET)]
    for one in model.graph.input:
        assert [dimension.dim_param for dimension in one.type.tensor_type.shape.dim] == ["batch", "length"]
        assert one.type.tensor_type.elem_type == onnx.TensorProto.INT64
    assert [one.name for one in model.graph.output] == ["logits"]
    names = ["input_ids", "attention_mask"] + ["token_type_ids"] * ("bert" in folder.name)
    assert [one.name for one in model.graph.input] == names


@pytest.mark.parametrize(
    "name", ["onnx/model.onnx", "onnx/model_int8.onnx", "openvino/model.xml", "openvino/model.bin"]
)
def test_nothing_of_this_machine(folder, name):
    content = (folder / name).read_bytes()
    for trace in (b"site-packages", b".py", str(folder.parent).encode()):
        assert trace not in content


def test_a_model_that_cannot_be_traced(bert, tmp_path, monkeypatch):
    model = load_model(bert)

    def broken(**_):
        raise RuntimeError("no such thing\nand more")

    monkeypatch.setattr(model, "forward", broken)
    with pytest.raises(ModelError, match="BertForSequenceClassification cannot be written as ONNX: "):
        to_onnx(model, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_the_model_is_as_it_was(tmp_path):
    model = load_model(tiny_bert(tmp_path / "model", layers=1))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    to_onnx(model, tmp_path / "model.onnx")
    assert not model.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
