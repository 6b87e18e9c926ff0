"""The two tiny models, exported."""

import numpy as np
import pytest
from tests.tiny import encode_tiny, exported_tiny


@pytest.fixture(scope="session", params=["bert", "mpnet"])
def folder(request, tmp_path_factory):
    return exported_tiny(request.param, tmp_path_factory.mktemp)


@pytest.fixture(scope="session")
def bert(tmp_path_factory):
    return exported_tiny("bert", tmp_path_factory.mktemp)


@pytest.fixture(scope="session")
def mpnet(tmp_path_factory):
    return exported_tiny("mpnet", tmp_path_factory.mktemp)


@pytest.fixture
def batch(folder):
    """Texts of different lengths in one padded batch."""
    encodings = encode_tiny(folder)
    inputs = encodings.batch(np.arange(len(encodings)))
    assert (inputs["attention_mask"] == 0).any()
    return inputs
