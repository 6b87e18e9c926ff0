"""To an ONNX graph of standard operators, any batch and any length; traced by `torch.export`, not by example.

Opset 23 has attention and GELU as single operators: the smallest graph, and attention stays one kernel.
"""

from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from potstill.errors import ModelError
from potstill.export.traceable import LogitsOnly, quiet, sample_inputs
from potstill.models.loading import longest_input

__all__ = ["OPSET", "to_onnx"]

OPSET = 23

# A protobuf file holds 2 GB; a larger model's weights lie beside it.
_LARGEST_FILE = 1_900_000_000


def to_onnx(model: PreTrainedModel, path: Path) -> None:
    """Write a classifier as ONNX, float32.

    Inputs `input_ids`, `attention_mask` and, where the model knows them, `token_type_ids`: int64 (batch, length).
    Output `logits`: float32 (batch, n_labels).

    Args:
        model: A classifier in eval mode, float32.
        path: The .onnx file to write.

    Raises:
        ModelError: The `onnx` extra is not installed, or the model cannot be traced.
    """
    try:
        import onnxscript  # noqa: F401  the exporter needs it
    except ImportError as error:
        raise ModelError("ONNX is not installed", fix='pip install "potstill[onnx]"') from error
    inputs = sample_inputs(model)
    axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=longest_input(model.config))}
    size = sum(parameter.numel() * 4 for parameter in model.parameters())
    try:
        with quiet(), torch.no_grad():
            program = torch.onnx.export(
                LogitsOnly(model).eval(),
                kwargs=inputs,
                input_names=list(inputs),
                output_names=["logits"],
                dynamic_shapes=dict.fromkeys(inputs, axes),
                opset_version=OPSET,
                dynamo=True,
                verbose=False,
            )
            assert program is not None
            _forget_origin(program.model)
            program.save(str(path), external_data=size > _LARGEST_FILE)
    except (RuntimeError, ValueError) as error:  # torch.onnx.OnnxExporterError is a RuntimeError
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ModelError(f"{type(model).__name__} cannot be written as ONNX: {reason}") from error


def _forget_origin(model: Any) -> None:
    """Take out what torch notes at each node for debugging: among it stack traces, with this machine's paths."""
    for values in (model.graph.inputs, model.graph.initializers.values()):
        for value in values:
            value.metadata_props.clear()
    for node in model.graph.all_nodes():
        node.metadata_props.clear()
        for value in node.outputs:
            value.metadata_props.clear()
    model.graph.metadata_props.clear()
