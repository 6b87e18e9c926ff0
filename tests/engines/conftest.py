"""Texts for the tiny models that tests/conftest.py exports."""

import numpy as np
import pytest
from tests.tiny import encode_tiny


@pytest.fixture
def batch(folder):
    """Texts of different lengths in one padded batch."""
    encodings = encode_tiny(folder)
    inputs = encodings.batch(np.arange(len(encodings)))
    assert (inputs["attention_mask"] == 0).any()
    return inputs
