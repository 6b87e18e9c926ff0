"""Stand-in until the real export lands."""

from dataclasses import dataclass
from pathlib import Path
import numpy as np


@dataclass(frozen=True)
class Exported:
    format: str
    precision: str
    path: Path
    bytes: int


def export_student(folder, formats, *, calibration, report=None):
    import torch, openvino as ov
    from transformers import AutoModelForSequenceClassification

    model = AutoModelForSequenceClassification.from_pretrained(folder, attn_implementation="eager").eval()
    b = calibration.batch(np.arange(2))
    names = ["input_ids", "attention_mask"] + (
        ["token_type_ids"] if getattr(model.config, "type_vocab_size", 0) > 1 else []
    )
    args = {n: torch.from_numpy(b[n]) for n in names}
    out = []
    B, L = torch.export.Dim("batch"), torch.export.Dim("length")
    for f, p in formats:
        if (f, p) == ("onnx", "float32"):
            (folder / "onnx").mkdir(exist_ok=True)
            path = folder / "onnx/model.onnx"
            torch.onnx.export(
                model,
                (),
                str(path),
                kwargs=args,
                input_names=names,
                output_names=["logits"],
                dynamic_shapes={n: {0: B, 1: L} for n in names},
                dynamo=True,
                external_data=False,
                verbose=False,
            )
        elif (f, p) in (("openvino", "float32"), ("openvino", "bfloat16")):
            (folder / "openvino").mkdir(exist_ok=True)
            path = folder / "openvino/model.xml"
            if not path.exists():
                m = ov.convert_model(model, example_input=args)
                ov.save_model(m, str(path), compress_to_fp16=False)
        else:
            continue
        out.append(Exported(f, p, path, path.stat().st_size))
    return out


def parity(reference, other, encodings):
    from potstill.evaluation.evaluate import predict_logits

    return float(np.abs(predict_logits(reference, encodings) - predict_logits(other, encodings)).max())


def judge(score, base, *, tolerance=0.01):
    ok = score >= base * (1 - tolerance)
    return ok, None if ok else f"{score} < {base}"
