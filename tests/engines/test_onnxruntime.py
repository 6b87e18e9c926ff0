"""The ONNX Runtime engine by itself."""

import subprocess
import sys

import pytest

SCRIPT = """
import sys
from pathlib import Path
import numpy as np
from potstill.data.encoding import TextEncoder
from potstill.engines import load
folder = Path(sys.argv[1])
engine = load(folder, sys.argv[2], sys.argv[3], threads=1)
encodings = TextEncoder.from_folder(folder, max_length=16).encode(["good", "a bad film"])
assert engine.run(encodings.batch(np.arange(2)))["logits"].shape == (2, 2)
for name in ("torch", "transformers", "onnxscript", "nncf"):
    assert name not in sys.modules, name
"""


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_runs_without_torch(bert, precision):
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT, str(bert), "onnxruntime", precision]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
