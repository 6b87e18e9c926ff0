"""Every architecture that Potstill knows, through every export."""

import numpy as np
import pytest
from tests.small_models import CONFIGS, random_encodings, small_model

from potstill.engines import load
from potstill.export import export_student, parity

# Of logits whose spread is one. int8 is only seen to work: random models this small lose more than real ones.
LIMITS = {
    ("onnxruntime", "float32"): 1e-5,
    ("openvino", "float32"): 1e-5,
    ("onnxruntime", "int8"): 0.5,
    ("openvino", "int8"): 1.2,
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", CONFIGS)
def test_parity(kind, tmp_path):
    model = small_model(kind)
    model.save_pretrained(tmp_path)
    encodings = random_encodings([3, 20, 1, 9, 31, 7, 70, 2], kind=kind)
    if getattr(model.config, "type_vocab_size", 1) < 2:
        encodings.token_type_ids[:] = 0
    formats = [("onnx", "float32"), ("onnx", "int8"), ("openvino", "float32"), ("openvino", "int8")]
    export_student(tmp_path, formats, calibration=encodings)
    reference = load(tmp_path, "torch", "float32")
    spread = reference.run(encodings.batch(np.arange(len(encodings))))["logits"].std()
    assert spread > 0.3, "a model whose answers do not differ tests nothing"
    found = {pair: parity(reference, load(tmp_path, *pair, threads=1), encodings) for pair in LIMITS}
    assert {pair: value for pair, value in found.items() if value > LIMITS[pair] * max(1, spread)} == {}
