"""The OpenVINO engine by itself: its precision is the one asked for, its results are copies, it reports to nobody."""

import subprocess
import sys

import numpy as np
import pytest
from tests.tiny import encode_tiny

from potstill.engines import load
from potstill.engines.openvino import capabilities, without_telemetry

SCRIPT = """
import sys
from pathlib import Path
import numpy as np
from potstill.data.encoding import TextEncoder
from potstill.engines import load
folder = Path(sys.argv[1])
engine = load(folder, "openvino", sys.argv[2], threads=1)
encodings = TextEncoder.from_folder(folder, max_length=16).encode(["good", "a bad film"])
assert engine.run(encodings.batch(np.arange(2)))["logits"].shape == (2, 2)
for name in ("torch", "transformers", "nncf", "openvino_telemetry"):
    assert name not in sys.modules, name
"""


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_runs_without_torch_and_telemetry(bert, precision):
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT, str(bert), precision]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_results_are_copies(bert):
    engine = load(bert, "openvino", "float32", threads=1)
    encodings = encode_tiny(bert)
    first = engine.run(encodings.batch(np.array([0])))["logits"]
    kept = first.copy()
    assert not np.array_equal(engine.run(encodings.batch(np.array([1])))["logits"], kept)
    assert np.array_equal(first, kept)


def test_float32_is_not_bfloat16(folder, batch):
    if "BF16" not in capabilities():
        pytest.skip("this processor has no bfloat16")
    exact, rough = (load(folder, "openvino", one, threads=1).run(batch)["logits"] for one in ("float32", "bfloat16"))
    assert np.abs(exact - rough).max() > 1e-4


def test_modules_are_put_back():
    before = sys.modules.get("openvino_telemetry")
    with without_telemetry():
        pass
    assert sys.modules.get("openvino_telemetry") is before
    assert sys.modules.get("openvino_telemetry", ...) is not None
