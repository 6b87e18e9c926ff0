"""What runs a model: arrays in, arrays out.

Evaluation, the gates of export and `predict` use the same engines, so that what is judged is what is deployed.

Knows files and arrays, not texts, labels or tasks. Only the engine that is asked for is imported; ONNX Runtime and
OpenVINO run where torch and transformers are absent.
"""

import importlib
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Protocol, cast

import numpy as np

from potstill.errors import ModelError, StorageError

__all__ = [
    "ENGINE_OF_FORMAT",
    "FILES",
    "FORMAT_OF_ENGINE",
    "Engine",
    "EngineName",
    "FormatName",
    "Precision",
    "has_bfloat16",
    "load",
    "model_file",
    "obstacle",
]

EngineName = Literal["torch", "onnxruntime", "openvino"]
FormatName = Literal["torch", "onnx", "openvino"]
Precision = Literal["float32", "bfloat16", "int8"]

ENGINE_OF_FORMAT: Mapping[FormatName, EngineName] = {"torch": "torch", "onnx": "onnxruntime", "openvino": "openvino"}
"""Which engine runs an exported format."""
FORMAT_OF_ENGINE: Mapping[EngineName, FormatName] = {engine: name for name, engine in ENGINE_OF_FORMAT.items()}

FILES: Mapping[tuple[EngineName, Precision], str] = {
    ("torch", "float32"): "config.json",
    ("torch", "bfloat16"): "config.json",
    ("onnxruntime", "float32"): "onnx/model.onnx",
    ("onnxruntime", "int8"): "onnx/model_int8.onnx",
    ("openvino", "float32"): "openvino/model.xml",
    ("openvino", "bfloat16"): "openvino/model.xml",
    ("openvino", "int8"): "openvino/model_int8.xml",
}
"""The file below a model's folder that an engine opens in a precision; a pair that is not here does not exist."""

_EXTRAS: Mapping[EngineName, tuple[str, str]] = {
    "torch": ("torch", "pip install torch transformers"),
    "onnxruntime": ("onnxruntime", 'pip install "potstill[onnx]"'),
    "openvino": ("openvino", 'pip install "potstill[openvino]"'),
}


class Engine(Protocol):
    """A model, ready to run.

    Attributes:
        name: `torch`, `onnxruntime` or `openvino`.
        precision: `float32`, `bfloat16` or `int8`.
    """

    name: str
    precision: str

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run one padded batch.

        Args:
            inputs: `input_ids`, `attention_mask` (1 = a token, 0 = padding) and `token_type_ids`, each int64
                (b, longest), as `Encodings.batch` makes them. What the model has no place for is ignored.

        Returns:
            `logits`, float32 (b, n_labels).

        Raises:
            ModelError: An input that the model needs is missing.
        """


def load(folder: Path, engine: EngineName, precision: Precision, *, threads: int | None = None) -> Engine:
    """Open a model's folder with an engine. Nothing else is tried where that cannot be done.

    Args:
        folder: A model's folder, as `potstill distill` leaves it (see `FILES`).
        engine: What runs the model.
        precision: Arithmetic of the matrix products; logits are float32 always. Under `int8`, what is not quantised is
            computed in float32.
        threads: Threads of one run; None leaves it to the engine, which takes all cores.

    Raises:
        ModelError: An engine that is not installed, a precision that it does not have, a processor without bfloat16, or
            a file that the engine cannot read.
        StorageError: The file is not there.
    """
    if threads is not None and threads < 1:
        raise ModelError(f"{threads} threads", expected="1 or more, or None for all cores")
    path = model_file(folder, engine, precision)
    if (reason := obstacle(folder, engine, precision)) is not None:
        raise StorageError(reason) if not path.is_file() else ModelError(reason)
    module = importlib.import_module(f"potstill.engines.{engine}")
    return cast(Engine, module.open_model(path, precision, threads))


def model_file(folder: Path, engine: EngineName, precision: Precision) -> Path:
    """The file that `load` opens, whether it is there or not.

    Raises:
        ModelError: An engine, or a precision of it, that does not exist.
    """
    if (engine, precision) not in FILES:
        known = ", ".join(f"{name} {kind}" for name, kind in FILES)
        raise ModelError(f"engine {engine!r} in {precision!r}", expected=f"one of: {known}")
    return folder / FILES[engine, precision]


def obstacle(folder: Path, engine: EngineName, precision: Precision) -> str | None:
    """Why an engine cannot open this folder here, with what to do about it; None where nothing stands against it.

    Looks without loading: the model may still turn out to be damaged.
    """
    path = model_file(folder, engine, precision)
    module, install = _EXTRAS[engine]
    if importlib.util.find_spec(module) is None:
        return f"engine {engine!r} is not installed; fix: {install}"
    if not path.is_file():
        return f"{path} does not exist; fix: {_how_to_make(engine, precision)}"
    if (engine, precision) == ("openvino", "bfloat16") and not has_bfloat16():
        return "this processor has no bfloat16; fix: use float32 or int8"
    return None


def has_bfloat16() -> bool:
    """Whether OpenVINO says that this processor computes in bfloat16.

    Raises:
        ModelError: OpenVINO is not installed.
    """
    from potstill.engines.openvino import capabilities

    return "BF16" in capabilities()


def _how_to_make(engine: EngineName, precision: Precision) -> str:
    if engine == "torch":
        return "give the folder of a model, as save_pretrained writes it"
    name = f"{FORMAT_OF_ENGINE[engine]}-{precision}"
    return f"run `potstill distill` again with {name} among export.formats, or use another engine"
