"""Quantisation against the same arithmetic in numpy, and its promises: bounds, independence of the batch."""

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from onnx import helper, numpy_helper

from potstill.errors import ModelError
from potstill.export.onnx_int8 import quantise_columns, quantise_onnx, quantise_rows

WEIGHTS = arrays(np.float32, array_shapes(min_dims=2, max_dims=2, max_side=6), elements=st.floats(-1e3, 1e3, width=32))


@given(WEIGHTS)
def test_columns_are_within_half_a_step(weight):
    quantised, scales = quantise_columns(weight)
    assert quantised.dtype == np.int8
    assert np.abs(quantised).max() <= 64
    assert (scales > 0).all()
    error = np.abs(quantised * scales - weight)
    assert (error <= scales / 2 + 1e-6 * np.abs(weight)).all()


@given(WEIGHTS)
def test_rows_are_columns_of_the_transposed(weight):
    by_row, row_scales = quantise_rows(weight, 64)
    by_column, column_scales = quantise_columns(np.ascontiguousarray(weight.T))
    assert np.array_equal(by_row.T, by_column)
    assert np.array_equal(row_scales, column_scales)


def test_two_products_fit_in_16_bits():
    """What processors without VNNI need: they add two products before they widen the sum."""
    quantised, _ = quantise_columns(np.array([[1.0], [1.0]], np.float32))
    assert int(quantised.sum()) * 255 <= np.iinfo(np.int16).max


def write(path, nodes, weights):
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", "length", 6])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["batch", "length", "width"])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10), path)
    return path


def run(path, x):
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


@pytest.fixture
def product(tmp_path):
    """Two products of one activation, added: y = x·a + x·b."""
    generator = np.random.default_rng(0)
    weights = {name: generator.normal(size=(6, 5)).astype(np.float32) for name in "ab"}
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["p"]),
        helper.make_node("MatMul", ["x", "b"], ["q"]),
        helper.make_node("Add", ["p", "q"], ["y"]),
    ]
    return write(tmp_path / "plain.onnx", nodes, weights), weights


def by_hand(x, weight):
    scale = np.abs(weight).max(0) / 64
    columns = np.rint(weight / scale)
    steps = np.abs(x).max(-1, keepdims=True) / 127
    tokens = np.rint(x / np.where(steps == 0, 1, steps))
    return (tokens @ columns) * steps * scale


def test_product(product, tmp_path):
    source, weights = product
    quantise_onnx(source, tmp_path / "int8.onnx")
    onnx.checker.check_model(onnx.load(tmp_path / "int8.onnx"), full_check=True)
    x = np.random.default_rng(1).normal(size=(2, 3, 6)).astype(np.float32)
    x[0, 1] = 0
    x[1, 2] *= 1e4
    got = run(tmp_path / "int8.onnx", x)
    exact = x.astype(np.float64)
    np.testing.assert_allclose(got, by_hand(exact, weights["a"]) + by_hand(exact, weights["b"]), rtol=1e-5, atol=1e-6)
    assert np.abs(got - run(source, x)).max() / np.abs(got).max() < 0.05


def test_a_token_is_computed_the_same_whatever_is_beside_it(product, tmp_path):
    source, _ = product
    quantise_onnx(source, tmp_path / "int8.onnx")
    x = np.random.default_rng(2).normal(size=(2, 3, 6)).astype(np.float32)
    alone = run(tmp_path / "int8.onnx", x[:1, :1])
    x[1] *= 1e6
    assert np.array_equal(run(tmp_path / "int8.onnx", x)[:1, :1], alone)


def test_an_activation_is_quantised_once(product, tmp_path):
    source, _ = product
    quantise_onnx(source, tmp_path / "int8.onnx")
    kinds = [node.op_type for node in onnx.load(tmp_path / "int8.onnx").graph.node]
    assert (kinds.count("QuantizeLinear"), kinds.count("MatMulInteger")) == (1, 2)


def test_tables_and_small_tables(tmp_path):
    generator = np.random.default_rng(3)
    weights = {
        "large": generator.normal(size=(2000, 6)).astype(np.float32),
        "small": generator.normal(size=(20, 6)).astype(np.float32),
        "rows": np.array([3, 1999, 3], np.int64),
        "few": np.array([3, 19, 3], np.int64),
        "w": np.eye(6, dtype=np.float32),
    }
    nodes = [
        helper.make_node("Gather", ["large", "rows"], ["a"]),
        helper.make_node("Gather", ["small", "few"], ["b"]),
        helper.make_node("Add", ["a", "b"], ["c"]),
        helper.make_node("MatMul", ["x", "w"], ["d"]),
        helper.make_node("Add", ["c", "d"], ["y"]),
    ]
    source = write(tmp_path / "plain.onnx", nodes, weights)
    quantise_onnx(source, tmp_path / "int8.onnx")
    stored = {one.name: one.data_type for one in onnx.load(tmp_path / "int8.onnx").graph.initializer}
    assert "large" not in stored
    assert stored["small"] == onnx.TensorProto.FLOAT
    zeros = np.zeros((1, 3, 6), np.float32)
    rows = weights["large"][weights["rows"]]
    scale = np.abs(rows).max(1, keepdims=True) / 127
    expected = np.rint(rows / scale) * scale + weights["small"][weights["few"]]
    np.testing.assert_allclose(run(tmp_path / "int8.onnx", zeros)[0], expected, rtol=1e-5, atol=1e-6)


def test_a_graph_without_products(tmp_path):
    source = write(tmp_path / "plain.onnx", [helper.make_node("Neg", ["x"], ["y"])], {})
    with pytest.raises(ModelError, match="has no product with a constant matrix; expected an encoder's graph"):
        quantise_onnx(source, tmp_path / "int8.onnx")
