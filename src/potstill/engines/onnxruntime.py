"""ONNX Runtime on the CPU. Knows neither torch nor transformers; runs any graph with `logits` among its outputs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from potstill.errors import ModelError

__all__ = ["OnnxRuntimeEngine", "open_model"]


class OnnxRuntimeEngine:
    """An ONNX graph under `Engine`'s contract.

    Args:
        session: An `onnxruntime.InferenceSession`.
        precision: What the graph computes in.
    """

    name = "onnxruntime"

    def __init__(self, session: Any, precision: str) -> None:
        self.precision = precision
        self._session = session
        self._names = [one.name for one in session.get_inputs()]

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Logits of one padded batch, float32."""
        if missing := [name for name in self._names if name not in inputs]:
            raise ModelError(f"no {', '.join(missing)}", expected=", ".join(self._names))
        (logits,) = self._session.run(["logits"], {name: inputs[name] for name in self._names})
        return {"logits": np.asarray(logits, np.float32)}


def open_model(path: Path, precision: str, threads: int | None) -> OnnxRuntimeEngine:
    """Open an .onnx file; as `potstill.engines.load`, which checked the arguments."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or 0  # 0: one for each core
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's own exceptions have no root of their own
        reason = str(error).splitlines()[0]
        raise ModelError(f"{path} cannot be opened: {reason}", fix="export the model again") from error
    if "logits" not in [one.name for one in session.get_outputs()]:
        raise ModelError(f"{path} gives no logits", fix="export the model again")
    return OnnxRuntimeEngine(session, precision)
