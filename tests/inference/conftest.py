"""The tiny models, exported."""

import pytest
from tests.tiny import exported_tiny


@pytest.fixture(scope="session")
def bert(tmp_path_factory):
    return exported_tiny("bert", tmp_path_factory.mktemp)
