"""OpenVINO on the CPU. Knows neither torch nor transformers; runs any IR with `logits` among its outputs.

OpenVINO computes a float32 model in bfloat16 where the processor can, unless told otherwise: the precision is always
told. Its telemetry, sent by default as soon as the package is imported, is left out.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from potstill.errors import ModelError

__all__ = ["OpenVinoEngine", "capabilities", "import_openvino", "open_model", "without_telemetry"]


class OpenVinoEngine:
    """A compiled OpenVINO model under `Engine`'s contract. Runs one batch at a time.

    Args:
        compiled: An `openvino.CompiledModel`.
        precision: What it computes in.
    """

    name = "openvino"

    def __init__(self, compiled: Any, precision: str) -> None:
        self.precision = precision
        self._names = [one.get_any_name() for one in compiled.inputs]
        self._request = compiled.create_infer_request()

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Logits of one padded batch, float32."""
        if missing := [name for name in self._names if name not in inputs]:
            raise ModelError(f"no {', '.join(missing)}", expected=", ".join(self._names))
        arrays = {name: np.ascontiguousarray(inputs[name]) for name in self._names}
        self._request.infer(arrays, share_inputs=True)
        # A copy: the request writes its next result into the same memory.
        return {"logits": np.array(self._request.get_tensor("logits").data, np.float32)}


def open_model(path: Path, precision: str, threads: int | None) -> OpenVinoEngine:
    """Compile an IR (.xml with .bin beside it); as `potstill.engines.load`, which checked the arguments."""
    openvino = import_openvino()
    # What an int8 graph leaves unquantised stays float32 too: bfloat16 there gains little and was seen to lose much.
    hint = "bf16" if precision == "bfloat16" else "f32"
    settings: dict[str, Any] = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": hint}
    if threads is not None:
        settings["INFERENCE_NUM_THREADS"] = threads
    try:
        compiled = openvino.Core().compile_model(str(path), "CPU", settings)
        compiled.output("logits")
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1]
        raise ModelError(f"{path} cannot be opened: {reason}", fix="export the model again") from error
    return OpenVinoEngine(compiled, precision)


@contextmanager
def without_telemetry() -> Iterator[None]:
    """Import OpenVINO's packages, for the first time, without their telemetry.

    They have a stub for machines without `openvino_telemetry`, and take it. Otherwise they report each import and
    conversion to their makers.
    """
    hidden = "openvino_telemetry" not in sys.modules
    if hidden:
        sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]  # None makes its import fail
    try:
        yield
    finally:
        if hidden:
            del sys.modules["openvino_telemetry"]


def import_openvino() -> Any:
    """The `openvino` module, without its telemetry.

    Raises:
        ModelError: It is not installed.
    """
    try:
        with without_telemetry():
            import openvino
    except ImportError as error:
        raise ModelError("OpenVINO is not installed", fix='pip install "potstill[openvino]"') from error
    return openvino


@cache
def capabilities() -> frozenset[str]:
    """What OpenVINO says that this processor computes in: of FP32, BF16, FP16, INT8, BIN and others."""
    return frozenset(import_openvino().Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"))
