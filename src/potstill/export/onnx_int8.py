"""ONNX float32 → int8, without calibration: weights per output channel, activations per token while the model runs.

Every product x·W with a constant W becomes, row by row of x (one row is one token):

    s = max|x| / 127        q = round(x / s) + 128        x·W ≈ s · ((q - 128) · W_q) · s_W,    W ≈ W_q · s_W

with one s a token and one s_W a column of W. Embedding tables are kept in int8 with one scale a row. Products of two
activations (attention), normalisation and softmax stay float32.

W_q stays within ±64: processors without VNNI add two products of q (up to 255) and W_q in 16 bits, where 2 · 255 · 64
just fits, so that the sums are exact on every processor. On MiniLM the lost bit costs a tenth of the rounding's noise.

ONNX Runtime's own tools were measured against this. Their dynamic quantisation takes one scale for a whole batch, so
an answer depends on what else is in the batch, by as much as 0.6 of a logit. Their static one has no room for the few
large activations of BERT. One scale a token is as fast as either, closer to float32, and needs no calibration.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from potstill.errors import ModelError

__all__ = ["quantise_columns", "quantise_onnx", "quantise_rows"]

_SMALLEST = 1e-8  # of a row's range, so that a row of zeros stays one
_LEAST_TABLE = 10_000  # values; below it (MPNet's table of relative positions) int8 saves nothing


def quantise_columns(weight: np.ndarray, levels: int = 64) -> tuple[np.ndarray, np.ndarray]:
    """W ≈ W_q · s with one scale a column, the largest value of each column at ±levels.

    Args:
        weight: float32 (k, n).
        levels: In [1, 127].

    Returns:
        W_q int8 (k, n) in [-levels, levels], s float32 (n,) > 0.
    """
    quantised, scales = quantise_rows(weight.T, levels)
    return np.ascontiguousarray(quantised.T), scales


def quantise_rows(table: np.ndarray, levels: int = 127) -> tuple[np.ndarray, np.ndarray]:
    """T ≈ T_q · s with one scale a row; otherwise as `quantise_columns`, of a float32 (n, k)."""
    scales = np.maximum(np.abs(table).max(axis=1), _SMALLEST).astype(np.float32) / np.float32(levels)
    return np.clip(np.rint(table / scales[:, None]), -levels, levels).astype(np.int8), scales


def quantise_onnx(source: Path, path: Path) -> None:
    """Write an int8 ONNX graph.

    Args:
        source: A float32 graph, as `to_onnx` writes it.
        path: The .onnx file to write.

    Raises:
        ModelError: The `onnx` extra is not installed, or nothing in the graph can be quantised.
    """
    try:
        import onnx
    except ImportError as error:
        raise ModelError("ONNX is not installed", fix='pip install "potstill[onnx]"') from error
    model = onnx.load(str(source))
    rewriter = _Rewriter(onnx, {one.name: one for one in model.graph.initializer})
    for node in model.graph.node:
        rewriter.take(node)
    if not rewriter.products:
        raise ModelError(f"{source} has no product with a constant matrix", expected="an encoder's graph")
    used = {name for node in rewriter.nodes for name in node.input}
    kept = [one for one in model.graph.initializer if one.name in used]
    _replace(model.graph.node, rewriter.nodes)
    _replace(model.graph.initializer, [*kept, *rewriter.constants])
    # Inferred shapes of values that are gone; a reader infers them again.
    _replace(model.graph.value_info, [])
    onnx.save(model, str(path))


def _replace(field_: Any, values: list[Any]) -> None:
    del field_[:]
    field_.extend(values)


@dataclass
class _Rewriter:
    """Takes the nodes of a graph one by one, in order, and leaves those of the quantised one in `nodes`."""

    onnx: Any
    weights: dict[str, Any]
    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)
    products: int = 0
    _done: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def take(self, node: Any) -> None:
        """Rewrite a node that multiplies with, or looks up in, a constant float32 matrix; keep any other."""
        if node.op_type == "MatMul" and self._is_matrix(node.input[1]):
            self._product(node.input[0], node.input[1], node.output[0])
        elif node.op_type == "Gather" and self._is_matrix(node.input[0], _LEAST_TABLE) and self._axis(node) == 0:
            self._lookup(node.input[0], node.input[1], node.output[0])
        else:
            self.nodes.append(node)

    def _is_matrix(self, name: str, least: int = 0) -> bool:
        weight = self.weights.get(name)
        if weight is None or len(weight.dims) != 2 or weight.data_type != self.onnx.TensorProto.FLOAT:
            return False
        return bool(weight.dims[0] * weight.dims[1] >= least)

    @staticmethod
    def _axis(node: Any) -> int:
        return next((int(one.i) for one in node.attribute if one.name == "axis"), 0)

    def _product(self, x: str, weight: str, output: str) -> None:
        quantised, scale = self._tokens(x)
        table, columns = self._constant_matrix(weight, by_rows=False)
        self._add(
            "MatMulInteger", [quantised, table, self._scalar("zero_u8", np.uint8(128))], f"potstill.{output}.int32"
        )
        self._add("Cast", [f"potstill.{output}.int32"], f"potstill.{output}.sum", to=self.onnx.TensorProto.FLOAT)
        self._add("Mul", [f"potstill.{output}.sum", scale], f"potstill.{output}.scaled")
        self._add("Mul", [f"potstill.{output}.scaled", columns], output)
        self.products += 1

    def _lookup(self, table: str, rows: str, output: str) -> None:
        quantised, scales = self._constant_matrix(table, by_rows=True)
        self._add("Gather", [quantised, rows], f"potstill.{output}.int8")
        self._add("Gather", [scales, rows], f"potstill.{output}.row")
        self._add("Cast", [f"potstill.{output}.int8"], f"potstill.{output}.float", to=self.onnx.TensorProto.FLOAT)
        self._add("Mul", [f"potstill.{output}.float", f"potstill.{output}.row"], output)

    def _tokens(self, x: str) -> tuple[str, ...]:
        """Quantise an activation, once however many products take it (query, key and value share theirs)."""
        if x not in self._done:
            last = self._scalar("last_axis", np.array([-1], np.int64))
            self._add("ReduceMax", [x, last], f"potstill.{x}.high", keepdims=1)
            self._add("ReduceMin", [x, last], f"potstill.{x}.low", keepdims=1)
            self._add("Neg", [f"potstill.{x}.low"], f"potstill.{x}.below")
            self._add(
                "Max",
                [f"potstill.{x}.high", f"potstill.{x}.below", self._scalar("least", np.float32(_SMALLEST))],
                f"potstill.{x}.range",
            )
            self._add("Mul", [f"potstill.{x}.range", self._scalar("step", np.float32(1 / 127))], f"potstill.{x}.scale")
            self._add("Div", [x, f"potstill.{x}.scale"], f"potstill.{x}.steps")
            one, zero = self._scalar("one", np.float32(1)), self._scalar("zero_u8", np.uint8(128))
            self._add("QuantizeLinear", [f"potstill.{x}.steps", one, zero], f"potstill.{x}.uint8")
            self._done[x] = (f"potstill.{x}.uint8", f"potstill.{x}.scale")
        return self._done[x]

    def _constant_matrix(self, name: str, *, by_rows: bool) -> tuple[str, ...]:
        key = f"{name}.{'rows' if by_rows else 'columns'}"
        if key not in self._done:
            values = self.onnx.numpy_helper.to_array(self.weights[name])
            quantised, scales = quantise_rows(values) if by_rows else quantise_columns(values)
            self._constant(f"potstill.{key}.int8", quantised)
            self._constant(f"potstill.{key}.scale", scales[:, None] if by_rows else scales)
            self._done[key] = (f"potstill.{key}.int8", f"potstill.{key}.scale")
        return self._done[key]

    def _scalar(self, name: str, value: Any) -> str:
        name = f"potstill.{name}"
        if name not in self._done:
            self._constant(name, np.asarray(value))
            self._done[name] = (name,)
        return name

    def _constant(self, name: str, value: np.ndarray) -> None:
        self.constants.append(self.onnx.numpy_helper.from_array(value, name))

    def _add(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> None:
        self.nodes.append(self.onnx.helper.make_node(kind, inputs, [output], **attributes))
