"""To OpenVINO's IR, float32 and never compressed, and from there to int8 by static quantisation.

bfloat16 needs no file of its own: the engine computes the float32 file in it. Converted from torch, so that the `onnx`
extra need not be installed.
"""

from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedModel

from potstill.data.encoding import Encodings
from potstill.engines.openvino import import_openvino, without_telemetry
from potstill.errors import ModelError
from potstill.export.traceable import LogitsOnly, quiet, sample_inputs

__all__ = ["quantise_openvino", "to_openvino"]


def to_openvino(model: PreTrainedModel, path: Path) -> None:
    """Write a classifier as an IR: inputs and output as `to_onnx` names them.

    Args:
        model: A classifier in eval mode, float32.
        path: The .xml file to write; its weights go to the .bin beside it.

    Raises:
        ModelError: The `openvino` extra is not installed, or the model cannot be converted.
    """
    openvino = import_openvino()
    inputs = sample_inputs(model)
    shapes = [(name, openvino.PartialShape([-1, -1]), openvino.Type.i64) for name in inputs]
    try:
        with quiet(), torch.no_grad():
            converted = openvino.convert_model(LogitsOnly(model).eval(), example_input=inputs, input=shapes)
            converted.outputs[0].get_tensor().set_names({"logits"})
            openvino.save_model(converted, str(path), compress_to_fp16=False)
    except RuntimeError as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ModelError(f"{type(model).__name__} cannot be converted for OpenVINO: {reason}") from error


def quantise_openvino(source: Path, path: Path, calibration: Encodings, windows: np.ndarray) -> None:
    """Write an int8 IR: weights per channel, activations by ranges seen on real texts, with NNCF.

    Args:
        source: A float32 IR.
        path: The .xml file to write.
        calibration: Real texts.
        windows: int64 (k,): which windows of them to run, one at a time, without padding.

    Raises:
        ModelError: NNCF is not installed.
    """
    openvino = import_openvino()
    try:
        with quiet(), without_telemetry():
            import nncf
    except ImportError as error:
        raise ModelError("NNCF is not installed", fix='pip install "potstill[openvino]"') from error
    model = openvino.Core().read_model(str(source))
    names = [one.get_any_name() for one in model.inputs]
    samples = [{name: calibration.batch(windows[k : k + 1])[name] for name in names} for k in range(len(windows))]
    with quiet():
        quantised = nncf.quantize(
            model, nncf.Dataset(samples), subset_size=len(samples), model_type=nncf.ModelType.TRANSFORMER
        )
        openvino.save_model(quantised, str(path), compress_to_fp16=False)
